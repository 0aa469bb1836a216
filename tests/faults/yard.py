"""What the fault tests share: a data set, worker processes on it, and the check that nothing was lost or doubled."""

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

import faults.worker as post

from esclusa.artifacts.local import LocalArtifacts
from esclusa.engine.engine import Engine
from esclusa.model.record import Ref

TESTS = Path(__file__).parents[1]


class Yard:
    """One data set with parcels to send, and the worker processes that were started on it."""

    def __init__(self, store: Any, url: str, folder: Path) -> None:
        self.store, self.url = store, url
        self.outside = folder / "outside.txt"
        self.outside.touch()
        self.log = folder / "workers.log"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.engine = Engine(store, [post.app.bind(post.app.settings())], LocalArtifacts(folder))
        self.records = self.engine.records

    async def fill(self, count: int) -> None:
        await self.store.migrate(self.engine.all_kinds, self.engine.all_stages)
        await self.store.use(self.engine.all_kinds, self.engine.all_stages)
        parcels = [post.Parcel(name=f"p{n:05}") for n in range(count)]
        await self.store.insert([post.Ledger(name="total"), *parcels])

    def start(self, kill_at: str = "", **environment: str) -> subprocess.Popen[bytes]:
        env = (
            os.environ
            | {"KILL_AT": kill_at, "OUTSIDE": str(self.outside), "PYTHONPATH": str(TESTS)}
            | environment
        )
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(TESTS / "faults" / "worker.py"), self.url],
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

    async def sent(self) -> int:
        return (await self.records.count(post.Parcel, {"status": "sent"}))[0]

    async def until_sent(self, count: int, seconds: float = 60) -> None:
        try:
            async with asyncio.timeout(seconds):
                while await self.sent() < count:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(
                f"only {await self.sent()} of {count} were sent; the workers said:\n{self.log.read_text()[-3000:]}"
            ) from None

    async def check(self, count: int, *, budget: int | None = None) -> Counter[str]:
        """Every parcel ended once, every history chain is whole, every effect happened once. Returns how often the outside saw each."""
        assert await self.sent() == count
        assert (await self.records.count(post.Receipt))[0] == count
        ledger = await self.records.get(post.Ledger, "total")
        assert ledger is not None
        assert ledger.sent == count
        async for parcel in self.records.each(post.Parcel):
            steps = await self.store.history(Ref(post.Parcel.kind, parcel.id))
            state = "ready"
            for step in steps:
                assert step.frm == state, steps
                assert step.frm == step.to or post.Parcel.lifecycle.allows(step.frm, step.to), steps
                state = step.to
            assert state == parcel.status == "sent", steps
            assert sum(step.to == "sent" for step in steps) == 1, steps
            assert parcel.leased_by is None
        if budget is not None:
            assert (await self.store.usage(post.BUDGET))[0].used <= budget
        seen = Counter(self.outside.read_text().split())
        assert len(seen) == count
        return seen


@asynccontextmanager
async def yard(place: Any, folder: Path, count: int) -> AsyncIterator[Yard]:
    store = place.store()
    await store.open()
    here = Yard(store, place.url, folder)
    try:
        await here.fill(count)
        yield here
    finally:
        here.end()
        await store.close()


async def died(process: subprocess.Popen[bytes]) -> None:
    """Wait for a worker that kills itself."""
    assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL
