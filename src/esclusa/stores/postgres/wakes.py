"""Wake listeners of other processes through a table, where there is no LISTEN and NOTIFY."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from uuid import uuid4

from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.stores.callbacks import Callback, WakeCallbacks
from esclusa.stores.postgres.client import ConnectionPools

# How often a listener reads the table, and how long wakes are collected before they are written.
_POLL_SECONDS = 0.05
_COLLECT_SECONDS = 0.05


class WakeTable(WakeCallbacks):
    """Passes wakes to callbacks: those of this process at once, those of others by polling.

    Each process counts in rows of its own, so that none waits for another. ``written`` does not
    wait: wakes are written within a moment, at the latest by ``close``.
    """

    def __init__(self, connections: ConnectionPools) -> None:
        super().__init__()
        self._connections = connections
        self._process = uuid4().hex
        self._unwritten: set[str] = set()
        self._writer: asyncio.Task[None] | None = None

    async def add(self, callback: Callback) -> Callable[[], Awaitable[None]]:
        """Add a callback; return a function that removes it."""
        remove = self._add(callback)
        if self._follower is None:
            counts = await self._counts()
            self._follower = asyncio.create_task(self._poll(counts), name="esclusa-wakes")
        return remove

    async def wake(self, tables: Iterable[str]) -> None:
        """Wake listeners of every process."""
        await self._write(set(tables))

    def written(self, tables: Iterable[str]) -> None:
        """Wake listeners soon: records in these tables may have become due."""
        self._unwritten.update(tables)
        if self._unwritten and (self._writer is None or self._writer.done()):
            self._writer = asyncio.create_task(self._write_all(), name="esclusa-wake")

    async def close(self) -> None:
        await super().close()
        if self._writer is not None:
            await asyncio.gather(self._writer, return_exceptions=True)

    async def _write_all(self) -> None:
        while self._unwritten:
            tables, self._unwritten = self._unwritten, set()
            with suppress(StoreUnavailable, StoreConflict):  # best effort: listeners also poll
                await self._write(tables)
            if self._callbacks:
                await asyncio.sleep(_COLLECT_SECONDS)

    async def _write(self, tables: set[str]) -> None:
        for table in tables:
            self._call(table)
        await self._connections.fetch(
            f"""INSERT INTO {self._table} AS t (table_name, process, count, at)
            SELECT name, $1::text, 1, now() FROM unnest($2::text[]) AS name
            ON CONFLICT (table_name, process) DO UPDATE SET count = t.count + 1, at = now()""",
            self._process,
            sorted(tables),
        )

    @property
    def _table(self) -> str:
        return self._connections.installation.wakes

    async def _counts(self) -> dict[tuple[str, str], int]:
        rows = await self._connections.fetch(
            f"SELECT table_name, process, count FROM {self._table} WHERE process <> $1",
            self._process,
        )
        return {(table, process): count for table, process, count in rows}

    async def _poll(self, counts: dict[tuple[str, str], int]) -> None:
        with suppress(StoreUnavailable, StoreConflict):  # rows of processes that ended long ago
            await self._connections.fetch(
                f"DELETE FROM {self._table} WHERE at < now() - interval '1 day'"
            )
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                latest = await self._counts()
            except (StoreUnavailable, StoreConflict):
                continue
            for table in {row[0] for row, count in latest.items() if counts.get(row) != count}:
                self._call(table)
            counts = latest
