"""Records of the pipeline: folders, documents, extractions, and signals that a folder is ready."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import Any

from pydantic import model_validator

from esclusa import Lifecycle, Record, track
from esclusa.pipelines.documents import origin

FOLDER_ENDED = ("DONE", "DONE_WITH_ERRORS", "ERROR")
# States of a document that waits for a person; ESCALATED after the deadline of its review.
HELD = ("NEEDS_REVIEW", "ESCALATED")
UNFINISHED = ("NOT_STARTED", "IN_PROGRESS", *HELD)


class FolderSignal(Record, table="folio_signals", key="signal_key"):
    """A signal that a folder is ready, from an event, a command or a watched directory.

    A repeated event has the same key, and so is the same signal. ``execution_id`` is that of the
    folder which it opened.
    """

    signal_key: str
    folio_id: str
    bucket: str
    folder_prefix: str
    eventarc_event_id: str | None = None
    reprocess: bool = False
    force: bool = False
    unread: bool = False
    execution_id: str = ""
    answer: str | None = None

    lifecycle = Lifecycle("received -> handled", renamed={"heard": "handled"})


class Folio(
    Record,
    table="folios",
    attach=False,
    track=track(
        updated_at="last_update_at",
        finished_at="finished_at",
        error_type="error_type",
        error_message="error_message",
    ),
    index=[("status", "created_at"), ("-created_at",)],
):
    """A folder of documents.

    ``wanted`` counts the listings requested and ``listed`` those made: it is listed again while
    they differ. ``announced`` is the execution whose start was logged, and ``progress_at`` when its
    progress was last. Documents last listed before ``redo_from`` are processed again, and before
    ``unread_from`` those of which another service read nothing. A folder
    that another service began has no ``execution_id``, and is left to it until ``left_until``.
    """

    folio_id: str = ""
    bucket: str
    folder_prefix: str
    total_docs: int | None = None
    processed_docs: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error_type: str | None = None
    error_message: str | None = None
    ignored: list[dict[str, str]] = []
    ignored_count: int = 0
    eventarc_event_id: str | None = None
    execution_id: str = ""
    announced: str = ""
    wanted: int = 1
    listed: int = 0
    redo_from: int = 0
    unread_from: int = 0
    progress_at: datetime | None = None
    left_until: datetime | None = None

    lifecycle = Lifecycle(
        """
        PENDING -> PROCESSING -> DONE | DONE_WITH_ERRORS | ERROR
        ERROR -> PROCESSING                      # a new event, or an operator
        DONE | DONE_WITH_ERRORS -> PROCESSING    # an explicit reprocess
        """,
        failed=["DONE_WITH_ERRORS"],
        finished=["DONE"],
        endless=True,
        renamed=origin.OLD_FOLDER_STATES,
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        """Derive what a folder of another service lacks."""
        if isinstance(values, dict) and values.get("id") and not values.get("folio_id"):
            return values | {"folio_id": values["id"]}
        return values


class Documento(
    Record,
    table="documentos",
    key=("folio_id", "slug"),
    within="folio_id",
    parent=Folio,
    attach=False,
    track=track(error_type="error_type", error_message="error_message"),
    index=[
        ("folio_id", "outside", "status"),
        ("content_hash", "status"),
        ("org_key", "doc_type", "period"),
    ],
):
    """One generation of one object.

    ``listing`` is the listing that last queued it. It is SUPERSEDED once the folder holds another
    generation of the object, or none. ``outside`` is not 0 if the object does not belong to its
    folder: it does not count there. ``revision`` is the fence of the claim whose extractions
    count. ``text_path`` is the artifact with the text in which their spans count, where that is
    not the document's own. ``answers`` names the artifacts with the raw answers of the processor.
    A forced reprocess begins another ``reading``, which asks for all of them again. ``operation``
    is the batch operation of the processor that is under way. With ``remap`` its answers are
    mapped anew without a call. ``warnings`` have a ``code`` and a ``message``. ``checks`` are those
    of its numbers (see ``checks``), ``review_reasons`` why it needs a person. Files of one
    organisation share the ``org_key``; ``period`` is the latest in the document.
    """

    folio_id: str
    slug: str = ""
    gcs_uri: str
    generation: str = ""
    bucket: str = ""
    folder_prefix: str = ""
    size: int = 0
    doc_type: str | None = None
    classifier_output_raw: dict[str, Any] | None = None
    classifier_version: str | None = None
    extractor_output_summary: dict[str, Any] | None = None
    error_type: str | None = None
    error_message: str | None = None
    content_hash: str | None = None
    text_path: str | None = None
    answers: list[dict[str, Any]] = []
    reading: int = 1
    operation: str | None = None
    remap: bool = False
    warnings: list[dict[str, Any]] = []
    reused_from: str | None = None
    eventarc_event_id: str | None = None
    execution_id: str = ""
    listing: int = 0
    outside: int = 0
    revision: int | None = None
    org_key: str | None = None
    period: str | None = None
    checks: list[dict[str, Any]] = []
    needs_review: bool = False
    review_reasons: list[dict[str, Any]] = []
    corrections: int = 0

    lifecycle = Lifecycle(
        """
        NOT_STARTED -> IN_PROGRESS -> DONE | ERROR
        IN_PROGRESS -> NOT_STARTED       # a retry
        ERROR -> NOT_STARTED             # re-entry, or an operator
        DONE -> NOT_STARTED              # a forced reprocess
        IN_PROGRESS -> NEEDS_REVIEW -> DONE | NOT_STARTED    # held for a person
        NEEDS_REVIEW -> ESCALATED -> DONE | NOT_STARTED      # nobody reviewed it in time
        NOT_STARTED | IN_PROGRESS | DONE | ERROR -> SUPERSEDED    # replaced or deleted
        NEEDS_REVIEW | ESCALATED -> SUPERSEDED
        SUPERSEDED -> NOT_STARTED | DONE         # the folder holds it again
        """,
        finished=["DONE", "SUPERSEDED"],
        endless=True,
        renamed=origin.OLD_DOCUMENT_STATES,
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        """Derive what a document of another service lacks."""
        if not isinstance(values, dict) or not values.get("id") or values.get("slug"):
            return values
        uri = str(values.get("gcs_uri") or "")
        bucket = uri.removeprefix("gs://").partition("/")[0] if uri.startswith("gs://") else ""
        slug = str(values["id"]).partition(":")[2]
        return values | {"slug": slug, "bucket": values.get("bucket") or bucket}


class Extraccion(
    Record,
    table="extracciones",
    key=("documento_id", "slug"),
    within="documento_id",
    parent=Documento,
    history=False,
    adopt=False,
    columns={"old_fields": "fields", "old_metadata": "metadata"},
    index=[("documento_id", "position"), ("documento_id", "revision"), ("folio_id", "type")],
):
    """One printed number (or other entity) and exactly where it came from.

    ``extra`` has what the processor answered besides, by its own names. A record of revision 0 has
    all results of a document in ``old_fields``, for readers of the service before this one.
    ``review`` is ``confirmed`` or ``corrected`` once a person has seen it; ``value`` stays as it
    was read.
    """

    folio_id: str
    documento_id: str
    slug: str
    revision: int
    position: int
    gcs_uri: str
    generation: str
    type: str
    LINE_ITEM_NAME: str | None = None
    LINE_ITEM_VALUE: str | None = None
    value: str | None = None
    COLUMN_YEAR: str | None = None
    SECTION_HEADER: str | None = None
    TOTAL_LABEL: str | None = None
    CURRENCY: str | None = None
    UNITS_SCALE: int | None = None
    REPORTING_PERIOD: str | None = None
    ORG_NAME: str | None = None
    STATEMENT_TITLE: str | None = None
    TABLE_COLUMN_HEADER: str | None = None
    TABLE_ROW_REF: str | None = None
    TABLE_CELL_REF: str | None = None
    page_refs: list[dict[str, Any]] = []
    text_spans: list[dict[str, int]] = []
    confidence: float | None = None
    processor_version: str = ""
    extra: dict[str, Any] = {}
    old_fields: dict[str, Any] | None = None
    old_metadata: dict[str, Any] | None = None
    review: str | None = None
    corrected_value: str | None = None
    review_reason: str | None = None
    reviewed_by: str | None = None
    reviewed_at: datetime | None = None

    lifecycle = Lifecycle("kept")


def folio_id(bucket: str, folder_prefix: str) -> str:
    """Return the id of a folder: readable, deterministic, and safe in URLs."""
    return f"{_readable(f'{bucket}-{folder_prefix}')}-{_digest(bucket, folder_prefix)[:12]}"


def document_slug(gcs_uri: str, generation: str) -> str:
    """Return the part of a document's id after its folder's: one per object and generation."""
    name = gcs_uri.rsplit("/", 1)[-1].removesuffix(".pdf").removesuffix(".PDF")
    return f"{_readable(name)}-{_digest(gcs_uri, generation)[:16]}"


def _readable(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[-60:].strip("-") or "x"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def dead_letter(record: Folio | Documento) -> dict[str, Any]:
    """Return the fields of the dead letter of a folder or a document."""
    return {
        "bucket": record.bucket,
        "folder_prefix": record.folder_prefix,
        "folio_id": record.folio_id,
        "gcs_uri": record.gcs_uri if isinstance(record, Documento) else None,
        "details": {
            "generation": record.generation if isinstance(record, Documento) else None,
            "doc_type": record.doc_type if isinstance(record, Documento) else None,
            "execution_id": record.execution_id,
            "eventarc_event_id": record.eventarc_event_id,
        },
    }
