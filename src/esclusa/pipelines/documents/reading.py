"""Documents: one is read, classified, extracted from, and settled with everything that was found."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from esclusa import (
    Attempt,
    Create,
    Failure,
    Move,
    Outcome,
    Permanent,
    Retry,
    Throttled,
    To,
    Wake,
    below,
    one_of,
)
from esclusa.pipelines.documents import tell
from esclusa.pipelines.documents.buckets import object_name
from esclusa.pipelines.documents.processors import Extracted, Source
from esclusa.pipelines.documents.records import UNFINISHED, Documento, Extraccion, Folio

INLINE = 300
"""Extractions that are written by the settlement itself. Of a document with more, the first ones are written before it, under
this claim's number: should the claim be lost, the next one clears them away."""


async def read(doc: Documento, at: Attempt) -> Outcome:
    """One attempt at one document. Whatever goes wrong is told in the log and settled under the same type."""
    if doc.superseded:
        gone = Permanent(
            "the folder holds another version of this object, or none", type="superseded"
        )
        return To("ERROR", fault=gone, also=await _last(doc, at))
    at.context.busy += 1
    try:
        async with asyncio.timeout(at.settings.timeout_seconds):
            return await _read(doc, at)
    except Throttled as error:
        at.log(
            f"{doc.gcs_uri} waits: {error}",
            level="warning",
            folio_id=doc.folio_id,
            gcs_uri=doc.gcs_uri,
        )
        raise
    except Exception as error:  # noqa: BLE001 - an error is an outcome: told, typed, counted
        final = getattr(error, "permanent", False) or (
            at.tries is not None and at.number >= at.tries
        )
        kind, message = tell.kind_of(error), str(error) or type(error).__name__
        tell.document(
            at, doc, "DOC_ERROR", status="ERROR" if final else "NOT_STARTED", level="error" if final else "warning",
            error_type=kind, error_message=message,
        )  # fmt: skip
        return Retry(error, type=kind, also=await _last(doc, at) if final else ())
    finally:
        at.context.busy -= 1


async def _read(doc: Documento, at: Attempt) -> Outcome:
    if doc.fence > 1:  # it was at work before: what an earlier claim found does not count any more
        await at.records.purge(Extraccion, {"documento_id": doc.id, "revision": below(doc.fence)})
    source = await _source(doc, at)
    found = await _reused(doc, at, source) if at.settings.dedup == "content" else None
    if found is None:
        await _classify(doc, at, source)
        found = await _extract(doc, at, source)
        doc.text_path = await _kept(found.text, at)
    drafts = [_draft(doc, n, item) for n, item in enumerate(found.items)]
    early = len(drafts) - INLINE if len(drafts) > INLINE else 0
    for start in range(0, early, INLINE):
        await at.save()  # raises if this claim is lost
        await at.records.insert(drafts[start : min(early, start + INLINE)])
    tell.document(
        at,
        doc,
        "DOC_EXTRACTION_DONE",
        status="DONE",
        extractions=len(drafts),
        reused_from=doc.reused_from,
    )
    return To(
        "DONE", doc_type=doc.doc_type, classifier_output_raw=doc.classifier_output_raw, extractor_output_summary=found.summary,
        content_hash=source.digest, text_path=doc.text_path, reused_from=doc.reused_from, revision=doc.fence,
        also=[*(Create(draft) for draft in drafts[early:]), *await _last(doc, at)],
    )  # fmt: skip


async def _source(doc: Documento, at: Attempt) -> Source:
    if doc.size > at.settings.max_document_mb * 1_000_000:
        raise Permanent(
            f"{doc.size:,} bytes are more than DOCUMENTS_MAX_DOCUMENT_MB allows", type="too_large"
        )
    bucket = at.context.buckets[doc.bucket]
    content = await bucket.read(object_name(doc.bucket, doc.gcs_uri), doc.generation)
    return Source(doc.gcs_uri, doc.generation, content)


async def _classify(doc: Documento, at: Attempt, source: Source) -> None:
    """Classify it unless an earlier attempt did; the answer is kept before extraction begins."""
    if doc.doc_type is not None:
        return
    tell.document(at, doc, "DOC_CLASSIFICATION_START")
    answer = await at.context.classifier.classify(source)
    await at.save(doc_type=answer.doc_type, classifier_output_raw=answer.raw)
    tell.document(at, doc, "DOC_CLASSIFICATION_DONE", confidence=answer.confidence)


async def _extract(doc: Documento, at: Attempt, source: Source) -> Extracted:
    assert doc.doc_type is not None
    name = at.settings.extractor_of.get(doc.doc_type)
    tell.document(at, doc, "DOC_EXTRACTION_START", processor=name)
    if name is None and doc.doc_type == "other":
        return Extracted([], {"line_items": 0, "processor": None})
    if name is None:
        raise Permanent(
            f"no extractor is set for the class {doc.doc_type}; name one in DOCUMENTS_EXTRACTORS",
            type="no_extractor",
        )
    extracted: Extracted = await at.context.extractor(name).extract(source, doc.doc_type)
    if unread := extracted.summary.get("unread_pages"):
        said = f"{doc.gcs_uri}: {len(unread)} of its pages have pictures and no text, and were not read: {unread[:20]}"
        at.log(
            said,
            level="warning",
            folio_id=doc.folio_id,
            gcs_uri=doc.gcs_uri,
            unread_pages=unread[:20],
        )
    return extracted


async def _kept(text: str | None, at: Attempt) -> str | None:
    """Where a text is kept that is not the document's own. Its name is its content: the same text again is the same file, and no
    attempt that is lost changes what another one's spans count in."""
    if text is None:
        return None
    body = text.encode()
    path = f"documents/texts/{hashlib.sha256(body).hexdigest()}.txt"
    await at.keep(path, body, content_type="text/plain; charset=utf-8")
    return path


async def _reused(doc: Documento, at: Attempt, source: Source) -> Extracted | None:
    """The results of a document with the same content, if there is one that is done."""
    page = await at.records.find(
        Documento, {"content_hash": source.digest, "status": "DONE"}, limit=2
    )
    twin = next((other for other in page.items if other.id != doc.id), None)
    if twin is None:
        return None
    names = [f.name for f in Extraccion.kind.fields if f.name not in _OWN]
    found = at.records.each(Extraccion, {"documento_id": twin.id}, order="position")
    items = [
        {name: getattr(e, name) for name in names}
        async for e in found
        if e.revision == twin.revision
    ]
    doc.doc_type, doc.classifier_output_raw, doc.text_path, doc.reused_from = (
        twin.doc_type,
        twin.classifier_output_raw,
        twin.text_path,
        twin.id,
    )
    return Extracted(items, {**(twin.extractor_output_summary or {}), "reused_from": twin.id})


_OWN = frozenset(
    {"folio_id", "documento_id", "slug", "revision", "position", "gcs_uri", "generation"}
)


def _draft(doc: Documento, number: int, item: dict[str, Any]) -> Extraccion:
    return Extraccion(
        folio_id=doc.folio_id, documento_id=doc.id, slug=f"{doc.fence}-{number:05d}", revision=doc.fence, position=number,
        gcs_uri=doc.gcs_uri, generation=doc.generation, **item,
    )  # fmt: skip


async def _last(doc: Documento, at: Attempt) -> list[Wake | Move]:
    """Wake the folder if this looks like its last document. Only a hint, so it is asked only where work runs out: the folder
    looks after itself every few seconds anyway. A folder that was closed before (an operator sent this document back) is opened
    again, and closed by what its documents are now."""
    if await at.context.is_closed(doc.folio_id, at.records):
        reason = "a document was tried again"
        return [
            Move(
                Folio,
                doc.folio_id,
                "PROCESSING",
                frm=("DONE", "DONE_WITH_ERRORS", "ERROR"),
                reason=reason,
            )
        ]
    if at.context.busy >= at.settings.max_concurrent_docs > 1:
        return []
    where = {"folio_id": doc.folio_id, "superseded": 0, "status": one_of(*UNFINISHED)}
    try:
        page = await at.records.find(Documento, where, limit=2)
    except Failure:
        return []
    return [Wake(Folio, doc.folio_id)] if all(other.id == doc.id for other in page.items) else []
