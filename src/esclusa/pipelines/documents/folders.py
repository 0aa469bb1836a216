"""Stages of a folder: handle a signal, list the folder, supervise its documents, close it once."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from esclusa import Add, Attempt, Create, Failure, Move, Outcome, Retry, To, Wait, Wake, one_of
from esclusa.pipelines.documents.buckets import FLAG, Blob, DocumentBucket, is_text
from esclusa.pipelines.documents.progress_log import error_type, log_folder
from esclusa.pipelines.documents.records import (
    UNFINISHED,
    Documento,
    FolderSignal,
    Folio,
    document_slug,
)

PAGE_SIZE = 500
# Most other records that one settlement of a folder changes; a longer listing takes several.
MAX_EFFECTS = 300
# Ignored objects that a folder lists; the rest are only counted.
MAX_IGNORED = 200
# Bytes in which a PDF's signature may stand.
HEAD_BYTES = 1024
CONCURRENT_HEADS = 16


async def on_event(signal: FolderSignal, at: Attempt) -> Outcome:
    """Apply a signal to its folder, by the folder's present state."""
    id = signal.folio_id
    folio = await at.records.get(Folio, id)
    if folio is None:
        new = Folio(
            id=id,
            folio_id=id,
            bucket=signal.bucket,
            folder_prefix=signal.folder_prefix,
            execution_id=secrets.token_hex(8),
            eventarc_event_id=signal.eventarc_event_id,
        )
        return To("handled", answer="new", also=[Create(new)])
    reopened: dict[str, Any] = {
        "wanted": folio.wanted + 1,
        "redo_from": folio.wanted + 1 if signal.force else folio.redo_from,
        "execution_id": secrets.token_hex(8),
        "eventarc_event_id": signal.eventarc_event_id,
        "started_at": at.now,
    }
    match folio.status:
        case "PROCESSING":  # list it again: a listing under way may have missed new documents
            return To(
                "handled", answer="continued", also=[Add(Folio, id, wanted=1), Wake(Folio, id)]
            )
        case "ERROR" if signal.reprocess or at.settings.on_error == "retry":
            reason = "reprocess" if signal.reprocess else "a new event after an error"
            return To(
                "handled",
                answer=reason,
                also=[Move(Folio, id, "PROCESSING", frm="ERROR", reason=reason, **reopened)],
            )
        case "DONE" | "DONE_WITH_ERRORS" if signal.reprocess:
            frm = ("DONE", "DONE_WITH_ERRORS")
            return To(
                "handled",
                answer="reprocess",
                also=[Move(Folio, id, "PROCESSING", frm=frm, reason="reprocess", **reopened)],
            )
        case state:
            at.log(
                f"ignored: folder {id} is {state}",
                folio_id=id,
                eventarc_event_id=signal.eventarc_event_id,
            )
            return To("handled", answer=f"ignored: {state}")


async def begin(folio: Folio, at: Attempt) -> Outcome:
    """Start processing; the folder is listed by ``supervise``."""
    return To("PROCESSING", started_at=at.now)


async def supervise(folio: Folio, at: Attempt) -> Outcome:
    """List the folder if that is wanted, else log its progress; close it when all have ended."""
    try:
        if folio.listed < folio.wanted:
            return await _list_folder(folio, at)
        return await _check_documents(folio, at)
    except Exception as error:
        final = getattr(error, "permanent", False) or (
            at.tries is not None and at.number >= at.tries
        )
        kind, message = error_type(error), str(error) or type(error).__name__
        log_folder(
            at,
            folio,
            "ERROR" if final else None,
            f"folder {folio.folio_id}: {message}",
            level="error" if final else "warning",
            error_type=kind,
            error_message=message,
            attempts=at.number,
        )
        raise


# listing


@dataclass
class _ListingPlan:
    """The result of a listing, and its effects on known documents."""

    total: int = 0
    ended: int = 0
    fresh: list[Blob] = field(default_factory=list)
    effects: list[Move | Add] = field(default_factory=list)
    ignored: list[dict[str, str]] = field(default_factory=list)
    ignored_count: int = 0

    def ignore(self, blob: Blob, reason: str) -> None:
        self.ignored_count += 1
        if len(self.ignored) < MAX_IGNORED:
            self.ignored.append({"uri": blob.uri, "reason": reason})


async def _list_folder(folio: Folio, at: Attempt) -> Outcome:
    started = folio.announced != folio.execution_id
    if started:
        log_folder(at, folio, "INIT", f"folder {folio.folio_id}: started")
    log_folder(
        at,
        folio,
        "LISTING",
        f"folder {folio.folio_id}: listing {folio.bucket}/{folio.folder_prefix}",
    )
    plan = await _plan_listing(folio, at)
    for ignored in plan.ignored:
        log_folder(
            at,
            folio,
            None,
            f"ignored {ignored['uri']}: {ignored['reason']}",
            uri=ignored["uri"],
            reason=ignored["reason"],
        )
    await at.save(
        announced=folio.execution_id,
        total_docs=plan.total,
        processed_docs=plan.ended,
        ignored=plan.ignored,
        ignored_count=plan.ignored_count,
    )
    if started:
        outcome = "is empty: 0 documents" if plan.total == 0 else f"{plan.total} documents"
        log_folder(at, folio, "PROCESSING_START", f"folder {folio.folio_id}: {outcome}")
    for start in range(0, len(plan.fresh), PAGE_SIZE):
        page = plan.fresh[start : start + PAGE_SIZE]
        await at.records.insert([_new_document(folio, blob) for blob in page])
    if len(plan.effects) > MAX_EFFECTS:  # the next listing finds the rest
        return To(
            "PROCESSING",
            also=plan.effects[:MAX_EFFECTS],
            attempts=0,
            reason="a long listing continues",
        )
    return To(
        "PROCESSING",
        listed=folio.wanted,
        also=plan.effects,
        attempts=0,
        reason=f"listed: {plan.total} documents",
    )


async def _plan_listing(folio: Folio, at: Attempt) -> _ListingPlan:
    plan = _ListingPlan()
    bucket: DocumentBucket = at.context.buckets[folio.bucket]
    relisting = folio.listed > 0 or folio.wanted > 1
    listed_ids: set[str] = set()
    async for page in _blob_pages(bucket, folio.folder_prefix):
        drafts = [_new_document(folio, blob) for blob in page]
        known = await at.records.get_many(Documento, [draft.id for draft in drafts])
        unknown = [blob for blob, doc in zip(page, known, strict=True) if doc is None]
        uris = [blob.uri for blob in unknown]
        faults = dict(zip(uris, await _pdf_faults(bucket, unknown), strict=True))
        for blob, draft, doc in zip(page, drafts, known, strict=True):
            if doc is None and faults[blob.uri]:
                plan.ignore(blob, faults[blob.uri])
                continue
            plan.total += 1
            if relisting:
                listed_ids.add(draft.id)
            if doc is None:
                plan.fresh.append(blob)
            else:
                _plan_known(plan, folio, doc)
    if relisting:
        async for doc in at.records.each(Documento, {"folio_id": folio.folio_id, "superseded": 0}):
            if doc.id not in listed_ids:
                plan.effects.append(Add(Documento, doc.id, superseded=1))
    return plan


def _plan_known(plan: _ListingPlan, folio: Folio, doc: Documento) -> None:
    """Add the effects of a listing on a known document."""
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


def _new_document(folio: Folio, blob: Blob) -> Documento:
    slug = document_slug(blob.uri, blob.generation)
    return Documento(
        id=Documento.kind.id_of(folio.folio_id, slug),
        folio_id=folio.folio_id,
        slug=slug,
        gcs_uri=blob.uri,
        generation=blob.generation,
        bucket=folio.bucket,
        folder_prefix=folio.folder_prefix,
        size=blob.size,
        eventarc_event_id=folio.eventarc_event_id,
        execution_id=folio.execution_id,
        listing=folio.wanted,
    )


async def _blob_pages(bucket: DocumentBucket, prefix: str) -> AsyncIterator[list[Blob]]:
    page: list[Blob] = []
    async for blob in bucket.list(prefix):
        if blob.name == f"{prefix}/{FLAG}":
            continue
        page.append(blob)
        if len(page) == PAGE_SIZE:
            yield page
            page = []
    if page:
        yield page


async def _pdf_faults(bucket: DocumentBucket, blobs: Sequence[Blob]) -> list[str]:
    """Return for each object why it is not a PDF, or an empty text; the first bytes decide."""
    limit = asyncio.Semaphore(CONCURRENT_HEADS)

    async def fault_of(blob: Blob) -> str:
        if blob.name.endswith("/"):
            return "a placeholder of a folder"
        if blob.size == 0:
            return "the flag of a subfolder" if blob.name.endswith(f"/{FLAG}") else "empty"
        if not is_text(blob.name):
            return "its name is not UTF-8"
        async with limit:
            try:
                head = await bucket.head(blob, HEAD_BYTES)
            except Failure as error:
                if error.permanent:
                    return str(error)  # deleted after the listing
                raise
        return "" if b"%PDF-" in head else "not a PDF"

    return list(await asyncio.gather(*(fault_of(blob) for blob in blobs)))


# supervising and closing


async def _check_documents(folio: Folio, at: Attempt) -> Outcome:
    name = folio.folio_id
    pending = await _count(at, name, one_of(*UNFINISHED))
    failed = await _count(at, name, "ERROR")
    done = await _count(at, name, "DONE")
    folio.processed_docs, before = done + failed, folio.processed_docs
    if pending:
        if folio.processed_docs != before:
            log_folder(
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
    log_folder(at, folio, "FINALIZING", f"folder {name}: closing")
    if failed == 0:
        log_folder(at, folio, "DONE", f"folder {name}: done, {done} documents")
        return To("DONE", reason=f"{done} documents done", **counts)
    outcome = f"{failed} of {done + failed} documents ended in error"
    if failed >= at.settings.error_threshold * (done + failed):
        log_folder(
            at,
            folio,
            "ERROR",
            f"folder {name}: {outcome}",
            level="error",
            error_type="too_many_errors",
            error_message=outcome,
        )
        return Retry(outcome, type="too_many_errors", permanent=True, **counts)
    log_folder(at, folio, "DONE_WITH_ERRORS", f"folder {name}: {outcome}", level="warning")
    return To("DONE_WITH_ERRORS", reason=outcome, **counts)


async def _count(at: Attempt, folio_id: str, status: Any) -> int:
    count, _ = await at.records.count(
        Documento, {"folio_id": folio_id, "superseded": 0, "status": status}, cap=10_000_000
    )
    return count
