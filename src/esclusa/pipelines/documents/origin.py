"""The service whose data this pipeline can take over: its ids, classes, log events and results.

It is ``apolo_procesamiento_inteligente_preavaluo``, which has its folders, documents and
extractions in the same collections of Firestore.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from esclusa.pipelines.documents.boxes import around, page_boxes

# Its names of classes. Any other class is UNKNOWN to it.
CLASSES = {
    "income_statement": "ESTADO_RESULTADOS",
    "balance_sheet": "ESTADO_SITUACION_FINANCIERA",
    "cash_flow": "ESTADO_FLUJOS_EFECTIVO",
}
UNKNOWN = "UNKNOWN"
# States that it wrote before December 2025, and the present ones.
OLD_FOLDER_STATES = {
    "processing": "PROCESSING",
    "completed": "DONE",
    "partial_failure": "DONE_WITH_ERRORS",
    "failed": "ERROR",
}
OLD_DOCUMENT_STATES = {"processing": "IN_PROGRESS", "completed": "DONE", "failed": "ERROR"}
# Versions of the classifier in documents that it called DONE although nothing was read.
UNREAD_VERSIONS = ("error", "not_configured")
LINE_ITEM_TYPES = (
    "LINE_ITEM_NAME",
    "LINE_ITEM_VALUE",
    "COLUMN_YEAR",
    "SECTION_HEADER",
    "TOTAL_LABEL",
)


def folio_id(bucket: str, folder_prefix: str) -> str:
    """Return its id of a folder."""
    return _digest(f"{bucket}:{folder_prefix}")


def document_slug(folio_id: str, name: str, generation: str) -> str:
    """Return its id of a document below its folder; ``name`` is the object's."""
    return _digest(f"{folio_id}:{name.rpartition('/')[2]}:{generation}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def class_name(doc_type: str) -> str:
    """Return its name of a class."""
    return doc_type if doc_type in CLASSES.values() else CLASSES.get(doc_type, UNKNOWN)


def own_class(doc_type: str) -> str:
    """Return this pipeline's name of a class that it or the other service named."""
    names = {theirs: own for own, theirs in CLASSES.items()} | {UNKNOWN: "other"}
    return names.get(doc_type, doc_type)


_FOLDER_EVENTS = {
    "INIT": "folder_processing_start",
    "DONE": "folder_processing_complete",
    "DONE_WITH_ERRORS": "folder_processing_complete",
    "ERROR": "folder_processing_error",
}
# By our stage, or by its own word where this pipeline has no stage.
_DOCUMENT_EVENTS = {
    "processing_start": "processing_start",
    "processing_done": "processing_done",
    "already_processed": "already_processed",
    "DOC_CLASSIFICATION_START": "classification_start",
    "DOC_CLASSIFICATION_DONE": "classification_done",
    "DOC_EXTRACTION_START": "extraction_start",
    "DOC_EXTRACTION_DONE": "extraction_done",
    "DOC_ERROR": "error",
}


def folder_event(stage: str | None, event_id: str | None) -> dict[str, Any]:
    """Return its keys of a log line about a folder; empty for a line that it does not have."""
    name = _FOLDER_EVENTS.get(stage or "")
    if name is None:
        return {}
    closed = {"final_status": stage} if name != "folder_processing_start" else {}
    return {"event_type": name, "event_id": event_id, **closed}


def document_event(stage: str, folio_id: str, doc_id: str, event_id: str | None) -> dict[str, Any]:
    """Return its keys of a log line about a document; ``stage`` is ours, or its own word."""
    own_id = doc_id.rpartition(":")[2]
    name = f"folio_{folio_id}_doc_{own_id}_{_DOCUMENT_EVENTS[stage]}"
    return {"event_type": name, "doc_id": own_id, "event_id": event_id}


# How the ids of its extraction documents begin.
EXTRACTION = "extraction-"


def old_values(extraction: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the values of one of its extraction documents, as they are: not joined to rows."""
    fields = extraction.get("fields")
    fields = fields if isinstance(fields, dict) else {}
    lines = fields.get("line_items")
    found = [(name, entry) for name, entry in fields.items() if name != "line_items"]
    found += [(str(e.get("type")), e) for e in lines or () if isinstance(e, dict)]
    metadata = extraction.get("metadata")
    version = metadata.get("processor_version") if isinstance(metadata, dict) else None
    return [
        {
            "type": name,
            "value": entry.get("value"),
            "confidence": entry.get("confidence"),
            "page_refs": [
                {"page": ref.get("page") or 0, "boxes": _old_boxes(ref.get("bounding_box"))}
                for ref in entry.get("page_refs") or ()
                if isinstance(ref, dict)
            ],
            "processor_version": str(version or ""),
        }
        for name, entry in found
        if isinstance(entry, dict)
    ]


def _old_boxes(vertices: Any) -> list[dict[str, float]]:
    points = [
        (float(v.get("x") or 0.0), float(v.get("y") or 0.0))
        for v in vertices or ()
        if isinstance(v, dict)
    ]
    return [around(points)] if points else []


def result_map(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return results as its map of fields: one entry for each type, and a list of line items."""
    found: dict[str, Any] = {}
    lines: list[dict[str, Any]] = []
    for item in items:
        if item["type"] != "LINE_ITEM_VALUE":
            if item.get(item["type"]) is not None:
                found[item["type"]] = _result(item, item["type"])
            continue
        named = (name for name in LINE_ITEM_TYPES if item.get(name) is not None)
        lines += [{"type": name, **_result(item, name)} for name in named]
    return found | {"line_items": lines}


def _result(item: Mapping[str, Any], name: str) -> dict[str, Any]:
    places = item.get("page_refs") if name in (item["type"], "LINE_ITEM_VALUE") else []
    confidence = item.get("confidence")
    return {
        "value": str(item[name]),
        "confidence": None if confidence is None else round(confidence, 3),
        "page_refs": [
            {
                "page": page,
                "bounding_box": [
                    {"x": x, "y": y} for x, y in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))
                ],
            }
            for page, (x0, y0, x1, y1) in page_boxes(places)
        ],
    }
