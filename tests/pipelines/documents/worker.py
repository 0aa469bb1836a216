"""Worker processes for the kill tests, each forked with all modules imported.

Every line that it reads starts a worker, which dies at the point that the line names, if any. It
writes the id of the worker, and the exit code when the worker has ended.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from faults import worker as faults
from faults.worker import reached

from esclusa.app import store_for
from esclusa.artifacts.local import LocalArtifacts
from esclusa.engine.engine import Engine
from esclusa.engine.options import Options
from esclusa.observability import log
from esclusa.observability.telemetry import Observer
from esclusa.pipelines.documents.documentai import DocumentAiProcessor
from esclusa.settings import load


def marked(name: str, point: str) -> None:
    plain = getattr(DocumentAiProcessor, name)

    async def call(self: Any, *args: Any) -> Any:
        answer = await plain(self, *args)
        reached(point)
        return answer

    setattr(DocumentAiProcessor, name, call)


OURS = {"folio_signals", "folios", "documentos"}


def tables(name: str, records: Any) -> set[str]:
    if name == "claim":
        return {records.kind.table}
    return {one.kind.table if name == "insert" else one.ref.kind.table for one in records}


class Store:
    """Wraps the store with kill points around every call about this pipeline's records."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("claim", "settle", "renew", "insert"):
            return found

        async def call(records: Any) -> Any:
            ours = bool(tables(name, records) & OURS)
            if ours and name != "claim":
                reached(f"before {name}")
            if ours and f"inside {name}" == faults.POINT:
                task = asyncio.create_task(found(records))
                await asyncio.sleep(0.0015)
                reached(f"inside {name}")
                return await task
            answer = await found(records)
            if ours and answer:
                reached(f"after {name}")
            return answer

        return call


async def work() -> None:
    settings = load()
    log.configure("json", "info")
    store: Any = Store(store_for(settings))
    options = Options(lease=settings.lease_seconds, poll=0.1, grace=5.0)
    engine = Engine(
        store,
        settings.plans,
        LocalArtifacts(Path(settings.artifacts)),
        options=options,
        telemetry=Observer(),
    )
    await store.open()
    await store.use(engine.all_kinds, engine.all_stages)
    scheduler = engine.scheduler()
    scheduler.stop_on_signals()
    async with engine.running(register=True):
        await scheduler.serve()
    await store.close()


def fork(point: str) -> int:
    """Start a worker; return its process id."""
    if child := os.fork():
        return child
    code = 1
    try:
        os.dup2(2, 1)
        faults.POINT, _, faults.COUNT = point.partition(":")
        asyncio.run(work())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> None:
    marked("classify", "classified")
    marked("extract", "extracted")
    store_for(load())  # it imports the modules of the store, and opens nothing
    for line in sys.stdin:
        worker = fork(line.strip())
        print(worker, flush=True)
        _, status = os.waitpid(worker, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
