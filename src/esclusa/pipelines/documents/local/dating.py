"""What a column's heading says: its period, its scale, its currency."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from itertools import combinations, pairwise

from esclusa.pipelines.documents.local.columns import Column, mark_references
from esclusa.pipelines.documents.local.context import Context, closings
from esclusa.pipelines.documents.local.lines import Cell, Line
from esclusa.pipelines.documents.local.money import clearest, currency_of, scale_of
from esclusa.pipelines.documents.local.periods import day_and_month, end_in, part_of_year, periods
from esclusa.pipelines.documents.local.texts import plain

_SHARE = re.compile(r"%|\bporcentajes?\b|\bpercent(?:age)?s?\b|\bpct\b")
_CHANGE = re.compile(
    r"\bvar(?:iacion|iance|iation)?(?:es|s)?\b|\bcambios?\b|\bchanges?\b|\bdif(?:f|erencias?|ferences?)?\b|\bdesv(?:iacion(?:es)?)?\b|\baumento\b|\bdisminucion\b|\bincrease\b|\bdecrease\b|\bgrowth\b|\bcrecimiento\b|\bmov(?:ement|imiento)s?\b|\byoy\b|\ba/a\b|\bvs\b|[δΔ]"
)
_TO_DATE = re.compile(r"\bytd\b|\bto date\b|\bacum|\bcumulative\b")
_PRIOR = re.compile(r"\b(?:anterior|prior|previous|last|comparativ[oae])\b")
_TOTAL = re.compile(r"\b(?:total(?:es)?|suma|consolidad[oa]|group)\b")
_RANGE = re.compile(r"\b(?:al|a|to|hasta|through|vs|versus|against|contra)\b|[-–/]")
Piece = tuple[str, float, float]
"""A text of a heading, and from where to where it stands."""


def read_heads(columns: list[Column], heads: list[Line], context: Context) -> None:
    """Give each column what stands over it: its heading, period, scale and currency."""
    titles = [line for line in heads if _of_all(line, columns) or _over_years(line, heads)]
    for line in titles:
        context.learn_dates(line.text)
    lines = [_pieces(line, columns) for line in heads if line not in titles]
    for pieces in lines:
        for piece in pieces:
            below = _below(piece, pieces, columns)
            for col in below:
                (col.heads if len(below) == 1 else col.over).append(piece[0])
    mark_references(columns)
    values = [col for col in columns if not col.is_reference]
    for head in (
        head for col in columns if col.is_reference for head in col.heads if periods(head)
    ):
        context.learn_dates(head)  # a title that happens to stand over the notes
    for pieces in lines:
        _spread(pieces, values)
    for col in values:
        _read_head(col, context)
    _end_with_parts(values)
    amounts = [col for col in values if not col.is_share and not col.is_change]
    _date_by_title(amounts, context)
    _date_by_neighbours(amounts)


def _below(piece: Piece, pieces: list[Piece], columns: list[Column]) -> list[Column]:
    """The columns that a text stands over, else the one that it is near to, if nothing else of its line stands over that."""
    over = [
        col
        for col in columns
        if col.overlap(piece[1], piece[2]) > 0.3 * min(col.x1 - col.x0, piece[2] - piece[1])
    ]
    if over or not columns:
        return over
    near = min(columns, key=lambda col: _distance(col, piece))
    taken = any(
        near.overlap(other[1], other[2]) > 0 for other in pieces if other is not piece
    )  # it heads no column, as of percentages
    return [] if taken or _distance(near, piece) >= 40 else [near]


def _of_all(line: Line, columns: list[Column]) -> bool:
    """Whether a line that says more than a date happens to stand over some column, but is much wider: a title, and of all columns."""
    widest = max((col.x1 - col.x0 for col in columns), default=0.0)
    alone = (
        len(line.runs) == 1
        and len(columns) > 1
        and len(line.words) > 4
        and line.x1 - line.x0 > 2 * widest
    )
    return alone and any(one.ends and one.start for one in closings(line.text))


def _over_years(line: Line, heads: list[Line]) -> bool:
    """Whether a line is a date alone, and another line of the heading says its year again beside others: it is of all columns, whichever it
    stands over."""
    said = {one.year for one in periods(line.text) if one.ends}
    if len(line.runs) > 1 or len(said) != 1:
        return False
    others = ({one.year for one in periods(other.text)} for other in heads if other is not line)
    return any(said < years for years in others)


def _spread(pieces: list[Piece], values: list[Column]) -> None:
    """Headings of groups, such as one year over two columns each: what stands over the middle of a group is of all its columns."""
    pieces = [one for one in pieces if values and one[2] > values[0].x0]
    if not pieces or len(values) <= len(pieces) or len(values) > _MOST:
        return
    groups = min(
        _partitions(values, len(pieces)),
        key=lambda groups: tuple(map(sum, zip(*map(_off, pieces, groups), strict=True))),
    )
    if not all(
        _amid(piece, group) or _completes(piece, group)
        for piece, group in zip(pieces, groups, strict=True)
    ):
        return
    for piece, group in zip(pieces, groups, strict=True):
        rest = [_besides(piece, col) for col in group]
        if all(rest):  # each column has a heading of its own besides
            for col, heads in zip(group, rest, strict=True):
                col.heads = heads
                col.over = [*(head for head in col.over if head != piece[0]), piece[0]]


_MOST = 16
"""Columns up to which groups are looked for."""


def _partitions(values: list[Column], count: int) -> Iterator[list[list[Column]]]:
    """Every way to cut the columns into so many groups of neighbours."""
    for cuts in combinations(range(1, len(values)), count - 1):
        yield [values[start:end] for start, end in pairwise([0, *cuts, len(values)])]


def _off(piece: Piece, group: list[Column]) -> tuple[float, float]:
    """How far a heading stands from the columns of a group, and from their middle."""
    return sum(max(0.0, -col.overlap(piece[1], piece[2])) for col in group), _aside(piece, group)


def _aside(piece: Piece, group: list[Column]) -> float:
    return abs((piece[1] + piece[2]) / 2 - (group[0].x0 + group[-1].x1) / 2)


def _besides(piece: Piece, col: Column) -> list[str]:
    return [head for head in col.heads if head != piece[0]]


def _amid(piece: Piece, group: list[Column]) -> bool:
    """Whether a heading stands in the middle of a group, and of no column in it."""
    if len(group) == 1:
        return group[0].overlap(piece[1], piece[2]) > 0
    center = (piece[1] + piece[2]) / 2
    apart = min(abs(center - col.center) for col in group) if len(group) % 2 == 0 else float("inf")
    return _aside(piece, group) <= min(apart, 0.2 * (group[-1].x1 - group[0].x0))


def _completes(piece: Piece, group: list[Column]) -> bool:
    """Whether a heading over a group says of the period what its columns leave out: ``Six Months Ended June 30,`` over 2025 and 2024, or
    2025 over names. Numbers may be much narrower than what stands over them: then it is off their middle."""
    if max(group[0].x0 - piece[2], piece[1] - group[-1].x1) > 40:
        return False
    own = [periods(" ".join(_besides(piece, col))) for col in group]
    if not any(own):
        return bool(periods(piece[0]))
    return (
        day_and_month(piece[0]) is not None
        and all(own)
        and not any(one.ends for found in own for one in found)
    )


def _distance(col: Column, piece: Piece) -> float:
    return abs(col.center - (piece[1] + piece[2]) / 2) - (col.x1 - col.x0) / 2


def _pieces(line: Line, columns: list[Column]) -> list[Piece]:
    """The texts of a heading line, with their places; several periods in one cell are several."""
    return [piece for run in line.runs for cell in _between(run, columns) for piece in _cut(cell)]


def _between(run: Cell, columns: list[Column]) -> Iterator[Cell]:
    """A run cut where a wide gap in it is between two columns: narrow columns leave little room between their headings."""
    words = run.words
    begun = 0
    gaps = [b.x0 - a.x1 for a, b in pairwise(words)]
    for at, gap in enumerate(gaps, start=1):
        middle = words[at].x0 - gap / 2
        left = [
            col for col in columns if col.x1 < middle and col.overlap(words[begun].x0, middle) > 0
        ]
        right = [
            col for col in columns if col.x0 > middle and col.overlap(middle, words[-1].x1) > 0
        ]
        if left and right and gap > words[at].height * (0.45 if gap > 1.5 * min(gaps) else 0.6):
            yield Cell("text", words[begun:at])
            begun = at
    yield Cell("text", words[begun:])


def _cut(cell: Cell) -> Iterator[Piece]:
    """A cell with several periods, cut where the words before the first come again, else where the next period begins."""
    found = periods(cell.text)
    prefix = cell.text[: found[0].start] if found else ""
    starts = [
        one.start - len(prefix)
        for one in found[1:]
        if prefix.strip() and cell.text[: one.start].endswith(prefix)
    ]
    if len(starts) < len(found) - 1:
        starts = [one.start for one in found[1:]]
        if " " not in cell.text or _RANGE.search(plain(cell.text[found[0].end : found[1].start])):
            starts = []
    for start, end in pairwise([0, *starts, len(cell.text)]):
        yield cell.text[start:end].strip(), _at(cell, start), _at(cell, end)


def _at(cell: Cell, index: int) -> float:
    """Where, across the page, a character of a cell's text begins; between words, where the word before it ends."""
    for word in cell.words:
        if index <= len(word.text):
            return word.x0 + (word.x1 - word.x0) * index / len(word.text)
        index -= len(word.text) + 1
    return cell.x1


def _read_head(col: Column, context: Context) -> None:
    own, over = " ".join(col.heads), " ".join(col.over)
    col.is_share = _SHARE.search(plain(own)) is not None
    col.is_change = _is_change(own)
    col.scale = clearest(scale_of(own), scale_of(over))
    col.currency = currency_of(own) or currency_of(over)
    found = periods(own) or periods(over)
    if not found or col.is_change:
        return
    col.year = max(one.year for one in found)
    dates = [one.ends for one in found if one.ends is not None]
    col.is_dated = True
    if dates:
        col.ends = max(dates)
        col.year = col.ends.year
    elif part := next(
        (part for text in (*col.heads, *col.over) if (part := part_of_year(text))), None
    ):
        col.ends = end_in(col.year, part, 31)
    elif partial := day_and_month(own) or day_and_month(over):
        col.ends = end_in(col.year, *partial)
    else:
        col.ends, col.is_dated = context.end_of(col.year), False


def _end_with_parts(values: list[Column]) -> None:
    """A year beside its own quarters or months ends when the last of them does, whatever the title says. One that is over, since the
    other columns go on into the next, is whole: ``H1 2024, H1 2023, FY 2023``."""
    years = [col.year for col in values if col.year is not None]
    bare = [col for col in values if col.ends is not None and not col.is_dated]
    for col in bare:
        same = [other for other in values if other.ends is not None and other.year == col.year]
        over = max(years) != col.year == max(other.year or 0 for other in bare)
        if (
            over
            and any(other.is_dated for other in same)
            and not _TO_DATE.search(plain(col.heading or ""))
        ):
            col.ends = end_in(col.year or 0, 12, 31)
        else:
            col.ends = max(other.ends for other in same if other.ends is not None)


def _is_change(own: str) -> bool:
    """Whether a heading says that a column compares: ``Variación``, ``2024 vs 2023``."""
    years = [one.year for one in periods(own)]
    return _CHANGE.search(plain(own)) is not None or (len(years) > 1 and years[0] > years[-1])


def _date_by_title(values: list[Column], context: Context) -> None:
    """Columns without any period of their own have the title's: each a year in its order, a part of the year, or all the same."""
    if not values or not context.years or any(col.year is not None for col in values):
        return
    latest = context.latest
    assert latest is not None
    parts = [part_of_year(" ".join(col.heads)) for col in values]
    if len(context.years) == len(values) > 1 and not any(parts) and not _prior(values):
        for col, year in zip(values, context.years, strict=True):
            _date(col, context.end_of(year))
    elif any(parts) or len(context.years) == 1 or len(values) == 1 or _prior(values):
        for col, part in zip(values, parts, strict=True):
            if part is not None:
                _date(col, end_in(latest.year - (part > latest.month), part, 31))
            elif _prior([col]):
                _date(col, end_in(latest.year - 1, latest.month, latest.day))
            else:
                _date(col, latest if len(values) > 1 else context.end_of(context.years[0]))


def _date_by_neighbours(values: list[Column]) -> None:
    """Columns that say no period beside others that do: parts of the total to their right, else what goes with the column to their left:
    ``Unrestricted, Restricted, Total 2024``; ``2024, Budget``; ``Jan-24, Feb-24, Mar-24, Quarter``."""
    for index, col in enumerate(values):
        if col.year is not None:
            continue
        left = values[index - 1] if index and values[index - 1].ends else None
        right = next((other for other in values[index:] if other.ends), None)
        beside = (
            right
            if right is not None and (left is None or _TOTAL.search(plain(right.heading or "")))
            else left
        )
        if beside is not None and beside.ends is not None:
            _date(
                col,
                end_in(beside.ends.year - 1, beside.ends.month, beside.ends.day)
                if _prior([col])
                else beside.ends,
            )


def _prior(values: list[Column]) -> bool:
    return any(_PRIOR.search(plain(col.heading or "")) for col in values)


def _date(col: Column, ends: date) -> None:
    col.year, col.ends = ends.year, ends
