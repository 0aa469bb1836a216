"""A tick: run everything that is due within a time limit.

For platforms where no worker process stays and an outside clock calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from esclusa.engine.clock import StoreClock
from esclusa.engine.cycle_records import CycleRecords
from esclusa.engine.cycles import CycleRunner
from esclusa.engine.registry import SYSTEM, Registry
from esclusa.engine.runs import RunContext
from esclusa.engine.threads import end_tasks
from esclusa.model.errors import AlreadyRunning, EsclusaError, Paused
from esclusa.model.schedule import Always, Manual
from esclusa.model.stage import Cycle
from esclusa.model.texts import text
from esclusa.model.value import value
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry

# The last part of the time (ten seconds at most), in which nothing is claimed: handlers end.
MARGIN = 0.2

# Seconds that handlers have to end after they were cancelled.
LAST = 2.0


@value
class Ticked:
    """What a tick did.

    ``complete``: it ended because nothing more was due. Otherwise the time was up, and the next
    tick goes on.
    """

    runs: tuple[RunContext, ...]
    complete: bool
    seconds: float

    def answer(self) -> dict[str, Any]:
        return {
            "runs": [run.answer() for run in self.runs],
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
        }


class Tick:
    """Runs every cycle whose slot has come, and drains every stage that is always served.

    Claims end before the time does; what is not handled then is given back at once, its attempt not
    counted. Ticks may overlap each other and workers: claims share the records, a slot runs once, a
    singleton cycle is locked.
    """

    def __init__(
        self,
        registry: Registry,
        runner: CycleRunner,
        cycle_records: CycleRecords,
        store: Store,
        clock: StoreClock,
        telemetry: Telemetry,
        judge: Callable[[], Awaitable[None]],
        *,
        seconds: float,
        poll: float,
    ) -> None:
        self._registry = registry
        self._runner = runner
        self._cycle_records = cycle_records
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._judge = judge
        self._poll = poll
        self._begun = time.monotonic()
        self._end = self._begun + seconds
        self._last_claim = self._end - min(10.0, seconds * MARGIN)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._runs: list[RunContext] = []
        self._finished: set[str] = set()

    async def run(self) -> Ticked:
        """Run until nothing is due or the time is up. Raises StoreUnavailable."""
        complete = False
        try:
            await self._clock.sync()  # the process may have been frozen meanwhile
            await self._cycle_records.refresh()
            while not self._runner.stopping and time.monotonic() < self._last_claim:
                await self._start()
                if not self._tasks:
                    complete = True
                    break
                left = self._last_claim - time.monotonic()
                await asyncio.wait(
                    self._tasks.values(),
                    timeout=max(0.0, min(left, self._poll)),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                self._tasks = {name: task for name, task in self._tasks.items() if not task.done()}
        finally:
            await asyncio.shield(self._wind_down())
        await self._judge()
        return Ticked(tuple(self._runs), complete, time.monotonic() - self._begun)

    async def _start(self) -> None:
        """Start every cycle that should run now and is not running."""
        cycles = [
            c
            for c in self._registry.cycles.values()
            if c.name not in self._tasks and c.name not in self._finished
        ]
        for cycle, slot in zip(
            cycles, await asyncio.gather(*(self._slot(c) for c in cycles)), strict=True
        ):
            if slot is not None:
                self._tasks[cycle.name] = asyncio.create_task(
                    self._run(cycle, slot or None), name=f"tick {cycle.name}"
                )

    async def _run(self, cycle: Cycle, slot: str | None) -> None:
        try:
            run = await self._runner.run(cycle.name, person=False, slot=slot)
        except (AlreadyRunning, Paused):
            self._finished.add(cycle.name)  # another process runs it
        except EsclusaError as error:
            self._finished.add(cycle.name)
            await self._runner.not_started(cycle, error)
        else:
            self._runs.append(run)
            if run.outcome in ("blocked", "error") or (
                cycle.function is None and not run.counters["taken"]
            ):
                self._finished.add(cycle.name)  # it can do nothing more now

    # what is due

    async def _slot(self, cycle: Cycle) -> str | None:
        """The slot in which the cycle runs now: "" if it has none, None if it does not run."""
        if isinstance(cycle.schedule, Manual) or self._cycle_records.paused(cycle.name):
            return None
        if isinstance(cycle.schedule, Always):
            return "" if await self._has_due(cycle) else None
        slot = await self._cycle_records.next_slot(cycle)
        if slot is None or slot > self._clock.now():
            return None
        if (
            cycle.name.startswith(SYSTEM)
            and cycle.function is None
            and not await self._has_due(cycle)
        ):
            return None  # a system cycle with nothing to do leaves no run behind
        return f"{slot:%Y%m%dT%H%M%S.%fZ}"

    async def _has_due(self, cycle: Cycle) -> bool:
        for stage in cycle.stages:
            if (await self._store.backlog(self._registry.request(stage), cap=1)).due:
                return True
        return False

    # the end

    async def _wind_down(self) -> None:
        """No new claims for the rest of the time; then the records are given back."""
        await self._wait(abort=False, seconds=max(0.0, self._end - time.monotonic()))
        await self._wait(abort=True, seconds=LAST)
        await end_tasks(*self._tasks.values())

    async def _wait(self, *, abort: bool, seconds: float) -> None:
        running = {name: task for name, task in self._tasks.items() if not task.done()}
        for name in running:
            if (run := self._runner.active(name)) is not None:
                self._runner.stop_run(run, text("by_tick"), abort=abort)
        if running:
            await asyncio.wait(running.values(), timeout=seconds)
