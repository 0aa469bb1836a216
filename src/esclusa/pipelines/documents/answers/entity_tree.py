"""Entities of an answer as a tree of nodes with names, texts and places."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as default_field
from typing import Any

from esclusa.pipelines.documents.answers.page_frames import PageFrame, ShownPage
from esclusa.pipelines.documents.boxes import Corners, page_boxes
from esclusa.pipelines.documents.fields import FIELDS

# Usual names of fields in the schemas of processors, below a parent.
_USUAL_NAMES = {
    "LINE_ITEM_NAME": "NAME LABEL DESCRIPTION ACCOUNT ACCOUNT_NAME CONCEPT CONCEPTO CUENTA RUBRO "
    "PARTIDA NOMBRE DESCRIPCION ITEM ITEM_NAME LINE_ITEM_LABEL LINE_ITEM_DESCRIPTION",
    "LINE_ITEM_VALUE": "VALUE AMOUNT IMPORTE MONTO VALOR SALDO BALANCE ITEM_VALUE ITEM_AMOUNT "
    "LINE_ITEM_AMOUNT CELL_VALUE",
    "COLUMN_YEAR": "YEAR FISCAL_YEAR PERIOD_YEAR LINE_ITEM_YEAR ANO ANIO EJERCICIO",
    "REPORTING_PERIOD": "PERIOD PERIOD_END PERIOD_END_DATE DATE FECHA PERIODO AS_OF AS_OF_DATE",
    "SECTION_HEADER": "SECTION SECTION_NAME SECCION GROUP GRUPO",
    "TOTAL_LABEL": "TOTAL_NAME",
    "CURRENCY": "CURRENCY_CODE MONEDA DIVISA",
    "UNITS_SCALE": "SCALE UNITS UNIT UNIDADES ESCALA",
    "ORG_NAME": "ORGANIZATION ORGANISATION COMPANY COMPANY_NAME EMPRESA RAZON_SOCIAL ISSUER",
    "STATEMENT_TITLE": "TITLE STATEMENT_NAME TITULO",
    "TABLE_COLUMN_HEADER": "COLUMN_HEADER COLUMN COLUMN_NAME COLUMNA",
    "TABLE_ROW_REF": "ROW_REF ROW_ID",
    "TABLE_CELL_REF": "CELL_REF CELL_ID",
}
_USUAL = {name: target for target, names in _USUAL_NAMES.items() for name in names.split()}
# A value whose name ends in its year: AMOUNT_2024.
_VALUE_OF_YEAR = re.compile(r"(.+?)_?((?:19|20)\d\d)")
# A value whose name says which of several it is: CURRENT_YEAR_VALUE, SALDO_ANTERIOR, VALUE_2.
_WHICH = {
    *("CURRENT", "PRIOR", "PREVIOUS", "PRECEDING", "LAST", "THIS", "YEAR", "PERIOD"),
    *("ACTUAL", "ANTERIOR", "PREVIO", "ANO", "ANIO", "EJERCICIO", "PERIODO", "1", "2", "3"),
}


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """The answer to one call, as JSON.

    ``pages`` are the pages of the answer as they are shown, in order; ``offset`` is where its text
    begins in the document's; ``version`` is the version of the processor that answered.
    """

    document: Mapping[str, Any]
    pages: Sequence[ShownPage]
    offset: int = 0
    version: str = ""


@dataclass(slots=True)
class EntityNode:
    """An entity: its name, the field that it stands for, its text, value and place.

    ``year`` is the one in its name; ``is_named_by_period`` if the name only says which period.
    """

    name: str
    field: str | None
    text: str | None
    normal: Mapping[str, Any]
    confidence: float | None
    page_refs: list[dict[str, Any]]
    text_spans: list[dict[str, int]]
    part: int
    version: str
    year: str | None = None
    is_named_by_period: bool = False
    children: list[EntityNode] = default_field(default_factory=list)

    @property
    def place(self) -> tuple[int, Corners] | None:
        """The page and the first box."""
        return next(page_boxes(self.page_refs), None)

    @property
    def position(self) -> tuple[int, int, float]:
        """Where it stands in reading order: part, page and height."""
        place = self.place
        if place is not None:
            return self.part, place[0], place[1][1]
        return self.part, self.page_refs[0]["page"] if self.page_refs else -1, -1.0


def read_tree(
    part: AnswerPart, number: int, schema: Mapping[str, str] | None = None
) -> list[EntityNode]:
    """Return the entities of an answer; ``schema`` names the fields of the processor's own."""
    pages = part.document.get("pages") or []
    frames = [
        PageFrame(pages[index] if index < len(pages) else {}, shown)
        for index, shown in enumerate(part.pages)
    ]
    reader = _TreeReader(part, number, frames, _normalized(schema or {}))
    return [reader.read(entity, ()) for entity in part.document.get("entities") or ()]


@dataclass(frozen=True, slots=True)
class _TreeReader:
    part: AnswerPart
    number: int
    frames: Sequence[PageFrame]
    schema: Mapping[str, str]

    def read(self, entity: Mapping[str, Any], above: tuple[str, ...]) -> EntityNode:
        name = plain_name(str(entity.get("type") or ""))
        path = (*above, name)
        children = [self.read(child, path) for child in entity.get("properties") or ()]
        own, year = self._field(path)
        anchor = entity.get("textAnchor") or {}
        segments = anchor.get("textSegments") or ()
        node = EntityNode(
            name=name,
            field=own,
            text=self._text(entity, segments),
            normal=entity.get("normalizedValue") or {},
            confidence=confidence_of(entity.get("confidence")),
            page_refs=self._page_refs(entity),
            text_spans=[
                {
                    "start": int(s.get("startIndex") or 0) + self.part.offset,
                    "end": int(s.get("endIndex") or 0) + self.part.offset,
                }
                for s in segments
            ],
            part=self.number,
            version=self.part.version,
            year=year,
            is_named_by_period=len(path) > 1 and _is_named_by_period(name),
        )
        return _parent(node, children) if children else node

    def _field(self, path: tuple[str, ...]) -> tuple[str | None, str | None]:
        """Return the field that an entity stands for, and the year that its name has."""
        for start in range(len(path)):
            if (found := self.schema.get("/".join(path[start:]))) is not None:
                return found, None
        name = path[-1]
        if name in FIELDS:
            return name, None
        if len(path) > 1 and name in _USUAL:
            return _USUAL[name], None
        dated = _VALUE_OF_YEAR.fullmatch(name)
        if dated and len(path) > 1 and _USUAL.get(dated[1], dated[1]) == "LINE_ITEM_VALUE":
            return "LINE_ITEM_VALUE", dated[2]
        if len(path) > 1 and _is_named_by_period(name):
            return "LINE_ITEM_VALUE", None
        return None, None

    def _text(self, entity: Mapping[str, Any], segments: Sequence[Mapping[str, Any]]) -> str | None:
        if mention := str(entity.get("mentionText") or "").strip():
            return mention
        text = str(self.part.document.get("text") or "")
        pieces = (
            text[int(s.get("startIndex") or 0) : int(s.get("endIndex") or 0)].strip()
            for s in segments
        )
        joined = " ".join(piece for piece in pieces if piece)
        return joined or str((entity.get("normalizedValue") or {}).get("text") or "") or None

    def _page_refs(self, entity: Mapping[str, Any]) -> list[dict[str, Any]]:
        found: dict[int, list[dict[str, float]]] = {}
        for ref in (entity.get("pageAnchor") or {}).get("pageRefs") or ():
            index = int(ref.get("page") or 0)
            if index >= len(self.frames):
                continue
            frame = self.frames[index]
            boxes = found.setdefault(frame.number, [])
            box = frame.box(ref.get("boundingPoly") or {})
            if box is not None:
                boxes.append(box)
        return [{"page": page, "boxes": boxes} for page, boxes in sorted(found.items())]


def _parent(node: EntityNode, children: list[EntityNode]) -> EntityNode:
    """Return an entity with children.

    One that stands for a field and has a text of its own, such as a value with its year below it,
    is a parent of itself: ``VALUE[YEAR]`` is read as ``[VALUE, YEAR]``.
    """
    own = [replace(node)] if _has_own_text(node, children) else []
    return replace(node, field=None, year=None, children=[*own, *children])


def _has_own_text(node: EntityNode, children: Sequence[EntityNode]) -> bool:
    """Return whether an entity states its field itself: its text has none of its children's."""
    if node.field is None or node.text is None or any(c.field == node.field for c in children):
        return False
    words = f" {' '.join(node.text.split())} "
    return not any(c.text and f" {' '.join(c.text.split())} " in words for c in children)


def _is_named_by_period(name: str) -> bool:
    """Return whether a name is that of a value with words that say which: PRIOR_YEAR_AMOUNT."""
    words = name.split("_")
    value = [word for word in words if word not in _WHICH]
    return len(value) < len(words) and _USUAL.get("_".join(value)) == "LINE_ITEM_VALUE"


def plain_name(type: str) -> str:
    """Return the last part of an entity's type in capitals: ``line_item/lineValue`` LINE_VALUE."""
    last = type.rsplit("/", maxsplit=1)[-1]
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last)
    ascii_only = unicodedata.normalize("NFKD", spaced).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9]+", "_", ascii_only).strip("_").upper()


def confidence_of(given: Any) -> float | None:
    """Return a confidence; None if it is missing, which is 0 on the wire, or not a number."""
    if not isinstance(given, int | float) or isinstance(given, bool) or not math.isfinite(given):
        return None
    return round(float(given), 4) or None


def _normalized(schema: Mapping[str, str]) -> dict[str, str]:
    return {
        "/".join(plain_name(part) for part in path.split("/")): target
        for path, target in schema.items()
    }
