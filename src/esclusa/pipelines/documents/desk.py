"""What a worker of this pipeline has at hand: the buckets, and the processors that are set."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from esclusa.pipelines.documents.buckets import Buckets
from esclusa.pipelines.documents.processors import Processor
from esclusa.pipelines.documents.records import FOLDER_ENDED, Folio
from esclusa.pipelines.documents.settings import DocumentsSettings

if TYPE_CHECKING:
    from esclusa.pipelines.documents.local import Viewer

FRESH = 1.0
"""Seconds for which a folder's state is believed without asking again."""


class Desk:
    """Lives as long as the process. Processors are made when the first document needs them. ``busy`` counts documents under work."""

    def __init__(self, settings: DocumentsSettings) -> None:
        self._settings = settings
        self._processors: dict[str, Processor] = {}
        self._viewer: Viewer | None = None
        self.buckets = Buckets(settings.bucket_paths)
        self.busy = 0
        self._closed: dict[str, tuple[float, bool]] = {}

    @property
    def classifier(self) -> Processor:
        return self.extractor("local" if self._settings.processor == "local" else "documentai")

    def extractor(self, name: str) -> Processor:
        """The processor of this name: ``local``, or a Document AI processor by its id or full name."""
        if name not in self._processors:
            self._processors[name] = self._make(name)
        return self._processors[name]

    def _make(self, name: str) -> Processor:
        if name == "local":
            from esclusa.pipelines.documents.local import LocalProcessor  # noqa: PLC0415 - PDF libraries load with the first document

            return LocalProcessor(self._settings.local_processes)
        from esclusa.pipelines.documents.documentai import DocumentAi  # noqa: PLC0415 - Google's library is an extra

        return DocumentAi(self._settings, None if name == "documentai" else name)

    @property
    def viewer(self) -> Viewer:
        if self._viewer is None:
            from esclusa.pipelines.documents.local import Viewer  # noqa: PLC0415 - with the first picture

            self._viewer = Viewer()
        return self._viewer

    async def is_closed(self, folio_id: str, records: Any) -> bool:
        """Whether a folder has ended, asked of the store once in a while."""
        asked, answer = self._closed.get(folio_id, (0.0, False))
        if time.monotonic() - asked > FRESH:
            folio = await records.get(Folio, folio_id)
            answer = folio is not None and folio.status in FOLDER_ENDED
            if len(self._closed) > 1000:
                self._closed.clear()
            self._closed[folio_id] = (time.monotonic(), answer)
        return answer

    async def close(self) -> None:
        for opened in (*self._processors.values(), self._viewer):
            if opened is not None:
                await opened.close()
