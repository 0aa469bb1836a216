"""Callbacks that learn which tables may have due records, and the task that follows the store."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

Callback = Callable[[str], Awaitable[None] | None]


class WakeCallbacks:
    """Calls callbacks with the name of a table that may have due records.

    Each store's listener adds the follower: the task that learns of wakes from other processes. It
    ends with the last callback.
    """

    def __init__(self) -> None:
        self._callbacks: dict[object, Callback] = {}
        self._follower: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Future[None]] = set()

    def _add(self, callback: Callback) -> Callable[[], Awaitable[None]]:
        """Add a callback; return a function that removes it."""
        key = object()
        self._callbacks[key] = callback

        async def remove() -> None:
            self._callbacks.pop(key, None)
            if not self._callbacks:
                await self._stop_following()

        return remove

    def _call(self, table: str) -> None:
        for callback in list(self._callbacks.values()):
            answer = callback(table)
            if inspect.isawaitable(answer):
                self._track(asyncio.ensure_future(answer))

    def _track(self, call: asyncio.Future[None]) -> None:
        """Keep a reference until the call ends: the event loop holds only a weak one."""
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def close(self) -> None:
        self._callbacks.clear()
        await self._stop_following()

    async def _stop_following(self) -> None:
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)
