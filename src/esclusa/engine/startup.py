"""The start of a process: calls of the store are repeated while it is not ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from esclusa.engine.signals import on_stop_signals
from esclusa.model import duration
from esclusa.model.errors import StartStopped, StoreNotReady
from esclusa.ports.telemetry import Telemetry

T = TypeVar("T")

# The first and the longest pause, in seconds, before the store is called again.
PAUSE, PAUSE_MOST = 0.25, 3.0
# Seconds between two warnings.
REPORT_INTERVAL = 60.0


class Startup:
    """Calls the store while a process starts.

    A call that raises StoreNotReady is made again for up to ``seconds`` (0: not at all), counted
    from the first failure. A stop signal meanwhile raises StartStopped.
    """

    def __init__(self, telemetry: Telemetry, seconds: float) -> None:
        self._telemetry = telemetry
        self._seconds = seconds

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """What ``function`` answers. It may be called more than once."""
        if not self._seconds:
            return await function()
        async with _stoppable():
            return await self._repeat(function)

    async def _repeat(self, function: Callable[[], Awaitable[T]]) -> T:
        pause, begun, reported = PAUSE, None, 0.0
        while True:
            try:
                answer = await function()
            except StoreNotReady as error:
                now = time.monotonic()
                begun = now if begun is None else begun
                if now - begun >= self._seconds:
                    raise
                if not reported or now - reported >= REPORT_INTERVAL:
                    reported = now
                    self._telemetry.event("warning", f"waiting for the store: {error}")
                await asyncio.sleep(min(pause, begun + self._seconds - now))
                pause = min(PAUSE_MOST, pause * 1.5)
            else:
                if begun is not None:
                    waited = duration.words(time.monotonic() - begun)
                    self._telemetry.event("info", f"the store is ready after {waited}")
                return answer


@asynccontextmanager
async def _stoppable() -> AsyncIterator[None]:
    """Raise StartStopped at a stop signal, instead of ending the process in the middle."""
    task, stopped_by = asyncio.current_task(), ""
    assert task is not None

    def stop(by: str) -> None:
        nonlocal stopped_by
        stopped_by = by
        task.cancel()

    forget_signals = on_stop_signals(stop)
    try:
        yield
    except asyncio.CancelledError:
        if not stopped_by:
            raise
        task.uncancel()
        raise StartStopped(f"stopped by {stopped_by} before the store was ready") from None
    finally:
        forget_signals()
