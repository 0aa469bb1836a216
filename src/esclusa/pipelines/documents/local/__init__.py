"""The local processor: reads the PDF's own text, without any cloud, in processes of its own."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from esclusa import Failure
from esclusa.pipelines.documents.processors import Classified, Extracted, Source

VERSION = "local-1"
KEPT = 64
"""Extractions kept between the two calls for a document: classifying reads it whole, extracting takes what is there."""


class LocalProcessor:
    """Classifies and extracts in one reading. A document whose reader dies is tried again like any other failure."""

    def __init__(self, processes: int) -> None:
        from esclusa.pipelines.documents.local.readers import Readers  # noqa: PLC0415 - its child imports this package

        self._readers = Readers(processes)
        self._read: OrderedDict[str, dict[str, Any]] = OrderedDict()

    async def classify(self, source: Source) -> Classified:
        answer = await self._readers.read(source.content)
        self._read[source.digest] = answer
        while len(self._read) > KEPT:
            self._read.popitem(last=False)
        return Classified(
            answer["doc_type"],
            answer["confidence"],
            answer["classified"] | {"processor_version": VERSION},
        )

    async def extract(self, source: Source, doc_type: str) -> Extracted:
        kept = self._read.pop(source.digest, None)
        answer = (
            kept
            if kept is not None and kept["doc_type"] == doc_type
            else await self._readers.read(source.content, doc_type)
        )
        items = [item | {"processor_version": VERSION} for item in answer["items"]]
        values = sum(item["type"] == "LINE_ITEM_VALUE" for item in items)
        summary = {
            "line_items": values,
            "entities": len(items),
            "pages": answer["pages"],
            "unread_pages": answer["unread_pages"],
            "processor": "local",
            "processor_version": VERSION,
        }
        return Extracted(items, summary)

    async def close(self) -> None:
        await self._readers.close()


class Viewer:
    """What the trace view shows of a document, made in a process of its own: a file that brings it down brings down no server."""

    def __init__(self, processes: int = 1, seconds: float = 60.0) -> None:
        from esclusa.pipelines.documents.local.readers import Readers  # noqa: PLC0415 - its child imports this package

        self._readers = Readers(processes)
        self._seconds = seconds

    async def picture(self, content: bytes, number: int, width: int) -> bytes:
        """Page ``number`` (from 0) as PNG. Raises Permanent if it cannot be read or has no such page, Failure if that took too long."""
        return await self._made({"do": "picture", "number": number, "width": width}, content)

    async def text(self, content: bytes) -> bytes:
        """Its own text, in UTF-8. Raises as ``picture`` does."""
        return await self._made({"do": "text"}, content)

    async def close(self) -> None:
        await self._readers.close()

    async def _made(self, order: dict[str, Any], content: bytes) -> bytes:
        try:
            async with asyncio.timeout(self._seconds):
                _, body = await self._readers.ask(order, content)
        except TimeoutError:
            raise Failure(
                f"the document could not be shown within {self._seconds:g} s", type="timeout"
            ) from None
        return body
