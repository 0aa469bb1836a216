"""The handler pool: a bounded number of tasks that handle the records that wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from esclusa.engine.leases import HeldLease

Handle: TypeAlias = Callable[[list[HeldLease], asyncio.Task[None]], Awaitable[None]]

TURNS = 64
"""Calls after which a task yields: handlers that never wait must not block claims and renewals."""


class HandlerPool:
    """Calls ``handle`` with up to ``batch`` waiting leases at a time, in at most ``size`` tasks.

    A task ends when nothing waits. Only one task is started at a time, and it starts the next once
    it has work: handlers that never wait are then run by one task, without waking the others.
    """

    def __init__(
        self,
        name: str,
        *,
        size: int,
        batch: int,
        handle: Handle,
        stopped: Callable[[], bool],
        give_back: Callable[[], None],
    ) -> None:
        """``stopped``: handle nothing more; ``give_back`` is called with the waiting leases."""
        self._name = f"{name} handler"
        self._size = size
        self._batch = batch
        self._handle = handle
        self._stopped = stopped
        self._give_back = give_back
        self._waiting: deque[HeldLease] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = False

    @property
    def waiting(self) -> int:
        """How many leases wait for a task."""
        return len(self._waiting)

    def add(self, held_leases: Sequence[HeldLease]) -> None:
        self._waiting.extend(held_leases)
        self._start()

    def take_waiting(self) -> list[HeldLease]:
        """Remove and return the leases that wait."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def cancel(self, message: str) -> None:
        """Cancel the handlers under way."""
        for task in self._tasks:
            task.cancel(message)

    async def close(self) -> None:
        """End the tasks, once all their leases are settled."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self) -> None:
        if self._starting or not self._waiting or self._stopped():
            return
        if len(self._tasks) < self._size:
            self._tasks.add(asyncio.create_task(self._work(), name=self._name))
            self._starting = True

    async def _work(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        self._starting = False
        waiting, handle, turns = self._waiting, self._handle, 0
        try:
            while waiting:
                if self._stopped():
                    self._give_back()
                    return
                batch = [waiting.popleft()]
                while waiting and len(batch) < self._batch:
                    batch.append(waiting.popleft())
                if waiting and not self._starting:
                    self._start()
                await handle(batch, me)
                turns += 1
                if turns % TURNS == 0:
                    await asyncio.sleep(0)
        finally:
            # Nothing is awaited between the check above and this, so no lease is left waiting.
            self._tasks.discard(me)
