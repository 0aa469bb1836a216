"""The context of the pipeline's handlers: the buckets and the configured processors."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from esclusa.pipelines.documents.buckets import Buckets
from esclusa.pipelines.documents.processor import Processor
from esclusa.pipelines.documents.records import FOLDER_ENDED, Folio
from esclusa.pipelines.documents.settings import DocumentsSettings

if TYPE_CHECKING:
    from esclusa.pipelines.documents.local import DocumentViewer

# How long the state of a folder is used without asking the store again.
CACHE_SECONDS = 1.0
MAX_CACHED = 1000


class Processors:
    """Opens buckets and processors on first use and keeps them until the process ends.

    ``busy`` counts the documents that this process is reading.
    """

    def __init__(self, settings: DocumentsSettings) -> None:
        self._settings = settings
        self._processors: dict[str, Processor] = {}
        self._viewer: DocumentViewer | None = None
        self.buckets = Buckets(settings.bucket_paths)
        self.busy = 0
        self._ended: dict[str, tuple[float, bool]] = {}

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

            return LocalProcessor(self._settings.local_processes)
        from esclusa.pipelines.documents.documentai import (  # noqa: PLC0415 - an extra
            DocumentAiProcessor,
        )

        return DocumentAiProcessor(self._settings, None if name == "documentai" else name)

    @property
    def viewer(self) -> DocumentViewer:
        if self._viewer is None:
            from esclusa.pipelines.documents.local import DocumentViewer  # noqa: PLC0415 - heavy

            self._viewer = DocumentViewer()
        return self._viewer

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
        for opened in (*self._processors.values(), self._viewer):
            if opened is not None:
                await opened.close()
