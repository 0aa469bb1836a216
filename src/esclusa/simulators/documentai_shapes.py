"""Statements as Document AI answers them, in the shapes that processors of its customers have.

A statement is what a test declares: pages, and rows of cells with their places on the page as it
is shown. Each shape is JSON as the API writes it: nested, repeated, deep, renamed or flat entities.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Shape = Literal["nested", "repeated", "grouped", "deep", "renamed", "custom", "flat"]
Place = tuple[float, float, float, float]


@dataclass(frozen=True)
class SimulatedCell:
    """A printed number under a year."""

    text: str
    year: str
    place: Place
    normal: dict[str, Any] | None = None
    confidence: float | None = 0.97


@dataclass(frozen=True)
class SimulatedRow:
    """A labelled row of a page; ``note`` is a child that stands for no field."""

    label: str
    place: Place
    cells: Sequence[SimulatedCell]
    page: int = 0
    note: str = ""


@dataclass(frozen=True)
class SimulatedPage:
    """A page as it is shown, and how the service turned it before reading, in degrees clockwise.

    ``matrices``: the answer has the matrices of that turn; otherwise only the turned size.
    """

    width: int = 1700
    height: int = 2200
    turned: int = 0
    matrices: bool = True
    orientation: str = ""


# A printed line: words with their places on the page as it is shown.
PrintedLine = Sequence[tuple[str, Place]]


def recognised_document(
    pages: Sequence[tuple[SimulatedPage, Sequence[PrintedLine]]], chosen: Sequence[int]
) -> dict[str, Any]:
    """Return the answer of an OCR processor: text, lines and tokens, no entities."""
    text, out = "", []
    for number, at in enumerate(chosen, 1):
        shown, lines = pages[at]
        tokens, spans = [], []
        for line in lines:
            start = len(text)
            for word, place in line:
                first, text = len(text), f"{text}{word} "
                layout = {"confidence": 0.98, "textAnchor": _segment(first, len(text))}
                poly = {"normalizedVertices": _corners(place, shown.turned)}
                tokens.append(
                    {
                        "layout": layout | {"boundingPoly": poly},
                        "detectedBreak": {"type": "SPACE"},
                    }
                )
            text = text[:-1] + "\n"
            spans.append({"layout": {"textAnchor": _segment(start, len(text))}})
        out.append(_page(shown, number) | {"tokens": tokens, "lines": spans})
    return {"mimeType": "application/pdf", "text": text, "pages": out}


def _segment(start: int, end: int) -> dict[str, Any]:
    segment = {"endIndex": str(end)} | ({"startIndex": str(start)} if start else {})
    return {"textSegments": [segment]}


def _corners(place: Place, turned: int) -> list[dict[str, float]]:
    """The corners of a place on the page that the service turned, from the top left on."""
    x0, y0, x1, y1 = place
    points = [_turn(x, y, turned) for x, y in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))]
    return [{"x": x, "y": y} for x, y in points]


@dataclass(frozen=True)
class SimulatedStatement:
    """A statement to answer. ``years`` are headers of columns with their places and pages."""

    rows: Sequence[SimulatedRow]
    years: Sequence[tuple[str, Place, int]] = ()
    pages: Sequence[SimulatedPage] = field(default_factory=lambda: [SimulatedPage()])
    section: str = ""
    shared: dict[str, str] = field(default_factory=dict)
    doc_type: str = "balance_sheet"


class AnswerWriter:
    """Writes the answer about some pages of a statement."""

    def __init__(self, statement: SimulatedStatement, chosen: Sequence[int]) -> None:
        self.statement = statement
        self.chosen = list(chosen)
        self.text = ""
        self.count = 0

    def document(self, shape: Shape) -> dict[str, Any]:
        """Return the document of an answer."""
        entities = [
            self.entity(name, text, confidence=0.9) for name, text in self.statement.shared.items()
        ]
        rows = [row for row in self.statement.rows if row.page in self.chosen]
        entities += getattr(self, f"_{shape}")(rows)
        pages = [
            _page(self.statement.pages[number], index + 1)
            for index, number in enumerate(self.chosen)
        ]
        return {
            "mimeType": "application/pdf",
            "text": self.text,
            "pages": pages,
            "entities": entities,
        }

    def entity(
        self,
        type: str,
        text: str = "",
        place: Place | None = None,
        page: int = 0,
        *,
        confidence: float | None = None,
        normal: dict[str, Any] | None = None,
        properties: Sequence[dict[str, Any]] = (),
        segments: int = 1,
    ) -> dict[str, Any]:
        """Return an entity; its text is added to the text of the document."""
        made: dict[str, Any] = {"type": type, "id": str(self.count)}
        self.count += 1
        if text:
            made |= {"mentionText": text, "textAnchor": self._anchor(text, segments)}
        if place is not None:
            made["pageAnchor"] = {"pageRefs": [self._ref(place, page)]}
        if confidence is not None:
            made["confidence"] = confidence
        if normal is not None:
            made["normalizedValue"] = normal
        if properties:
            made["properties"] = list(properties)
        return made

    def _anchor(self, text: str, segments: int) -> dict[str, Any]:
        found = []
        for piece in text.split(" ", segments - 1):
            start = len(self.text)
            self.text += piece + "\n"
            found += _segment(start, start + len(piece))["textSegments"]
        return {"textSegments": found}

    def _ref(self, place: Place, page: int) -> dict[str, Any]:
        shown = self.statement.pages[page]
        poly = {"normalizedVertices": _corners(place, shown.turned)}
        index = self.chosen.index(page)
        return {"boundingPoly": poly} | ({"page": str(index)} if index else {})

    # Shapes

    def _value(self, row: SimulatedRow, cell: SimulatedCell, name: str) -> dict[str, Any]:
        return self.entity(
            name, cell.text, cell.place, row.page, confidence=cell.confidence, normal=cell.normal
        )

    def _header(self, year: str, page: int, name: str) -> dict[str, Any]:
        place = next((p for y, p, on in self.statement.years if (y, on) == (year, page)), None)
        return self.entity(name, year, place, page, confidence=0.95)

    def _nested(self, rows: Sequence[SimulatedRow]) -> list[dict[str, Any]]:
        """One parent for each value."""
        return [
            self._parent(
                "LINE_ITEM",
                row,
                self.entity("LINE_ITEM_NAME", row.label, row.place, row.page, confidence=0.9),
                self._value(row, cell, "LINE_ITEM_VALUE"),
                self._header(cell.year, row.page, "COLUMN_YEAR"),
                note="note",
            )
            for row in rows
            for cell in row.cells
        ]

    def _parent(
        self, name: str, row: SimulatedRow, *children: dict[str, Any], note: str = ""
    ) -> dict[str, Any]:
        """An entity of a row with its children, and its note if it has one."""
        notes = [self.entity(note, row.note)] if note and row.note else []
        return self.entity(name, confidence=0.9, properties=[*children, *notes])

    def _repeated(self, rows: Sequence[SimulatedRow]) -> list[dict[str, Any]]:
        """One parent for each row, in which values and years alternate; no place of a year."""
        return [
            self._parent(
                "LINE_ITEM",
                row,
                self.entity("LINE_ITEM_NAME", row.label, row.place, row.page),
                *(
                    child
                    for cell in row.cells
                    for child in (
                        self._value(row, cell, "LINE_ITEM_VALUE"),
                        self.entity("COLUMN_YEAR", cell.year),
                    )
                ),
            )
            for row in rows
        ]

    def _grouped(self, rows: Sequence[SimulatedRow]) -> list[dict[str, Any]]:
        """One parent for each row: all values, then all years, with their places."""
        return [
            self._parent(
                "LINE_ITEM",
                row,
                self.entity("LINE_ITEM_NAME", row.label, row.place, row.page),
                *(self._value(row, cell, "LINE_ITEM_VALUE") for cell in row.cells),
                *(self._header(c.year, row.page, "COLUMN_YEAR") for c in row.cells[::-1]),
            )
            for row in rows
        ]

    def _deep(self, rows: Sequence[SimulatedRow]) -> list[dict[str, Any]]:
        """A statement with sections, rows and cells: four levels."""
        items = [
            self.entity(
                "row",
                properties=[
                    self.entity("label", row.label, row.place, row.page),
                    *(
                        self.entity(
                            "cell",
                            properties=[
                                self._value(row, cell, "amount"),
                                self.entity("year", cell.year),
                            ],
                        )
                        for cell in row.cells
                    ),
                ],
            )
            for row in rows
        ]
        header = self.entity("SECTION_HEADER", self.statement.section)
        section = self.entity("section_group", properties=[header, *items])
        return [self.entity("statement", properties=[section])]

    def _renamed(self, rows: Sequence[SimulatedRow]) -> list[dict[str, Any]]:
        """Children NAME, VALUE and YEAR, with the name of their parent before them."""
        return self._named(rows, "line_item", ("NAME", "VALUE", "YEAR"), note="line_item/note")

    def _custom(self, rows: Sequence[SimulatedRow]) -> list[dict[str, Any]]:
        """Names of a schema that nobody knows."""
        return self._named(rows, "partida", ("glosa", "cifra", "columna_ano"))

    def _named(
        self,
        rows: Sequence[SimulatedRow],
        parent: str,
        names: tuple[str, str, str],
        note: str = "",
    ) -> list[dict[str, Any]]:
        """One parent for each value, with children of these names; no place of a year."""
        label, amount, year = (f"{parent}/{name}" for name in names)
        return [
            self._parent(
                parent,
                row,
                self.entity(label, row.label, row.place, row.page),
                self._value(row, cell, amount),
                self.entity(year, cell.year),
                note=note,
            )
            for row in rows
            for cell in row.cells
        ]

    def _flat(self, rows: Sequence[SimulatedRow]) -> list[dict[str, Any]]:
        """Entities without parents, grouped by type."""
        return [
            *(
                self.entity("COLUMN_YEAR", year, place, page, confidence=0.9)
                for year, place, page in self.statement.years
                if page in self.chosen
            ),
            *(
                self.entity("LINE_ITEM_NAME", r.label, r.place, r.page, confidence=0.9)
                for r in rows
            ),
            *(self._value(row, cell, "LINE_ITEM_VALUE") for row in rows for cell in row.cells),
        ]


def _turn(x: float, y: float, degrees: int) -> tuple[float, float]:
    """Where a point of the page as shown is after a turn clockwise."""
    return {0: (x, y), 90: (1 - y, x), 180: (1 - x, 1 - y), 270: (y, 1 - x)}[degrees]


def _page(shown: SimulatedPage, number: int) -> dict[str, Any]:
    width, height = shown.width, shown.height
    if shown.turned in (90, 270):
        width, height = height, width
    page: dict[str, Any] = {
        "pageNumber": number,
        "dimension": {"width": width, "height": height, "unit": "pixels"},
        "layout": {"orientation": shown.orientation or "PAGE_UP"},
    }
    if shown.turned and shown.matrices:
        w, h = shown.width, shown.height
        matrix = {90: (0, -1, h, 1, 0, 0), 180: (-1, 0, w, 0, -1, h), 270: (0, 1, 0, -1, 0, w)}
        data = struct.pack("<6d", *matrix[shown.turned])
        page["transforms"] = [
            {"rows": 2, "cols": 3, "type": 6, "data": base64.b64encode(data).decode()}
        ]
    return page
