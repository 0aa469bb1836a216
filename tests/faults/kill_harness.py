"""What the fault tests share: records, worker processes, and a check that nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from faults import worker
from support.namespace import Namespace

from esclusa.artifacts.local import LocalArtifacts
from esclusa.engine.engine import Engine
from esclusa.model.kind import Ref
from esclusa.model.query import one_of
from esclusa.model.system_records import WorkerRecord

TESTS = Path(__file__).parents[1]


class KillHarness:
    """A store with parcels to send, and the worker processes that were started on it."""

    def __init__(self, store: Any, url: str, folder: Path) -> None:
        self.store, self.url = store, url
        self.calls = folder / "calls.txt"
        self.calls.touch()
        self.log = folder / "workers.log"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.engine = Engine(
            store, [worker.app.bind(worker.app.settings())], LocalArtifacts(folder)
        )
        self.records = self.engine.records

    async def fill(self, count: int) -> None:
        await self.store.migrate(self.engine.all_kinds, self.engine.all_stages)
        await self.store.use(self.engine.all_kinds, self.engine.all_stages)
        parcels = [worker.Parcel(name=f"p{n:05}") for n in range(count)]
        await self.store.insert([worker.Ledger(name="total"), *parcels])

    def start(
        self,
        kill_at: str = "",
        *,
        url: str = "",
        namespace: Namespace | None = None,
        **environment: str,
    ) -> subprocess.Popen[bytes]:
        """Start a worker; in a namespace, it reaches the store by another ``url``."""
        argv = [sys.executable, str(TESTS / "faults" / "worker.py"), url or self.url]
        env = (
            os.environ
            | {"KILL_AT": kill_at, "CALLS": str(self.calls), "PYTHONPATH": _python_path()}
            | environment
        )
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                argv if namespace is None else namespace.command(*argv),
                env=env,
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    async def until_working(self, *processes: subprocess.Popen[bytes]) -> None:
        """Wait until these workers are registered; a signal before that would just end them."""
        pids = [process.pid for process in processes]
        async with asyncio.timeout(60):
            while (await self.records.count(WorkerRecord, {"pid": one_of(*pids)}))[0] < len(pids):
                await asyncio.sleep(0.05)

    async def sent(self) -> int:
        return (await self.records.count(worker.Parcel, {"status": "sent"}))[0]

    async def until_sent(self, count: int, seconds: float = 60) -> None:
        try:
            async with asyncio.timeout(seconds):
                while await self.sent() < count:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(
                f"only {await self.sent()} of {count} were sent; the log of the workers:\n"
                f"{self.log.read_text()[-3000:]}"
            ) from None

    async def check(self, count: int, *, budget: int | None = None) -> Counter[str]:
        """Check that each parcel was sent once, with a whole history and each effect once.

        Return how often a handler was called for each parcel.
        """
        assert await self.sent() == count
        assert (await self.records.count(worker.Receipt))[0] == count
        ledger = await self.records.get(worker.Ledger, "total")
        assert ledger is not None
        assert ledger.sent == count
        async for parcel in self.records.each(worker.Parcel):
            steps = await self.store.history(Ref(worker.Parcel.kind, parcel.id))
            state = "ready"
            for step in steps:
                assert step.frm == state, steps
                assert step.frm == step.to or worker.Parcel.lifecycle.allows(step.frm, step.to), (
                    steps
                )
                state = step.to
            assert state == parcel.status == "sent", steps
            assert sum(step.to == "sent" for step in steps) == 1, steps
            assert parcel.leased_by is None
        if budget is not None:
            assert (await self.store.usage(worker.BUDGET))[0].used <= budget
        calls = Counter(self.calls.read_text().split())
        assert len(calls) == count
        return calls


@asynccontextmanager
async def kill_harness(place: Any, folder: Path, count: int) -> AsyncIterator[KillHarness]:
    """A harness with ``count`` parcels; its processes end with it."""
    store = place.store()
    await store.open()
    harness = KillHarness(store, place.url, folder)
    try:
        await harness.fill(count)
        yield harness
    finally:
        harness.end()
        await store.close()


def _python_path() -> str:
    return os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH", "")]))


async def wait_until_killed(process: subprocess.Popen[bytes]) -> None:
    """Wait until the worker has killed itself."""
    assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL
