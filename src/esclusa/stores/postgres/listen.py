"""Waking: one connection of its own that listens, and comes back when it is cut."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from esclusa.model.errors import StoreUnavailable
from esclusa.stores.postgres.connection import UNAVAILABLE, Connections
from esclusa.stores.postgres.statements import CHANNEL

Heard = Callable[[str], Awaitable[None] | None]

ANYTHING = "*"
"""What is heard after the connection was away: anything may have become due."""

_PROBE = 30.0
"""How often a silent connection is asked whether it is still there, in seconds."""


class Listener:
    """Passes notifications on to whoever asked for them. Lives while someone does."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._ears: dict[object, Heard] = {}
        self._task: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Future[None]] = set()
        self._ready: asyncio.Event | None = None

    async def add(self, heard: Heard) -> Callable[[], Awaitable[None]]:
        ear = object()
        self._ears[ear] = heard
        if self._task is None:
            self._ready = asyncio.Event()
            self._task = asyncio.create_task(self._run(self._ready), name="esclusa-listen")
        assert self._ready is not None
        with suppress(TimeoutError):  # best effort: without a connection now, it goes on trying
            await asyncio.wait_for(self._ready.wait(), 10)

        async def end() -> None:
            self._ears.pop(ear, None)
            if not self._ears:
                await self.close()

        return end

    async def close(self) -> None:
        task, self._task = self._task, None
        self._ears.clear()
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for call in list(self._calls):
            call.cancel()

    async def _run(self, ready: asyncio.Event) -> None:
        delay = 0.05
        while True:
            connection = None
            try:
                connection = await self._connections.dedicated()
                cut = asyncio.Event()
                connection.add_termination_listener(lambda _, cut=cut: cut.set())
                await connection.add_listener(CHANNEL, self._notified)
                if ready.is_set():
                    self._tell(ANYTHING)
                ready.set()
                delay = 0.05
                await self._stay(connection, cut)
            except (StoreUnavailable, *UNAVAILABLE):
                pass
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(delay)
            delay = min(delay * 2, 5.0)

    async def _stay(self, connection: Any, cut: asyncio.Event) -> None:
        while not cut.is_set():
            try:
                await asyncio.wait_for(cut.wait(), _PROBE)
            except TimeoutError:
                await connection.execute("SELECT 1", timeout=10)

    def _notified(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        self._tell(payload)

    def _tell(self, table: str) -> None:
        for heard in list(self._ears.values()):
            answer = heard(table)
            if inspect.isawaitable(answer):
                call = asyncio.ensure_future(answer)
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)
