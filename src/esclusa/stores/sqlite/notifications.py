"""Wake listeners, here and in other processes, when a table may have due records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import apsw

from esclusa.stores.callbacks import Callback, WakeCallbacks
from esclusa.stores.sqlite.client import ConnectionThread, fetch_json, fetch_value

_POLL_SECONDS = 0.05
_COUNT_WAKE = """INSERT INTO esclusa_wakes (table_name, count) VALUES (?, 1)
ON CONFLICT DO UPDATE SET count = count + 1"""
_WAKE_COUNTS = "SELECT json_group_array(json_array(table_name, count)) FROM esclusa_wakes"


def count_wakes(connection: apsw.Connection, tables: Iterable[str]) -> None:
    """Raise the tables' counters, inside the transaction that leaves something due."""
    for table in tables:
        connection.execute(_COUNT_WAKE, (table,))


class WakeListener(WakeCallbacks):
    """Passes wakes to callbacks.

    Wakes of this process arrive by ``notify``. Those of other processes are found by polling: the
    data version changes when another connection wrote, and the counters say which tables.
    """

    async def add(
        self, thread: ConnectionThread, callback: Callback
    ) -> Callable[[], Awaitable[None]]:
        """Add a callback; return a function that removes it."""
        remove = self._add(callback)
        if self._follower is None:
            self._follower = asyncio.create_task(self._poll(thread, *await thread.call(_version)))
        return remove

    def notify(self, tables: Iterable[str]) -> None:
        for table in tables:
            self._call(table)

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
