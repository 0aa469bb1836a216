"""The engine's view of the store's clock: one reading, carried forward by the monotonic clock."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from esclusa.ports.store import Store


class StoreClock:
    """``now()`` without a round trip; ``sync()`` reads the store again, with every renewal."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: datetime | None = None
        self._at = 0.0
        self._tick = 0.0
        self._now: datetime | None = None

    async def sync(self) -> datetime:
        """Read the store's clock and return the reading.

        The store writes nothing earlier than it from now on. ``now`` continues from the reading,
        which is placed in the middle of the round trip.
        """
        start = time.monotonic()
        read = await self._store.now()
        self._read, self._at = read, (start + time.monotonic()) / 2
        self._now = None
        return read

    def now(self) -> datetime:
        tick = time.monotonic()
        if (
            self._now is None or tick - self._tick > 0.001
        ):  # asked for every record, and a millisecond is fine enough
            assert self._read is not None, "the clock was not synced"
            self._now, self._tick = self._read + timedelta(seconds=tick - self._at), tick
        return self._now
