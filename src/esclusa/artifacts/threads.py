"""Blocking work in threads, for stores whose files or clients know nothing of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


async def finished(threads: Executor, work: Callable[[], T]) -> T:
    """Run it in a thread. A cancelled caller waits for its end: it cannot be called back, and what follows it (closing a file,
    another request) must not run beside it."""
    return await _seen_through(asyncio.get_running_loop().run_in_executor(threads, work))


async def _seen_through(work: asyncio.Future[T]) -> T:
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await _ended(work)
        raise


async def _ended(work: asyncio.Future[T]) -> None:
    """Wait for its end however often that is cancelled: some cancel again and again until they are heard."""
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    if not work.cancelled():
        work.exception()  # seen: the cancellation is what the caller hears of


class _Item(Generic[T]):
    """One of a batch, and the future of whoever waits for it."""

    __slots__ = ("done", "over", "what")

    def __init__(self, what: T, done: asyncio.Future[None]) -> None:
        self.what = what
        self.done = done
        self.over = False

    def end(self, error: BaseException | None) -> None:
        self.over = True
        if self.done.done():  # called off a moment ago
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class Batches(Generic[T]):
    """Does the same blocking work for many, in batches. What comes while one is under way makes the next: so a lone one is done at
    once, and under load many share one change of threads, and all else that the work lets them share. A full one waits for no other,
    unless ``at_once`` of them are under way."""

    def __init__(self, threads: Executor, work: Callable[[list[T]], None], *, most: int, at_once: int) -> None:
        self._threads = threads
        self._work = work
        self._most = most
        self._at_once = at_once
        self._waiting: list[_Item[T]] = []
        self._under_way = 0

    async def add(self, item: T) -> None:
        """Return when the work is done for it; as with ``finished``, a cancelled caller waits for that too."""
        loop = asyncio.get_running_loop()
        one = _Item(item, loop.create_future())
        self._waiting.append(one)
        self._next()
        try:
            await one.done
        except asyncio.CancelledError:
            if not one.over:  # its future was cancelled with us; the work cannot be
                one.done = loop.create_future()
                await _ended(one.done)
            raise

    def _next(self) -> None:
        if not self._waiting or self._under_way >= (self._at_once if len(self._waiting) >= self._most else 1):
            return
        batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]

        def over(work: asyncio.Future[None]) -> None:
            self._under_way -= 1
            error = work.exception()
            for one in batch:
                one.end(error)
            self._next()

        self._under_way += 1
        asyncio.get_running_loop().run_in_executor(self._threads, self._work, [one.what for one in batch]).add_done_callback(over)
