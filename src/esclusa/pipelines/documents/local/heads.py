# ruff: noqa: E501 - patterns are read as lists of words
"""Lines that head columns: periods over them, their names, their units."""

from __future__ import annotations

import re
from itertools import pairwise

from esclusa.pipelines.documents.local.classes import title_class
from esclusa.pipelines.documents.local.columns import Column, column_at, heads_references
from esclusa.pipelines.documents.local.lines import Cell, Line
from esclusa.pipelines.documents.local.numbers import is_amount, is_unit, unmarked
from esclusa.pipelines.documents.local.periods import day_and_month, periods
from esclusa.pipelines.documents.local.texts import plain

_HEAD_WORDS = re.compile(
    r"notas?|notes?|n[°ºo]\.?|ref\.?|al|a|año|ano|anos|years?|ended|ending|de|del|as|of|at|the|for|por|el|los|terminad\w*|ejercicios?|period\w*|meses|months?|"
    r"m+\$|m{1,2}|m+usd|md[pd]|m+us\$|m+ch\$|us\$|ch\$|[$€£]['’]?0{0,3}s?|usd|clp|eur|€|th(?:us|ch)\$|mill|k|miles|millones|thousands?|millions?|in|en|pesos|dolares|['’]?000s?|acumulad\w*|trimestre|quarter|"
    r"concepto|cuentas?|descripci[oó]n|detalle|rubro|partidas?|description|items?|account|no|auditad[oa]s?|\(?unaudited\)?|audited|reexpresad[oa]|restated|var\w*|change|"
    r"y|and|%|\(|\)|[-–/|]|saldos?|codigo|code|real|actual|anterior|prior|current|previous|presupuesto|budget|ytd|ltm|acum|weeks?|semanas|(?:year|period) to date|1|1[.,'’]000|[£$€]m|million|thousand|chf|gbp"
)
_YEAR = re.compile(r"(?:19[89]|20[0-6])\d")
_STOPS = str.maketrans(",.:()[]*", "        ")
_NOTHING = re.compile(r"n\.?/?[adm]\.?|nil|s/[id]|-+", re.IGNORECASE)
"""What stands in a column in place of a number."""


def is_head(line: Line, columns: list[Column], *, separated: bool) -> bool:
    """Whether the line heads columns: periods that stand over them, and no amounts.

    ``separated``: the document writes thousands with a mark, so that 2024 is no amount.
    """
    amounts = (run for run in line.runs if is_amount(run.text) and not is_year(run.text))
    if not columns or any(run is not line.runs[0] or not is_unit(run.text) for run in amounts):
        return False
    if _dated_over(line, columns):
        return True
    left, right = columns[0].x0 - 25, columns[-1].x1 + 25
    seen, bare, rest = 0, False, ""
    for run in line.runs:
        text = run.text
        inside = min(run.x1, right) - max(run.x0, left) >= 0.6 * (run.x1 - run.x0)
        if is_year(text):
            if not inside or not _over(columns, run) or not (separated or _all_years(line)):
                return False
            seen, bare = seen + 1, True
        elif _only_period(text) and not _listed(text):
            seen += inside and _over(columns, run)
        else:
            rest += f" {text}"
    if not separated and bare and rest and not is_heading(rest):
        return False  # a label and a number that looks like a year
    return seen > 0 and len(rest) < 60 and not _listed(rest)


def _dated_over(line: Line, columns: list[Column]) -> bool:
    """Short texts, each over a column of its own, with a period in one or more of them: a heading, whatever its other words are."""
    if title_class(line.text) is not None or line.prose:
        return False
    runs = [run for run in line.runs if run.x1 >= columns[0].x0 - 25 or not is_heading(run.text)]
    homes = [column_at(columns, run) for run in runs]
    if None in homes or len({id(home) for home in homes}) < len(homes):
        return False
    dated = [
        run
        for run in runs
        if 2 <= len(run.words) <= 6
        and len(periods(run.text)) == 1
        and not is_year(run.words[0].text)
    ]
    if len(dated) == 1 and len(dated[0].words) > 3:
        return False  # a line that is centred says as much
    return bool(dated) and all(run in dated or is_heading(run.text) for run in runs)


def _all_years(line: Line) -> bool:
    """Whether its numbers are years, and as near to each other as those of a statement are."""
    years = [c.text for c in line.cells if c.kind == "amount"]
    return all(is_year(year) for year in years) and int(max(years)[:4]) - int(min(years)[:4]) < 12


def _listed(text: str) -> bool:
    """Several periods in one sentence, as titles list them."""
    return any(
        re.search(r"\b(y|and)\b|,", plain(text[a.end : b.start])) is not None
        for a, b in pairwise(periods(text))
    )


def is_year(text: str) -> bool:
    """A year, also with the mark of a footnote."""
    return _YEAR.match(text) is not None and len(unmarked(text)) == 4


def _over(columns: list[Column], cell: Cell) -> bool:
    return any(col.overlap(cell.x0, cell.x1) > -6 for col in columns)


def _only_period(text: str) -> bool:
    """Whether a cell says a period and at most what headings say besides."""
    text = unmarked(text)
    found = list(periods(text))
    if not found and day_and_month(text) is None:
        return False
    left = text
    for one in reversed(found):
        left = left[: one.start] + " " + left[one.end :]
    left = re.sub(r"[0-3]?\d (de )?\w+|\w+ [0-3]?\d,?", " ", left) if not found else left
    return all(
        _HEAD_WORDS.fullmatch(word)
        for word in re.split(r"[\s-]+", plain(left).translate(_STOPS).strip(" -"))
        if word
    )


def is_heading(text: str) -> bool:
    """Whether a text has only words that stand over columns."""
    words = plain(text).translate(_STOPS).split()
    return bool(words) and all(_HEAD_WORDS.fullmatch(word) for word in words)


def is_unit_line(line: Line, columns: list[Column]) -> bool:
    """A line of headings without periods: units or ``Nota`` over the columns."""
    if any(c.kind in ("amount", "percent") for c in line.cells):
        return False
    if not is_heading(line.text):
        return False
    return any(_over(columns, cell) for cell in line.cells) or any(
        heads_references(c.text) for c in line.cells
    )


def is_names(line: Line, columns: list[Column], *, below: bool = False) -> bool:
    """A line of headings in any words: two or more texts, each over a column, and where labels are at most what heads those.

    ``below``: it stands close below another heading; then it may head labels in any words, and what is beside the columns.
    """
    if (
        any(c.kind not in ("text", "percent", "sign") for c in line.cells)
        or not columns
        or line.prose
    ):
        return False
    corner = [run for run in line.runs if run.x1 < columns[0].x0 and not _over(columns, run)]
    names = line.runs[len(corner) :]
    if any(len(run.text) >= 40 or _NOTHING.fullmatch(run.text) for run in names):
        return False
    over = sum(_over(columns, run) for run in names)
    if below:
        return over >= max(2, 0.5 * len(names))
    return over == len(names) > 1 and (
        not corner or is_heading(" ".join(run.text for run in corner))
    )


def stands_over(line: Line, columns: list[Column]) -> bool:
    """Whether all of a line stands over columns, and says nothing where labels are: close above a heading it is part of it."""
    if (
        not columns
        or line.prose
        or title_class(line.text) is not None
        or any(c.kind == "amount" and c.free for c in line.cells)
    ):
        return False
    left, right = columns[0].x0 - 25, columns[-1].x1 + 25
    return all(
        left < (run.x0 + run.x1) / 2
        and run.x1 < right
        and run.x1 - run.x0 < right - left
        and len(run.text) < 60
        for run in line.runs
    )


def heads_some(line: Line, columns: list[Column], *, separated: bool) -> bool:
    """Whether the line heads columns in any way."""
    return (
        is_head(line, columns, separated=separated)
        or is_unit_line(line, columns)
        or is_names(line, columns)
        or stands_over(line, columns)
    )
