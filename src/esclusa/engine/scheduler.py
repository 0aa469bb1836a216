"""The scheduler: starts every cycle of this process in its slots, and stops them in order."""

from __future__ import annotations

import asyncio
import signal
from datetime import datetime, timedelta

from esclusa.engine.engine import Engine
from esclusa.model.errors import (
    AlreadyRunning,
    EsclusaError,
    Paused,
    StoreConflict,
    StoreUnavailable,
)
from esclusa.model.schedule import Always, Every, Manual
from esclusa.model.stage import Cycle
from esclusa.model.system_records import CycleRecord, Run


class Scheduler:
    """Runs until stopped. A cycle never overlaps itself here; missed slots are not made up for; a clock that steps
    back does not fire a slot again."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stopping = asyncio.Event()
        self._aborting = asyncio.Event()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """First call: no new claims, handlers have the grace period. Second call: abort."""
        if self._stopping.is_set():
            self._aborting.set()
        self._stopping.set()

    def stop_on_signals(self) -> None:
        """SIGTERM and SIGINT stop in order; a second one aborts."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    async def serve(self, only: frozenset[str] | None = None) -> None:
        """Serve all cycles (or only these) until stopped; returns when everything is settled and given back."""
        engine = self._engine
        unlisten = await engine.store.listen(engine.heard)
        cycles = [
            c
            for c in engine.cycles.values()
            if not isinstance(c.schedule, Manual)
            and (only is None or c.name in only or c.name.startswith("esclusa."))
        ]
        tasks = [asyncio.create_task(self._keep(cycle), name=cycle.name) for cycle in cycles]
        end = asyncio.create_task(self._end(tasks), name="orderly stop")
        try:
            await asyncio.wait(tasks)  # one that had to be called off is no fault
        finally:
            self._stopping.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            end.cancel()
            await asyncio.gather(end, return_exceptions=True)
            await unlisten()

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        """The orderly stop: grace, then abort."""
        await self._stopping.wait()
        self._engine.telemetry.event(
            "info",
            "stopping: no new claims; handlers have the grace period",
            grace=self._engine.options.grace,
        )
        self._engine.stop()
        try:
            async with asyncio.timeout(self._engine.options.grace):
                await self._aborting.wait()
        except TimeoutError:
            pass
        self._engine.telemetry.event("warning", "stopping now: records under work are given back")
        self._engine.abort()
        await asyncio.sleep(2.0)
        for task in tasks:
            task.cancel()

    async def _keep(self, cycle: Cycle) -> None:
        """Serve one cycle; a fault of the store or a bug in one run does not end it."""
        pause = 0.1
        while not self._stopping.is_set():
            try:
                if isinstance(cycle.schedule, Always):
                    await self._engine.serve(cycle, self._stopping)
                elif cycle.singleton:
                    await self._serve_alone(cycle)
                else:
                    await self._serve_shared(cycle)
            except (StoreUnavailable, StoreConflict) as error:
                self._engine.telemetry.event(
                    "warning", f"{cycle.name}: {error}; will be tried again"
                )
            except Exception as error:  # noqa: BLE001 - the cycle goes on, and the fault is told
                self._engine.telemetry.event(
                    "error", f"{cycle.name}: {type(error).__name__}: {error}", exc_info=error
                )
            await self._sleep(pause)
            pause = min(10.0, pause * 2)

    async def _serve_shared(self, cycle: Cycle) -> None:
        """Every process runs it, by its own timer; claims share the work."""
        engine = self._engine
        last = await self._last_slot(cycle)
        while not self._stopping.is_set():
            slot = cycle.schedule.next_after(last)
            assert slot is not None
            await self._until(slot)
            if self._stopping.is_set():
                return
            last = max(last, engine.clock.now())
            if not engine.paused(cycle.name):
                await self._run(cycle)

    async def _last_slot(self, cycle: Cycle) -> datetime:
        """Where the schedule goes on: an interval counts from the cycle's last run, so a restart does not delay it."""
        now = await self._engine.clock.sync()
        if not isinstance(cycle.schedule, Every):
            return now
        latest = await self._engine.records.first(Run, {"cycle": cycle.name}, order="-started_at")
        return (
            max(latest.started_at, now - timedelta(seconds=cycle.schedule.seconds))
            if latest
            else now - timedelta(seconds=cycle.schedule.seconds)
        )

    async def _serve_alone(self, cycle: Cycle) -> None:
        """One process of the cluster runs it, whichever claims its card when it is due."""
        id = CycleRecord.kind.id_of(cycle.name)
        while not self._stopping.is_set():
            card = await self._engine.records.get(CycleRecord, id)
            now = self._engine.clock.now()
            if (
                card is not None
                and card.status != "paused"
                and card.due_at is not None
                and card.due_at <= now
            ):
                await self._run(cycle, f"{card.due_at:%Y%m%dT%H%M%S.%fZ}")
            elif card is not None and card.due_at is not None:
                await self._sleep(min(5.0, max(0.05, (card.due_at - now).total_seconds())))

    async def _run(self, cycle: Cycle, slot: str | None = None) -> None:
        try:
            await self._engine.run_cycle(cycle.name, person=False, slot=slot)
        except (AlreadyRunning, Paused) as refused:
            self._engine.telemetry.event(
                "debug", f"worker_already_running: {refused}", cycle=cycle.name
            )
        except (StoreUnavailable, StoreConflict):
            raise
        except EsclusaError as error:
            self._engine.telemetry.event("error", f"{cycle.name}: {error}", cycle=cycle.name)

    async def _until(self, slot: datetime) -> None:
        while not self._stopping.is_set():
            left = (slot - self._engine.clock.now()).total_seconds()
            if left <= 0:
                return
            await self._sleep(min(left, 5.0))

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass
