"""Runs what is due in a test, and finds when something is due next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

from esclusa.engine.engine import Engine
from esclusa.engine.pauses import open_pauses
from esclusa.engine.registry import SYSTEM
from esclusa.engine.runs import RunContext
from esclusa.model.schedule import Always, Every, Manual
from esclusa.model.stage import Cycle, Stage

# The most runs in a row in which something is due: a handler that waits for nothing has no end.
MOST_RUNS = 500


class DueRuns:
    """Runs the cycles of the pipelines one after the other while something is due for them.

    ``begun``: when the test began. The first slot of an interval is an interval later.
    """

    def __init__(self, engine: Engine, killed: Callable[[], bool], begun: datetime) -> None:
        self._engine = engine
        self._killed = killed
        self._begun = begun
        self._cycles = [
            cycle for name, cycle in engine.cycles.items() if not name.startswith(SYSTEM)
        ]
        # Cycles that can do nothing more now.
        self._blocked: set[str] = set()

    async def run(self) -> list[RunContext]:
        """Run until nothing is due or the worker is killed."""
        engine, runs = self._engine, list[RunContext]()
        await engine.clock.sync()
        await engine.cycle_records.refresh()
        while (found := await self._next()) is not None and not self._killed():
            cycle, slot = found
            run = await engine.runner.run(cycle.name, person=False, slot=slot)
            runs.append(run)
            if run.outcome in ("blocked", "error") or (slot is None and not run.counters["taken"]):
                self._blocked.add(cycle.name)
            if len(runs) >= MOST_RUNS:
                raise AssertionError(
                    f"after {MOST_RUNS} runs something is still due for {cycle.name}: does its "
                    "handler answer Wait(0) or Retry(after=0) every time?"
                )
        return runs

    async def _next(self) -> tuple[Cycle, str | None] | None:
        """The next cycle to run, and its slot if it runs by its schedule."""
        for cycle in self._cycles:
            if cycle.name in self._blocked or self._engine.paused(cycle.name):
                continue
            if cycle.function is None:
                if await self._has_due(cycle):
                    return cycle, None
            elif (slot := await self._slot(cycle)) is not None:
                return cycle, slot
        return None

    async def _has_due(self, cycle: Cycle) -> bool:
        for stage in cycle.stages:
            request = self._engine.registry.request(stage)
            if (await self._engine.store.backlog(request, cap=1)).due:
                return True
        return False

    async def _slot(self, cycle: Cycle) -> str | None:
        if isinstance(cycle.schedule, Manual | Always):
            return None
        slot = await self._next_slot(cycle)
        if slot is None or slot > self._engine.clock.now():
            return None
        return f"{slot:%Y%m%dT%H%M%S.%fZ}"

    async def _next_slot(self, cycle: Cycle) -> datetime | None:
        """When the cycle is due next.

        Intervals are counted from the test's beginning or the last run, not from round times, so
        that it does not depend on the time of day what a test runs.
        """
        slot = await self._engine.cycle_records.next_slot(cycle)
        if slot is None or not isinstance(cycle.schedule, Every):
            return slot
        last = await self._engine.cycle_records.last_run(cycle.name)
        since = self._begun if last is None else last.started_at
        counted = since + timedelta(seconds=cycle.schedule.seconds)
        return max(counted, slot) if cycle.singleton else counted

    async def next_due(self, end: datetime) -> datetime | None:
        """When a record is due next, before ``end``; waits for budgets and pauses included."""
        now = await self._engine.clock.sync()
        moments = [m async for m in self._moments() if now < m <= end]
        return min(moments, default=None)

    async def _moments(self) -> AsyncIterator[datetime]:
        store, pauses = (
            self._engine.store,
            await open_pauses(self._engine.records, self._engine.clock.now()),
        )
        for cycle in self._cycles:
            for stage in cycle.stages if cycle.function is None else ():
                backlog = await store.backlog(self._engine.registry.request(stage), cap=1)
                if backlog.next is not None:
                    yield backlog.next
                if backlog.due:
                    async for moment in self._denied_until(stage):
                        yield moment
                    if (pause := pauses.get(stage.name)) and pause.due_at is not None:
                        yield pause.due_at

    async def _denied_until(self, stage: Stage) -> AsyncIterator[datetime]:
        """When windows of the stage's budget open that have too little left."""
        if stage.budget is None:
            return
        for window in await self._engine.store.usage(stage.budget):
            for moment in (window.barred, window.free_at):
                if moment is not None:
                    yield moment
            if window.left < stage.cost:
                yield window.reset
