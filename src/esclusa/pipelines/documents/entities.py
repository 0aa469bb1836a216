"""Entities of a Document AI answer as extractions: the same fields, the same trace."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from esclusa.model.value import value
from esclusa.pipelines.documents.local.money import currency_of, scale_of
from esclusa.pipelines.documents.local.numbers import convention, is_dash, size_of, value_of
from esclusa.pipelines.documents.local.periods import end_in, periods

FIELDS = (
    "LINE_ITEM_NAME", "LINE_ITEM_VALUE", "COLUMN_YEAR", "SECTION_HEADER", "TOTAL_LABEL", "CURRENCY", "UNITS_SCALE", "REPORTING_PERIOD",
    "ORG_NAME", "STATEMENT_TITLE", "TABLE_COLUMN_HEADER", "TABLE_ROW_REF", "TABLE_CELL_REF",
)  # fmt: skip


@value
class Part:
    """The answer to one call: ``numbers`` are the document's own numbers of its pages, ``offset`` is where its text begins in the
    document's."""

    answer: Any
    numbers: Sequence[int]
    offset: int


_SHARED = ("CURRENCY", "UNITS_SCALE", "REPORTING_PERIOD", "ORG_NAME", "STATEMENT_TITLE")
"""What is said once for a document and holds for all its numbers."""


def items_of(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """One mapping for each entity of a document's answers, or for each parent with its properties. What one part does not say, another
    one says for it: a currency on the first page holds for the last."""
    raw = [[_item(part, entity) for entity in part.answer.entities] for part in parts]
    every = [item for items in raw for item in items]
    used = convention(item["LINE_ITEM_VALUE"] for item in every if item.get("LINE_ITEM_VALUE"))
    whole = _said_once(every)
    return [
        _finished(item, shared, used)
        for items in raw
        for shared in [whole | _said_once(items)]
        for item in items
    ]


def _said_once(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = (
        (
            name,
            next((item[name] for item in items if item["type"] == name and item.get(name)), None),
        )
        for name in _SHARED
    )
    return {name: said for name, said in found if said is not None}


def _item(part: Part, entity: Any) -> dict[str, Any]:
    document, offset = part.answer, part.offset
    own = _name(entity.type_)
    said: dict[str, Any] = {}
    place = entity
    for child in entity.properties:
        name = _name(child.type_)
        if name in FIELDS and name not in said:
            said[name] = _said(document, child, name)
            if name == "LINE_ITEM_VALUE":
                place = child
                said["_normal"] = child.normalized_value
    if own in FIELDS and not said:
        said[own] = _said(document, entity, own)
        said["_normal"] = entity.normalized_value
    elif not said:  # a type of the processor's own: its name and its words are kept
        said = {"LINE_ITEM_NAME": entity.type_, "LINE_ITEM_VALUE": _text(document, entity)}
    kind = (
        "LINE_ITEM_VALUE"
        if said.get("LINE_ITEM_VALUE") and (entity.properties or own == "LINE_ITEM_VALUE")
        else own
    )
    return said | {
        "type": kind, "confidence": sure(place.confidence) or sure(entity.confidence), "page_refs": _pages(document, place, part.numbers),
        "text_spans": [{"start": int(s.start_index) + offset, "end": int(s.end_index) + offset} for s in place.text_anchor.text_segments],
    }  # fmt: skip


def _finished(item: dict[str, Any], shared: dict[str, Any], used: Any) -> dict[str, Any]:
    normal = item.pop("_normal", None)
    if item["type"] == "LINE_ITEM_VALUE":
        item |= {name: item.get(name) or shared.get(name) for name in _SHARED}
        item["value"] = _value(item.get("LINE_ITEM_VALUE"), normal, used)
    _date(item)
    if item.get("CURRENCY"):
        code = item["CURRENCY"].strip().upper()
        item["CURRENCY"] = (
            code
            if re.fullmatch(r"[A-Z]{3}", code)
            else currency_of(item["CURRENCY"]) or item["CURRENCY"]
        )
    if item.get("UNITS_SCALE") is not None:
        item["UNITS_SCALE"] = _scale(str(item["UNITS_SCALE"]))
    if size := size_of(
        _close(item.get("LINE_ITEM_VALUE") or "")
    ):  # an amount that says itself in what it counts
        item["UNITS_SCALE"] = {"k": 1000, "mm": 1_000_000}.get(size)
    return item


def _date(item: dict[str, Any]) -> None:
    """Give it the year of its column and the day on which its period ends: as the column says, else as the period that is told does. Of
    another year than the column's, that says the day and the month."""
    column = [
        one
        for name in ("COLUMN_YEAR", "TABLE_COLUMN_HEADER")
        for one in periods(item.get(name) or "")
    ]
    told = (
        []
        if item.get("COLUMN_YEAR") and not column
        else periods(item.get("REPORTING_PERIOD") or "")
    )  # a change is of no period
    year = next((one.year for one in (*column, *told)), None)
    dates = [one.ends for one in (*column, *told) if one.ends is not None]
    ends = max((day for day in dates if day.year == year), default=None)
    if ends is None and dates and year is not None:
        ends = end_in(year, dates[0].month, dates[0].day)
    is_value = item["type"] == "LINE_ITEM_VALUE"
    if is_value or item.get("COLUMN_YEAR") is not None:
        item["COLUMN_YEAR"] = str(year) if year is not None else None
    if is_value or (item.get("REPORTING_PERIOD") is not None and ends is not None):
        item["REPORTING_PERIOD"] = ends.isoformat() if ends is not None else None


def _said(document: Any, entity: Any, name: str) -> str | None:
    """What an entity says; of a date, the day as the processor understood it."""
    normal = str(entity.normalized_value.text or "")
    return (
        normal
        if name == "REPORTING_PERIOD" and re.fullmatch(r"\d{4}-\d\d-\d\d", normal)
        else _text(document, entity)
    )


def sure(confidence: Any) -> float:
    """A confidence that can be kept: what is no number is none."""
    return round(float(confidence), 4) if math.isfinite(confidence) else 0.0


def _scale(said: str) -> int | None:
    """None if it does not say which: ``M USD``."""
    digits = re.sub(r"\D", "", said)
    if digits in ("1", "1000", "1000000"):
        return int(digits)
    scale = scale_of(said)
    return 1 if scale is None else scale or None


def _close(printed: str) -> str:
    """A number without white space in it."""
    return re.sub(r"\s+", "", printed)


def _value(printed: str | None, normal: Any, used: Any) -> str | None:
    if printed:
        printed = _close(printed)
        found = "0" if is_dash(printed) else value_of(printed, used)
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


def _pages(document: Any, entity: Any, numbers: Sequence[int]) -> list[dict[str, Any]]:
    refs: dict[int, list[list[float]]] = {}
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


def _box(poly: Any, page: Any) -> list[float] | None:
    points = [(v.x, v.y) for v in poly.normalized_vertices]
    if not points and page is not None and page.dimension.width and page.dimension.height:
        points = [(v.x / page.dimension.width, v.y / page.dimension.height) for v in poly.vertices]
    return _around(points) if points else None


def _around(points: Iterable[tuple[float, float]]) -> list[float]:
    xs, ys = zip(*points, strict=True)
    return [round(float(v), 6) for v in (min(xs), min(ys), max(xs), max(ys))]
