"""Writes that overlap: the next tender is read, or written, while others are written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

# How many writes a run has under way. PostgreSQL uses a core for each, and each holds one of the
# connections that other work needs, too.
AT_ONCE = 2


class Writes:
    """The writes under way of a block of ``overlapping_writes``."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._places = asyncio.Semaphore(AT_ONCE)
        # The first error of a write.
        self.error: Exception | None = None

    async def start(self, write: Callable[[], Awaitable[None]]) -> None:
        """Begin a write as soon as fewer than ``AT_ONCE`` are under way.

        Raises the error of an earlier write; then nothing is begun.
        """
        await self._places.acquire()
        if self.error is not None:
            self._places.release()
            raise self.error
        self._tasks.create_task(self._run(write))

    async def _run(self, write: Callable[[], Awaitable[None]]) -> None:
        try:
            await write()
        except Exception as error:  # noqa: BLE001 - raised by `start` or at the end of the block
            self.error = self.error or error
        finally:
            self._places.release()


@asynccontextmanager
async def overlapping_writes() -> AsyncIterator[Writes]:
    """Wait at the end of the block for the writes that it began, then raise the first error.

    No write is abandoned because another one failed, or the block. If the block is cancelled, so
    are its writes: each has to be one transaction.
    """
    error: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        writes = Writes(tasks)
        try:
            yield writes
        except Exception as of_block:  # noqa: BLE001 - the group would cancel the writes
            error = of_block
    if error := writes.error or error:
        raise error
