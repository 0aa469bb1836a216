"""Records per state, for pages that must not wait for a large table to be counted."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from typing import Final

from esclusa.model.record import Kind
from esclusa.model.settlement import StateCount
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry

FRESH: Final = 1.0
"""Seconds for which a count is told again."""
DEAR: Final = 20
"""What took long to count is told again for so many times as long."""
STALE: Final = 20.0
"""Seconds past that for which an old count is still better than a short one."""
SOON: Final = 0.03
"""Seconds that a page waits for tables to be counted to the end."""
SHORT: Final = 1000
"""How far each state is counted where that was not soon enough."""

Tally = list[StateCount]


class Counts:
    """Each table is counted once for everybody who looks, and only while somebody does."""

    def __init__(self, store: Store, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry
        self._known: dict[str, Tally] = {}
        self._until: dict[str, float] = {}
        self._making: dict[str, asyncio.Task[Tally]] = {}

    async def soon(self, kinds: Iterable[Kind]) -> dict[str, Tally]:
        """The counts of these kinds by table, at once. A table that is not counted to its end so soon tells at least so many, and
        the whole to whoever looks again."""
        kinds = list(kinds)
        making = {kind: self._make(kind) for kind in kinds if self._late(kind) > 0}
        wanted = [task for kind, task in making.items() if self._late(kind) > STALE]
        if wanted:
            await asyncio.wait(wanted, timeout=SOON)
        return {
            kind.table: await self._short(kind)
            if self._late(kind) > STALE
            else self._known[kind.table]
            for kind in kinds
        }

    async def whole(self, kinds: Iterable[Kind]) -> dict[str, Tally]:
        """The counts of these kinds to their end, however long it takes."""
        return {
            kind.table: await asyncio.shield(self._make(kind))
            if self._late(kind) > 0
            else self._known[kind.table]
            for kind in list(kinds)
        }

    def forget(self) -> None:
        """Somebody acted: what was counted before is not so any more."""
        self._until.clear()
        self._making.clear()

    def _late(self, kind: Kind) -> float:
        """Seconds past the time until which the last count holds."""
        return time.monotonic() - self._until.get(kind.table, -math.inf)

    def _make(self, kind: Kind) -> asyncio.Task[Tally]:
        """The count that is under way, or a new one."""
        if kind.table not in self._making:
            begun, task = (
                time.monotonic(),
                asyncio.create_task(self._store.tally(kind), name=f"count {kind.table}"),
            )
            self._making[kind.table] = task
            task.add_done_callback(lambda done: self._made(kind, done, time.monotonic() - begun))
        return self._making[kind.table]

    def _made(self, kind: Kind, done: asyncio.Task[Tally], seconds: float) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._telemetry.event(
                "warning", f"console: {kind.table} was not counted: {type(error).__name__}: {error}"
            )
        if self._making.get(kind.table) is not done:
            return  # somebody acted meanwhile
        del self._making[kind.table]
        if not done.cancelled() and error is None:
            self._known[kind.table] = done.result()
            self._until[kind.table] = time.monotonic() + max(FRESH, seconds * DEAR)

    async def _short(self, kind: Kind) -> Tally:
        """As far as states are counted at once; what is beyond is told as it was known last."""
        known = {c.state: c.count for c in self._known.get(kind.table, ())}
        short = await self._store.tally(kind, SHORT)
        return [
            c if c.exact else StateCount(c.state, max(c.count, known.get(c.state, 0)), exact=False)
            for c in short
        ]
