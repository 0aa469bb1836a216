"""Wake listeners, here and in other processes, when a table may have due records."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable

import apsw

from esclusa.stores.sqlite.client import ConnectionThread, fetch_json, fetch_value

Callback = Callable[[str], Awaitable[None] | None]

_POLL_SECONDS = 0.05
_COUNT_WAKE = """INSERT INTO esclusa_wakes (table_name, count) VALUES (?, 1)
ON CONFLICT DO UPDATE SET count = count + 1"""
_WAKE_COUNTS = "SELECT json_group_array(json_array(table_name, count)) FROM esclusa_wakes"


def count_wakes(connection: apsw.Connection, tables: Iterable[str]) -> None:
    """Raise the tables' counters, inside the transaction that leaves something due."""
    for table in tables:
        connection.execute(_COUNT_WAKE, (table,))


class WakeListener:
    """Calls callbacks with the name of a table that may have due records.

    Wakes of this process arrive by ``notify``. Those of other processes are found by polling: the
    data version changes when another connection wrote, and the counters say which tables.
    """

    def __init__(self) -> None:
        self._callbacks: list[Callback] = []
        self._calls: set[asyncio.Future[None]] = set()
        self._polling: asyncio.Task[None] | None = None

    async def add(
        self, thread: ConnectionThread, callback: Callback
    ) -> Callable[[], Awaitable[None]]:
        """Add a callback; return a function that removes it."""
        self._callbacks.append(callback)
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll(thread, *await thread.call(_version)))

        async def stop() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)
            if not self._callbacks:
                await self.close()

        return stop

    async def close(self) -> None:
        self._callbacks.clear()
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
            self._polling = None

    def notify(self, tables: Iterable[str]) -> None:
        for table in tables:
            for callback in list(self._callbacks):
                answer = callback(table)
                if inspect.isawaitable(answer):
                    call = asyncio.ensure_future(answer)
                    self._calls.add(call)
                    call.add_done_callback(self._calls.discard)

    async def _poll(self, thread: ConnectionThread, version: int, counts: dict[str, int]) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                if await thread.call(_data_version) == version:
                    continue
                version, latest = await thread.call(_version)
            except Exception:  # noqa: BLE001, S112 - best effort: the listener polls the store too
                continue
            changed = [table for table, count in latest.items() if counts.get(table) != count]
            counts = latest
            self.notify(changed)


def _data_version(connection: apsw.Connection) -> int:
    version: int = fetch_value(connection, "PRAGMA data_version")
    return version


def _version(connection: apsw.Connection) -> tuple[int, dict[str, int]]:
    return _data_version(connection), dict(fetch_json(connection, _WAKE_COUNTS, ()))
