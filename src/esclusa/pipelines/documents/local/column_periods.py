"""The period, scale and currency that the heading of a column names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from itertools import combinations, pairwise
from typing import NamedTuple

from esclusa.pipelines.documents.local.columns import NumberColumn, mark_references
from esclusa.pipelines.documents.local.context import StatementContext, closing_periods
from esclusa.pipelines.documents.local.lines import Cell, TextLine
from esclusa.pipelines.documents.local.money import currency_of, first_clear, scale_of
from esclusa.pipelines.documents.local.periods import date_in, day_and_month, end_month, periods
from esclusa.pipelines.documents.local.plain_text import plain

_PERCENTAGE = re.compile(r"%|\bporcentajes?\b|\bpercent(?:age)?s?\b|\bpct\b")
_COMPARISON = re.compile(
    r"\bvar(?:iacion|iance|iation)?(?:es|s)?\b|\bcambios?\b|\bchanges?\b|\bdif(?:f|"
    r"erencias?|ferences?)?\b|\bdesv(?:iacion(?:es)?)?\b|\baumento\b|\bdisminucion\b|"
    r"\bincrease\b|\bdecrease\b|\bgrowth\b|\bcrecimiento\b|\bmov(?:ement|imiento)s?\b|"
    r"\byoy\b|\ba/a\b|\bvs\b|[δΔ]"
)
_TO_DATE = re.compile(r"\bytd\b|\bto date\b|\bacum|\bcumulative\b")
_PRIOR = re.compile(r"\b(?:anterior|prior|previous|last|comparativ[oae])\b")
_TOTAL = re.compile(r"\b(?:total(?:es)?|suma|consolidad[oa]|group)\b")
_RANGE = re.compile(r"\b(?:al|a|to|hasta|through|vs|versus|against|contra)\b|[-–/]")


class HeadingPart(NamedTuple):
    """A text of a heading with its left and right edge."""

    text: str
    x0: float
    x1: float


def read_column_headings(
    columns: list[NumberColumn], headings: list[TextLine], context: StatementContext
) -> None:
    """Set the headings, period, scale and currency of each column."""
    titles = [
        line
        for line in headings
        if _is_title_of_all(line, columns) or _is_date_of_all(line, headings)
    ]
    for line in titles:
        context.learn_dates(line.text)
    lines = [_heading_parts(line, columns) for line in headings if line not in titles]
    for parts_of_line in lines:
        for part in parts_of_line:
            below = _columns_below(part, parts_of_line, columns)
            for col in below:
                (col.headings if len(below) == 1 else col.group_headings).append(part.text)
    mark_references(columns)
    values = [col for col in columns if not col.is_reference]
    for heading in (
        heading
        for col in columns
        if col.is_reference
        for heading in col.headings
        if periods(heading)
    ):
        context.learn_dates(heading)  # a title that happens to stand over the notes
    for parts_of_line in lines:
        _assign_group_headings(parts_of_line, values)
    for col in values:
        _read_heading(col, context)
    _end_with_last_part(values)
    amounts = [col for col in values if not col.is_percentage and not col.is_comparison]
    _date_by_title(amounts, context)
    _date_by_rest(amounts, context)
    _date_by_neighbours(amounts)


def _columns_below(
    part: HeadingPart, parts_of_line: list[HeadingPart], columns: list[NumberColumn]
) -> list[NumberColumn]:
    """Return the columns below a text, or else the nearest one that no other text stands over."""
    over = [
        col
        for col in columns
        if col.overlap(part.x0, part.x1) > 0.3 * min(col.x1 - col.x0, part.x1 - part.x0)
    ]
    if over or not columns:
        return over
    near = min(columns, key=lambda col: _distance(col, part))
    # It heads a column without amounts, such as percentages.
    taken = any(
        near.overlap(other.x0, other.x1) > 0 for other in parts_of_line if other is not part
    )
    return [] if taken or _distance(near, part) >= 40 else [near]


def _is_title_of_all(line: TextLine, columns: list[NumberColumn]) -> bool:
    """Return whether a dated line over a column is much wider than it: a title of all columns."""
    return (
        len(line.runs) == 1
        and len(columns) > 1
        and len(line.words) > 4
        and line.x1 - line.x0 > 2 * max((col.x1 - col.x0 for col in columns), default=0.0)
        and any(period.ends and period.start for period in closing_periods(line.text))
    )


def _is_date_of_all(line: TextLine, headings: list[TextLine]) -> bool:
    """Return whether a line is one date whose year another line repeats among others.

    Then it applies to all columns, whichever it stands over.
    """
    years = {period.year for period in periods(line.text) if period.ends}
    if len(line.runs) > 1 or len(years) != 1:
        return False
    others = (
        {period.year for period in periods(other.text)} for other in headings if other is not line
    )
    return any(years < other_years for other_years in others)


def _assign_group_headings(parts_of_line: list[HeadingPart], values: list[NumberColumn]) -> None:
    """Assign headings of groups, such as one year over two columns each, to all their columns.

    The heading stands over the middle of the group.
    """
    parts_of_line = [part for part in parts_of_line if values and part.x1 > values[0].x0]
    if not parts_of_line or len(values) <= len(parts_of_line) or len(values) > _MAX_COLUMNS:
        return
    if _head_some(parts_of_line, values):
        return
    groups = min(
        _partitions(values, len(parts_of_line)),
        key=lambda groups: tuple(map(sum, zip(*map(_offset, parts_of_line, groups), strict=True))),
    )
    if not all(
        _is_centered(part, group) or _completes_period(part, group)
        for part, group in zip(parts_of_line, groups, strict=True)
    ):
        return
    for part, group in zip(parts_of_line, groups, strict=True):
        rest = [_other_headings(part, col) for col in group]
        if all(rest):  # each column has another heading of its own
            for col, headings in zip(group, rest, strict=True):
                col.headings = headings
                col.group_headings = [
                    *(heading for heading in col.group_headings if heading != part.text),
                    part.text,
                ]


def _head_some(parts_of_line: list[HeadingPart], values: list[NumberColumn]) -> bool:
    """Return whether each heading is over one column and the other columns have no names.

    Then those of the others are missing, as where a scan is unclear.
    """
    headed = [
        col
        for part in parts_of_line
        for col in values
        if col.overlap(part.x0, part.x1) > 0
        and (abs(col.x1 - part.x1) < 4 or abs(col.center - (part.x0 + part.x1) / 2) < 4)
    ]
    return len(headed) == len(parts_of_line) and all(
        _has_no_name(col) for col in values if col not in headed
    )


# Most columns for which groups are searched.
_MAX_COLUMNS = 16


def _partitions(values: list[NumberColumn], count: int) -> Iterator[list[list[NumberColumn]]]:
    """Yield every way to cut the columns into ``count`` groups of neighbours."""
    for cuts in combinations(range(1, len(values)), count - 1):
        yield [values[start:end] for start, end in pairwise([0, *cuts, len(values)])]


def _offset(part: HeadingPart, group: list[NumberColumn]) -> tuple[float, float]:
    """Return the distance of a heading to the columns of a group, and to their middle."""
    return sum(max(0.0, -col.overlap(part.x0, part.x1)) for col in group), _distance_from_middle(
        part, group
    )


def _distance_from_middle(part: HeadingPart, group: list[NumberColumn]) -> float:
    return abs((part.x0 + part.x1) / 2 - (group[0].x0 + group[-1].x1) / 2)


def _other_headings(part: HeadingPart, col: NumberColumn) -> list[str]:
    return [heading for heading in col.headings if heading != part.text]


def _is_centered(part: HeadingPart, group: list[NumberColumn]) -> bool:
    """Return whether a heading is over the middle of a group, and over no single column."""
    if len(group) == 1:
        return group[0].overlap(part.x0, part.x1) > 0
    center = (part.x0 + part.x1) / 2
    apart = min(abs(center - col.center) for col in group) if len(group) % 2 == 0 else float("inf")
    return _distance_from_middle(part, group) <= min(apart, 0.2 * (group[-1].x1 - group[0].x0))


def _completes_period(part: HeadingPart, group: list[NumberColumn]) -> bool:
    """Return whether a heading completes the period that the columns of a group leave open.

    For example, ``Six Months Ended June 30,`` over 2025 and 2024, or 2025 over names. Such a
    heading may be off the middle of numbers that are much narrower than it.
    """
    if max(group[0].x0 - part.x1, part.x0 - group[-1].x1) > 40:
        return False
    own = [periods(" ".join(_other_headings(part, col))) for col in group]
    if not any(own):
        return bool(periods(part.text))
    return (
        day_and_month(part.text) is not None
        and all(own)
        and not any(period.ends for found in own for period in found)
    )


def _distance(col: NumberColumn, part: HeadingPart) -> float:
    return abs(col.center - (part.x0 + part.x1) / 2) - (col.x1 - col.x0) / 2


def _heading_parts(line: TextLine, columns: list[NumberColumn]) -> list[HeadingPart]:
    """Return the texts of a heading line with their positions, one for each period."""
    return [
        part
        for run in line.runs
        for cell in _split_between_columns(run, columns)
        for part in _split_periods(cell)
    ]


def _split_between_columns(run: Cell, columns: list[NumberColumn]) -> Iterator[Cell]:
    """Split a run at wide gaps between two columns: narrow columns have headings close together."""
    words = run.words
    start = 0
    gaps = [b.x0 - a.x1 for a, b in pairwise(words)]
    for at, gap in enumerate(gaps, start=1):
        middle = words[at].x0 - gap / 2
        left = [
            col for col in columns if col.x1 < middle and col.overlap(words[start].x0, middle) > 0
        ]
        right = [
            col for col in columns if col.x0 > middle and col.overlap(middle, words[-1].x1) > 0
        ]
        if left and right and gap > words[at].height * (0.45 if gap > 1.5 * min(gaps) else 0.6):
            yield Cell("text", words[start:at])
            start = at
    yield Cell("text", words[start:])


def _split_periods(cell: Cell) -> Iterator[HeadingPart]:
    """Split a cell with several periods: where its first words repeat, or where a period begins."""
    found = periods(cell.text)
    prefix = cell.text[: found[0].start] if found else ""
    starts = [
        period.start - len(prefix)
        for period in found[1:]
        if prefix.strip() and cell.text[: period.start].endswith(prefix)
    ]
    if len(starts) < len(found) - 1:
        starts = [period.start for period in found[1:]]
        if " " not in cell.text or _RANGE.search(plain(cell.text[found[0].end : found[1].start])):
            starts = []
    for start, end in pairwise([0, *starts, len(cell.text)]):
        yield HeadingPart(cell.text[start:end].strip(), _x_at(cell, start), _x_at(cell, end))


def _x_at(cell: Cell, index: int) -> float:
    """Return the x position of a character in a cell; between words, the end of the word before."""
    for word in cell.words:
        if index <= len(word.text):
            return word.x0 + (word.x1 - word.x0) * index / len(word.text)
        index -= len(word.text) + 1
    return cell.x1


def _read_heading(col: NumberColumn, context: StatementContext) -> None:
    own, over = " ".join(col.headings), " ".join(col.group_headings)
    col.is_percentage = _PERCENTAGE.search(plain(own)) is not None
    col.is_comparison = _is_change(own)
    col.scale = first_clear(scale_of(own), scale_of(over))
    col.currency = currency_of(own) or currency_of(over)
    found = periods(own) or periods(over)
    if not found or col.is_comparison:
        return
    col.year = max(period.year for period in found)
    dates = [period.ends for period in found if period.ends is not None]
    col.is_dated = True
    if dates:
        col.ends = max(dates)
        col.year = col.ends.year
    elif part := next(
        (part for text in (*col.headings, *col.group_headings) if (part := end_month(text))), None
    ):
        col.ends = date_in(col.year, part, 31)
    elif partial := day_and_month(own) or day_and_month(over):
        col.ends = date_in(col.year, *partial)
    else:
        col.ends, col.is_dated = context.end_of(col.year), False


def _end_with_last_part(values: list[NumberColumn]) -> None:
    """Let a year beside its own quarters or months end with the last of them.

    A past year, which the other columns exceed, is whole: ``H1 2024, H1 2023, FY 2023``.
    """
    years = [col.year for col in values if col.year is not None]
    bare = [col for col in values if col.ends is not None and not col.is_dated]
    for col in bare:
        same = [other for other in values if other.ends is not None and other.year == col.year]
        if (
            max(years) != col.year == max(other.year or 0 for other in bare)
            and any(other.is_dated for other in same)
            and not _TO_DATE.search(plain(col.heading or ""))
        ):
            col.ends = date_in(col.year or 0, 12, 31)
        else:
            col.ends = max(other.ends for other in same if other.ends is not None)


def _is_change(own: str) -> bool:
    """Return whether a heading names a comparison: ``Variación``, ``2024 vs 2023``."""
    years = [period.year for period in periods(own)]
    return _COMPARISON.search(plain(own)) is not None or (len(years) > 1 and years[0] > years[-1])


def _date_by_title(values: list[NumberColumn], context: StatementContext) -> None:
    """Give columns without a period that of the title.

    Each gets a year in order, or a part of the year, or all get the same.
    """
    if not values or not context.years or any(col.year is not None for col in values):
        return
    latest = context.latest
    assert latest is not None
    parts = [end_month(" ".join(col.headings)) for col in values]
    if len(context.years) == len(values) > 1 and not any(parts) and not _is_prior(values):
        for col, year in zip(values, context.years, strict=True):
            _set_date(col, context.end_of(year))
    elif any(parts) or len(context.years) == 1 or len(values) == 1 or _is_prior(values):
        for col, part in zip(values, parts, strict=True):
            if part is not None:
                _set_date(col, date_in(latest.year - (part > latest.month), part, 31))
            elif _is_prior([col]):
                _set_date(col, date_in(latest.year - 1, latest.month, latest.day))
            else:
                _set_date(col, latest if len(values) > 1 else context.end_of(context.years[0]))


def _date_by_rest(values: list[NumberColumn], context: StatementContext) -> None:
    """Give columns without a heading the one year of the title that no other column has."""
    bare = [col for col in values if col.year is None and _has_no_name(col)]
    rest = set(context.years) - {col.year for col in values}
    if len(bare) < len(values) and len(rest) == 1:
        for col in bare:
            _set_date(col, context.end_of(min(rest)))


def _has_no_name(col: NumberColumn) -> bool:
    """Return whether nothing but units and a day without a year stand over a column."""
    return all(
        scale_of(heading) is not None
        or currency_of(heading) is not None
        or day_and_month(heading) is not None
        for heading in col.headings
    )


# The most periods beside which a column without a name is a part of another.
MAX_UNNAMED = 2


def _date_by_neighbours(values: list[NumberColumn]) -> None:
    """Give columns without a period that of a neighbour.

    They are parts of the total to their right, or else belong to the column on their left:
    ``Unrestricted, Restricted, Total 2024``; ``2024, Budget``; ``Jan-24, Feb-24, Mar-24, Quarter``.
    One without a name among columns of several periods stays without.
    """
    is_series = len({col.ends for col in values if col.ends}) > MAX_UNNAMED
    for index, col in enumerate(values):
        if col.year is not None or (is_series and _has_no_name(col)):
            continue
        left = values[index - 1] if index and values[index - 1].ends else None
        right = next((other for other in values[index:] if other.ends), None)
        beside = (
            right
            if right is not None and (left is None or _TOTAL.search(plain(right.heading or "")))
            else left
        )
        if beside is not None and beside.ends is not None:
            _set_date(
                col,
                date_in(beside.ends.year - 1, beside.ends.month, beside.ends.day)
                if _is_prior([col])
                else beside.ends,
            )


def _is_prior(values: list[NumberColumn]) -> bool:
    return any(_PRIOR.search(plain(col.heading or "")) for col in values)


def _set_date(col: NumberColumn, ends: date) -> None:
    col.year, col.ends = ends.year, ends


def with_known_headings(
    columns: list[NumberColumn], known: list[NumberColumn]
) -> list[NumberColumn]:
    """Give columns without headings those of the columns above them or on the page before."""
    values = [col for col in known if not col.is_reference]
    own_values = [col for col in columns if not col.is_reference]
    same = len(columns) == len(known)
    for index, col in enumerate(columns):
        near = (
            known[index]
            if same
            else min(known, key=lambda other: abs(other.x1 - col.x1), default=None)
        )
        if near is None or (
            not same and abs(near.x1 - col.x1) > 60 and len(own_values) != len(values)
        ):
            continue
        col.headings, col.year, col.ends, col.scale, col.currency = (
            near.headings,
            near.year,
            near.ends,
            near.scale,
            near.currency,
        )
        col.group_headings, col.is_reference, col.is_percentage = (
            near.group_headings,
            near.is_reference,
            near.is_percentage,
        )
    return columns
