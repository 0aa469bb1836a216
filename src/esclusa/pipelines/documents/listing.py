"""List a folder: queue what is new or to be done again, and note what is ignored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from esclusa import Add, Attempt, Failure, Move, Outcome, Text, To
from esclusa.pipelines.documents import origin
from esclusa.pipelines.documents.buckets import Blob, DocumentBucket, is_text, object_name
from esclusa.pipelines.documents.progress_log import log_folder, log_other_event
from esclusa.pipelines.documents.records import (
    UNFINISHED,
    Documento,
    Extraccion,
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
SIGNATURE = b"%PDF-"


@dataclass(frozen=True, slots=True)
class KnownDocument:
    """What a listing needs of a document that is recorded."""

    id: str
    gcs_uri: str
    generation: str
    status: str
    listing: int
    outside: int
    reading: int
    has_results: bool
    is_unread: bool
    written_at: datetime | None


@dataclass
class _ListingPlan:
    """The result of a listing, and its effects on known documents."""

    total: int = 0
    ended: int = 0
    fresh: list[Blob] = field(default_factory=list)
    effects: list[Move | Add] = field(default_factory=list)
    ignored: list[dict[str, str]] = field(default_factory=list)
    ignored_count: int = 0

    def ignore(self, uri: str, reason: str) -> None:
        self.ignored_count += 1
        if len(self.ignored) < MAX_IGNORED:
            self.ignored.append({"uri": uri, "reason": reason})


async def list_folder(folio: Folio, at: Attempt) -> Outcome:
    """List the folder, queue its documents, and log what was found."""
    started = folio.announced != folio.execution_id or not folio.execution_id
    if not folio.execution_id:  # another service began it
        await at.save(execution_id=at.run.id)
        log_folder(at, folio, "INIT", f"folder {folio.folio_id}: taken over")
    log_folder(
        at,
        folio,
        "LISTING",
        f"folder {folio.folio_id}: listing {folio.bucket}/{folio.folder_prefix}",
    )
    known = await _known_documents(folio, at)
    plan = await _plan_listing(folio, at, known)
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
        new = plan.fresh[start : start + PAGE_SIZE]
        await at.records.insert([_new_document(folio, blob, known, at) for blob in new])
    if len(plan.effects) > MAX_EFFECTS:  # the next listing finds the rest
        return To(
            "PROCESSING",
            also=plan.effects[:MAX_EFFECTS],
            attempts=0,
            reason=Text("a long listing continues"),
        )
    return To(
        "PROCESSING",
        listed=folio.wanted,
        also=plan.effects,
        attempts=0,
        reason=Text("listed: {count} documents", count=plan.total),
    )


async def _plan_listing(folio: Folio, at: Attempt, known: dict[str, KnownDocument]) -> _ListingPlan:
    plan = _ListingPlan()
    bucket: DocumentBucket = at.context.buckets[folio.bucket]
    by_object = {(doc.gcs_uri, doc.generation): doc for doc in known.values()}
    flagged = await _flagged_subfolders(folio, at, bucket, plan)
    listed: set[str] = set()
    async for page in _blob_pages(bucket, folio.folder_prefix, flagged, at.settings.flag):
        matches = [_matching(blob, by_object) for blob in page]
        unknown = [blob for blob, doc in zip(page, matches, strict=True) if doc is None]
        uris = [blob.uri for blob in unknown]
        faults = dict(zip(uris, await _pdf_faults(bucket, unknown), strict=True))
        for blob, doc in zip(page, matches, strict=True):
            if doc is None and faults[blob.uri]:
                plan.ignore(blob.uri, faults[blob.uri])
                continue
            plan.total += 1
            if doc is None:
                plan.fresh.append(blob)
            else:
                listed.add(doc.id)
                _plan_known(plan, folio, doc, blob)
    for doc in known.values():
        if doc.id not in listed:
            _plan_missing(plan, folio, doc)
    return plan


async def _known_documents(folio: Folio, at: Attempt) -> dict[str, KnownDocument]:
    known = {}
    async for doc in at.records.each(Documento, {"folio_id": folio.folio_id}):
        status = Documento.lifecycle.current(doc.status)
        known[doc.id] = KnownDocument(
            doc.id,
            doc.gcs_uri,
            doc.generation,
            status,
            doc.listing,
            doc.outside,
            doc.reading,
            doc.revision is not None,
            status == "DONE"
            and doc.listing < folio.unread_from
            and await is_unread(doc, at.records),
            doc.updated_at,
        )
        if status == "DONE" and doc.listing >= folio.redo_from:
            log_other_event(at, doc, "already_processed")
    return known


async def is_unread(doc: Documento, records: Any) -> bool:
    """Return whether another service called this document DONE although nothing was read of it."""
    if doc.revision is not None:
        return False
    if doc.classifier_version in origin.UNREAD_VERSIONS:
        return True
    begins = origin.EXTRACTION
    return not await records.foreign_documents(Extraccion, doc.id, begins=begins, limit=1)


def _matching(blob: Blob, by_object: dict[tuple[str, str], KnownDocument]) -> KnownDocument | None:
    """Return the document of an object.

    One without a generation is the object's if it was written after the object.
    """
    found = by_object.get((blob.uri, blob.generation))
    if found is not None:
        return found
    old = by_object.get((blob.uri, ""))
    if old is None or old.written_at is None or blob.updated is None:
        return old
    return old if old.written_at >= blob.updated else None


def _plan_known(plan: _ListingPlan, folio: Folio, doc: KnownDocument, blob: Blob) -> None:
    """Add the effects of a listing on a document whose object is there."""
    context: dict[str, Any] = {
        "listing": folio.wanted,
        "execution_id": folio.execution_id,
        "eventarc_event_id": folio.eventarc_event_id,
    }
    if not doc.generation:
        context["generation"] = blob.generation
    status = doc.status
    if doc.outside:
        plan.effects.append(Add(Documento, doc.id, outside=-doc.outside))
    if status == "SUPERSEDED":
        status = "DONE" if doc.has_results else "NOT_STARTED"
        plan.effects.append(
            Move(
                Documento,
                doc.id,
                status,
                frm="SUPERSEDED",
                reason=Text("its object is there again"),
            )
        )
    elif status == "ERROR" and doc.listing < folio.wanted:
        plan.effects.append(
            Move(Documento, doc.id, "NOT_STARTED", frm="ERROR", reason=_reason(folio), **context)
        )
        return
    elif status == "DONE" and (doc.listing < folio.redo_from or doc.is_unread):
        anew = {"doc_type": None, "classifier_output_raw": None, "reused_from": None}
        redo: dict[str, Any] = context | anew | {"reading": doc.reading + 1, "operation": None}
        plan.effects.append(
            Move(Documento, doc.id, "NOT_STARTED", frm="DONE", reason=_reason(folio), **redo)
        )
        return
    if status not in UNFINISHED:
        plan.ended += 1


def _plan_missing(plan: _ListingPlan, folio: Folio, doc: KnownDocument) -> None:
    """Add the effects of a listing on a document whose object was not listed."""
    if not is_inside(folio.bucket, folio.folder_prefix, doc.gcs_uri):
        if not doc.outside:
            plan.effects.append(Add(Documento, doc.id, outside=1))
    elif doc.status in (*UNFINISHED, "DONE", "ERROR"):
        reason = Text("the folder holds another generation of this object, or none")
        plan.effects.append(Move(Documento, doc.id, "SUPERSEDED", frm=doc.status, reason=reason))


def is_inside(bucket: str, folder_prefix: str, uri: str) -> bool:
    """Return whether an object lies below a folder."""
    try:
        name = object_name(bucket, uri)
    except ValueError:
        return False
    return not folder_prefix or name.startswith(f"{folder_prefix}/")


def _reason(folio: Folio) -> Text:
    again = folio.wanted in (folio.redo_from, folio.unread_from)
    return Text("reprocess") if again else Text("re-entry")


def _new_document(
    folio: Folio, blob: Blob, known: dict[str, KnownDocument], at: Attempt
) -> Documento:
    slug = document_slug(blob.uri, blob.generation)
    if at.settings.take_over != "off":
        theirs = origin.document_slug(folio.folio_id, blob.name, blob.generation)
        # Objects of one name in two subfolders would have one id there.
        slug = slug if Documento.kind.id_of(folio.folio_id, theirs) in known else theirs
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


async def _flagged_subfolders(
    folio: Folio, at: Attempt, bucket: DocumentBucket, plan: _ListingPlan
) -> tuple[str, ...]:
    """Return the subfolders with a flag of their own; what they hold belongs to that flag."""
    found = set[str]()
    async for blob in bucket.list(folio.folder_prefix):
        above = blob.name.rpartition("/")[0]
        if above != folio.folder_prefix and at.settings.flag.is_flag(blob):
            if f"{above}/" not in found:
                plan.ignore(blob.uri, "the flag of a subfolder, which is a folder of its own")
            found.add(f"{above}/")
    return tuple(sorted(found))


async def _blob_pages(
    bucket: DocumentBucket, prefix: str, flagged: tuple[str, ...], rule: Any
) -> AsyncIterator[list[Blob]]:
    page: list[Blob] = []
    async for blob in bucket.list(prefix):
        above, _, last = blob.name.rpartition("/")
        if (above == prefix and rule.is_name(last)) or blob.name.startswith(flagged):
            continue
        page.append(blob)
        if len(page) == PAGE_SIZE:
            yield page
            page = []
    if page:
        yield page


async def _pdf_faults(bucket: DocumentBucket, blobs: Sequence[Blob]) -> list[str]:
    """Return for each object why it is not a document, or an empty text.

    The first bytes decide. An object whose name ends in ``.pdf`` is a document anyway: if it is
    not a PDF, that is the document's error.
    """
    limit = asyncio.Semaphore(CONCURRENT_HEADS)

    async def fault_of(blob: Blob) -> str:
        if blob.name.endswith("/"):
            return "a placeholder of a folder"
        if not is_text(blob.name):
            return "its name is not UTF-8"
        named = blob.name.lower().endswith(".pdf")
        if blob.size == 0:
            return "" if named else "empty"
        async with limit:
            try:
                head = await bucket.head(blob, HEAD_BYTES)
            except Failure as error:
                if error.permanent:
                    return str(error)  # deleted after the listing
                raise
        return "" if named or SIGNATURE in head else "not a PDF"

    return list(await asyncio.gather(*(fault_of(blob) for blob in blobs)))
