"""Columns of numbers, and what their headings say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date

from esclusa.pipelines.documents.local.context import Context, currency_of, plain, scale_of, title_class
from esclusa.pipelines.documents.local.lines import Cell, Line
from esclusa.pipelines.documents.local.numbers import is_amount, is_note
from esclusa.pipelines.documents.local.periods import day_and_month, end_in, periods

_HEAD_WORDS = re.compile(
    r"notas?|notes?|n[°ºo]\.?|ref\.?|al|a|año|ano|anos|years?|ended|ending|de|del|as|of|at|the|for|por|el|los|terminad\w*|ejercicios?|period\w*|meses|months?|"
    r"m+\$|m+us\$|us\$|[$€£]['’]?0{0,3}s?|usd|clp|eur|€|thus\$|miles|millones|thousands?|millions?|in|en|pesos|dolares|['’]?000s?|acumulad\w*|trimestre|quarter|"
    r"concepto|cuentas?|descripci[oó]n|detalle|rubro|partidas?|description|items?|account|no|auditad[oa]s?|\(?unaudited\)?|audited|reexpresad[oa]|restated|var\w*|change|"
    r"y|and|enero|january|%|\(|\)|[-–/|]"
)
_SHARE = re.compile(r"%|\bporcentajes?\b|\bpercent(?:age)?s?\b|\bpct\b")
Piece = tuple[str, float, float]
"""A text of a heading, and from where to where it stands."""
_YEAR = re.compile(r"(?:19[89]|20[0-6])\d")
_STOPS = str.maketrans(",.:()[]*", "        ")
_NOTE_HEAD = re.compile(r"(?:notas?|notes?|n[°º]\.?(?: nota)?|nota n[°º]|ref\.?)\Z")


@dataclass
class Column:
    """Numbers that stand below each other, and what is above them."""

    x0: float
    x1: float
    cells: list[Cell] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    year: int | None = None
    ends: date | None = None
    scale: int | None = None
    currency: str | None = None
    is_note: bool = False
    is_share: bool = False
    """Percentages: no amounts, whatever they look like."""

    @property
    def heading(self) -> str | None:
        return " ".join([*self.over, *self.heads]) or None

    @property
    def center(self) -> float:
        return (self.x0 + self.x1) / 2

    def overlap(self, x0: float, x1: float) -> float:
        return min(self.x1, x1) - max(self.x0, x0)


def find_columns(lines: Iterable[Line]) -> list[Column]:
    """Columns of free numbers, from the left: what overlaps is one column. A lone number on its line is none."""
    cells: list[Cell] = []
    for line in lines:
        values = [c for c in line.cells[line.codes :] if c.kind in ("amount", "dash") and c.free]
        if len(line.cells) == 1 and len(values) == 1 and len(values[0].text) <= 4:
            continue  # a page number
        cells += values
    columns: list[Column] = []
    for cell in sorted(cells, key=lambda c: c.x1 - c.x0, reverse=True):
        if cell.kind == "dash":
            continue
        home, overlap = _most_over(columns, cell)
        if home is None or overlap < 0.25 * (cell.x1 - cell.x0):
            columns.append(Column(cell.x0, cell.x1, [cell]))
        else:
            home.cells.append(cell)
            home.x0, home.x1 = min(home.x0, cell.x0), max(home.x1, cell.x1)
    most = max((len(col.cells) for col in columns), default=0)
    columns = [col for col in columns if len(col.cells) >= max(1, 0.08 * most)]
    for cell in cells:
        if cell.kind == "dash" and (home := column_at(columns, cell)) is not None:
            home.cells.append(cell)
    return sorted(columns, key=lambda col: col.x0)


def column_at(columns: list[Column], cell: Cell) -> Column | None:
    """The column that a number stands in, if any: it overlaps, or is very near the column's edge."""
    best, overlap = _most_over(columns, cell)
    return best if overlap > -0.5 * cell.words[0].height else None


def _most_over(columns: list[Column], cell: Cell) -> tuple[Column | None, float]:
    """The column that a cell overlaps most, or is nearest to, and by how much."""
    best, most = None, float("-inf")
    for col in columns:
        overlap = min(col.x1, cell.x1) - max(col.x0, cell.x0)
        if overlap > most:
            best, most = col, overlap
    return best, most


def is_head(line: Line, columns: list[Column], *, separated: bool) -> bool:
    """Whether the line heads columns: periods that stand over them, and no amounts.

    ``separated``: the document writes thousands with a mark, so that 2024 is no amount.
    """
    if not columns or any(is_amount(run.text) and not _is_year(run.text) for run in line.runs):
        return False
    if _dated_over(line, columns):
        return True
    left, right = columns[0].x0 - 25, columns[-1].x1 + 25
    seen, bare, rest = 0, False, ""
    for run in line.runs:
        text = run.text
        inside = min(run.x1, right) - max(run.x0, left) >= 0.6 * (run.x1 - run.x0)
        if _is_year(text):
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
    homes = [column_at(columns, run) for run in line.runs]
    if None in homes or len({id(home) for home in homes}) < len(homes) or title_class(line.text) is not None:
        return False
    dated = [run for run in line.runs if len(run.words) in (2, 3) and len(periods(run.text)) == 1 and not _is_year(run.words[0].text)]
    return bool(dated) and all(run in dated or is_heading(run.text) for run in line.runs)


def _all_years(line: Line) -> bool:
    years = [c.text for c in line.cells if c.kind == "amount"]
    once = list(dict.fromkeys(years))
    return all(_is_year(y) for y in years) and years == once * (len(years) // max(1, len(once)))  # 2025 2024, or that for each group


def _listed(text: str) -> bool:
    """Several periods in one sentence, as titles list them."""
    return len(list(periods(text))) > 1 and re.search(r"\b(y|and)\b|,", plain(text)) is not None


def _is_year(text: str) -> bool:
    return len(text) == 4 and _YEAR.fullmatch(text) is not None


def _over(columns: list[Column], cell: Cell) -> bool:
    return any(col.overlap(cell.x0, cell.x1) > -6 for col in columns)


def _only_period(text: str) -> bool:
    """Whether a cell says a period and at most what headings say besides."""
    found = list(periods(text))
    if not found and day_and_month(text) is None:
        return False
    left = text
    for one in reversed(found):
        left = left[: one.start] + " " + left[one.end :]
    left = re.sub(r"[0-3]?\d (de )?\w+|\w+ [0-3]?\d,?", " ", left) if not found else left
    return all(_HEAD_WORDS.fullmatch(word) for word in plain(left).translate(_STOPS).split())


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
    return any(_over(columns, cell) for cell in line.cells) or any(_NOTE_HEAD.fullmatch(plain(c.text)) for c in line.cells)


def is_sub_head(line: Line, columns: list[Column]) -> bool:
    """A line of headings in any words, below or above the periods: several texts, each over columns, and nothing where labels are."""
    if len(line.runs) < 2 or any(c.kind != "text" for c in line.cells) or not columns:
        return False
    left, right = columns[0].x0 - 25, columns[-1].x1 + 25
    return all(left < run.x0 and run.x1 < right and len(run.text) < 40 for run in line.runs)


def read_heads(columns: list[Column], heads: list[Line], context: Context) -> None:
    """Give each column what stands over it: its heading, period, scale and currency."""
    lines = [_pieces(line) for line in heads]
    for pieces in lines:
        for cell in pieces:
            self_over = [col for col in columns if col.overlap(cell[1], cell[2]) > 0.3 * min(col.x1 - col.x0, cell[2] - cell[1])]
            if not self_over:
                near = min(columns, key=lambda col: _distance(col, cell), default=None)
                if near is None or _distance(near, cell) >= 40:
                    continue
                if any(near.overlap(other[1], other[2]) > 0 for other in pieces if other is not cell):
                    continue  # it heads something that is no column, such as percentages
                self_over = [near]
            if len(self_over) == 1:
                self_over[0].heads.append(cell[0])
            else:
                for col in self_over:
                    col.over.append(cell[0])
    _mark_notes(columns)
    values = [col for col in columns if not col.is_note]
    for head in (head for col in columns if col.is_note for head in col.heads if periods(head)):
        context.learn_dates(head)  # a title that happens to stand over the notes
    for pieces in lines:
        _spread(pieces, values)
    for col in values:
        _read_head(col, context)
    _by_order([col for col in values if not col.is_share], context)


def _spread(pieces: list[Piece], values: list[Column]) -> None:
    """Headings of groups, such as one year over two columns each: what stands in the middle of a group is of all its columns."""
    pieces = [one for one in pieces if values and one[2] > values[0].x0]
    if not pieces or len(values) % len(pieces) or len(values) == len(pieces):
        return
    size = len(values) // len(pieces)
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    for piece, group in zip(pieces, groups, strict=True):
        if not _amid(piece, group) and not _completes(piece, group):
            return
    for piece, group in zip(pieces, groups, strict=True):
        rest = [_besides(piece, col) for col in group]
        if all(rest):  # each column has a heading of its own besides
            for col, heads in zip(group, rest, strict=True):
                col.heads = heads
                col.over = [*(head for head in col.over if head != piece[0]), piece[0]]


def _besides(piece: Piece, col: Column) -> list[str]:
    return [head for head in col.heads if head != piece[0]]


def _amid(piece: Piece, group: list[Column]) -> bool:
    """Whether a heading stands in the middle of a group, and of no column in it."""
    center, middle = (piece[1] + piece[2]) / 2, (group[0].x0 + group[-1].x1) / 2
    apart = min(abs(center - col.center) for col in group) if len(group) % 2 == 0 else float("inf")
    return abs(center - middle) <= min(apart, 0.2 * (group[-1].x1 - group[0].x0))


def _completes(piece: Piece, group: list[Column]) -> bool:
    """Whether a heading over a group says of the period what its columns leave out: ``Six Months Ended June 30,`` over 2025 and 2024, or
    2025 over names. Numbers may be much narrower than what stands over them: then it is off their middle."""
    if not group[0].x0 - 25 <= (piece[1] + piece[2]) / 2 <= group[-1].x1:
        return False
    own = [periods(" ".join(_besides(piece, col))) for col in group]
    if not any(own):
        return bool(periods(piece[0]))
    return day_and_month(piece[0]) is not None and all(own) and not any(one.ends for found in own for one in found)


def _distance(col: Column, piece: Piece) -> float:
    return abs(col.center - (piece[1] + piece[2]) / 2) - (col.x1 - col.x0) / 2


def _pieces(line: Line) -> list[Piece]:
    """The texts of a heading line, with their places; several periods in one cell are several."""
    out: list[Piece] = []
    for cell in line.runs:
        found = list(periods(cell.text))
        if len(found) < 2 or len(cell.words) < len(found) or _is_range(cell.text):
            out.append((cell.text, cell.x0, cell.x1))
            continue
        at, starts = 0, []
        for word in cell.words:
            starts.append(at)
            at += len(word.text) + 1
        edges = [one.start for one in found[1:]]
        groups: list[list[int]] = [[]]
        for index, start in enumerate(starts):
            if edges and start >= edges[0]:
                edges.pop(0)
                groups.append([])
            groups[-1].append(index)
        for group in groups:
            words = [cell.words[i] for i in group]
            if words:
                out.append((" ".join(w.text for w in words), words[0].x0, words[-1].x1))
    return out


def _is_range(text: str) -> bool:
    return re.search(r"\b(al|a|to|hasta|through|[-–])\b", plain(text)) is not None


def _mark_notes(columns: list[Column]) -> None:
    for index, col in enumerate(columns):
        texts = [c.text for c in col.cells if c.kind == "amount"]
        if not texts:
            continue
        small = sum(is_note(t) and len(re.sub(r"\D", "", t)) <= 3 for t in texts) >= 0.85 * len(texts)
        named = any(_NOTE_HEAD.fullmatch(plain(head).strip(" .:")) for head in col.heads)
        others = [len(re.sub(r"\D", "", c.text)) for other in columns if other is not col for c in other.cells if c.kind == "amount"]
        larger = bool(others) and sorted(others)[len(others) // 2] >= 3
        dated = any(list(periods(head)) for head in col.heads)
        col.is_note = small and (named or (index == 0 and not dated and larger and len(columns) > 1))


def _read_head(col: Column, context: Context) -> None:
    own, over = " ".join(col.heads), " ".join(col.over)
    found = list(periods(own))
    dates = [p.ends for p in found if p.ends is not None]
    if dates:
        col.ends = max(dates)
        col.year = col.ends.year
    elif found:
        col.year = max(p.year for p in found)
    elif found_over := list(periods(over)):
        dates = [p.ends for p in found_over if p.ends is not None]
        col.year = max(p.year for p in found_over)
        col.ends = max(dates) if dates else None
    if col.year is not None and col.ends is None:
        partial = day_and_month(own) or day_and_month(over)
        col.ends = end_in(col.year, *partial) if partial else _dated(col.year, context)
    col.is_share = _SHARE.search(plain(own)) is not None
    col.scale = scale_of(own) or scale_of(over)
    col.currency = currency_of(own) or currency_of(over)


def _dated(year: int, context: Context) -> date:
    return context.dates.get(year) or end_in(year, *(context.day or (12, 31)))


def _by_order(values: list[Column], context: Context) -> None:
    """Columns without any period of their own take the title's years in their order, if there are as many."""
    if any(col.year is not None for col in values) or not values:
        return
    if len(context.years) == len(values) or (context.years and len(values) == 1):
        for col, year in zip(values, context.years, strict=False):
            col.year, col.ends = year, _dated(year, context)
