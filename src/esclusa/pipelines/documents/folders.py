"""Folders: a signal is heard, the folder is listed, looked after while its documents are read, and closed once."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from esclusa import Add, Attempt, Create, Failure, Move, Outcome, Retry, To, Wait, Wake, one_of
from esclusa.pipelines.documents import tell
from esclusa.pipelines.documents.buckets import FLAG, Blob, Bucket, is_text
from esclusa.pipelines.documents.records import UNFINISHED, Documento, Folio, Signal, document_slug

PAGE = 500
EFFECTS = 300
"""Other records that one settlement of a folder changes at most; a longer listing takes several."""
TOLD = 200
"""Ignored objects that a folder names; the rest is only counted."""
HEAD = 1024
"""Where a PDF's magic bytes may stand."""
READERS = 16


async def hear(signal: Signal, at: Attempt) -> Outcome:
    """What a signal means for its folder, by the folder's present state."""
    id = signal.folio_id
    folio = await at.records.get(Folio, id)
    again: dict[str, Any] = {
        "execution_id": secrets.token_hex(8),
        "eventarc_event_id": signal.eventarc_event_id,
        "started_at": at.now,
    }
    if folio is None:
        draft = Folio(
            id=id, folio_id=id, bucket=signal.bucket, folder_prefix=signal.folder_prefix, execution_id=secrets.token_hex(8),
            eventarc_event_id=signal.eventarc_event_id,
        )  # fmt: skip
        return To("heard", answer="new", also=[Create(draft)])
    more: dict[str, Any] = {
        "wanted": folio.wanted + 1,
        "redo_from": folio.wanted + 1 if signal.force else folio.redo_from,
        **again,
    }
    match folio.status:
        case "PROCESSING":  # what is not done goes on, what failed is tried again; a listing under way may have passed what is new
            return To("heard", answer="goes on", also=[Add(Folio, id, wanted=1), Wake(Folio, id)])
        case "ERROR" if signal.reprocess or at.settings.on_error == "retry":
            reason = "reprocess" if signal.reprocess else "a new event after an error"
            return To(
                "heard",
                answer=reason,
                also=[Move(Folio, id, "PROCESSING", frm="ERROR", reason=reason, **more)],
            )
        case "DONE" | "DONE_WITH_ERRORS" if signal.reprocess:
            frm = ("DONE", "DONE_WITH_ERRORS")
            return To(
                "heard",
                answer="reprocess",
                also=[Move(Folio, id, "PROCESSING", frm=frm, reason="reprocess", **more)],
            )
        case state:
            at.log(
                f"ignored: folder {id} is {state}",
                folio_id=id,
                eventarc_event_id=signal.eventarc_event_id,
            )
            return To("heard", answer=f"ignored: {state}")


async def begin(folio: Folio, at: Attempt) -> Outcome:
    return To("PROCESSING", started_at=at.now)


async def tend(folio: Folio, at: Attempt) -> Outcome:
    """List the folder if that is wanted; else see how far its documents are, and close it when all have ended."""
    try:
        if folio.listed < folio.wanted:
            return await _list(folio, at)
        return await _look_after(folio, at)
    except Exception as error:
        final = getattr(error, "permanent", False) or (
            at.tries is not None and at.number >= at.tries
        )
        kind, message = tell.kind_of(error), str(error) or type(error).__name__
        tell.folder(
            at, folio, "ERROR" if final else None, f"folder {folio.folio_id}: {message}", level="error" if final else "warning",
            error_type=kind, error_message=message, attempts=at.number,
        )  # fmt: skip
        raise


# listing


@dataclass
class _Plan:
    """What a listing found, and what it means for the documents that are known already."""

    total: int = 0
    ended: int = 0
    fresh: list[Blob] = field(default_factory=list)
    effects: list[Move | Add] = field(default_factory=list)
    ignored: list[dict[str, str]] = field(default_factory=list)
    ignored_count: int = 0

    def ignore(self, blob: Blob, reason: str) -> None:
        self.ignored_count += 1
        if len(self.ignored) < TOLD:
            self.ignored.append({"uri": blob.uri, "reason": reason})


async def _list(folio: Folio, at: Attempt) -> Outcome:
    started = folio.announced != folio.execution_id
    if started:
        tell.folder(at, folio, "INIT", f"folder {folio.folio_id}: begins")
    tell.folder(
        at,
        folio,
        "LISTING",
        f"folder {folio.folio_id}: listing {folio.bucket}/{folio.folder_prefix}",
    )
    plan = await _planned(folio, at)
    for one in plan.ignored:
        tell.folder(
            at,
            folio,
            None,
            f"ignored {one['uri']}: {one['reason']}",
            uri=one["uri"],
            reason=one["reason"],
        )
    found = {
        "total_docs": plan.total,
        "processed_docs": plan.ended,
        "ignored": plan.ignored,
        "ignored_count": plan.ignored_count,
    }
    await at.save(announced=folio.execution_id, **found)
    if started:
        said = "is empty: 0 documents" if plan.total == 0 else f"{plan.total} documents"
        tell.folder(at, folio, "PROCESSING_START", f"folder {folio.folio_id}: {said}")
    for page in _pages(plan.fresh, PAGE):
        await at.records.insert([_draft(folio, blob) for blob in page])
    if len(plan.effects) > EFFECTS:  # the rest is found again by the next listing
        return To(
            "PROCESSING", also=plan.effects[:EFFECTS], attempts=0, reason="a long listing goes on"
        )
    return To(
        "PROCESSING",
        listed=folio.wanted,
        also=plan.effects,
        attempts=0,
        reason=f"listed: {plan.total} documents",
    )


async def _planned(folio: Folio, at: Attempt) -> _Plan:
    plan = _Plan()
    bucket: Bucket = at.context.buckets[folio.bucket]
    again = folio.listed > 0 or folio.wanted > 1
    here: set[str] = set()
    async for page in _blobs(bucket, folio.folder_prefix):
        drafts = [_draft(folio, blob) for blob in page]
        known = await at.records.get_many(Documento, [draft.id for draft in drafts])
        unknown = [blob for blob, doc in zip(page, known, strict=True) if doc is None]
        fresh = {
            blob.uri: why
            for blob, why in zip(unknown, await _not_pdf(bucket, unknown), strict=True)
        }
        for blob, draft, doc in zip(page, drafts, known, strict=True):
            if doc is None and fresh[blob.uri]:
                plan.ignore(blob, fresh[blob.uri])
                continue
            plan.total += 1
            if again:
                here.add(draft.id)
            if doc is None:
                plan.fresh.append(blob)
            else:
                _again(plan, folio, doc)
    if again:
        async for doc in at.records.each(Documento, {"folio_id": folio.folio_id, "superseded": 0}):
            if doc.id not in here:
                plan.effects.append(Add(Documento, doc.id, superseded=1))
    return plan


def _again(plan: _Plan, folio: Folio, doc: Documento) -> None:
    """A document that was known before this listing: what becomes of it."""
    if doc.superseded:
        plan.effects.append(Add(Documento, doc.id, superseded=-doc.superseded))
    context: dict[str, Any] = {
        "listing": folio.wanted,
        "execution_id": folio.execution_id,
        "eventarc_event_id": folio.eventarc_event_id,
    }
    if doc.status == "ERROR" and doc.listing < folio.wanted:
        plan.effects.append(
            Move(Documento, doc.id, "NOT_STARTED", frm="ERROR", reason=_reason(folio), **context)
        )
    elif doc.status == "DONE" and doc.listing < folio.redo_from:
        redo = context | {"doc_type": None, "classifier_output_raw": None, "reused_from": None}
        plan.effects.append(
            Move(Documento, doc.id, "NOT_STARTED", frm="DONE", reason=_reason(folio), **redo)
        )
    elif doc.status not in UNFINISHED:
        plan.ended += 1


def _reason(folio: Folio) -> str:
    return "reprocess" if folio.redo_from == folio.wanted else "re-entry"


def _draft(folio: Folio, blob: Blob) -> Documento:
    slug = document_slug(blob.uri, blob.generation)
    return Documento(
        id=Documento.kind.id_of(folio.folio_id, slug), folio_id=folio.folio_id, slug=slug, gcs_uri=blob.uri, generation=blob.generation,
        bucket=folio.bucket, folder_prefix=folio.folder_prefix, size=blob.size, eventarc_event_id=folio.eventarc_event_id,
        execution_id=folio.execution_id, listing=folio.wanted,
    )  # fmt: skip


async def _blobs(bucket: Bucket, prefix: str) -> AsyncIterator[list[Blob]]:
    page: list[Blob] = []
    async for blob in bucket.list(prefix):
        if blob.name == f"{prefix}/{FLAG}":
            continue
        page.append(blob)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page


async def _not_pdf(bucket: Bucket, blobs: Sequence[Blob]) -> list[str]:
    """For each object why it is no PDF; empty if it is one. The first bytes decide, not the name."""
    gate = asyncio.Semaphore(READERS)

    async def look(blob: Blob) -> str:
        if blob.name.endswith("/"):
            return "a folder's own mark"
        if blob.size == 0:
            return "the flag of a folder inside" if blob.name.endswith(f"/{FLAG}") else "empty"
        if not is_text(blob.name):
            return "its name is not UTF-8"
        async with gate:
            try:
                head = await bucket.head(blob, HEAD)
            except Failure as error:
                if error.permanent:
                    return str(error)  # it went away between the listing and now
                raise
        return "" if b"%PDF-" in head else "not a PDF"

    return list(await asyncio.gather(*(look(blob) for blob in blobs)))


def _pages(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


# looking after, closing


async def _look_after(folio: Folio, at: Attempt) -> Outcome:
    name = folio.folio_id
    pending = await _count(at, name, one_of(*UNFINISHED))
    failed = await _count(at, name, "ERROR")
    done = await _count(at, name, "DONE")
    folio.processed_docs, before = done + failed, folio.processed_docs
    if pending:
        if folio.processed_docs != before:
            tell.folder(
                at,
                folio,
                "PROCESSING_IN_PROGRESS",
                f"folder {name}: {folio.processed_docs} of {folio.total_docs} documents",
            )
        age = (at.now - folio.started_at).total_seconds() if folio.started_at else 0.0
        return Wait(
            min(5.0, 1.0 + age / 60),
            "its documents are being processed",
            attempts=0,
            processed_docs=folio.processed_docs,
        )
    folio.total_docs = done + failed
    counts: dict[str, Any] = {
        "total_docs": folio.total_docs,
        "processed_docs": folio.processed_docs,
    }
    tell.folder(at, folio, "FINALIZING", f"folder {name}: closing")
    if failed == 0:
        tell.folder(at, folio, "DONE", f"folder {name}: done, {done} documents")
        return To("DONE", reason=f"{done} documents are done", **counts)
    said = f"{failed} of {done + failed} documents ended in error"
    if failed >= at.settings.error_threshold * (done + failed):
        tell.folder(
            at,
            folio,
            "ERROR",
            f"folder {name}: {said}",
            level="error",
            error_type="too_many_errors",
            error_message=said,
        )
        return Retry(said, type="too_many_errors", permanent=True, **counts)
    tell.folder(at, folio, "DONE_WITH_ERRORS", f"folder {name}: {said}", level="warning")
    return To("DONE_WITH_ERRORS", reason=said, **counts)


async def _count(at: Attempt, folio_id: str, status: Any) -> int:
    count, _ = await at.records.count(
        Documento, {"folio_id": folio_id, "superseded": 0, "status": status}, cap=10_000_000
    )
    return count
