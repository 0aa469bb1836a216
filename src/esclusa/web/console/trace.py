"""The trace view: the page of a document as a picture, with the box of every value that was read in it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from esclusa.model.errors import NotFound
from esclusa.model.query import one_of
from esclusa.model.record import Record
from esclusa.web.console import render, views
from esclusa.web.console.context import Desk

LIMIT = 5000
"""At most so many values of a document are shown."""
_UNSEEN = ("bad_pdf", "encrypted_pdf")
"""Errors of documents whose pages cannot be drawn either."""
_TOLD = (
    "SECTION_HEADER",
    "TOTAL_LABEL",
    "COLUMN_YEAR",
    "REPORTING_PERIOD",
    "CURRENCY",
    "UNITS_SCALE",
    "TABLE_COLUMN_HEADER",
)


def routes(desk: Desk) -> APIRouter:
    api = APIRouter(include_in_schema=False, route_class=desk.route())

    @api.get("/console/documents/{folio}/{id}")
    async def document(request: Request, folio: str, id: str, page: int = 0) -> Response:
        known = {k.table for k in desk.runtime.engine.all_kinds}
        if not {"documentos", "extracciones"} <= known:
            raise NotFound("the pipeline documents is not loaded here; add it to ESCLUSA_PIPELINES")
        found = await desk.read_model.record("documentos", id)
        if getattr(found, "folio_id", folio) != folio:
            raise NotFound(f"there is no document {id!r} in folder {folio!r}")
        values = await _values(desk, found)
        pages = max([*(box["page"] + 1 for v in values for box in v["boxes"]), _pages(found), 1])
        page = min(max(0, page), pages - 1)
        picture = render.url("documents", folio, found.id, "pages", f"{page}.png")
        stages = desk.runtime.engine.all_stages
        shown = {
            "document": found, "folio": folio, "values": values, "page": page, "pages": pages, "picture": picture,
            "here_values": [v for v in values if any(b["page"] == page for b in v["boxes"])],
            "role": views.roles(found.kind, stages)[found.status],
            "name": str(getattr(found, "gcs_uri", found.id)).rsplit("/", 1)[-1], "per_page": _per_page(values, pages),
            "error": views.fault(found.last_error),
            "drawn": bool(values) or (found.last_error or {}).get("type") not in _UNSEEN,
        }  # fmt: skip
        return await desk.page(request, "trace.html", here="records", **shown)

    return api


async def _values(desk: Desk, document: Record) -> list[dict[str, Any]]:
    kind = desk.runtime.engine.kind("extracciones")
    where: dict[str, Any] = {"documento_id": document.id}
    revision = getattr(document, "revision", None)
    if revision is not None and "revision" in kind.types:
        where["revision"] = one_of(revision)
    order = ("position",) if "position" in kind.types else ()
    page = await desk.read_model.records("extracciones", where, order=order, limit=LIMIT)
    return [_value(record) for record in page.items]


def _value(record: Any) -> dict[str, Any]:
    boxes = [
        {
            "page": int(ref["page"]),
            "x": box[0],
            "y": box[1],
            "width": max(0.0, box[2] - box[0]),
            "height": max(0.0, box[3] - box[1]),
        }
        for ref in record.page_refs or []
        for box in ref.get("boxes", [])
        if len(box) == 4
    ]
    said = {name: getattr(record, name, None) for name in _TOLD}
    return {
        "id": record.id, "type": record.type, "label": record.LINE_ITEM_NAME or record.type,
        "printed": record.LINE_ITEM_VALUE or record.value or getattr(record, record.type, None) or "",
        "value": record.value, "boxes": boxes, "page": boxes[0]["page"] if boxes else 0, "confidence": record.confidence,
        "said": [(name, value) for name, value in said.items() if value not in (None, "")], "version": record.processor_version,
        "year": getattr(record, "COLUMN_YEAR", None), "section": getattr(record, "SECTION_HEADER", None),
    }  # fmt: skip


def _pages(document: Any) -> int:
    summary = getattr(document, "extractor_output_summary", None) or {}
    found = summary.get("pages") if isinstance(summary, dict) else None
    return found if isinstance(found, int) else 0


def _per_page(values: list[dict[str, Any]], pages: int) -> list[int]:
    counts = [0] * pages
    for value in values:
        for page in {box["page"] for box in value["boxes"]}:
            counts[page] += 1
    return counts
