"""The scheduler: starts every cycle of this process in its slots, and stops them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from esclusa.engine.clock import StoreClock
from esclusa.engine.cycle_records import CycleRecords
from esclusa.engine.cycles import CycleRunner
from esclusa.engine.lifespans import Lifespans
from esclusa.engine.registry import SYSTEM, Registry
from esclusa.engine.signals import on_stop_signals
from esclusa.engine.threads import end_tasks, wait_at_most
from esclusa.model.errors import (
    AlreadyRunning,
    EsclusaError,
    Paused,
    PipelineNotReady,
    StoreConflict,
    StoreUnavailable,
)
from esclusa.model.schedule import Always, Every, Manual
from esclusa.model.stage import Cycle
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry


class Scheduler:
    """Serves cycles until it is stopped.

    A cycle never overlaps itself; missed slots are not made up for; a clock that steps back does
    not run a slot again. After a stop, handlers have ``grace`` seconds; ``abort`` then stops them.
    """

    def __init__(
        self,
        registry: Registry,
        runner: CycleRunner,
        cycle_records: CycleRecords,
        lifespans: Lifespans,
        store: Store,
        clock: StoreClock,
        telemetry: Telemetry,
        *,
        grace: float,
        abort: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._runner = runner
        self._cycle_records = cycle_records
        self._lifespans = lifespans
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._grace = grace
        self._abort = abort
        self._stopped_by: str | None = None
        self._stopping = asyncio.Event()
        self._aborting = asyncio.Event()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self, by: str | None = None) -> None:
        """First call: no new claims, handlers have the grace period. Second call: abort.

        ``by`` is what asked for it, such as a signal.
        """
        if self._stopping.is_set():
            self._aborting.set()
        else:
            self._stopped_by = by
        self._stopping.set()

    def stop_on_signals(self) -> None:
        """Let SIGTERM and SIGINT stop it; a second signal aborts."""
        on_stop_signals(self.stop)

    async def serve(self, only: frozenset[str] | None = None) -> None:
        """Serve all cycles (or ``only`` these) until stopped; return when everything is settled."""
        unlisten = await self._store.listen(self._runner.wake)
        cycles = [
            c
            for c in self._registry.cycles.values()
            if not isinstance(c.schedule, Manual)
            and (only is None or c.name in only or c.name.startswith(SYSTEM))
        ]
        tasks = [asyncio.create_task(self._serve_cycle(c), name=c.name) for c in cycles]
        end = asyncio.create_task(self._end(tasks), name="orderly stop")
        try:
            await asyncio.wait(tasks)  # a task that had to be cancelled is not an error
        finally:
            self._stopping.set()
            await end_tasks(*tasks)
            await end_tasks(end)
            await unlisten()

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        """The orderly stop: grace, then abort."""
        await self._stopping.wait()
        by = f" on {self._stopped_by}" if self._stopped_by else ""
        self._telemetry.event(
            "info",
            f"stopping{by}: no new claims; handlers have the grace period",
            grace=self._grace,
        )
        self._runner.stop(self._stopped_by)
        await wait_at_most(self._grace, self._aborting)
        self._telemetry.event("warning", "stopping now: records under work are given back")
        self._abort()
        await asyncio.sleep(2.0)
        for task in tasks:
            task.cancel()

    async def _serve_cycle(self, cycle: Cycle) -> None:
        """Serve one cycle while its pipeline is ready.

        An error of the store or of one run does not end it.
        """
        pause, pipeline = 0.1, self._registry.plan_of(cycle.name).name
        while not self._stopping.is_set():
            await self._lifespans.wait_until_open(pipeline, self._stopping)
            try:
                if self._stopping.is_set():
                    return
                if isinstance(cycle.schedule, Always):
                    down = partial(self._lifespans.wait_until_down, pipeline, self._stopping)
                    await self._runner.serve(cycle, down)
                elif cycle.singleton:
                    await self._serve_singleton(cycle)
                else:
                    await self._serve_shared(cycle)
            except (StoreUnavailable, StoreConflict, PipelineNotReady) as error:
                self._telemetry.event("warning", f"{cycle.name}: {error}; will retry")
            except EsclusaError as error:
                await self._runner.not_started(cycle, error)
            except Exception as error:  # noqa: BLE001 - the cycle goes on, and the error is logged
                self._telemetry.event(
                    "error", f"{cycle.name}: {type(error).__name__}: {error}", exc_info=error
                )
                await self._runner.not_started(cycle, error)
            await wait_at_most(pause, self._stopping)
            pause = min(10.0, pause * 2)

    async def _serve_shared(self, cycle: Cycle) -> None:
        """Run in every process, by its own timer; claims share the work."""
        last = await self._last_slot(cycle)
        while not self._stopping.is_set():
            slot = cycle.schedule.next_after(last)
            assert slot is not None
            await self._until(slot)
            if self._stopping.is_set():
                return
            last = max(last, self._clock.now())
            if not self._cycle_records.paused(cycle.name):
                await self._run(cycle)

    async def _last_slot(self, cycle: Cycle) -> datetime:
        """The time from which the next slot counts.

        An interval counts from the cycle's last run, so that a restart does not delay it.
        """
        now = await self._clock.sync()
        if not isinstance(cycle.schedule, Every):
            return now
        interval = timedelta(seconds=cycle.schedule.seconds)
        latest = await self._cycle_records.last_run(cycle.name)
        return max(latest.started_at, now - interval) if latest else now - interval

    async def _serve_singleton(self, cycle: Cycle) -> None:
        """Run in the process of the cluster that claims the cycle's record when it is due."""
        while not self._stopping.is_set():
            record = await self._cycle_records.get(cycle.name)
            now = self._clock.now()
            if record is None or record.due_at is None:
                continue
            if record.status != "paused" and record.due_at <= now:
                await self._run(cycle, f"{record.due_at:%Y%m%dT%H%M%S.%fZ}")
            else:
                left = (record.due_at - now).total_seconds()
                await wait_at_most(min(5.0, max(0.05, left)), self._stopping)

    async def _run(self, cycle: Cycle, slot: str | None = None) -> None:
        try:
            await self._runner.run(cycle.name, person=False, slot=slot)
        except (AlreadyRunning, Paused) as refused:
            self._telemetry.event("debug", f"worker_already_running: {refused}", cycle=cycle.name)
        except (StoreUnavailable, StoreConflict, PipelineNotReady):
            raise
        except EsclusaError as error:
            await self._runner.not_started(cycle, error)

    async def _until(self, slot: datetime) -> None:
        while (left := (slot - self._clock.now()).total_seconds()) > 0 and not self.stopping:
            await wait_at_most(min(left, 5.0), self._stopping)
