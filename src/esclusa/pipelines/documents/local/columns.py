"""Columns of numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date

from esclusa.pipelines.documents.local.lines import Cell, Line
from esclusa.pipelines.documents.local.numbers import is_note
from esclusa.pipelines.documents.local.periods import periods
from esclusa.pipelines.documents.local.texts import plain

_NOTE_HEAD = re.compile(r"(?:notas?|notes?|n[°º]\.?(?: notas?)?|notas? n[°º]|ref\.?|referencias?)")
_CODE_HEAD = re.compile(
    r"(?:cod(?:igo)?s?|codes?|cta|ctas|cuentas?|clave|casilla|casillero|linea|line|box|account|n[°º]|no)\.?(?: (?:de|n[°º]) ?\w*)?"
)


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
    is_dated: bool = False
    """Whether its heading says when it ends, and not only its year."""
    scale: int | None = None
    currency: str | None = None
    is_reference: bool = False
    """Numbers of notes, codes of accounts: no amounts."""
    is_share: bool = False
    """Percentages: no amounts, whatever they look like."""
    is_change: bool = False
    """What amounts changed by: amounts of no period."""

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


def heads_references(text: str) -> bool:
    """Whether a heading says that what is below it are notes."""
    return _NOTE_HEAD.fullmatch(plain(text).strip(" .:")) is not None


def mark_references(columns: list[Column]) -> None:
    """Tell columns of notes and codes from those of amounts: by what heads them, or by what such numbers look like."""
    for index, col in enumerate(columns):
        texts = [c.text for c in col.cells if c.kind == "amount"]
        others = [
            c.text
            for other in columns
            if other is not col
            for c in other.cells
            if c.kind == "amount"
        ]
        shaped = all(other.is_reference for other in columns[:index]) and not any(
            periods(head) for head in col.heads
        )
        col.is_reference = bool(texts) and (
            _are_notes(col, texts, others, shaped=shaped)
            or _are_codes(col, texts, others, shaped=shaped)
        )


def _are_notes(col: Column, texts: list[str], others: list[str], *, shaped: bool) -> bool:
    if sum(is_note(text) and len(_digits(text)) <= 3 for text in texts) < 0.85 * len(texts):
        return False
    lengths = sorted(len(_digits(text)) for text in others)
    larger = bool(lengths) and lengths[len(lengths) // 2] >= 3
    return any(heads_references(head) for head in col.heads) or (shaped and larger)


def _are_codes(col: Column, texts: list[str], others: list[str], *, shaped: bool) -> bool:
    """Codes have no marks in them. Without a heading that says so: all are of one length, none comes twice, and amounts are written
    otherwise."""
    if not all(text.isdigit() for text in texts):
        return False
    if any(_CODE_HEAD.fullmatch(plain(head).strip(" .:")) for head in col.heads):
        return True
    alike = (
        len({len(text) for text in texts}) == 1
        and len(texts[0]) >= 3
        and len(set(texts)) == len(texts) >= 3
    )
    return shaped and alike and len({len(text) for text in others}) > 1


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)
