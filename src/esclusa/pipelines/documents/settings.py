"""The settings of the pipeline ``documents``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ValidationInfo, field_validator, model_validator

from esclusa import Budget, Rate, option
from esclusa.pipelines.documents.buckets import FlagRule
from esclusa.pipelines.documents.fields import FIELDS

CLASSES = (
    "balance_sheet",
    "income_statement",
    "cash_flow",
    "changes_in_equity",
    "trial_balance",
    "other",
)


class DocumentsSettings(BaseModel):
    """Processors, limits, and the callers of the event route."""

    service_name: str = option(
        "DOCUMENTS_SERVICE_NAME",
        "apolo-procesamiento-inteligente-preavaluo",
        help="service_name of every log line.",
    )
    processor: Literal["local", "documentai"] = option(
        "DOCUMENTS_PROCESSOR",
        "local",
        help="Processor that classifies, and that extracts classes not in DOCUMENTS_EXTRACTORS.",
    )
    extractors: str = option(
        "DOCUMENTS_EXTRACTORS",
        "",
        help="Extractor of each class: class=processor,… A processor is local, or the id or full "
        "name of a Document AI processor. Not set: local extracts every class.",
    )
    local_buckets: str = option(
        "DOCUMENTS_LOCAL_BUCKETS",
        "",
        help="Buckets that are folders on this machine: bucket=/path,… They serve events and "
        "gs:// URIs of these names.",
    )
    max_concurrent_docs: int = option(
        "MAX_CONCURRENT_DOCS", 8, ge=1, le=1000, help="Concurrent documents per worker."
    )
    on_error: Literal["retry", "ignore"] = option(
        "DOCUMENTS_ON_ERROR",
        "retry",
        help="What a new event does to a folder in ERROR: process it again, or nothing.",
    )
    dedup: Literal["off", "content"] = option(
        "DOCUMENTS_DEDUP",
        "off",
        help="content: reuse the results of a document with the same content.",
    )
    error_threshold: float = option(
        "DOCUMENTS_ERROR_THRESHOLD",
        0.5,
        gt=0,
        le=1,
        help="Share of documents in error from which the folder ends in ERROR.",
    )
    max_attempts: int = option(
        ["MAX_RETRIES", "DOCUMENTS_MAX_ATTEMPTS"],
        5,
        ge=1,
        le=100,
        help="Attempts at a document, or at listing a folder.",
    )
    backoff_seconds: float = option(
        ["RETRY_INITIAL_DELAY", "DOCUMENTS_BACKOFF_SECONDS"],
        5.0,
        ge=0,
        help="Wait after the first failed attempt.",
    )
    backoff_factor: float = option(
        ["RETRY_MULTIPLIER", "DOCUMENTS_BACKOFF_FACTOR"],
        2.0,
        ge=1,
        help="Factor by which the wait grows with each attempt.",
    )
    backoff_max_seconds: float = option(
        ["RETRY_MAX_DELAY", "DOCUMENTS_BACKOFF_MAX_SECONDS"],
        300.0,
        ge=0,
        help="Longest wait between attempts.",
    )
    timeout_seconds: float = option(
        "DOCUMENTS_TIMEOUT_SECONDS", 600.0, gt=0, help="Seconds for one attempt at one document."
    )
    max_document_mb: int = option(
        "DOCUMENTS_MAX_DOCUMENT_MB",
        200,
        ge=1,
        le=2000,
        help="Largest document in megabytes; a larger one ends in ERROR.",
    )
    local_processes: int = option(
        "DOCUMENTS_LOCAL_PROCESSES",
        2,
        ge=1,
        le=64,
        help="Child processes that read PDFs, besides one that draws pages for the console.",
    )
    local_memory_mb: int | None = option(
        "DOCUMENTS_LOCAL_MEMORY_MB",
        None,
        ge=64,
        le=64_000,
        help="Memory of each of these processes in megabytes; a document that needs more ends in "
        "ERROR. By default 300 more than DOCUMENTS_MAX_DOCUMENT_MB.",
    )
    ocr: Literal["tesseract", "documentai", "off"] | None = option(
        "DOCUMENTS_OCR",
        None,
        help="What reads pages that are pictures. By default tesseract where it is installed.",
    )
    documentai_ocr: str | None = option(
        "DOCUMENTAI_OCR",
        None,
        help="Processor id or full name of the OCR processor, with DOCUMENTS_OCR=documentai.",
    )
    ocr_languages: str = option(
        "DOCUMENTS_OCR_LANGUAGES",
        "spa+eng",
        pattern=r"[A-Za-z_]+(\+[A-Za-z_]+)*",
        help="Languages of tesseract, each with its data installed.",
    )
    review: Literal["mark", "hold"] = option(
        "DOCUMENTS_REVIEW",
        "mark",
        help="What happens to a document with low confidence, a failed check or unread pages: mark "
        "it (needs_review), or hold it in NEEDS_REVIEW until a person releases it.",
    )
    review_days: float = option(
        "DOCUMENTS_REVIEW_DAYS",
        2.0,
        gt=0,
        help="Days for which a document may be in NEEDS_REVIEW; then it is ESCALATED, with an "
        "alert.",
    )
    review_confidence: float = option(
        "DOCUMENTS_REVIEW_CONFIDENCE",
        0.6,
        ge=0,
        le=1,
        help="Confidence below which a value needs a person.",
    )
    dlq_topic: str | None = option(
        ["DLQ_TOPIC_NAME", "DLQ_TOPIC"],
        None,
        help="Pub/Sub topic to which dead letters are published.",
    )
    take_over: Literal["off", "apolo"] = option(
        "DOCUMENTS_TAKE_OVER",
        "off",
        help="apolo: continue the data of the service apolo_procesamiento_inteligente_preavaluo, "
        "with its ids, also while it still runs.",
    )
    flag_any_case: bool | None = option(
        "DOCUMENTS_FLAG_ANY_CASE",
        None,
        help="Whether IS_READY in any case is the flag of a folder. By default only with "
        "DOCUMENTS_TAKE_OVER.",
    )
    flag_any_size: bool = option(
        "DOCUMENTS_FLAG_ANY_SIZE", False, help="Whether the flag of a folder may have content."
    )
    take_over_grace_seconds: float = option(
        "DOCUMENTS_TAKE_OVER_GRACE_SECONDS",
        900.0,
        ge=0,
        help="A folder in PROCESSING that another service began is left to it for so long after "
        "its last write.",
    )
    old_extractions: bool = option(
        "DOCUMENTS_OLD_EXTRACTIONS",
        False,
        help="Whether results are also written in the form of that service: one map of fields per "
        "processing, and its names of classes.",
    )
    event_types: bool = option(
        "DOCUMENTS_EVENT_TYPES",
        False,
        help="Whether log lines also have the key event_type of that service.",
    )
    eventarc_service_account: str | None = option(
        "EVENTARC_SERVICE_ACCOUNT",
        None,
        help="The service account whose OIDC tokens may send events; required with the audience.",
    )
    eventarc_audience: str | None = option(
        "EVENTARC_AUDIENCE",
        None,
        help="Audiences of the callers' OIDC tokens, with commas. If not set, a caller needs an "
        "API token.",
    )
    eventarc_certs_url: str = option(
        "EVENTARC_CERTS_URL",
        "https://www.googleapis.com/oauth2/v3/certs",
        help="URL of the public keys of the token issuer.",
    )
    documentai_project: str | None = option(
        ["GCP_PROJECT_ID", "DOCUMENTAI_PROJECT"],
        None,
        help="Project of the Document AI processors.",
    )
    documentai_location: str = option(
        ["PROCESSOR_LOCATION", "DOCUMENTAI_LOCATION"],
        "us",
        help="Location of the processors, which selects the endpoint.",
    )
    documentai_classifier: str | None = option(
        ["CLASSIFIER_PROCESSOR_NAME", "DOCUMENTAI_CLASSIFIER"],
        None,
        help="Processor id or full name of the classifier.",
    )
    er_extractor: str | None = option(
        "ER_EXTRACTOR_PROCESSOR_NAME",
        None,
        help="Extractor of income statements, unless DOCUMENTS_EXTRACTORS names one.",
    )
    esf_extractor: str | None = option(
        "ESF_EXTRACTOR_PROCESSOR_NAME",
        None,
        help="Extractor of balance sheets, unless DOCUMENTS_EXTRACTORS names one.",
    )
    documentai_endpoint: str | None = option(
        "DOCUMENTAI_ENDPOINT",
        None,
        help="Another endpoint for tests: http://host:port (REST, without credentials).",
    )
    documentai_max_pages: int | None = option(
        "DOCUMENTAI_MAX_PAGES",
        None,
        ge=2,
        help="Pages per call; longer documents take several calls. By default 15, or 30 in "
        "imageless mode.",
    )
    documentai_imageless: bool = option(
        "DOCUMENTAI_IMAGELESS",
        False,
        help="Whether calls use the imageless mode of Document AI, which takes 30 pages.",
    )
    documentai_pages_per_minute: int | None = option(
        "DOCUMENTAI_PAGES_PER_MINUTE",
        None,
        ge=1,
        help="Pages per minute that all workers together send to Document AI.",
    )
    documentai_output: str | None = option(
        "DOCUMENTAI_OUTPUT",
        None,
        pattern=r"gs://[^/]+(/.*)?",
        help="Folder of Cloud Storage for the output of batch processing: gs://bucket/folder. "
        "Documents that are too long for one call are then processed in one batch.",
    )
    documentai_fields: str = option(
        "DOCUMENTAI_FIELDS",
        "",
        help="Fields of the processor's own schema: LINE_ITEM/VALUE=LINE_ITEM_VALUE,… A name alone "
        "stands for it below any parent.",
    )
    documentai_max_mb: int = option(
        "DOCUMENTAI_MAX_MB",
        20,
        ge=1,
        help="Megabytes per call; larger documents are sent in parts.",
    )

    @field_validator("extractors")
    @classmethod
    def _check_extractors(cls, text: str) -> str:
        pairs(text, "class=processor")
        return text

    @field_validator("documentai_fields")
    @classmethod
    def _check_fields(cls, text: str) -> str:
        for name, target in pairs(text, "PARENT/NAME=FIELD").items():
            if target not in FIELDS:
                raise ValueError(f"{name}: {target} is none of {', '.join(FIELDS)}")
        return text

    @field_validator("local_buckets")
    @classmethod
    def _check_buckets(cls, text: str) -> str:
        for name, path in pairs(text, "bucket=/path").items():
            if not path.startswith("/"):
                raise ValueError(f"{name}: {path!r} is not an absolute path")
        return text

    @field_validator("eventarc_audience")
    @classmethod
    def _check_audience(cls, text: str | None, info: ValidationInfo) -> str | None:
        if text and not info.data.get("eventarc_service_account"):
            raise ValueError(
                "set EVENTARC_SERVICE_ACCOUNT too: anybody can get a token for an audience"
            )
        return text

    @model_validator(mode="after")
    def _check_extractor_classes(self) -> DocumentsSettings:
        if self.processor == "local":  # a trained classifier may have other classes
            given = pairs(self.extractors, "class=processor")
            unknown = [name for name in given if name not in CLASSES]
            if unknown:
                raise ValueError(
                    f"DOCUMENTS_EXTRACTORS: {', '.join(unknown)} is none of the classes "
                    f"{', '.join(CLASSES)}"
                )
        return self

    @property
    def extractor_of(self) -> dict[str, str]:
        """The processor of each class that has one."""
        named = (
            (("income_statement", "ESTADO_RESULTADOS"), self.er_extractor),
            (("balance_sheet", "ESTADO_SITUACION_FINANCIERA"), self.esf_extractor),
        )
        given = {name: each for names, each in named if each for name in names}
        given |= pairs(self.extractors, "class=processor")
        return dict.fromkeys(CLASSES, "local") if not given and self.processor == "local" else given

    @property
    def recogniser(self) -> Literal["tesseract", "documentai", "off"]:
        """What reads pages that are pictures."""
        if self.ocr is None:
            return "tesseract" if shutil.which("tesseract") else "off"
        return self.ocr

    @property
    def flag(self) -> FlagRule:
        """Which objects are flags of ready folders."""
        taken_over = self.take_over != "off"
        any_case = taken_over if self.flag_any_case is None else self.flag_any_case
        return FlagRule(any_case, self.flag_any_size, root=taken_over)

    @property
    def pages_per_call(self) -> int:
        return self.documentai_max_pages or (30 if self.documentai_imageless else 15)

    @property
    def page_budget(self) -> Budget | None:
        """The budget of pages per minute, shared by all workers; None without a limit."""
        limit = self.documentai_pages_per_minute
        if limit is None:
            return None
        burst = max(1, min(limit // 2, self.pages_per_call))
        return Budget("documentai-pages", Rate(limit, "minute", burst=burst))

    @property
    def reader_memory_mb(self) -> int:
        """Megabytes of memory of each process that reads PDFs."""
        return self.local_memory_mb or self.max_document_mb + 300

    @property
    def bucket_paths(self) -> dict[str, str]:
        return pairs(self.local_buckets, "bucket=/path")

    @property
    def audiences(self) -> tuple[str, ...]:
        return tuple(
            part.strip() for part in (self.eventarc_audience or "").split(",") if part.strip()
        )


def pairs(text: str, shape: str) -> dict[str, str]:
    """Return ``a=b,c=d`` as a mapping; raise ValueError."""
    found: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = (p.strip() for p in part.partition("="))
        if not (name and equals and value):
            raise ValueError(f"{part!r} is not {shape}")
        if name in found:
            raise ValueError(f"{name} is named twice")
        found[name] = value
    return found


def check(settings: DocumentsSettings) -> Iterator[str]:
    """Yield the faults that ``esclusa doctor`` reports."""
    from pathlib import Path  # noqa: PLC0415 - only the doctor asks

    for name, path in settings.bucket_paths.items():
        if not Path(path).is_dir():
            yield f"DOCUMENTS_LOCAL_BUCKETS: {name}={path}: there is no such folder"
    remote = "documentai" in (settings.processor, settings.recogniser) or any(
        p != "local" for p in settings.extractor_of.values()
    )
    if settings.recogniser == "documentai" and not settings.documentai_ocr:
        yield "DOCUMENTAI_OCR is needed with DOCUMENTS_OCR=documentai"
    if settings.processor == "documentai" and not settings.documentai_classifier:
        yield "DOCUMENTAI_CLASSIFIER is needed with DOCUMENTS_PROCESSOR=documentai"
    if settings.recogniser == "tesseract":
        from esclusa.pipelines.documents.local.tesseract import (  # noqa: PLC0415 - as above
            installed_languages,
        )

        missing = set(settings.ocr_languages.split("+")) - installed_languages()
        if missing:
            packages = ", ".join(f"tesseract-ocr-{name}" for name in sorted(missing))
            yield f"DOCUMENTS_OCR=tesseract: install its program and {packages}"
    if remote and not settings.documentai_project:
        yield "DOCUMENTAI_PROJECT is needed to call Document AI"
