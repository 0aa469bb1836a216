"""Columns of numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date

from esclusa.pipelines.documents.local.lines import Cell, TextLine
from esclusa.pipelines.documents.local.numbers import is_note
from esclusa.pipelines.documents.local.periods import periods
from esclusa.pipelines.documents.local.plain_text import plain

_NOTE_HEADING = re.compile(
    r"(?:notas?|notes?|n[°º]\.?(?: notas?)?|notas? n[°º]|ref\.?|referencias?)"
)
_CODE_HEADING = re.compile(
    r"(?:cod(?:igo)?s?|codes?|cta|ctas|cuentas?|clave|casilla|casillero|linea|line|box|"
    r"account|n[°º]|no)\.?(?: (?:de|n[°º]) ?\w*)?"
)


@dataclass
class NumberColumn:
    """Numbers below each other, with the headings above them."""

    x0: float
    x1: float
    cells: list[Cell] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    group_headings: list[str] = field(default_factory=list)
    year: int | None = None
    ends: date | None = None
    # Whether its heading names the end date, not only the year.
    is_dated: bool = False
    scale: int | None = None
    currency: str | None = None
    # Numbers of notes or account codes instead of amounts.
    is_reference: bool = False
    # Percentages instead of amounts, whatever their form.
    is_percentage: bool = False
    # Differences between periods: amounts that belong to no period.
    is_comparison: bool = False

    @property
    def heading(self) -> str | None:
        return " ".join([*self.group_headings, *self.headings]) or None

    @property
    def center(self) -> float:
        return (self.x0 + self.x1) / 2

    def overlap(self, x0: float, x1: float) -> float:
        return min(self.x1, x1) - max(self.x0, x0)


def find_columns(lines: Iterable[TextLine]) -> list[NumberColumn]:
    """Return the columns of separate numbers, from the left.

    Overlapping numbers form a column. A short number alone on its line is a page number.
    """
    cells: list[Cell] = []
    for line in lines:
        values = [
            c for c in line.cells[line.codes :] if c.kind in ("amount", "dash") and c.is_separate
        ]
        if len(line.cells) != 1 or len(values) != 1 or len(values[0].text) > 4:
            cells += values
    columns: list[NumberColumn] = []
    for cell in sorted(cells, key=lambda c: c.x1 - c.x0, reverse=True):
        if cell.kind == "dash":
            continue
        found, overlap = _best_overlap(columns, cell)
        if found is None or overlap < 0.25 * (cell.x1 - cell.x0):
            columns.append(NumberColumn(cell.x0, cell.x1, [cell]))
        else:
            found.cells.append(cell)
            found.x0, found.x1 = min(found.x0, cell.x0), max(found.x1, cell.x1)
    most = max((len(col.cells) for col in columns), default=0)
    columns = [col for col in columns if len(col.cells) >= max(1, 0.08 * most)]
    for cell in cells:
        if cell.kind == "dash" and (found := column_at(columns, cell)) is not None:
            found.cells.append(cell)
    return sorted(columns, key=lambda col: col.x0)


def column_at(columns: list[NumberColumn], cell: Cell) -> NumberColumn | None:
    """Return the column of a number: one that it overlaps, or whose edge it nearly touches."""
    best, overlap = _best_overlap(columns, cell)
    return best if overlap > -0.5 * cell.words[0].height else None


def _best_overlap(columns: list[NumberColumn], cell: Cell) -> tuple[NumberColumn | None, float]:
    """Return the column that the cell overlaps most, or is nearest to, and the overlap."""
    best = max(columns, key=lambda col: col.overlap(cell.x0, cell.x1), default=None)
    return best, float("-inf") if best is None else best.overlap(cell.x0, cell.x1)


def is_reference_heading(text: str) -> bool:
    """Return whether a heading stands over numbers of notes."""
    return _NOTE_HEADING.fullmatch(plain(text).strip(" .:")) is not None


def mark_references(columns: list[NumberColumn]) -> None:
    """Mark columns of note numbers and codes, by their heading or by the form of their numbers."""
    for index, col in enumerate(columns):
        texts = [c.text for c in col.cells if c.kind == "amount"]
        others = [
            c.text
            for other in columns
            if other is not col
            for c in other.cells
            if c.kind == "amount"
        ]
        unheaded = all(other.is_reference for other in columns[:index]) and not any(
            periods(heading) for heading in col.headings
        )
        col.is_reference = bool(texts) and (
            _are_notes(col, texts, others, unheaded=unheaded)
            or _are_codes(col, texts, others, unheaded=unheaded)
        )


def _are_notes(col: NumberColumn, texts: list[str], others: list[str], *, unheaded: bool) -> bool:
    headed = any(is_reference_heading(heading) for heading in col.headings)
    # A list of notes (21,23) looks like a number with decimals.
    notes = sum(is_note(text) and (headed or len(_digits(text)) <= 3) for text in texts)
    if notes < 0.85 * len(texts):
        return False
    lengths = sorted(len(_digits(text)) for text in others)
    larger = bool(lengths) and lengths[len(lengths) // 2] >= 3
    return headed or (unheaded and larger)


def _are_codes(col: NumberColumn, texts: list[str], others: list[str], *, unheaded: bool) -> bool:
    """Return whether the numbers are codes, which have no separators.

    Without a heading for codes: all have one length, none occurs twice, and amounts are longer or
    shorter.
    """
    if not all(text.isdigit() for text in texts):
        return False
    if any(_CODE_HEADING.fullmatch(plain(heading).strip(" .:")) for heading in col.headings):
        return True
    alike = (
        len({len(text) for text in texts}) == 1
        and len(texts[0]) >= 3
        and len(set(texts)) == len(texts) >= 3
    )
    return unheaded and alike and len({len(text) for text in others}) > 1


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)
