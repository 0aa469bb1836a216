"""The local processor: reads the text of the PDF itself, without a cloud, in child processes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from esclusa import Failure, Text
from esclusa.pipelines.documents.answers.recognised_words import recognised_pages
from esclusa.pipelines.documents.processors import Classified, Extracted, Source

if TYPE_CHECKING:  # the child process imports this package
    from esclusa.pipelines.documents.documentai import DocumentAiProcessor
    from esclusa.pipelines.documents.local.reader_pool import ReaderPool

VERSION = "local-1"
# Answers kept between `classify`, which reads the whole document, and `extract`.
MAX_KEPT = 64


class LocalProcessor:
    """Classifies and extracts in one reading; implements ``Processor``.

    ``ocr`` are the languages in which Tesseract reads pages that are pictures. ``pictures`` is the
    processor of Document AI that reads them instead; with neither they are not read.
    """

    def __init__(
        self,
        readers: ReaderPool,
        ocr: str | None = None,
        pictures: DocumentAiProcessor | None = None,
    ) -> None:
        self._readers = readers
        self._ocr = ocr
        self._pictures = pictures
        self._answers: OrderedDict[str, dict[str, Any]] = OrderedDict()

    async def classify(self, source: Source) -> Classified:
        answer = await self._read(source)
        self._answers[source.digest] = answer
        while len(self._answers) > MAX_KEPT:
            self._answers.popitem(last=False)
        return Classified(
            answer["doc_type"],
            answer["confidence"],
            answer["classified"] | {"processor_version": VERSION},
        )

    async def extract(self, source: Source, doc_type: str) -> Extracted:
        answer = self._answers.pop(source.digest, None)
        if answer is None or answer["doc_type"] != doc_type:
            answer = await self._read(source, doc_type)
        items = [item | {"processor_version": VERSION} for item in answer["items"]]
        return Extracted(
            items,
            {
                "line_items": sum(item["type"] == "LINE_ITEM_VALUE" for item in items),
                "entities": len(items),
                "pages": answer["pages"],
                "unread_pages": answer["unread_pages"],
                "recognised_pages": answer["recognised_pages"],
                "ocr": self._ocr_name,
                "processor": "local",
                "processor_version": VERSION,
            },
            answer.get("text"),
        )

    @property
    def _ocr_name(self) -> str:
        return "documentai" if self._pictures else "tesseract" if self._ocr else "off"

    async def _read(self, source: Source, doc_type: str | None = None) -> dict[str, Any]:
        words: dict[int, Any] | None = None
        if self._pictures is not None:
            found, _ = await self._readers.request({"do": "find_pictures"}, source.content)
            if found["pages"]:
                words = recognised_pages(await self._pictures.read_pages(source, found["pages"]))
        return await self._readers.read(source.content, doc_type, self._ocr, words)

    async def close(self) -> None:
        """Nothing is open: the readers belong to the caller."""


class DocumentViewer:
    """Renders pages and texts in a child process, so that a bad file cannot crash the server."""

    def __init__(self, readers: ReaderPool, seconds: float = 60.0) -> None:
        self._readers = readers
        self._seconds = seconds

    async def picture(self, content: bytes, number: int, width: int) -> bytes:
        """Return page ``number`` (from 0) as PNG.

        Raises Permanent if the document is unreadable, needs too much memory or has no such page,
        Failure on a timeout.
        """
        return await self._request({"do": "picture", "number": number, "width": width}, content)

    async def text(self, content: bytes) -> bytes:
        """Return the text of the document in UTF-8; raises as ``picture`` does."""
        return await self._request({"do": "text"}, content)

    async def _request(self, job: dict[str, Any], content: bytes) -> bytes:
        try:
            async with asyncio.timeout(self._seconds):
                _, body = await self._readers.request(job, content)
        except TimeoutError:
            raise Failure(
                Text(
                    "the document could not be rendered within {seconds:g} s", seconds=self._seconds
                ),
                type="timeout",
            ) from None
        return body
