"""Handles crash suspects: at most eight at a time, then each alone. See model/suspects.py."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from esclusa.engine.handler import HandlerPool
from esclusa.engine.leases import HeldLease, LeaseRenewer
from esclusa.engine.threads import end_tasks
from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.model.settlement import Renewal
from esclusa.model.suspects import GROUP, handling_holder, waiting_holder
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry

# Seconds that all handlers of the process are waited for, so that a suspect can be alone.
#
# If they take longer, new ones begin again for as long, and the next time is twice as long.
DRAIN = 60.0
# Seconds that a suspect is alone at most; then other handlers begin beside it.
ALONE = 600.0
# How often marking a suspect is tried, and the seconds between two tries. Then it is given back.
MARKING, PAUSE = 5, 1.0


class Suspects:
    """The suspects of all stages of this process.

    ``busy`` counts those that are handled in a group. While ``paused``, no handler begins but that
    of a suspect that must be alone.
    """

    def __init__(
        self, store: Store, leases: LeaseRenewer, telemetry: Telemetry, worker: str
    ) -> None:
        self.store = store
        self.leases = leases
        self.telemetry = telemetry
        self.worker = worker
        self.busy = 0
        self.paused = False
        self._stages: list[StageSuspects] = []
        self._changed = asyncio.Event()
        self._alone: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @contextmanager
    def including(self, stage: StageSuspects) -> Iterator[None]:
        """Look after the suspects of this stage, and pause it while a suspect must be alone."""
        self._stages.append(stage)
        if self.paused:
            stage.pool.pause(self._changed.set)
        try:
            yield
        finally:
            self._stages.remove(stage)
            self._changed.set()

    def offer(self) -> None:
        """Let the stages handle suspects in a group, if there is room."""
        for stage in self._stages:
            stage.offer()

    def run_alone(self) -> None:
        """Handle, one after the other, those that must be alone."""
        if self._alone is None or self._alone.done():
            self._alone = self.spawn(self._run_alone())

    def changed(self) -> None:
        """Look again at what waits: suspects were given back."""
        self._changed.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="suspects")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self) -> None:
        await end_tasks(*self._tasks)

    def _next(self) -> StageSuspects | None:
        return next((stage for stage in self._stages if stage.alone), None)

    async def _run_alone(self) -> None:
        limit = DRAIN
        while self._next() is not None:
            self._pause()
            try:
                async with asyncio.timeout(limit):
                    await self._drained()
                limit = DRAIN
                while (stage := self._next()) is not None:
                    if not await stage.run_alone():
                        break
            except TimeoutError:
                self.telemetry.event(
                    "warning",
                    "a crash suspect must be handled alone, but other handlers are still under way;"
                    " will try again",
                    seconds=limit,
                )
                limit *= 2
            finally:
                self._resume()
            if self._next() is not None:
                await asyncio.sleep(limit)

    def _pause(self) -> None:
        self.paused = True
        for stage in self._stages:
            stage.pool.pause(self._changed.set)

    def _resume(self) -> None:
        self.paused = False
        for stage in self._stages:
            stage.resume()
        self.offer()

    async def _drained(self) -> None:
        """Wait until no handler is under way and all outcomes are written."""
        while self._next() is not None and any(stage.pool.busy for stage in self._stages):
            self._changed.clear()
            await self._changed.wait()
        await asyncio.gather(*(stage.flush() for stage in self._stages))


class StageSuspects:
    """The suspects of one stage in one run.

    A suspect is marked in the store right before its handler is called, and its place is free again
    when its outcome is written. So if the process ends, the store knows which ones it was handling.

    ``handle`` calls the handler and settles. ``resumed`` is called after a pause, ``given_back``
    with what was given back.
    """

    def __init__(
        self,
        suspects: Suspects,
        name: str,
        pool: HandlerPool,
        *,
        batch: int,
        handle: Callable[[list[HeldLease], asyncio.Task[None]], Awaitable[None]],
        flush: Callable[[], Awaitable[None]],
        stopped: Callable[[], bool],
        resumed: Callable[[], None],
        given_back: Callable[[Sequence[HeldLease]], None],
    ) -> None:
        self.pool = pool
        self.flush = flush
        self.alone: deque[HeldLease] = deque()
        self._grouped: deque[HeldLease] = deque()
        self._suspects = suspects
        self._name = name
        self._batch = min(batch, GROUP)
        self._handle = handle
        self._stopped = stopped
        self._resumed = resumed
        self._given_back = given_back
        self._offered = False

    def joined(self) -> AbstractContextManager[None]:
        """Begin only what the suspects of other stages allow, and the other way round."""
        return self._suspects.including(self)

    @property
    def waiting(self) -> int:
        """How many suspects wait for their turn."""
        return len(self._grouped) + len(self.alone)

    def add(self, suspects: Sequence[HeldLease]) -> None:
        """Handle these when it is their turn."""
        self._grouped.extend(held for held in suspects if held.lease.group > 1)
        self.alone.extend(held for held in suspects if held.lease.group == 1)
        self._suspects.telemetry.event(
            "info",
            f"{self._name}: records of a worker that ended without settling them are handled again",
            records=len(suspects),
        )
        self.offer()
        if self.alone:
            self._suspects.run_alone()

    def resume(self) -> None:
        self.pool.resume()
        self._resumed()

    def offer(self) -> None:
        """Let the pool begin with a group before what else waits, if there is room for more."""
        suspects = self._suspects
        if self._grouped and not (self._offered or suspects.paused or suspects.busy >= GROUP):
            self._offered = True
            self.pool.first(self._run_group)

    def take_waiting(self) -> list[HeldLease]:
        """Remove and return the suspects that wait."""
        waiting = [*self._grouped, *self.alone]
        self._grouped.clear()
        self.alone.clear()
        self._offered = False
        self._suspects.changed()
        return waiting

    def give_back(self, suspects: Sequence[HeldLease]) -> None:
        """End these leases now. The records stay suspects: the next claim finds their rank."""
        if suspects:
            self._suspects.leases.release(suspects)
            self._suspects.spawn(self._end_leases(suspects))

    async def run_alone(self) -> bool:
        """Handle the next one that must be alone; return whether it ended in time."""
        held = self.alone.popleft()
        self._suspects.telemetry.event(
            "warning",
            f"{self._name}: handled alone, because it may be what ended its worker",
            record=str(held.ref),
            attempt=held.lease.attempt,
        )
        task = self.pool.spawn(partial(self._run, [held]))
        done, _ = await asyncio.wait([task], timeout=ALONE)
        return bool(done)

    async def _run_group(self, me: asyncio.Task[None]) -> None:
        """Handle the next group, no larger than a batch and than what is free."""
        self._offered = False
        suspects = self._suspects
        free = 0 if suspects.paused else min(self._batch, GROUP - suspects.busy)
        group = [self._grouped.popleft() for _ in range(min(free, len(self._grouped)))]
        if not group:
            return
        suspects.busy += len(group)
        self.offer()
        try:
            await self._run(group, me)
        finally:
            suspects.busy -= len(group)
            suspects.offer()

    async def _run(self, group: list[HeldLease], me: asyncio.Task[None]) -> None:
        try:
            marked = await self._mark(group)
        except asyncio.CancelledError:
            self.give_back(group)
            raise
        if not marked:
            self.give_back(group)
            return
        await self._handle(group, me)
        await self.flush()

    async def _mark(self, group: list[HeldLease]) -> bool:
        """Write that these are being handled now; return whether to go on with that."""
        suspects = self._suspects
        for _ in range(MARKING):
            if self._stopped():
                break
            renewals = [
                Renewal(
                    held.ref,
                    held.lease.fence,
                    held.seconds,
                    holder=handling_holder(suspects.worker, held.lease.group),
                )
                for held in group
            ]
            try:
                renewed = await suspects.store.renew(renewals)
            except (StoreUnavailable, StoreConflict) as error:
                suspects.telemetry.event("warning", f"{self._name}: {error}; will retry")
                await asyncio.sleep(PAUSE)
                continue
            for held, sent in zip(group, renewals, strict=True):
                if held.ref not in renewed and held.lease.fence == sent.fence:
                    suspects.leases.release([held])
                    held.lose()
            return True
        return False

    async def _end_leases(self, given_back: Sequence[HeldLease]) -> None:
        suspects = self._suspects
        try:
            await suspects.store.renew(
                [
                    Renewal(
                        held.ref,
                        held.lease.fence,
                        0.0,
                        holder=waiting_holder(suspects.worker, held.lease.group),
                    )
                    for held in given_back
                ]
            )
        except (StoreUnavailable, StoreConflict) as error:
            suspects.telemetry.event(
                "warning", f"{self._name}: {error}; the leases expire by themselves"
            )
        finally:
            self._given_back(given_back)
