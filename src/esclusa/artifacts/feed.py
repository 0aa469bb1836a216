"""A body handed to a library that pulls it at its own pace, and that must hear of a failure to clear up after itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Feed:
    """An async iterator over the blocks of ``head``, which it empties, and of ``rest``, with one block of look-ahead.

    When the source fails or the caller is cancelled, the one who pulls gets that as an error from the iterator: only so
    does it abort an upload that has begun.
    """

    def __init__(self, head: list[bytes], rest: AsyncIterator[bytes]) -> None:
        self._head = head
        self._rest = rest
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)
        self._error: BaseException | None = None

    def __aiter__(self) -> Feed:
        return self

    async def __anext__(self) -> bytes:
        block = await self._queue.get()
        if block is None:
            self._queue.put_nowait(None)
            if self._error is not None:
                raise _Broken
            raise StopAsyncIteration
        return block

    async def drive(self, pulling: Coroutine[Any, Any, T]) -> T:
        """Run the one who pulls to its end. Raises the source's own error if that is what broke it."""
        puller = asyncio.ensure_future(pulling)
        pump = asyncio.ensure_future(self._pump())
        try:
            return await asyncio.shield(puller)
        except asyncio.CancelledError:
            await _stop(pump)
            await asyncio.wait([puller])
            if not puller.cancelled():
                puller.exception()  # seen: the cancellation is what the caller hears of
            raise
        except Exception:
            await _stop(pump)
            if isinstance(self._error, Exception):
                raise self._error from None
            raise
        finally:
            await _stop(pump)

    async def _pump(self) -> None:
        try:
            while self._head:
                await self._queue.put(self._head.pop(0))
            async for block in self._rest:
                await self._queue.put(block)
                del block
            await self._queue.put(None)
        except BaseException as error:
            self._error = error
            while not self._queue.empty():
                self._queue.get_nowait()
            self._queue.put_nowait(None)
            if not isinstance(error, Exception):
                raise


class _Broken(Exception):
    """The source failed; ``drive`` knows how."""


async def _stop(task: asyncio.Task[None]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
