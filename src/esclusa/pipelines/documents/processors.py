"""Processors classify documents and extract traceable values; ``Processors`` opens them."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from esclusa import EsclusaError
from esclusa.pipelines.documents.answers.answer_store import AnswerStore, PendingCalls
from esclusa.pipelines.documents.buckets import Buckets, object_name
from esclusa.pipelines.documents.records import FOLDER_ENDED, Documento, Folio
from esclusa.pipelines.documents.settings import DocumentsSettings

if TYPE_CHECKING:
    from esclusa.pipelines.documents.documentai import DocumentAiProcessor
    from esclusa.pipelines.documents.documentai_client import DocumentAiClient
    from esclusa.pipelines.documents.local import DocumentViewer
    from esclusa.pipelines.documents.local.reader_pool import ReaderPool

# How long the state of a folder is used without asking the store again.
CACHE_SECONDS = 1.0
MAX_CACHED = 1000
# Seconds for which a process that ends waits for answers that are paid for.
CLOSE_SECONDS = 8.0


@dataclass(frozen=True)
class Source:
    """A document to read, and where a processor keeps its raw answers about it."""

    uri: str
    generation: str
    content: bytes = field(repr=False)
    answers: AnswerStore | None = field(default=None, repr=False)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class Classified:
    """The class of a document, and the whole answer of the processor."""

    doc_type: str
    confidence: float
    raw: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Extracted:
    """The fields of each extraction in reading order, and a summary.

    ``text`` is the text in which the spans count, unless it is the document's own.
    """

    items: list[dict[str, Any]]
    summary: dict[str, Any]
    text: str | None = None
    warnings: list[dict[str, Any]] = field(default_factory=list)


class Unfinished(EsclusaError):
    """The processor needs more time; the document waits ``after`` seconds without an attempt."""

    def __init__(self, after: float, reason: str) -> None:
        self.after = after
        super().__init__(reason)


class Processor(Protocol):
    """Reads documents.

    Raises Permanent for errors that another attempt cannot fix (bad_pdf, encrypted_pdf,
    no_text_layer, out_of_memory, invalid_argument), Failure for transient errors, Throttled when
    asked to slow down, and Unfinished while an operation of the processor runs.
    """

    async def classify(self, source: Source) -> Classified: ...

    async def extract(self, source: Source, doc_type: str) -> Extracted: ...

    async def close(self) -> None: ...


class Processors:
    """The context of handlers: opens buckets and processors on first use and keeps them.

    ``busy`` counts the documents that this process is reading.
    """

    def __init__(self, settings: DocumentsSettings) -> None:
        self._settings = settings
        self._processors: dict[str, Processor] = {}
        self._viewer: DocumentViewer | None = None
        self._pools: list[ReaderPool] = []
        self.buckets = Buckets(settings.bucket_paths)
        self.busy = 0
        self._ended: dict[str, tuple[float, bool]] = {}
        self._opened_client: DocumentAiClient | None = None
        self.calls = PendingCalls(settings.max_concurrent_docs)

    @property
    def classifier(self) -> Processor:
        return self.extractor("local" if self._settings.processor == "local" else "documentai")

    def extractor(self, name: str) -> Processor:
        """Return the processor ``local``, or a Document AI processor by its id or full name."""
        if name not in self._processors:
            self._processors[name] = self._open(name)
        return self._processors[name]

    def _open(self, name: str) -> Processor:
        if name == "local":
            from esclusa.pipelines.documents.local import LocalProcessor  # noqa: PLC0415 - heavy

            languages = self._settings.ocr_languages
            match self._settings.recogniser:
                case "tesseract":
                    return LocalProcessor(self._readers, languages)
                case "documentai":
                    own = self._settings.documentai_ocr
                    return LocalProcessor(self._readers, pictures=self._open_documentai(own))
            return LocalProcessor(self._readers)
        return self._open_documentai(None if name == "documentai" else name)

    def _open_documentai(self, name: str | None) -> DocumentAiProcessor:
        """Return a Document AI processor; without a name the configured classifier."""
        from esclusa.pipelines.documents.documentai import (  # noqa: PLC0415 - an extra
            DocumentAiProcessor,
        )

        return DocumentAiProcessor(
            self._settings, name, self._readers, self._documentai, self.buckets
        )

    @cached_property
    def _documentai(self) -> DocumentAiClient:
        from esclusa.pipelines.documents.documentai_client import (  # noqa: PLC0415 - an extra
            DocumentAiClient,
        )

        self._opened_client = DocumentAiClient(self._settings)
        return self._opened_client

    @cached_property
    def _readers(self) -> ReaderPool:
        """The child processes of all processors."""
        return self._open_pool(self._settings.local_processes)

    def _open_pool(self, size: int) -> ReaderPool:
        from esclusa.pipelines.documents.local.reader_pool import (  # noqa: PLC0415 - heavy
            ReaderPool,
        )

        self._pools.append(ReaderPool(size, self._settings.reader_memory_mb))
        return self._pools[-1]

    @property
    def viewer(self) -> DocumentViewer:
        if self._viewer is None:
            from esclusa.pipelines.documents.local import DocumentViewer  # noqa: PLC0415 - heavy

            self._viewer = DocumentViewer(self._open_pool(1))
        return self._viewer

    async def content(self, doc: Documento) -> bytes:
        """Return the content of a document."""
        bucket = self.buckets[doc.bucket]
        return await bucket.read(object_name(doc.bucket, doc.gcs_uri), doc.generation)

    async def has_ended(self, folio_id: str, records: Any) -> bool:
        """Return whether a folder has ended; the answer may be CACHE_SECONDS old."""
        asked_at, answer = self._ended.get(folio_id, (0.0, False))
        if time.monotonic() - asked_at > CACHE_SECONDS:
            folio = await records.get(Folio, folio_id)
            answer = folio is not None and folio.status in FOLDER_ENDED
            if len(self._ended) > MAX_CACHED:
                self._ended.clear()
            self._ended[folio_id] = (time.monotonic(), answer)
        return answer

    async def close(self) -> None:
        await self.calls.close(CLOSE_SECONDS)
        if self._opened_client is not None:
            await self._opened_client.close()
        for processor in self._processors.values():
            await processor.close()
        for pool in self._pools:
            await pool.close()
