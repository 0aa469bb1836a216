"""The structured log of the pipeline, from which ``documents progress`` derives progress.

The key ``stage`` has only the values listed here. With DOCUMENTS_EVENT_TYPES, lines also have the
``event_type`` that the service before this one wrote.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from esclusa import Attempt
from esclusa.pipelines.documents import origin
from esclusa.pipelines.documents.events import IgnoredEvent
from esclusa.pipelines.documents.records import Documento, Folio
from esclusa.pipelines.documents.settings import DocumentsSettings

FolderStage = Literal[
    "INIT",
    "LISTING",
    "PROCESSING_START",
    "PROCESSING_IN_PROGRESS",
    "FINALIZING",
    "DONE",
    "DONE_WITH_ERRORS",
    "ERROR",
]
DocumentStage = Literal[
    "DOC_CLASSIFICATION_START",
    "DOC_CLASSIFICATION_DONE",
    "DOC_EXTRACTION_START",
    "DOC_EXTRACTION_DONE",
    "DOC_ERROR",
]


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the log."""

    level: str
    message: str
    fields: dict[str, Any]


def folder_line(
    settings: DocumentsSettings,
    folio: Folio,
    stage: FolderStage | None,
    message: str,
    *,
    level: str = "info",
    **fields: Any,
) -> LogLine:
    """Return a line about a folder; without ``stage`` it does not count as progress."""
    about: dict[str, Any] = {} if stage is None else {"stage": stage}
    if stage != "INIT":
        about |= {"total_docs": folio.total_docs, "processed_docs": folio.processed_docs}
    if settings.event_types:
        about |= origin.folder_event(stage, folio.eventarc_event_id)
    return LogLine(level, message, _context(settings, folio) | about | fields)


def log_folder(
    at: Attempt,
    folio: Folio,
    stage: FolderStage | None,
    message: str,
    *,
    level: str = "info",
    **fields: Any,
) -> None:
    """Log a line about a folder; without ``stage`` it does not count as progress."""
    line = folder_line(at.settings, folio, stage, message, level=level, **fields)
    at.log(line.message, level=line.level, **line.fields)


def log_document(
    at: Attempt,
    doc: Documento,
    stage: DocumentStage,
    *,
    status: str = "IN_PROGRESS",
    level: str = "info",
    **fields: Any,
) -> None:
    """Log a line about a document."""
    about = {
        "gcs_uri": doc.gcs_uri,
        "generation": doc.generation,
        "doc_status": status,
        "doc_type": doc.doc_type,
        "stage": stage,
    }
    if at.settings.event_types:
        about |= origin.document_event(stage, doc.folio_id, doc.id, doc.eventarc_event_id)
    at.log(f"{stage} {doc.gcs_uri}", level=level, **(_context(at.settings, doc) | about | fields))


def log_other_event(at: Attempt, doc: Documento, name: str, **fields: Any) -> None:
    """Log what only the service before this one has a line for, if its readers need it."""
    if at.settings.event_types:
        about = origin.document_event(name, doc.folio_id, doc.id, doc.eventarc_event_id)
        about |= {"gcs_uri": doc.gcs_uri, "generation": doc.generation, "doc_type": doc.doc_type}
        at.log(f"{name} {doc.gcs_uri}", **(_context(at.settings, doc) | about | fields))


def ignored_line(settings: DocumentsSettings, event: IgnoredEvent) -> LogLine:
    """Return a line about an event that starts no folder."""
    fields = {
        "service_name": settings.service_name,
        "bucket": event.bucket,
        "object": event.name,
        "eventarc_event_id": event.event_id,
        "reason": event.reason,
    }
    return LogLine("info", f"event ignored: {event.reason}", fields)


def _context(settings: DocumentsSettings, record: Folio | Documento) -> dict[str, Any]:
    return {
        "service_name": settings.service_name,
        "bucket": record.bucket,
        "folder_prefix": record.folder_prefix,
        "folio_id": record.folio_id,
        "eventarc_event_id": record.eventarc_event_id,
        "execution_id": record.execution_id,
    }


def error_type(error: Exception) -> str:
    """Return the type of an error, the same in the log and in the record."""
    own = getattr(error, "type", None) or getattr(error, "error_type", None)
    if isinstance(own, str):
        return own
    if isinstance(error, TimeoutError):
        return "timeout"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(error).__name__).lower()
