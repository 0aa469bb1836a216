"""Wake listeners by NOTIFY, received on a connection that is opened again when it is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from esclusa.model.errors import StoreUnavailable
from esclusa.stores.callbacks import Callback, WakeCallbacks
from esclusa.stores.postgres.client import UNAVAILABLE, ConnectionPools, Fetch

# Passed to callbacks after the connection was cut: anything may have become due.
ANY_TABLE = "*"

# How often a silent connection is tested.
_PROBE_SECONDS = 15.0


async def notify(fetch: Fetch, channel: str, tables: Sequence[str]) -> None:
    """Notify listeners of every process that these tables may have due records."""
    await fetch("SELECT pg_notify($1, name) FROM unnest($2::text[]) AS name", channel, list(tables))


class NotificationListener(WakeCallbacks):
    """Passes notifications to callbacks. The connection lives while there is a callback."""

    def __init__(self, connections: ConnectionPools) -> None:
        super().__init__()
        self._connections = connections
        self._connected = asyncio.Event()
        # Set when the connection is cut, or is suspected to hang.
        self._suspected = asyncio.Event()
        connections.on_hang = self._suspected.set

    async def add(self, callback: Callback) -> Callable[[], Awaitable[None]]:
        """Add a callback; return a function that removes it."""
        remove = self._add(callback)
        if self._follower is None:
            self._connected = asyncio.Event()
            self._follower = asyncio.create_task(self._run(self._connected), name="esclusa-listen")
        with suppress(TimeoutError):  # best effort: the task goes on trying to connect
            await asyncio.wait_for(self._connected.wait(), 10)
        return remove

    async def wake(self, tables: Sequence[str]) -> None:
        """Wake listeners of every process."""
        await notify(self._connections.fetch, self._connections.installation.channel, tables)

    def written(self, tables: Iterable[str]) -> None:
        """Records in these tables may have become due: the statement has notified listeners."""

    async def _stop_following(self) -> None:
        await super()._stop_following()
        for call in list(self._calls):
            call.cancel()

    async def _run(self, connected: asyncio.Event) -> None:
        delay = 0.05
        while True:
            connection = None
            try:
                connection = await self._connections.dedicated()
                connection.add_termination_listener(lambda _: self._suspected.set())
                channel = self._connections.installation.channel
                await connection.add_listener(channel, lambda *event: self._call(event[-1]))
                if connected.is_set():
                    self._call(ANY_TABLE)
                connected.set()
                delay = 0.05
                await self._wait_until_cut(connection)
            except (StoreUnavailable, *UNAVAILABLE):
                pass
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(delay)
            delay = min(delay * 2, 5.0)

    async def _wait_until_cut(self, connection: Any) -> None:
        """Return when the connection is cut; TimeoutError if it hangs."""
        while not connection.is_closed():
            self._suspected.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._suspected.wait(), _PROBE_SECONDS)
            if not connection.is_closed():
                await connection.execute("SELECT 1", timeout=self._connections.limits.client)
