"""What reads documents: a processor classifies one and extracts from it, and says where each value came from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from esclusa.model.value import value


@dataclass(frozen=True)
class Source:
    """A document to read."""

    uri: str
    generation: str
    content: bytes = field(repr=False)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@value
class Classified:
    """The class of a document, and the processor's whole answer."""

    doc_type: str
    confidence: float
    raw: dict[str, Any]


@value
class Extracted:
    """What was read: one mapping of an extraction's own fields each, in reading order, and a summary. ``text`` is where the spans count,
    unless that is the document's own."""

    items: list[dict[str, Any]]
    summary: dict[str, Any]
    text: str | None = None


class Processor(Protocol):
    """Reads documents. Raises Permanent for what no later attempt can mend (bad_pdf, encrypted_pdf, no_text_layer,
    invalid_argument), Failure for what may pass, Throttled when it is asked to slow down."""

    async def classify(self, source: Source) -> Classified: ...

    async def extract(self, source: Source, doc_type: str) -> Extracted: ...

    async def close(self) -> None: ...
