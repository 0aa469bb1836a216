"""Reads of lists and counts from a replica, as long as it is there and not too far behind."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from esclusa.model.errors import SchemaError, StoreConflict, StoreUnavailable
from esclusa.model.texts import Text, text

if TYPE_CHECKING:
    from esclusa.stores.postgres.store import PostgresStore

# How often the positions of primary and replica are compared.
WATCH_SECONDS = 1.0


class ReplicaReads:
    """A store of readers: lists, counts and totals from the replica, all else from the primary.

    Falls back to the primary while the replica does not answer, or is more than ``most_lag``
    seconds behind; ``on_change`` gets a text when that begins and ends. The lag is measured by the
    positions in the log, so that a replica which is cut off is noticed, and an idle one is not.
    """

    def __init__(
        self,
        primary: PostgresStore,
        replica: PostgresStore,
        most_lag: float,
        on_change: Callable[[Text], None],
    ) -> None:
        self._primary, self._replica = primary, replica
        self._most_lag, self._on_change = most_lag, on_change
        # Time and position of the primary, the oldest first.
        self._positions: deque[tuple[float, int]] = deque(maxlen=1000)
        self._why: Text | None = text("replica_unknown")
        self._watcher: asyncio.Task[None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._primary, name)

    @property
    def why_not(self) -> Text | None:
        """Why the replica is not read now; None if it is."""
        return self._why

    async def open(self) -> None:
        """Compare the positions once, and go on comparing them."""
        with suppress(StoreUnavailable):
            await self._replica.open()
        await self.compare()
        self._watcher = asyncio.create_task(self._watch(), name="esclusa-replica")

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        await self._replica.close()

    async def compare(self) -> None:
        """Find out how far the replica is behind."""
        try:
            self._positions.append((time.monotonic(), await self._primary.wal_position()))
        except (StoreUnavailable, StoreConflict):
            return  # a failover: the replica may still be read
        try:
            await self._replica.open()
            reached = await self._replica.wal_position()
        except (StoreUnavailable, StoreConflict, SchemaError) as error:
            self._set(text("replica_away", why=str(error)))
            return
        while self._positions and self._positions[0][1] <= reached:
            self._positions.popleft()
        lag = time.monotonic() - self._positions[0][0] if self._positions else 0.0
        self._set(
            text("replica_behind", seconds=round(lag, 1), most=self._most_lag)
            if lag > self._most_lag
            else None
        )

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self.compare()

    def _set(self, why: Text | None) -> None:
        if (self._why is None) != (why is None):
            self._on_change(why or text("replica_used", store=self._replica.url))
        self._why = why

    async def _read(self, name: str, *args: Any, **options: Any) -> Any:
        if self._why is None:
            try:
                return await getattr(self._replica, name)(*args, **options)
            except (StoreUnavailable, StoreConflict, SchemaError) as error:
                self._set(text("replica_away", why=str(error)))
        return await getattr(self._primary, name)(*args, **options)

    async def find(self, *args: Any, **options: Any) -> Any:
        return await self._read("find", *args, **options)

    async def tally(self, *args: Any, **options: Any) -> Any:
        return await self._read("tally", *args, **options)

    async def totals(self, *args: Any, **options: Any) -> Any:
        return await self._read("totals", *args, **options)

    async def count(self, *args: Any, **options: Any) -> Any:
        return await self._read("count", *args, **options)
