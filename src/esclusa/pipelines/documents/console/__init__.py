"""The trace view: a page of a document as a picture, with the box of every extracted value."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response

from esclusa import NotFound, Record
from esclusa.pipelines.documents import origin
from esclusa.pipelines.documents.boxes import page_boxes
from esclusa.pipelines.documents.corrections import OPEN, release, review_value
from esclusa.pipelines.documents.records import Documento, Extraccion, Folio
from esclusa.web import ConsoleExtension

# The most values of a document that the page shows.
MAX_VALUES = 5000
# Error types of documents whose pages cannot be drawn.
UNREADABLE = ("bad_pdf", "encrypted_pdf", "out_of_memory")
DETAILS = (
    "SECTION_HEADER",
    "TOTAL_LABEL",
    "COLUMN_YEAR",
    "REPORTING_PERIOD",
    "CURRENCY",
    "UNITS_SCALE",
    "TABLE_COLUMN_HEADER",
)


def build(extension: ConsoleExtension) -> None:
    """Add the trace view, and a button for it on the page of a document."""
    extension.files(Path(__file__).parent)
    read_model = extension.runtime.read_model
    _ = extension.text

    @extension.button(Documento, "Open trace view")
    def address(document: Documento) -> str:
        return extension.url("console", "documents", document.folio_id, document.id)

    @extension.router.get("/{folio}/{id}")
    async def trace(request: Request, folio: str, id: str, page: int = 0) -> Response:
        document = await read_model.record(Documento.kind.table, id)
        if not isinstance(document, Documento) or document.folio_id != folio:
            raise NotFound(f"there is no document {id!r} in folder {folio!r}")
        where: dict[str, Any] = {"documento_id": document.id}
        if document.revision is not None:
            where["revision"] = document.revision
        found = await read_model.records(
            Extraccion.kind.table, where, order="position", limit=MAX_VALUES
        )
        values = [_value(record) for record in found.items]
        if document.revision is None:
            values = await _old_values(extension.runtime.records, document)
        pages = max(_page_count(document), *(v["last_page"] + 1 for v in values), 1)
        page = min(max(0, page), pages - 1)
        return await extension.page(
            request,
            "trace.html",
            reasons=[_reason_text(reason, _) for reason in document.review_reasons],
            failed_checks=[check for check in document.checks if not check["passed"]],
            passed_checks=sum(check["passed"] for check in document.checks),
            can_review=document.status in OPEN,
            document=document,
            role=extension.role(document),
            error=extension.last_error(document),
            name=document.gcs_uri.rsplit("/", 1)[-1],
            folder=Folio.kind.table,
            table=Documento.kind.table,
            page=page,
            pages=pages,
            per_page=_values_per_page(values, pages),
            picture=extension.url("documents", folio, document.id, "pages", f"{page}.png"),
            drawable=bool(values) or (document.last_error or {}).get("type") not in UNREADABLE,
            values=values,
            page_values=[v for v in values if page in _pages_of(v)],
        )

    def back(request: Request, folio: str, id: str, page: str, value: str = "") -> str:
        number = int(page) if page.isdecimal() and len(page) < 6 else 0
        address = extension.url("console", "documents", folio, id, page=number)
        return f"{address}#v{quote(value)}" if value else address

    @extension.router.post("/{folio}/{id}/values/{value:path}")
    async def review(request: Request, folio: str, id: str, value: str) -> Response:
        form = await extension.form(request)
        confirmed = form.get("action") == "confirm"
        given = None if confirmed else _number(form.get("value"))
        await review_value(
            extension.runtime, str(request.state.who), value, value=given, reason=form.reason
        )
        message = _("The value is confirmed.") if confirmed else _("The value is corrected.")
        return extension.redirect(
            request, back(request, folio, id, form.get("page"), value), message
        )

    @extension.router.post("/{folio}/{id}/review")
    async def finish_review(request: Request, folio: str, id: str) -> Response:
        form = await extension.form(request)
        await release(extension.runtime, str(request.state.who), id, reason=form.reason)
        return extension.redirect(
            request, back(request, folio, id, form.get("page")), _("The document is reviewed.")
        )


def _number(text: str) -> str:
    """Return a number as people write it, as a decimal: ``-812.440,50``, ``(1,234)``."""
    flat = re.sub(r"\s", "", text)
    negative = flat.startswith(("-", "−", "("))
    flat = flat.strip("()-−$")
    marks = re.findall(r"[.,]", flat)
    if marks and len(set(marks)) == 2:  # the last mark is the decimal point
        flat = flat.replace("." if marks[-1] == "," else ",", "").replace(",", ".")
    elif len(marks) > 1 or re.search(r"[.,]\d{3}$", flat):
        flat = re.sub(r"[.,]", "", flat)
    else:
        flat = flat.replace(",", ".")
    return f"-{flat}" if negative else flat


def _reason_text(reason: dict[str, Any], _: Callable[..., str]) -> str:
    """One reason for a review, in the language of the page."""
    labels = ", ".join(str(label) for label in reason.get("labels", []))
    match reason["code"]:
        case "unread_pages":
            pages = ", ".join(str(page + 1) for page in reason["pages"])
            if reason.get("ocr") == "off":
                return _("Pages without readable text; OCR is off: {pages}", pages=pages)
            return _("Pages without readable text: {pages}", pages=pages)
        case "low_confidence":
            return _("Values with low confidence: {n}", n=reason["values"])
        case "total_differs":
            return _("Totals that differ from their parts: {labels}", labels=labels)
        case "balance_differs":
            return _("Assets are not liabilities and equity: {labels}", labels=labels)
        case "prior_year_differs":
            return _("Different from last year's file: {labels}", labels=labels)
        case "corrections_lost":
            return _("Corrections of an earlier reading not found again: {labels}", labels=labels)
    return str(reason.get("message") or reason["code"])


def _value(record: Record) -> dict[str, Any]:
    """One extracted value, as the page shows it."""
    assert isinstance(record, Extraccion)
    details = {name: getattr(record, name) for name in DETAILS}
    return {
        "id": record.id,
        "label": record.LINE_ITEM_NAME or record.type,
        "printed": record.LINE_ITEM_VALUE or record.value or getattr(record, record.type, None),
        "value": record.value,
        "section": record.SECTION_HEADER,
        "year": record.COLUMN_YEAR,
        "details": [(name, value) for name, value in details.items() if value not in (None, "")],
        "confidence": record.confidence,
        "review": record.review,
        "corrected": record.corrected_value,
        "reviewed_by": record.reviewed_by,
        "review_reason": record.review_reason,
        "is_number": record.type == "LINE_ITEM_VALUE",
        "processor": record.processor_version,
        **_boxes(record.page_refs),
    }


async def _old_values(records: Any, document: Documento) -> list[dict[str, Any]]:
    """The values that the service before this one extracted, of its latest processing."""
    found = await records.foreign_documents(Extraccion, document.id, begins=origin.EXTRACTION)
    return [
        {
            "id": f"{found[-1]['id']}-{number}",
            "label": each["type"],
            "printed": each["value"],
            **dict.fromkeys(("section", "year", "review", "corrected", "value")),
            "details": [],
            "is_number": False,
            "confidence": each["confidence"],
            "processor": each["processor_version"],
            **_boxes(each["page_refs"]),
        }
        for number, each in enumerate(origin.old_values(found[-1]) if found else ())
    ]


def _boxes(page_refs: Any) -> dict[str, Any]:
    """The boxes of a value, as fractions of their pages, and the last of these pages."""
    boxes = [
        {"page": page, "x": x0, "y": y0, "width": max(0.0, x1 - x0), "height": max(0.0, y1 - y0)}
        for page, (x0, y0, x1, y1) in page_boxes(page_refs)
    ]
    return {"boxes": boxes, "last_page": max((box["page"] for box in boxes), default=0)}


def _page_count(document: Documento) -> int:
    """The number of pages that the extractor reported; 0 if it did not."""
    pages = (document.extractor_output_summary or {}).get("pages")
    return pages if isinstance(pages, int) else 0


def _values_per_page(values: list[dict[str, Any]], pages: int) -> list[int]:
    counts = [0] * pages
    for value in values:
        for page in _pages_of(value):
            counts[page] += 1
    return counts


def _pages_of(value: dict[str, Any]) -> set[int]:
    """The pages on which a value is listed; without a place, on the first."""
    return {box["page"] for box in value["boxes"]} or {0}
