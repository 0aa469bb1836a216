"""Entities of Document AI answers as extractions, with the same fields and positions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from esclusa.pipelines.documents.boxes import around
from esclusa.pipelines.documents.fields import FIELDS
from esclusa.pipelines.documents.local.money import currency_of, scale_of
from esclusa.pipelines.documents.local.numbers import convention_of, is_dash, magnitude_of, value_of
from esclusa.pipelines.documents.local.periods import date_in, periods


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """The answer to one call.

    ``numbers`` are the page numbers in the document, and ``offset`` is where its text begins in the
    document's.
    """

    answer: Any
    numbers: Sequence[int]
    offset: int


# Fields that a document states once for all its numbers.
_SHARED_FIELDS = ("CURRENCY", "UNITS_SCALE", "REPORTING_PERIOD", "ORG_NAME", "STATEMENT_TITLE")


def items_of(parts: Sequence[AnswerPart]) -> list[dict[str, Any]]:
    """Return one mapping for each entity, or for each parent with its properties.

    A field that is missing in one part is taken from another: a currency on the first page applies
    to the last.
    """
    raw = [[_item(part, entity) for entity in part.answer.entities] for part in parts]
    all_items = [item for items in raw for item in items]
    convention = convention_of(
        item["LINE_ITEM_VALUE"] for item in all_items if item.get("LINE_ITEM_VALUE")
    )
    shared_by_all = _shared_fields(all_items)
    return [
        _complete(item, shared, convention)
        for items in raw
        for shared in [shared_by_all | _shared_fields(items)]
        for item in items
    ]


def _shared_fields(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = (
        (
            name,
            next((item[name] for item in items if item["type"] == name and item.get(name)), None),
        )
        for name in _SHARED_FIELDS
    )
    return {name: value for name, value in found if value is not None}


def _item(part: AnswerPart, entity: Any) -> dict[str, Any]:
    document, offset = part.answer, part.offset
    own = _name(entity.type_)
    fields: dict[str, Any] = {}
    source = entity
    for child in entity.properties:
        name = _name(child.type_)
        if name in FIELDS and name not in fields:
            fields[name] = _field_text(document, child, name)
            if name == "LINE_ITEM_VALUE":
                source = child
                fields["_normal"] = child.normalized_value
    if own in FIELDS and not fields:
        fields[own] = _field_text(document, entity, own)
        fields["_normal"] = entity.normalized_value
    elif not fields:  # a type of the processor's own: keep its name and text
        fields = {"LINE_ITEM_NAME": entity.type_, "LINE_ITEM_VALUE": _text(document, entity)}
    return fields | {
        "type": "LINE_ITEM_VALUE"
        if fields.get("LINE_ITEM_VALUE") and (entity.properties or own == "LINE_ITEM_VALUE")
        else own,
        "confidence": finite_confidence(source.confidence) or finite_confidence(entity.confidence),
        "page_refs": _page_refs(document, source, part.numbers),
        "text_spans": [
            {"start": int(s.start_index) + offset, "end": int(s.end_index) + offset}
            for s in source.text_anchor.text_segments
        ],
    }


def _complete(item: dict[str, Any], shared: dict[str, Any], convention: Any) -> dict[str, Any]:
    normal = item.pop("_normal", None)
    if item["type"] == "LINE_ITEM_VALUE":
        item |= {name: item.get(name) or shared.get(name) for name in _SHARED_FIELDS}
        item["value"] = _value(item.get("LINE_ITEM_VALUE"), normal, convention)
    _set_period(item)
    if item.get("CURRENCY"):
        code = item["CURRENCY"].strip().upper()
        item["CURRENCY"] = (
            code
            if re.fullmatch(r"[A-Z]{3}", code)
            else currency_of(item["CURRENCY"]) or item["CURRENCY"]
        )
    if item.get("UNITS_SCALE") is not None:
        item["UNITS_SCALE"] = _scale(str(item["UNITS_SCALE"]))
    # An amount can state its own magnitude.
    if size := magnitude_of(_without_spaces(item.get("LINE_ITEM_VALUE") or "")):
        item["UNITS_SCALE"] = {"k": 1000, "mm": 1_000_000}.get(size)
    return item


def _set_period(item: dict[str, Any]) -> None:
    """Set the year of the column and the end of the period.

    The column's own heading counts before REPORTING_PERIOD. If that names another year than the
    column, it gives the day and month.
    """
    column = [
        period
        for name in ("COLUMN_YEAR", "TABLE_COLUMN_HEADER")
        for period in periods(item.get(name) or "")
    ]
    # A comparison belongs to no period.
    reported = (
        []
        if item.get("COLUMN_YEAR") and not column
        else periods(item.get("REPORTING_PERIOD") or "")
    )
    year = next((period.year for period in (*column, *reported)), None)
    dates = [period.ends for period in (*column, *reported) if period.ends is not None]
    ends = max((day for day in dates if day.year == year), default=None)
    if ends is None and dates and year is not None:
        ends = date_in(year, dates[0].month, dates[0].day)
    is_value = item["type"] == "LINE_ITEM_VALUE"
    if is_value or item.get("COLUMN_YEAR") is not None:
        item["COLUMN_YEAR"] = str(year) if year is not None else None
    if is_value or (item.get("REPORTING_PERIOD") is not None and ends is not None):
        item["REPORTING_PERIOD"] = ends.isoformat() if ends is not None else None


def _field_text(document: Any, entity: Any, name: str) -> str | None:
    """Return the text of an entity; for a date, the normalized one."""
    normal = str(entity.normalized_value.text or "")
    return (
        normal
        if name == "REPORTING_PERIOD" and re.fullmatch(r"\d{4}-\d\d-\d\d", normal)
        else _text(document, entity)
    )


def finite_confidence(confidence: Any) -> float:
    """Return a confidence that can be stored: 0 if it is not a number."""
    return round(float(confidence), 4) if math.isfinite(confidence) else 0.0


def _scale(text: str) -> int | None:
    """Return the scale that a text names; None if ambiguous (``M USD``)."""
    digits = re.sub(r"\D", "", text)
    if digits in ("1", "1000", "1000000"):
        return int(digits)
    scale = scale_of(text)
    return 1 if scale is None else scale or None


def _without_spaces(printed: str) -> str:
    """Return a number without white space."""
    return re.sub(r"\s+", "", printed)


def _value(printed: str | None, normal: Any, convention: Any) -> str | None:
    if printed:
        printed = _without_spaces(printed)
        found = "0" if is_dash(printed) else value_of(printed, convention)
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
    parts = [
        document.text[int(s.start_index) : int(s.end_index)]
        for s in entity.text_anchor.text_segments
    ]
    return "".join(parts).strip() or (entity.normalized_value.text or None)


def _page_refs(document: Any, entity: Any, numbers: Sequence[int]) -> list[dict[str, Any]]:
    refs: dict[int, list[dict[str, float]]] = {}
    for ref in entity.page_anchor.page_refs:
        index = int(ref.page)
        boxes = refs.setdefault(numbers[index] if index < len(numbers) else index, [])
        box = _box(
            ref.bounding_poly,
            document.pages[int(ref.page)] if int(ref.page) < len(document.pages) else None,
        )
        if box is not None:
            boxes.append(box)
    return [{"page": page, "boxes": boxes} for page, boxes in sorted(refs.items())]


def _box(poly: Any, page: Any) -> dict[str, float] | None:
    points = [(v.x, v.y) for v in poly.normalized_vertices]
    if not points and page is not None and page.dimension.width and page.dimension.height:
        points = [(v.x / page.dimension.width, v.y / page.dimension.height) for v in poly.vertices]
    return around(points) if points else None
