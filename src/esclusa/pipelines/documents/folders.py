"""Stages of a folder: handle a signal, begin, supervise its documents, close it once."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

from esclusa import Add, Attempt, Create, Move, Outcome, Retry, Text, To, Wait, Wake, one_of
from esclusa.pipelines.documents.folder_signals import new_folio
from esclusa.pipelines.documents.listing import list_folder
from esclusa.pipelines.documents.progress_log import error_type, log_folder
from esclusa.pipelines.documents.records import UNFINISHED, Documento, FolderSignal, Folio

# Seconds between two lines about the progress of a folder.
PROGRESS_SECONDS = 1.0


async def on_event(signal: FolderSignal, at: Attempt) -> Outcome:
    """Apply a signal to its folder, by the folder's present state."""
    id = signal.folio_id
    folio = await at.records.get(Folio, id)
    if folio is None:  # deleted since the signal was received
        new = new_folio(signal, at.settings)
        return To("handled", answer="new", also=[Create(new)])
    enclosing = await _relist_enclosing(signal, at)
    if signal.execution_id and folio.execution_id == signal.execution_id:
        return To("handled", answer="new", also=enclosing)
    reopened: dict[str, Any] = {
        "wanted": folio.wanted + 1,
        "redo_from": folio.wanted + 1 if signal.force else folio.redo_from,
        "unread_from": folio.wanted + 1 if signal.unread else folio.unread_from,
        "execution_id": secrets.token_hex(8),
        "eventarc_event_id": signal.eventarc_event_id,
        "started_at": at.now,
    }
    match folio.status:
        case "PENDING":
            return To("handled", answer="not begun yet", also=enclosing)
        case "PROCESSING":  # list it again: a listing under way may have missed new documents
            again: list[Add | Wake] = [Add(Folio, id, wanted=1), Wake(Folio, id)]
            return To("handled", answer="continued", also=[*again, *enclosing])
        case "ERROR" if signal.reprocess or at.settings.on_error == "retry":
            reason = Text("a new event after an error")
            if signal.reprocess:
                reason = Text("reprocess")
            frm: tuple[str, ...] = ("ERROR",)
        case "DONE" | "DONE_WITH_ERRORS" if signal.reprocess:
            reason, frm = Text("reprocess"), ("DONE", "DONE_WITH_ERRORS")
        case state:
            at.log(
                f"ignored: folder {id} is {state}",
                folio_id=id,
                bucket=signal.bucket,
                folder_prefix=signal.folder_prefix,
                eventarc_event_id=signal.eventarc_event_id,
                reason=Text("the folder is {state}", state=state),
            )
            return To("handled", answer=f"ignored: {state}")
    log_folder(at, folio.but(**reopened), "INIT", f"folder {id}: {reason}")
    move = Move(Folio, id, "PROCESSING", frm=frm, reason=reason, **reopened)
    return To("handled", answer=str(reason), also=[move, *enclosing])


async def _relist_enclosing(signal: FolderSignal, at: Attempt) -> list[Add | Wake]:
    """Let folders around this one that are being processed leave its documents to it."""
    parts = signal.folder_prefix.split("/")
    above = ["/".join(parts[:count]) for count in range(len(parts))]
    where = {"bucket": signal.bucket, "folder_prefix": one_of(*above[-20:])}
    page = await at.records.find(Folio, where)
    return [
        effect
        for folio in page.items
        if folio.status == "PROCESSING"
        for effect in (Add(Folio, folio.id, wanted=1), Wake(Folio, folio.id))
    ]


async def begin(folio: Folio, at: Attempt) -> Outcome:
    """Start processing; the folder is listed by ``supervise``."""
    return To("PROCESSING", started_at=at.now)


async def supervise(folio: Folio, at: Attempt) -> Outcome:
    """List the folder if that is wanted, else log its progress; close it when all have ended."""
    try:
        if not folio.execution_id and (left := _left_until(folio, at)) is not None:
            return left
        if folio.listed < folio.wanted:
            return await list_folder(folio, at)
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


async def _check_documents(folio: Folio, at: Attempt) -> Outcome:
    name = folio.folio_id
    pending = await _count(at, name, one_of(*UNFINISHED))
    failed = await _count(at, name, "ERROR")
    done = await _count(at, name, "DONE")
    counted = folio.but(processed_docs=done + failed)
    has_grown = counted.processed_docs > folio.processed_docs
    if pending:
        age = (at.now - folio.started_at).total_seconds() if folio.started_at else 0.0
        wait = min(5.0, 1.0 + age / 60)
        if not has_grown:
            return _still_processing(wait, processed_docs=counted.processed_docs)
        since = (at.now - folio.progress_at).total_seconds() if folio.progress_at else 3600.0
        if since < PROGRESS_SECONDS:  # counted again when the next line may be written
            return _still_processing(PROGRESS_SECONDS - since)
        _log_progress(counted, at)
        return _still_processing(wait, processed_docs=counted.processed_docs, progress_at=at.now)
    if has_grown:
        _log_progress(counted, at)
    counts: dict[str, Any] = {"total_docs": done + failed, "processed_docs": done + failed}
    folio = folio.but(**counts)
    log_folder(at, folio, "FINALIZING", f"folder {name}: closing")
    ended: dict[str, Any] = (
        {"successful": done, "errors": failed} if at.settings.event_types else {}
    )
    if failed == 0:
        log_folder(at, folio, "DONE", f"folder {name}: done, {done} documents", **ended)
        return To("DONE", reason=Text("{count} documents done", count=done), **counts)
    outcome = Text(
        "{failed} of {total} documents ended in error", failed=failed, total=done + failed
    )
    if failed >= at.settings.error_threshold * (done + failed):
        log_folder(
            at,
            folio,
            "ERROR",
            f"folder {name}: {outcome}",
            level="error",
            error_type="too_many_errors",
            error_message=outcome,
            **ended,
        )
        return Retry(outcome, type="too_many_errors", permanent=True, **counts)
    log_folder(at, folio, "DONE_WITH_ERRORS", f"folder {name}: {outcome}", level="warning", **ended)
    return To("DONE_WITH_ERRORS", reason=outcome, **counts)


async def _count(at: Attempt, folio_id: str, status: Any) -> int:
    count, _ = await at.records.count(
        Documento, {"folio_id": folio_id, "outside": 0, "status": status}, cap=10_000_000
    )
    return count


def _log_progress(folio: Folio, at: Attempt) -> None:
    counted = f"{folio.processed_docs} of {folio.total_docs} documents"
    log_folder(at, folio, "PROCESSING_IN_PROGRESS", f"folder {folio.folio_id}: {counted}")


def _still_processing(seconds: float, **fields: Any) -> Wait:
    return Wait(seconds, Text("its documents are being processed"), attempts=0, **fields)


def _left_until(folio: Folio, at: Attempt) -> Wait | None:
    """Wait while a folder that another service began may still be that service's."""
    if folio.left_until is not None:
        return None
    if folio.started_at is None:
        return None
    until = folio.started_at + timedelta(seconds=at.settings.take_over_grace_seconds)
    if until <= at.now:
        return None
    why = Text("another service began it and may still work on it")
    return Wait(until, why, left_until=until)
