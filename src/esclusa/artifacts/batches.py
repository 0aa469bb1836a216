"""Blocking work for many at a time, in threads: for stores whose files know nothing of an event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, TypeVar

from esclusa.engine.threads import seen_through
from esclusa.model.errors import ArtifactError

T = TypeVar("T")


class _Batch(Generic[T]):
    """Some that are done together, and the future of all who wait for that."""

    __slots__ = ("done", "items")

    def __init__(self) -> None:
        self.items: list[T] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Batches(Generic[T]):
    """Does the same blocking work for many, in batches. What comes while one is under way makes the next: so a lone one is done at
    once, and under load many share one change of threads, and all else that the work lets them share. A full one waits for no other,
    unless ``at_once`` of them are under way."""

    def __init__(
        self, threads: Executor, work: Callable[[list[T]], None], *, most: int, at_once: int
    ) -> None:
        self._threads = threads
        self._work = work
        self._most = most
        self._at_once = at_once
        self._waiting: deque[_Batch[T]] = deque()
        self._under_way = 0

    async def add(self, item: T) -> None:
        """Return when the work is done for it; as with ``finished``, a cancelled caller waits for that too."""
        await seen_through(self.post(item))

    def post(self, item: T) -> asyncio.Future[None]:
        """Have the work done for it. What is returned is done when that is, and is the whole batch's: wait with ``seen_through``.
        It has an ArtifactError if the work cannot be begun."""
        if not self._waiting or len(self._waiting[-1].items) >= self._most:
            self._waiting.append(_Batch())
        batch = self._waiting[-1]
        batch.items.append(item)
        self._next()
        return batch.done

    def _next(self) -> None:
        if not self._waiting or self._under_way >= (
            self._at_once if len(self._waiting[0].items) >= self._most else 1
        ):
            return
        batch = self._waiting.popleft()

        def over(work: asyncio.Future[None]) -> None:
            self._under_way -= 1
            error = work.exception()
            if error is None:
                batch.done.set_result(None)
            else:
                batch.done.set_exception(error)
            self._next()

        self._under_way += 1
        try:
            work = asyncio.get_running_loop().run_in_executor(
                self._threads, self._work, batch.items
            )
        except (
            RuntimeError
        ) as error:  # the system has no thread for us now; the next batch may get one
            self._under_way -= 1
            batch.done.set_exception(ArtifactError(f"cannot begin to write: {error}"))
            self._next()
        else:
            work.add_done_callback(over)
