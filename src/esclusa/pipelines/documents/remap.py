"""What an operator does to a folder again: map stored answers anew, count what to reprocess."""

from __future__ import annotations

from collections import Counter

from esclusa import NotFound, Runtime
from esclusa.pipelines.documents.folder_signals import find_folio, from_command
from esclusa.pipelines.documents.listing import is_unread
from esclusa.pipelines.documents.records import Documento


async def remap_documents(runtime: Runtime, who: str, uri: str) -> dict[str, int]:
    """Queue the finished documents of a folder whose answers are all stored; count them.

    Raises BadUri, and NotFound if the folder is not recorded.
    """
    folio = await find_folio(runtime, from_command(uri))
    if folio is None:
        raise NotFound(f"there is no folder {uri}")
    acted = await runtime.operations(who).act(
        "documents.remap", where={"folio_id": folio.folio_id}, reason="remap"
    )
    return {"remapped": acted.moved, "without_answers": acted.matched - acted.moved}


async def reprocess_counts(runtime: Runtime, folio_id: str) -> list[str]:
    """Return how many documents of a folder failed, by their error, and how many were not read."""
    errors: Counter[str] = Counter()
    unread = 0
    async for doc in runtime.records.each(Documento, {"folio_id": folio_id}):
        if doc.status == "ERROR":
            message = (doc.error_message or "").partition(":")[0][:60]
            errors[f"{doc.error_type or 'error'} ({message})" if message else "error"] += 1
        elif doc.status == "DONE":
            unread += await is_unread(doc, runtime.records)
    lines = [f"in error: {count:,} {name}" for name, count in errors.most_common()]
    return [*lines, f"done without being read: {unread:,} (--unread reprocesses them)"]
