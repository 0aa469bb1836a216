"""Live counts for the map: read once for all visitors and sent as server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from itertools import pairwise
from typing import Any

from esclusa.model.errors import EsclusaError
from esclusa.model.lifecycle import Lifecycle
from esclusa.runtime import Runtime
from esclusa.web.console.cache import CountCache

# Seconds between two readings; more where reading is slow.
INTERVAL = 1.0
# Seconds of silence after which a comment keeps the connection open.
KEEP_ALIVE = 15
STAGE_FIELDS = (
    "stage",
    "table",
    "take",
    "due",
    "due_exact",
    "oldest_due_seconds",
    "per_minute",
    "error_share",
)

# Records by state, and whether the number is exact.
Counts = Mapping[str, tuple[int, bool]]


class LiveCounts:
    """Reads the counts while at least one visitor listens."""

    def __init__(self, runtime: Runtime, counts: CountCache) -> None:
        self._runtime = runtime
        self._counts = counts
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._latest: dict[str, Any] = {}
        self._before: dict[str, Counts] = {}

    async def listen(self) -> AsyncGenerator[str, None]:
        """Server-sent events until the listener leaves or the server stops."""
        self._listeners += 1
        try:
            if self._task is None or self._task.done():
                self._before = {}
                self._task = asyncio.create_task(self._read_forever(), name="live counts")
            yield "retry: 3000\n\n"
            while not self._runtime.engine.stopping:
                try:
                    async with asyncio.timeout(KEEP_ALIVE):
                        await self._changed.wait()
                except TimeoutError:
                    yield ": keep-alive\n\n"
                    continue
                yield f"data: {json.dumps(self._latest, default=str)}\n\n"
        finally:
            self._listeners -= 1
            if self._listeners == 0 and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _read_forever(self) -> None:
        while self._listeners and not self._runtime.engine.stopping:
            started = time.monotonic()
            try:
                self._latest = await self._read()
            except EsclusaError:
                self._latest = {"unavailable": True}  # pages show the cause in their language
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
            await asyncio.sleep(max(INTERVAL, (time.monotonic() - started) * 4))
        self._changed.set()

    async def _read(self) -> dict[str, Any]:
        read_model = self._runtime.read_model
        kinds: dict[str, Counts] = {}
        moves: dict[str, Any] = {}
        declared = read_model.declared()
        tallies = await self._counts.full(declared)
        for kind in declared:
            counts = {c.state: (c.count, c.exact) for c in tallies[kind.table]}
            before = self._before.get(kind.table, counts)
            kinds[kind.table] = self._before[kind.table] = counts
            moves[kind.table] = net_moves(kind.lifecycle, before, counts)
        return {
            "at": read_model.now().isoformat(),
            "kinds": kinds,
            "moves": moves,
            "stages": [
                {name: stage[name] for name in STAGE_FIELDS} for stage in await read_model.stages()
            ],
        }


def net_moves(life: Lifecycle, before: Counts, now: Counts) -> list[tuple[str, str, int]]:
    """The declared moves that explain how the counts changed, as (from, to, number).

    They are the shortest ways from the states that lost records to those that gained them. New
    records enter the initial state from ``""``. Records that moved and came back are not visible.
    """
    change = {s: now[s][0] - before.get(s, (0, True))[0] for s in now if s in life.states}
    capped = {s for s in change if not now[s][1]}
    created = sum(change.values()) if not capped else 0
    moves: dict[tuple[str, str], int] = {}
    if created > 0:
        moves["", life.initial] = created
        change[life.initial] -= created
    losses = {s: -n for s, n in change.items() if n < 0}
    gains: dict[str, float] = {s: n for s, n in change.items() if n > 0}
    gains |= dict.fromkeys(capped, float("inf"))
    for source, lost in losses.items():
        left = lost
        for path in _paths(life, source):
            moved = int(min(left, gains.get(path[-1], 0)))
            if moved > 0:
                gains[path[-1]] -= moved
                left -= moved
                for step in pairwise(path):
                    moves[step] = moves.get(step, 0) + moved
            if not left:
                break
    return [(a, b, n) for (a, b), n in moves.items()]


def _paths(life: Lifecycle, source: str) -> list[list[str]]:
    """The shortest path from a state to each other state, shortest first."""
    paths, queue, seen = [], [[source]], {source}
    while queue:
        path = queue.pop(0)
        for target in life.targets(path[-1]):
            if target not in seen:
                seen.add(target)
                paths.append([*path, target])
                queue.append([*path, target])
    return paths
