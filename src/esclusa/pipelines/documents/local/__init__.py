"""The local processor: reads the PDF's own text, without any cloud, in processes of its own."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from esclusa import Permanent
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
        answer = await self._answer(source)
        self._read[source.digest] = answer
        while len(self._read) > KEPT:
            self._read.popitem(last=False)
        return Classified(answer["doc_type"], answer["confidence"], answer["classified"] | {"processor_version": VERSION})

    async def extract(self, source: Source, doc_type: str) -> Extracted:
        kept = self._read.pop(source.digest, None)
        answer = kept if kept is not None and kept["doc_type"] == doc_type else await self._answer(source, doc_type)
        items = [item | {"processor_version": VERSION} for item in answer["items"]]
        values = sum(item["type"] == "LINE_ITEM_VALUE" for item in items)
        summary = {
            "line_items": values,
            "entities": len(items),
            "pages": answer["pages"],
            "processor": "local",
            "processor_version": VERSION,
        }
        return Extracted(items, summary)

    async def close(self) -> None:
        await self._readers.close()

    async def _answer(self, source: Source, doc_type: str = "") -> dict[str, Any]:
        answer = await self._readers.read(source.content, doc_type)
        if "error" in answer:
            raise Permanent(answer["message"], type=answer["error"])
        return answer
