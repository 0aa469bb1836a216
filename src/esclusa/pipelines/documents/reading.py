"""The stage of a document: classify it, extract from it, and store the extractions."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from esclusa import (
    Attempt,
    BudgetEmpty,
    Create,
    EsclusaError,
    Failure,
    Move,
    Outcome,
    Permanent,
    Retry,
    Text,
    Throttled,
    To,
    Wait,
    Wake,
    above,
    below,
    one_of,
)
from esclusa.pipelines.documents import origin
from esclusa.pipelines.documents.answers.answer_store import AnswerStore
from esclusa.pipelines.documents.listing import HEAD_BYTES, SIGNATURE, is_inside
from esclusa.pipelines.documents.processors import Extracted, Source, Unfinished
from esclusa.pipelines.documents.progress_log import (
    error_type,
    log_document,
    log_other_event,
)
from esclusa.pipelines.documents.records import (
    UNFINISHED,
    Documento,
    Extraccion,
    Folio,
    document_slug,
    folio_id,
)
from esclusa.pipelines.documents.review import REVIEW_FIELDS, carry_over, review_fields

# Extractions written in the settlement itself.
#
# Of a document with more, the first ones are written earlier under this claim's fence; if the claim
# is lost, the next one deletes them.
INLINE = 300


async def read(doc: Documento, at: Attempt) -> Outcome:
    """Process a document; errors are logged and settled with the same type.

    A result of another service that came meanwhile stays.
    """
    try:
        outcome = await _attempt(doc, at)
        if not isinstance(outcome, Wait):
            await _check_not_finished(doc, at)
    except _FinishedMeanwhile as finished:
        await at.records.purge(Extraccion, {"documento_id": doc.id, "revision": doc.fence})
        return To("DONE", reason=finished.message, also=await _wake_folder(doc, at))
    return outcome


class _FinishedMeanwhile(EsclusaError):
    """Another service finished the document after it was claimed here."""


async def _check_not_finished(doc: Documento, at: Attempt) -> None:
    """Raise if a service that works on the same documents finished this one."""
    if at.settings.take_over == "off":
        return
    current = await at.records.get(Documento, doc.id)
    if current is not None and Documento.lifecycle.current(current.status) == "DONE":
        raise _FinishedMeanwhile(Text("another service finished it meanwhile"))


async def _attempt(doc: Documento, at: Attempt) -> Outcome:
    if not doc.execution_id:  # another service recorded it
        folio = await at.records.get(Folio, doc.folio_id)
        if folio is not None:
            await at.save(
                folder_prefix=folio.folder_prefix,
                execution_id=folio.execution_id,
                eventarc_event_id=folio.eventarc_event_id,
            )
    if not is_inside(doc.bucket, doc.folder_prefix, doc.gcs_uri):
        return To("SUPERSEDED", outside=1, reason=Text("its object does not belong to this folder"))
    log_other_event(at, doc, "processing_start")
    at.context.busy += 1
    try:
        async with asyncio.timeout(at.settings.timeout_seconds):
            return await _read(doc, at)
    except Unfinished as error:
        return Wait(error.after, error.message)
    except Throttled as error:
        at.log(
            f"{doc.gcs_uri} waits: {error}",
            level="warning",
            folio_id=doc.folio_id,
            gcs_uri=doc.gcs_uri,
        )
        return Wait(error.after, error.message, stage=True)
    except (BudgetEmpty, _FinishedMeanwhile):
        raise  # the document waits until there are pages again, or is left as it is
    except Exception as error:  # noqa: BLE001 - an error is logged and settled with its type
        final = getattr(error, "permanent", False) or (
            at.tries is not None and at.number >= at.tries
        )
        kind, message = error_type(error), str(error) or type(error).__name__
        log_document(
            at,
            doc,
            "DOC_ERROR",
            status="ERROR" if final else "NOT_STARTED",
            level="error" if final else "warning",
            error_type=kind,
            error_message=message,
        )
        return Retry(error, type=kind, also=await _wake_folder(doc, at) if final else ())
    finally:
        at.context.busy -= 1


async def _read(doc: Documento, at: Attempt) -> Outcome:
    if doc.fence > 1:  # extractions of an earlier claim do not count
        await _purge_earlier(doc, at)
    if doc.remap:
        return await _settle(doc, at, await _remapped(doc, at), doc.content_hash)
    source = await _load(doc, at)
    results = await _reuse(doc, at, source)
    if results is None:
        await _classify(doc, at, source)
        results = await _extract(doc, at, source)
    return await _settle(doc, at, results, source.digest)


async def _purge_earlier(doc: Documento, at: Attempt) -> None:
    """Delete the extractions of earlier claims; those that count stay while they have reviews."""
    where: dict[str, Any] = {"documento_id": doc.id}
    if not doc.corrections or doc.revision is None:
        await at.records.purge(Extraccion, where | {"revision": below(doc.fence)})
        return
    between = (above(doc.revision), below(doc.fence))
    for revision in (below(doc.revision), between):
        await at.records.purge(Extraccion, where | {"revision": revision})


async def _settle(
    doc: Documento, at: Attempt, results: Extracted, content_hash: str | None
) -> Outcome:
    """Store the extractions; those that the settlement does not write are written before it."""
    if doc.reused_from is None:
        doc.text_path = await _store_text(results.text, at)
    lost = await carry_over(doc, at, results.items)
    extractions = [_new_extraction(doc, n, item) for n, item in enumerate(results.items)]
    old = at.settings.old_extractions
    before_settlement = len(extractions) - INLINE if len(extractions) > INLINE else 0
    for start in range(0, before_settlement, INLINE):
        await at.save()  # raises if this claim is lost
        await at.records.insert(extractions[start : min(before_settlement, start + INLINE)])
    reviewed = await review_fields(doc, at, results, lost)
    held = reviewed["needs_review"] and at.settings.review == "hold"
    log_document(
        at,
        doc,
        "DOC_EXTRACTION_DONE",
        status="NEEDS_REVIEW" if held else "DONE",
        extractions=len(extractions),
        reused_from=doc.reused_from,
    )
    log_other_event(at, doc, "processing_done")
    return To(
        "NEEDS_REVIEW" if held else "DONE",
        doc_type=origin.class_name(doc.doc_type or "") if old else doc.doc_type,
        classifier_output_raw=doc.classifier_output_raw,
        extractor_output_summary=results.summary,
        content_hash=content_hash,
        answers=doc.answers,
        operation=None,
        warnings=results.warnings,
        remap=False,
        text_path=doc.text_path,
        reused_from=doc.reused_from,
        revision=doc.fence,
        **reviewed,
        also=[
            *(Create(draft) for draft in extractions[before_settlement:]),
            *([Create(_old_extraction(doc, at, results))] if old else []),
            *await _wake_folder(doc, at),
        ],
    )


async def _load(doc: Documento, at: Attempt) -> Source:
    if doc.size > at.settings.max_document_mb * 1_000_000:
        raise Permanent(
            Text("{size:,} bytes are more than DOCUMENTS_MAX_DOCUMENT_MB allows", size=doc.size),
            type="too_large",
        )
    content = await at.context.content(doc)
    if SIGNATURE not in content[:HEAD_BYTES]:
        begins = repr(content[:40])[2:-1] or "nothing"
        raise Permanent(
            Text("it is not a PDF: it begins with {begin}", begin=begins), type="bad_pdf"
        )
    answers = AnswerStore(at, doc, at.context.calls)
    return Source(doc.gcs_uri, doc.generation, content, answers)


async def _classify(doc: Documento, at: Attempt, source: Source) -> None:
    """Classify the document unless an earlier attempt did; save the answer at once."""
    if doc.doc_type is not None:
        return
    log_document(at, doc, "DOC_CLASSIFICATION_START")
    answer = await at.context.classifier.classify(source)
    await _check_not_finished(doc, at)
    await at.save(doc_type=answer.doc_type, classifier_output_raw=answer.raw)
    log_document(at, doc, "DOC_CLASSIFICATION_DONE", confidence=answer.confidence)


async def _extract(doc: Documento, at: Attempt, source: Source) -> Extracted:
    assert doc.doc_type is not None
    extractors = at.settings.extractor_of
    name = extractors.get(doc.doc_type) or extractors.get(origin.own_class(doc.doc_type))
    log_document(at, doc, "DOC_EXTRACTION_START", processor=name)
    if name is None and origin.own_class(doc.doc_type) == "other":
        return Extracted([], {"line_items": 0, "processor": None})
    if name is None:
        raise Permanent(
            Text(
                "no extractor for the class {name}; set one in DOCUMENTS_EXTRACTORS",
                name=doc.doc_type,
            ),
            type="no_extractor",
        )
    extracted: Extracted = await at.context.extractor(name).extract(source, doc.doc_type)
    if source.answers is not None:
        doc.answers = sorted(source.answers.named, key=lambda named: str(named["path"]))
    for warning in extracted.warnings:
        at.log(
            f"{doc.gcs_uri}: {warning['message']}",
            level="warning",
            folio_id=doc.folio_id,
            gcs_uri=doc.gcs_uri,
            warning=warning["code"],
        )
    if unread := extracted.summary.get("unread_pages"):
        at.log(
            f"{doc.gcs_uri}: {len(unread)} pages have pictures and no text, and were not read"
            f"{' (OCR is off)' if extracted.summary.get('ocr') == 'off' else ''}: {unread[:20]}",
            level="warning",
            folio_id=doc.folio_id,
            gcs_uri=doc.gcs_uri,
            unread_pages=unread[:20],
        )
    return extracted


async def _remapped(doc: Documento, at: Attempt) -> Extracted:
    """Return what the stored answers of a document mean now."""
    from esclusa.pipelines.documents.documentai import mapped  # noqa: PLC0415 - only then

    store = AnswerStore(at, doc, at.context.calls)
    summary = doc.extractor_output_summary or {}
    answers = []
    for named in doc.answers:
        if named.get("processor") != summary.get("processor") or named.get("part") == "batch":
            continue
        answer = await store.load(named["path"])
        if answer is None:
            why = Text("the raw answer {path} is missing", path=named["path"])
            raise Permanent(why, type="answer_missing")
        answers.append(answer)
    return mapped(at.settings, answers, str(summary.get("processor")))


async def _store_text(text: str | None, at: Attempt) -> str | None:
    """Store a text that is not the document's own and return its path.

    The path is a hash of the text, so that an attempt that is lost cannot change another's text.
    """
    if text is None:
        return None
    body = text.encode()
    path = f"documents/texts/{hashlib.sha256(body).hexdigest()}.txt"
    await at.keep(path, body, content_type="text/plain; charset=utf-8")
    return path


async def _reuse(doc: Documento, at: Attempt, source: Source) -> Extracted | None:
    """Return the results of a finished document that is the same, if there is one.

    It is the same object, listed in a folder around this one before this one had its flag; or, by
    a setting, one with the same content. A forced reprocess reads again.
    """
    if doc.reading > 1:
        return None
    others = [o for o in await at.records.get_many(Documento, _enclosing_ids(doc)) if o is not None]
    if at.settings.dedup == "content":
        where = {"content_hash": source.digest, "status": "DONE"}
        others += (await at.records.find(Documento, where, limit=5)).items
    usable = (o for o in others if o.id != doc.id and o.revision and o.status in _READ)
    twin = next(usable, None)
    if twin is None:
        return None
    names = [f.name for f in Extraccion.kind.fields if f.name not in _OWN_FIELDS]
    items = [
        {name: getattr(e, name) for name in names}
        async for e in at.records.each(Extraccion, {"documento_id": twin.id}, order="position")
        if e.revision == twin.revision
    ]
    doc.doc_type, doc.classifier_output_raw, doc.text_path, doc.reused_from = (
        twin.doc_type,
        twin.classifier_output_raw,
        twin.text_path,
        twin.id,
    )
    return Extracted(items, {**(twin.extractor_output_summary or {}), "reused_from": twin.id})


def _enclosing_ids(doc: Documento) -> list[str]:
    """Return the ids that this object has, if it was listed, in the folders around its own."""
    parts = doc.folder_prefix.split("/")
    ids = []
    for prefix in ("/".join(parts[:count]) for count in range(len(parts))):
        own, theirs = folio_id(doc.bucket, prefix), origin.folio_id(doc.bucket, prefix)
        slug = document_slug(doc.gcs_uri, doc.generation)
        ids.append(Documento.kind.id_of(own, slug))
        slug = origin.document_slug(theirs, doc.gcs_uri, doc.generation)
        ids.append(Documento.kind.id_of(theirs, slug))
    return ids


_READ = ("DONE", "SUPERSEDED")
_OWN_FIELDS = frozenset(
    {
        "folio_id",
        "documento_id",
        "slug",
        "revision",
        "position",
        "gcs_uri",
        "generation",
        *REVIEW_FIELDS,
    }
)


def _new_extraction(doc: Documento, number: int, item: dict[str, Any]) -> Extraccion:
    return Extraccion(
        folio_id=doc.folio_id,
        documento_id=doc.id,
        slug=f"{doc.fence}-{number:05d}",
        revision=doc.fence,
        position=number,
        gcs_uri=doc.gcs_uri,
        generation=doc.generation,
        **item,
    )


def _old_extraction(doc: Documento, at: Attempt, results: Extracted) -> Extraccion:
    """Return all results in the form of the service before this one."""
    return Extraccion(
        folio_id=doc.folio_id,
        documento_id=doc.id,
        slug=f"extraction-{at.now.isoformat()}",
        revision=0,
        position=0,
        gcs_uri=doc.gcs_uri,
        generation=doc.generation,
        type="extraction",
        old_fields=origin.result_map(results.items),
        old_metadata={
            "page_count": results.summary.get("pages"),
            "processor_version": results.summary.get("processor"),
            "extraction_schema_version": "v1.0",
        },
    )


async def _wake_folder(doc: Documento, at: Attempt) -> list[Wake | Move]:
    """Wake the folder if this is probably its last document; reopen it if it has ended.

    The wake is only a hint, so it is skipped while other documents are being read: the folder is
    supervised every few seconds anyway. An ended folder is reopened when an operator retries a
    document, and closed again by the states of its documents.
    """
    if await at.context.has_ended(doc.folio_id, at.records):
        return [
            Move(
                Folio,
                doc.folio_id,
                "PROCESSING",
                frm=("DONE", "DONE_WITH_ERRORS", "ERROR"),
                reason=Text("a document was retried"),
            )
        ]
    if at.context.busy >= at.settings.max_concurrent_docs > 1:
        return []
    where = {"folio_id": doc.folio_id, "outside": 0, "status": one_of(*UNFINISHED)}
    try:
        page = await at.records.find(Documento, where, limit=2)
    except Failure:
        return []
    return [Wake(Folio, doc.folio_id)] if all(other.id == doc.id for other in page.items) else []
