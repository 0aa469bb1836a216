"""One document, read whole: its class and its values. Runs in a process of its own; answers in plain values."""

from __future__ import annotations

from typing import Any

from esclusa.pipelines.documents.local.words import Unreadable, read


def work(content: bytes, doc_type: str | None = None) -> dict[str, Any]:
    """The answer, or ``error`` and ``message`` for a document that cannot be read. ``doc_type``: as what it is read, if somebody else
    classified it."""
    try:
        text = read(content)
    except Unreadable as error:
        return {"error": error.error, "message": str(error)}
    from esclusa.pipelines.documents.local.statement import understand  # noqa: PLC0415

    return understand(text, doc_type)
