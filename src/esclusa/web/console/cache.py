"""Answers that several pages share, kept for a short time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from esclusa.ports.telemetry import Telemetry

T = TypeVar("T")
# Seconds past its time for which an old answer is given while a new one is made.
STALE: Final = 20.0
# An answer is kept at least this many times as long as it took to make.
COST_FACTOR: Final = 20
MAX_ENTRIES: Final = 1000


class AnswerCache:
    """Keeps answers by name, and refreshes them in the background."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._entries: dict[str, tuple[float, Any]] = {}
        self._refreshing: dict[str, asyncio.Task[Any]] = {}
        self._generation = 0

    async def get(self, name: str, seconds: float, make: Callable[[], Awaitable[T]]) -> T:
        """The kept answer, or a new one that is kept for ``seconds`` or longer if it is slow."""
        expires, value = self._entries.get(name, (0.0, None))
        late = time.monotonic() - expires
        if late < 0:
            return value  # type: ignore[no-any-return]
        if not expires or late >= STALE:
            return await self._make(name, seconds, make)
        if name not in self._refreshing:
            task = asyncio.create_task(self._make(name, seconds, make))
            self._refreshing[name] = task
            task.add_done_callback(lambda done: self._refreshed(name, done))
        return value  # type: ignore[no-any-return]

    def peek(self, name: str, default: T) -> T:
        """The last answer, however old; never makes one."""
        return self._entries.get(name, (0.0, default))[1]  # type: ignore[no-any-return]

    def clear(self) -> None:
        """Drop every answer, and those that are being made: an operator changed something."""
        self._generation += 1
        self._entries.clear()

    async def _make(self, name: str, seconds: float, make: Callable[[], Awaitable[T]]) -> T:
        started, generation = time.monotonic(), self._generation
        made = await make()
        if generation == self._generation:
            if len(self._entries) > MAX_ENTRIES:
                self._entries.clear()
            ended = time.monotonic()
            self._entries[name] = (ended + max(seconds, (ended - started) * COST_FACTOR), made)
        return made

    def _refreshed(self, name: str, done: asyncio.Task[Any]) -> None:
        self._refreshing.pop(name, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            self._entries.pop(name, None)  # the next page reports the error
            self._telemetry.event("warning", f"console: {name}: {type(error).__name__}: {error}")
