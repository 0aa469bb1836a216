"""Counts and other answers that several pages share, kept for a short time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from esclusa.engine.read_model import ReadModel
from esclusa.model.kind import Kind
from esclusa.model.settlement import StateCount
from esclusa.ports.telemetry import Telemetry

# Seconds past its time for which an old answer is given while a new one is made.
STALE: Final = 20.0
# An answer is kept at least this many times as long as it took to make.
COST_FACTOR: Final = 20
MAX_ENTRIES: Final = 1000
# Seconds for which a count is used again; longer if it is slow.
FRESH: Final = 1.0
# Seconds that a page waits for a full count.
WAIT: Final = 0.03
# The cap of each state in a partial count.
PARTIAL: Final = 1000

T = TypeVar("T")
Tally = list[StateCount]


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


class CountCache:
    """Counts each table once for all visitors, and only while somebody looks."""

    def __init__(self, read_model: ReadModel, telemetry: Telemetry) -> None:
        self._read_model = read_model
        self._telemetry = telemetry
        self._known: dict[str, Tally] = {}
        self._expires: dict[str, float] = {}
        self._counting: dict[str, asyncio.Task[Tally]] = {}

    async def quick(self, kinds: Iterable[Kind]) -> dict[str, Tally]:
        """The counts by table, at once.

        A table that cannot be counted that fast gives lower bounds, and is counted to the end in
        the background for the next page.
        """
        kinds = list(kinds)
        tasks = {kind: self._count(kind) for kind in kinds if self._late(kind) > 0}
        missing = [task for kind, task in tasks.items() if self._late(kind) > STALE]
        if missing:
            await asyncio.wait(missing, timeout=WAIT)
        return {
            kind.table: await self._partial(kind)
            if self._late(kind) > STALE
            else self._known[kind.table]
            for kind in kinds
        }

    async def full(self, kinds: Iterable[Kind]) -> dict[str, Tally]:
        """The full counts by table, however long it takes."""
        return {
            kind.table: await asyncio.shield(self._count(kind))
            if self._late(kind) > 0
            else self._known[kind.table]
            for kind in list(kinds)
        }

    def clear(self) -> None:
        """Count again: an operator moved records. Known counts remain as lower bounds."""
        self._expires.clear()
        self._counting.clear()

    def _late(self, kind: Kind) -> float:
        """Seconds since the last count expired."""
        return time.monotonic() - self._expires.get(kind.table, -math.inf)

    def _count(self, kind: Kind) -> asyncio.Task[Tally]:
        """The count that is running, or a new one."""
        if kind.table not in self._counting:
            started = time.monotonic()
            task = asyncio.create_task(self._read_model.tally(kind), name=f"count {kind.table}")
            self._counting[kind.table] = task
            task.add_done_callback(lambda done: self._counted(kind, done, started))
        return self._counting[kind.table]

    def _counted(self, kind: Kind, done: asyncio.Task[Tally], started: float) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._telemetry.event(
                "warning",
                f"console: {kind.table} was not counted: {type(error).__name__}: {error}",
            )
        if self._counting.get(kind.table) is not done:
            return  # the counts were cleared meanwhile
        del self._counting[kind.table]
        if not done.cancelled() and error is None:
            now = time.monotonic()
            self._known[kind.table] = done.result()
            self._expires[kind.table] = now + max(FRESH, (now - started) * COST_FACTOR)

    async def _partial(self, kind: Kind) -> Tally:
        """Capped counts. A state at its cap shows its last known count if that is higher."""
        known = {c.state: c.count for c in self._known.get(kind.table, ())}
        capped = await self._read_model.tally(kind, PARTIAL)
        return [
            c if c.exact else StateCount(c.state, max(c.count, known.get(c.state, 0)), exact=False)
            for c in capped
        ]
