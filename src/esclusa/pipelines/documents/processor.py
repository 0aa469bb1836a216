"""The protocol of processors, which classify documents and extract traceable values."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol


@dataclass(frozen=True)
class Source:
    """A document to read."""

    uri: str
    generation: str
    content: bytes = field(repr=False)

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


class Processor(Protocol):
    """Reads documents.

    Raises Permanent for errors that another attempt cannot fix (bad_pdf, encrypted_pdf,
    no_text_layer, invalid_argument), Failure for transient errors, and Throttled when asked to
    slow down.
    """

    async def classify(self, source: Source) -> Classified: ...

    async def extract(self, source: Source, doc_type: str) -> Extracted: ...

    async def close(self) -> None: ...
