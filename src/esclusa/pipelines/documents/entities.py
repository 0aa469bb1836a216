"""Entities of a Document AI answer as extractions: the same fields, the same trace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from esclusa.pipelines.documents.local.money import currency_of, scale_of
from esclusa.pipelines.documents.local.numbers import convention, value_of
from esclusa.pipelines.documents.local.periods import periods

FIELDS = (
    "LINE_ITEM_NAME", "LINE_ITEM_VALUE", "COLUMN_YEAR", "SECTION_HEADER", "TOTAL_LABEL", "CURRENCY", "UNITS_SCALE", "REPORTING_PERIOD",
    "ORG_NAME", "STATEMENT_TITLE", "TABLE_COLUMN_HEADER", "TABLE_ROW_REF", "TABLE_CELL_REF",
)  # fmt: skip
_SHARED = ("CURRENCY", "UNITS_SCALE", "REPORTING_PERIOD", "ORG_NAME", "STATEMENT_TITLE")
"""What is said once for a document and holds for all its numbers."""


def items_of(document: Any, numbers: Sequence[int], offset: int) -> list[dict[str, Any]]:
    """One mapping for each entity, or for each parent with its properties. ``numbers`` are the
    document's own numbers of the answer's pages; ``offset`` is where the answer's text begins in the document's."""
    raw = [_item(document, entity, numbers, offset) for entity in document.entities]
    used = convention(item["LINE_ITEM_VALUE"] for item in raw if item.get("LINE_ITEM_VALUE"))
    shared = {name: next((item[name] for item in raw if item["type"] == name and item.get(name)), None) for name in _SHARED}
    return [_finished(item, shared, used) for item in raw]


def _item(document: Any, entity: Any, numbers: Sequence[int], offset: int) -> dict[str, Any]:
    own = _name(entity.type_)
    said: dict[str, Any] = {}
    place = entity
    for child in entity.properties:
        name = _name(child.type_)
        if name in FIELDS and name not in said:
            said[name] = _text(document, child)
            if name == "LINE_ITEM_VALUE":
                place = child
                said["_normal"] = child.normalized_value
    if own in FIELDS and not said:
        said[own] = _text(document, entity)
        said["_normal"] = entity.normalized_value
    elif not said:  # a type of the processor's own: its name and its words are kept
        said = {"LINE_ITEM_NAME": entity.type_, "LINE_ITEM_VALUE": _text(document, entity)}
    kind = "LINE_ITEM_VALUE" if said.get("LINE_ITEM_VALUE") and (entity.properties or own == "LINE_ITEM_VALUE") else own
    return said | {
        "type": kind, "confidence": round(float(place.confidence or entity.confidence), 4), "page_refs": _pages(document, place, numbers),
        "text_spans": [{"start": int(s.start_index) + offset, "end": int(s.end_index) + offset} for s in place.text_anchor.text_segments],
    }  # fmt: skip


def _finished(item: dict[str, Any], shared: dict[str, Any], used: Any) -> dict[str, Any]:
    normal = item.pop("_normal", None)
    if item["type"] == "LINE_ITEM_VALUE":
        item |= {name: item.get(name) or shared[name] for name in _SHARED}
        item["value"] = _value(item.get("LINE_ITEM_VALUE"), normal, used)
    header = f"{item.get('COLUMN_YEAR') or ''} {item.get('REPORTING_PERIOD') or ''} {item.get('TABLE_COLUMN_HEADER') or ''}"
    found = list(periods(header))
    if item.get("COLUMN_YEAR") is not None or (item["type"] == "LINE_ITEM_VALUE" and found):
        item["COLUMN_YEAR"] = str(found[0].year) if found else None
    ends = next((p.ends for p in found if p.ends is not None and str(p.year) == item.get("COLUMN_YEAR")), None)
    if item.get("REPORTING_PERIOD") is not None or ends is not None:
        item["REPORTING_PERIOD"] = ends.isoformat() if ends else item.get("REPORTING_PERIOD")
    if item.get("CURRENCY"):
        code = item["CURRENCY"].strip().upper()
        item["CURRENCY"] = code if re.fullmatch(r"[A-Z]{3}", code) else currency_of(item["CURRENCY"]) or item["CURRENCY"]
    if item.get("UNITS_SCALE") is not None:
        digits = re.sub(r"\D", "", str(item["UNITS_SCALE"]))
        item["UNITS_SCALE"] = int(digits) if digits in ("1", "1000", "1000000") else scale_of(str(item["UNITS_SCALE"])) or 1
    return item


def _value(printed: str | None, normal: Any, used: Any) -> str | None:
    if printed:
        found = value_of(re.sub(r"\s+", "", printed), used)
        if found is not None:
            return found
    if normal is not None and normal.text and re.fullmatch(r"-?\d+(\.\d+)?", normal.text):
        return str(normal.text)
    return None


def _name(type_: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", type_.rsplit("/", maxsplit=1)[-1]).upper()


def _text(document: Any, entity: Any) -> str | None:
    if entity.mention_text:
        return str(entity.mention_text)
    parts = [document.text[int(s.start_index) : int(s.end_index)] for s in entity.text_anchor.text_segments]
    return "".join(parts).strip() or (entity.normalized_value.text or None)


def _pages(document: Any, entity: Any, numbers: Sequence[int]) -> list[dict[str, Any]]:
    refs: dict[int, list[list[float]]] = {}
    for ref in entity.page_anchor.page_refs:
        index = int(ref.page)
        boxes = refs.setdefault(numbers[index] if index < len(numbers) else index, [])
        box = _box(ref.bounding_poly, document.pages[int(ref.page)] if int(ref.page) < len(document.pages) else None)
        if box is not None:
            boxes.append(box)
    return [{"page": page, "boxes": boxes} for page, boxes in sorted(refs.items())]


def _box(poly: Any, page: Any) -> list[float] | None:
    points = [(v.x, v.y) for v in poly.normalized_vertices]
    if not points and page is not None and page.dimension.width and page.dimension.height:
        points = [(v.x / page.dimension.width, v.y / page.dimension.height) for v in poly.vertices]
    return _around(points) if points else None


def _around(points: Iterable[tuple[float, float]]) -> list[float]:
    xs, ys = zip(*points, strict=True)
    return [round(float(v), 6) for v in (min(xs), min(ys), max(xs), max(ys))]
