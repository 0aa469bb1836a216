"""One run of ``documents.process``: everything that is due, or one folder to its end."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from esclusa import RunContext, one_of
from esclusa.pipelines.documents.records import FOLDER_ENDED, UNFINISHED, Documento, Folio, Signal

TICK = 1.0


def always() -> Any:
    """The schedule of a cycle that a worker serves whenever something is due."""
    from esclusa.model.schedule import Always  # noqa: PLC0415 - declared here once

    return Always()


async def process(run: RunContext) -> None:
    """Drain what is due, folder by folder state, until nothing is; with the parameter ``folio_id`` that folder alone, waiting for
    its retries, until it is closed. The counters are the documents'."""
    only = {"folio_id": run.params["folio_id"]} if run.params.get("folio_id") else None
    while not run.stopping:
        before = run.counters["taken"]
        for stage in ("hear", "begin", "tend"):
            await run.drain(stage, where=only)
        await _read(run, only)
        if only is not None and await _ended(run, only["folio_id"]):
            break
        if run.counters["taken"] == before:
            if only is None and not await _closing(run):
                break
            await asyncio.sleep(0.2)
    if only is not None:
        await _answer(run, only["folio_id"])


async def _read(run: RunContext, only: dict[str, Any] | None) -> None:
    """Read documents, and look after their folders meanwhile."""
    reading = asyncio.create_task(run.drain("read", where=only))
    try:
        while not (await asyncio.wait([reading], timeout=TICK))[0]:
            await run.drain("tend", where=only)
        await reading
    except asyncio.CancelledError:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        raise


async def _ended(run: RunContext, folio_id: str) -> bool:
    signal = (
        await run.records.get(Signal, run.params["signal"]) if run.params.get("signal") else None
    )
    if signal is not None and signal.status != "heard":
        return False  # another worker has it in hand: the folder is not yet what it will be
    folio = await run.records.get(Folio, folio_id)
    return folio is None or folio.status in FOLDER_ENDED


async def _closing(run: RunContext) -> bool:
    """Whether some folder only waits to be closed."""
    async for folio in run.records.each(Folio, {"status": one_of("PENDING", "PROCESSING")}):
        where = {"folio_id": folio.folio_id, "superseded": 0, "status": one_of(*UNFINISHED)}
        if (
            folio.listed >= folio.wanted
            and not (await run.records.find(Documento, where, limit=1)).items
            and not folio.last_error
        ):
            return True
    return False


async def _answer(run: RunContext, folio_id: str) -> None:
    folio = await run.records.get(Folio, folio_id)
    if folio is None:
        return
    run.counters = Counter(
        {"total_docs": folio.total_docs or 0, "processed_docs": folio.processed_docs}
    )
    for state in ("DONE", "ERROR"):
        where = {"folio_id": folio_id, "superseded": 0, "status": state}
        run.counters[state] = (await run.records.count(Documento, where))[0]
    run.message = f"folder {folio_id}: {folio.status}"
    if run.counters["ERROR"]:
        run.end("partial")
    if folio.status == "ERROR" and run.counters["ERROR"] == 0:
        run.end("error", f"folder {folio_id}: {folio.error_message}")
