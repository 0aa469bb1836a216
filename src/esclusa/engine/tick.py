"""A tick: everything that is due, run within a time budget. For places where no worker stays and something outside keeps the time."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from typing import Any

from esclusa.engine.engine import Engine
from esclusa.engine.runs import RunContext
from esclusa.model.errors import AlreadyRunning, EsclusaError, Paused
from esclusa.model.schedule import Always, Every, Manual
from esclusa.model.settlement import ClaimRequest
from esclusa.model.stage import Cycle
from esclusa.model.system_records import CycleRecord, Run
from esclusa.model.value import value

MARGIN = 0.2
"""The part of the budget (ten seconds at most) in which nothing more is claimed, so that handlers can end by themselves."""
LAST = 2.0
"""Seconds that handlers have to give up once they are told to."""


@value
class Ticked:
    """What a tick did. ``complete``: it ended because nothing more was due; otherwise time ran out, and the next tick goes on."""

    runs: tuple[RunContext, ...]
    complete: bool
    seconds: float

    def answer(self) -> dict[str, Any]:
        return {
            "runs": [run.answer() for run in self.runs],
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
        }


async def tick(engine: Engine, seconds: float) -> Ticked:
    """Run every cycle whose slot has come, and drain every stage that is always served, until nothing is due or time is up.

    Claims end before the time does; what is not handled then is given back at once, its attempt not counted. Ticks may overlap
    each other and workers: claims share the records, a slot runs once, a cycle that runs alone is locked. Raises StoreUnavailable.
    """
    return await _Tick(engine, seconds).run()


class _Tick:
    def __init__(self, engine: Engine, seconds: float) -> None:
        self._engine = engine
        self._begun = time.monotonic()
        self._end = self._begun + seconds
        self._last_claim = self._end - min(10.0, seconds * MARGIN)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._runs: list[RunContext] = []
        self._spent: set[str] = set()

    async def run(self) -> Ticked:
        engine = self._engine
        complete = False
        try:
            await engine.clock.sync()  # the process may have been frozen since it last looked
            await engine.refresh()
            while not engine.stopping and time.monotonic() < self._last_claim:
                await self._start()
                if not self._tasks:
                    complete = True
                    break
                left = self._last_claim - time.monotonic()
                await asyncio.wait(
                    self._tasks.values(),
                    timeout=max(0.0, min(left, engine.options.poll)),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                self._tasks = {name: task for name, task in self._tasks.items() if not task.done()}
        finally:
            await asyncio.shield(self._wind_down())
        return Ticked(tuple(self._runs), complete, time.monotonic() - self._begun)

    async def _start(self) -> None:
        """Start every cycle that should run now and is not running."""
        cycles = [
            c
            for c in self._engine.cycles.values()
            if c.name not in self._tasks and c.name not in self._spent
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
            run = await self._engine.run_cycle(cycle.name, person=False, slot=slot)
        except (AlreadyRunning, Paused):
            self._spent.add(cycle.name)  # somebody else sees to it
        except EsclusaError as error:
            self._spent.add(cycle.name)
            self._engine.telemetry.event("error", f"{cycle.name}: {error}", cycle=cycle.name)
        else:
            self._runs.append(run)
            if run.outcome in ("blocked", "error") or (
                cycle.function is None and not run.counters["taken"]
            ):
                self._spent.add(cycle.name)  # it cannot do more for now

    # what is due

    async def _slot(self, cycle: Cycle) -> str | None:
        """The slot in which the cycle should run now; an empty one if it has none of its own, None if it should not."""
        if isinstance(cycle.schedule, Manual) or self._engine.paused(cycle.name):
            return None
        if isinstance(cycle.schedule, Always):
            return "" if await self._has_due(cycle) else None
        slot = await self._scheduled(cycle)
        if slot is None or slot > self._engine.clock.now():
            return None
        if (
            cycle.name.startswith("esclusa.")
            and cycle.function is None
            and not await self._has_due(cycle)
        ):
            return None  # the house's own upkeep leaves no row where there was nothing to do
        return f"{slot:%Y%m%dT%H%M%S.%fZ}"

    async def _has_due(self, cycle: Cycle) -> bool:
        for stage in cycle.stages:
            ask = ClaimRequest(
                stage.kind, stage.name, stage.take, stage.hold, stage.where, stage.order
            )
            if (await self._engine.store.backlog(ask, cap=1)).due:
                return True
        return False

    async def _scheduled(self, cycle: Cycle) -> datetime | None:
        """The first slot that the cycle has not run in. However many were missed, it is one."""
        engine = self._engine
        card = await engine.records.get(CycleRecord, CycleRecord.kind.id_of(cycle.name))
        if cycle.singleton:
            return None if card is None or card.status == "paused" else card.due_at
        latest = await engine.records.first(Run, {"cycle": cycle.name}, order="-started_at")
        now = engine.clock.now()
        if latest is not None:
            since = latest.started_at
        elif isinstance(cycle.schedule, Every):
            since = now - timedelta(seconds=cycle.schedule.seconds)
        else:
            since = card.created_at if card is not None and card.created_at is not None else now
        return cycle.schedule.next_after(since)

    # the end

    async def _wind_down(self) -> None:
        """No new claims, then what is left of the time, then the records go back."""
        await self._wait(abort=False, seconds=max(0.0, self._end - time.monotonic()))
        await self._wait(abort=True, seconds=LAST)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _wait(self, *, abort: bool, seconds: float) -> None:
        running = {name: task for name, task in self._tasks.items() if not task.done()}
        for name in running:
            run = self._engine.under_way(name)
            if run is not None:
                self._engine.stop_run(run, abort=abort)
        if running:
            await asyncio.wait(running.values(), timeout=seconds)
