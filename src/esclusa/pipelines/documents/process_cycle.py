"""The cycle ``documents.process``: one run drains everything due, or one folder to its end."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from esclusa import RunContext, Text, one_of
from esclusa.pipelines.documents.records import (
    FOLDER_ENDED,
    HELD,
    UNFINISHED,
    Documento,
    FolderSignal,
    Folio,
)

STAGES = ("on-event", "begin", "supervise", "read")
SUPERVISE_SECONDS = 1.0


async def process(run: RunContext) -> None:
    """Drain the stages until nothing is due; the counters are those of the documents.

    With the parameter ``folio_id`` only that folder is processed, until it is closed; the run then
    waits for retries.
    """
    only = {"folio_id": run.params["folio_id"]} if run.params.get("folio_id") else None
    while not run.stopping:
        before = run.counters["taken"]
        for stage in ("on-event", "begin", "supervise"):
            await run.drain(stage, where=only)
        await _read(run, only)
        if only is not None and await _is_closed(run, only["folio_id"]):
            break
        if run.counters["taken"] == before:
            if only is None and not await _some_folder_can_close(run):
                break
            await asyncio.sleep(0.2)
    if only is not None:
        await _report(run, only["folio_id"])


async def _read(run: RunContext, only: dict[str, Any] | None) -> None:
    """Read the due documents and supervise their folders meanwhile."""
    reading = asyncio.create_task(run.drain("read", where=only))
    try:
        while not (await asyncio.wait([reading], timeout=SUPERVISE_SECONDS))[0]:
            await run.drain("supervise", where=only)
        await reading
    except asyncio.CancelledError:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        raise


async def _is_closed(run: RunContext, folio_id: str) -> bool:
    signal_id = run.params.get("signal")
    signal = await run.records.get(FolderSignal, signal_id) if signal_id else None
    if signal is not None and signal.status != "handled":
        return False  # another worker handles it, and may open the folder again
    folio = await run.records.get(Folio, folio_id)
    return folio is None or folio.status in FOLDER_ENDED or await _waits_for_people(run, folio)


async def _waits_for_people(run: RunContext, folio: Folio) -> bool:
    """Return whether a listed folder has only ended documents and such that are held for review."""
    if folio.listed < folio.wanted:
        return False
    where = {"folio_id": folio.folio_id, "outside": 0}
    held = await run.records.first(Documento, {**where, "status": one_of(*HELD)})
    others = one_of("NOT_STARTED", "IN_PROGRESS")
    return held is not None and not await run.records.first(Documento, {**where, "status": others})


async def _some_folder_can_close(run: RunContext) -> bool:
    """Return whether a folder has been listed and has no unfinished documents."""
    async for folio in run.records.each(Folio, {"status": one_of("PENDING", "PROCESSING")}):
        where = {"folio_id": folio.folio_id, "outside": 0, "status": one_of(*UNFINISHED)}
        if (
            folio.listed >= folio.wanted
            and not (await run.records.find(Documento, where, limit=1)).items
            and not folio.last_error
        ):
            return True
    return False


async def _report(run: RunContext, folio_id: str) -> None:
    folio = await run.records.get(Folio, folio_id)
    if folio is None:
        return
    run.counters = Counter(
        {"total_docs": folio.total_docs or 0, "processed_docs": folio.processed_docs}
    )
    for state in ("DONE", "ERROR", *HELD):
        where = {"folio_id": folio_id, "outside": 0, "status": state}
        count, _ = await run.records.count(Documento, where)
        if count or state not in HELD:
            run.counters[state] = count
    run.message = Text("folder {folder}: {state}", folder=folio_id, state=folio.status)
    if run.counters["ERROR"]:
        run.end("partial")
    if folio.status == "ERROR" and run.counters["ERROR"] == 0:
        why = Text("folder {folder}: {why}", folder=folio_id, why=folio.error_message)
        run.end("error", why)
