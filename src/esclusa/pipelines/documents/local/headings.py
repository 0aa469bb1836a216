"""Lines that are headings of columns: periods, names and units."""

from __future__ import annotations

import re
from itertools import pairwise

from esclusa.pipelines.documents.local.classifier import title_class
from esclusa.pipelines.documents.local.columns import NumberColumn, column_at, is_reference_heading
from esclusa.pipelines.documents.local.lines import Cell, TextLine
from esclusa.pipelines.documents.local.numbers import is_amount, is_unit, without_footnote_mark
from esclusa.pipelines.documents.local.periods import day_and_month, periods
from esclusa.pipelines.documents.local.plain_text import plain

_HEADING_WORDS = re.compile(
    r"notas?|notes?|n[°ºo]\.?|ref\.?|al|a|año|ano|anos|years?|ended|ending|de|del|as|of|at|"
    r"the|for|por|el|los|terminad\w*|ejercicios?|period\w*|meses|months?|"
    r"m+\$|m{1,2}|m+usd|md[pd]|m+us\$|m+ch\$|us\$|ch\$|[$€£]['’]?0{0,3}s?|usd|clp|eur|€|"
    r"th(?:us|ch)\$|mill|k|miles|millones|thousands?|millions?|in|en|pesos|dolares|"
    r"['’]?000s?|acumulad\w*|trimestre|quarter|"
    r"concepto|cuentas?|descripci[oó]n|detalle|rubro|partidas?|description|items?|account|"
    r"no|auditad[oa]s?|\(?unaudited\)?|audited|reexpresad[oa]|restated|var\w*|change|"
    r"y|and|%|\(|\)|[-–/|]|saldos?|codigo|code|real|actual|anterior|prior|current|previous|"
    r"presupuesto|budget|ytd|ltm|acum|weeks?|semanas|(?:year|period) to date|1|1[.,'’]000|"
    r"[£$€]m|million|thousand|chf|gbp"
)
_YEAR = re.compile(r"(?:19[89]|20[0-6])\d")
_PUNCTUATION = str.maketrans(",.:()[]*", "        ")
# What stands in a column in place of a number.
_NO_NUMBER = re.compile(r"n\.?/?[adm]\.?|nil|s/[id]|-+", re.IGNORECASE)


def is_period_heading(line: TextLine, columns: list[NumberColumn], *, separated: bool) -> bool:
    """Return whether the line is a heading with periods over the columns, and without amounts.

    ``separated``: the document marks thousands, so that 2024 is a year and not an amount.
    """
    amounts = (run for run in line.runs if is_amount(run.text) and not is_year(run.text))
    if not columns or any(run is not line.runs[0] or not is_unit(run.text) for run in amounts):
        return False
    if _has_dated_texts(line, columns):
        return True
    left, right = columns[0].x0 - 25, columns[-1].x1 + 25
    seen, bare, rest = 0, False, ""
    for run in line.runs:
        text = run.text
        inside = min(run.x1, right) - max(run.x0, left) >= 0.6 * (run.x1 - run.x0)
        if is_year(text):
            if (
                not inside
                or not _is_over_column(columns, run)
                or not (separated or _all_years(line))
            ):
                return False
            seen, bare = seen + 1, True
        elif _is_period_text(text) and not _lists_periods(text):
            seen += inside and _is_over_column(columns, run)
        else:
            rest += f" {text}"
    if not separated and bare and rest and not has_only_heading_words(rest):
        return False  # a label and a number that looks like a year
    return seen > 0 and len(rest) < 60 and not _lists_periods(rest)


def _has_dated_texts(line: TextLine, columns: list[NumberColumn]) -> bool:
    """Return whether each text is short and over a column of its own, and some have a period."""
    if title_class(line.text) is not None or line.is_prose:
        return False
    runs = [
        run
        for run in line.runs
        if run.x1 >= columns[0].x0 - 25 or not has_only_heading_words(run.text)
    ]
    found = [column_at(columns, run) for run in runs]
    if None in found or len({id(column) for column in found}) < len(found):
        return False
    dated = [
        run
        for run in runs
        if 2 <= len(run.words) <= 6
        and len(periods(run.text)) == 1
        and not is_year(run.words[0].text)
    ]
    if len(dated) == 1 and len(dated[0].words) > 3:
        return False  # a centered line looks like this too
    return bool(dated) and all(run in dated or has_only_heading_words(run.text) for run in runs)


def _all_years(line: TextLine) -> bool:
    """Return whether its numbers are years as close together as those of a statement."""
    years = [c.text for c in line.cells if c.kind == "amount"]
    return all(is_year(year) for year in years) and int(max(years)[:4]) - int(min(years)[:4]) < 12


def _lists_periods(text: str) -> bool:
    """Return whether the text lists several periods in a sentence, as titles do."""
    return any(
        re.search(r"\b(y|and)\b|,", plain(text[a.end : b.start])) is not None
        for a, b in pairwise(periods(text))
    )


def is_year(text: str) -> bool:
    """Return whether the text is a year, with or without a footnote mark."""
    return _YEAR.match(text) is not None and len(without_footnote_mark(text)) == 4


def _is_over_column(columns: list[NumberColumn], cell: Cell) -> bool:
    return any(col.overlap(cell.x0, cell.x1) > -6 for col in columns)


def _is_period_text(text: str) -> bool:
    """Return whether a cell has a period and otherwise only words of headings."""
    text = without_footnote_mark(text)
    found = list(periods(text))
    if not found and day_and_month(text) is None:
        return False
    left = text
    for period in reversed(found):
        left = left[: period.start] + " " + left[period.end :]
    left = re.sub(r"[0-3]?\d (de )?\w+|\w+ [0-3]?\d,?", " ", left) if not found else left
    return all(
        _HEADING_WORDS.fullmatch(word)
        for word in re.split(r"[\s-]+", plain(left).translate(_PUNCTUATION).strip(" -"))
        if word
    )


def has_only_heading_words(text: str) -> bool:
    """Return whether a text has only words that stand over columns."""
    words = plain(text).translate(_PUNCTUATION).split()
    return bool(words) and all(_HEADING_WORDS.fullmatch(word) for word in words)


def is_unit_line(line: TextLine, columns: list[NumberColumn]) -> bool:
    """Return whether the line is a heading without periods: units or ``Nota`` over the columns."""
    return (
        not any(cell.kind in ("amount", "percent") for cell in line.cells)
        and has_only_heading_words(line.text)
        and any(
            _is_over_column(columns, cell) or is_reference_heading(cell.text) for cell in line.cells
        )
    )


def is_name_heading(
    line: TextLine, columns: list[NumberColumn], *, under_heading: bool = False
) -> bool:
    """Return whether the line has two or more texts, each over a column.

    To their left there are at most headings of the labels. ``under_heading``: it is close below
    another heading; then any words may head the labels, and texts beside the columns are allowed.
    """
    if (
        any(c.kind not in ("text", "percent", "sign") for c in line.cells)
        or not columns
        or line.is_prose
    ):
        return False
    corner = [
        run for run in line.runs if run.x1 < columns[0].x0 and not _is_over_column(columns, run)
    ]
    names = line.runs[len(corner) :]
    if any(len(run.text) >= 40 or _NO_NUMBER.fullmatch(run.text) for run in names):
        return False
    over = sum(_is_over_column(columns, run) for run in names)
    if under_heading:
        return over >= max(2, 0.5 * len(names))
    return over == len(names) > 1 and (
        not corner or has_only_heading_words(" ".join(run.text for run in corner))
    )


def is_above_columns(line: TextLine, columns: list[NumberColumn]) -> bool:
    """Return whether the whole line is over the columns: close above a heading it is part of it."""
    if not columns or line.is_prose or title_class(line.text) is not None or line.has_amount:
        return False
    left, right = columns[0].x0 - 25, columns[-1].x1 + 25
    return all(
        left < (run.x0 + run.x1) / 2
        and run.x1 < right
        and run.x1 - run.x0 < right - left
        and len(run.text) < 60
        for run in line.runs
    )


def is_any_heading(line: TextLine, columns: list[NumberColumn], *, separated: bool) -> bool:
    """Return whether the line is a heading of any of these forms."""
    return (
        is_period_heading(line, columns, separated=separated)
        or is_unit_line(line, columns)
        or is_name_heading(line, columns)
        or is_above_columns(line, columns)
    )
