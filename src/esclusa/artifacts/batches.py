"""Blocking work for many items at a time, in threads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, TypeVar

from esclusa.engine.threads import wait_until_done
from esclusa.model.errors import ArtifactError

T = TypeVar("T")


class _Batch(Generic[T]):
    __slots__ = ("done", "hurried", "items")

    def __init__(self) -> None:
        self.items: list[T] = []
        # Whether it does not wait for more items.
        self.hurried = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class ThreadBatches(Generic[T]):
    """Runs blocking work for many items in batches.

    Items that arrive while a batch runs form the next one. So a single item is worked on at once,
    and under load many items share one switch of threads and the waits of the work. A batch that is
    not full waits for the one before it; up to ``parallel`` full batches run at once.

    With ``gather``, a batch that is not full waits so many seconds for more items, unless a caller
    waits for it (``hurry``).
    """

    def __init__(
        self,
        threads: Executor,
        work: Callable[[list[T]], None],
        *,
        max_items: int,
        parallel: int,
        gather: float = 0.0,
    ) -> None:
        self._threads = threads
        self._work = work
        self._max_items = max_items
        self._parallel = parallel
        self._gather = gather
        self._gathering: asyncio.TimerHandle | None = None
        self._waiting: deque[_Batch[T]] = deque()
        self._running = 0

    async def add(self, item: T) -> None:
        """Return once the work for this item is done. A cancelled caller waits for that too."""
        done = self.post(item)
        self.hurry()
        await wait_until_done(done)

    def post(self, item: T) -> asyncio.Future[None]:
        """Schedule the work for this item; return the future of its whole batch.

        Wait with ``wait_until_done``, because others wait for the same future. It fails with
        ArtifactError if the work cannot be started.
        """
        if not self._waiting or len(self._waiting[-1].items) >= self._max_items:
            self._waiting.append(_Batch())
        batch = self._waiting[-1]
        batch.items.append(item)
        if not self._gather or len(batch.items) >= self._max_items:
            self._start_next()
        elif self._gathering is None:
            self._gathering = asyncio.get_running_loop().call_later(self._gather, self.hurry)
        return batch.done

    def hurry(self) -> None:
        """Begin with what waits for more items: a caller waits for it."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        for batch in self._waiting:
            batch.hurried = True
        self._start_next()

    def _start_next(self) -> None:
        if not self._waiting:
            return
        batch = self._waiting[0]
        full = len(batch.items) >= self._max_items
        gathers = self._gather > 0 and not batch.hurried
        if (gathers and not full) or self._running >= (self._parallel if full else 1):
            return
        self._waiting.popleft()

        def finish(work: asyncio.Future[None]) -> None:
            self._running -= 1
            error = work.exception()
            if error is None:
                batch.done.set_result(None)
            else:
                batch.done.set_exception(error)
            self._start_next()

        self._running += 1
        try:
            work = asyncio.get_running_loop().run_in_executor(
                self._threads, self._work, batch.items
            )
        except RuntimeError as error:  # the system has no thread now; the next batch may get one
            self._running -= 1
            batch.done.set_exception(ArtifactError(f"no thread can be started: {error}"))
            self._start_next()
        else:
            work.add_done_callback(finish)
