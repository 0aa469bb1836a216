"""The pulse: counts and movement, read once for everybody who looks, and sent as they change."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from typing import Any

from esclusa.model.errors import EsclusaError
from esclusa.model.lifecycle import Lifecycle
from esclusa.runtime import Runtime
from esclusa.web.console.counts import Counts

EVERY = 1.0
"""Seconds between two looks, while somebody watches and looking is cheap."""

Seen = Mapping[str, tuple[int, bool]]


class Pulse:
    """Looks at the store while somebody listens, and not otherwise."""

    def __init__(self, runtime: Runtime, counts: Counts) -> None:
        self._runtime = runtime
        self._counts = counts
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None
        self._beat = asyncio.Event()
        self._last: dict[str, Any] = {}
        self._before: dict[str, Seen] = {}

    async def listen(self) -> AsyncIterator[str]:
        """Server-sent events until the listener goes away or the house stops."""
        self._listeners += 1
        try:
            if self._task is None or self._task.done():
                self._before = {}
                self._task = asyncio.create_task(self._look(), name="pulse")
            yield "retry: 3000\n\n"
            while not self._runtime.engine.stopping:
                try:
                    async with asyncio.timeout(15):
                        await self._beat.wait()
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                yield f"data: {json.dumps(self._last, default=str)}\n\n"
        finally:
            self._listeners -= 1
            if self._listeners == 0 and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _look(self) -> None:
        while self._listeners and not self._runtime.engine.stopping:
            begun = time.monotonic()
            try:
                self._last = await self._read()
            except EsclusaError:
                self._last = {
                    "trouble": True
                }  # why is told on the pages, to each in their language
            beat, self._beat = self._beat, asyncio.Event()
            beat.set()
            await asyncio.sleep(max(EVERY, (time.monotonic() - begun) * 4))
        self._beat.set()

    async def _read(self) -> dict[str, Any]:
        engine, read_model = self._runtime.engine, self._runtime.read_model
        kinds: dict[str, Any] = {}
        moves: dict[str, Any] = {}
        declared = read_model.declared()
        tallies = await self._counts.whole(declared)
        for kind in declared:
            counts = {c.state: (c.count, c.exact) for c in tallies[kind.table]}
            kinds[kind.table] = counts
            moves[kind.table] = movement(
                kind.lifecycle, self._before.get(kind.table, counts), counts
            )
            self._before[kind.table] = counts
        stages = [
            {
                k: s[k]
                for k in (
                    "stage",
                    "table",
                    "take",
                    "due",
                    "due_exact",
                    "oldest_due_seconds",
                    "per_minute",
                    "error_share",
                )
            }
            for s in await read_model.stages()
        ]
        return {
            "at": engine.clock.now().isoformat(),
            "kinds": kinds,
            "moves": moves,
            "stages": stages,
        }


def movement(life: Lifecycle, before: Seen, now: Seen) -> list[tuple[str, str, int]]:
    """Which arrows records went along, told from the counts before and now: the shortest declared ways from the states that
    lost records to those that gained them. New records come in at the initial state (from ``""``). It is the net movement:
    records that went to and fro in between are not seen."""
    change = {s: now[s][0] - before.get(s, (0, True))[0] for s in now if s in life.states}
    capped = {s for s in change if not now[s][1]}
    born = sum(change.values()) if not capped else 0
    flows: dict[tuple[str, str], int] = {}
    if born > 0:
        flows["", life.initial] = born
        change[life.initial] -= born
    sources = {s: -n for s, n in change.items() if n < 0}
    sinks: dict[str, float] = {s: n for s, n in change.items() if n > 0} | dict.fromkeys(
        capped, float("inf")
    )
    for source, amount in sources.items():
        left = amount
        for path in _ways(life, source):
            sink = path[-1]
            taken = int(min(left, sinks.get(sink, 0)))
            if taken > 0:
                sinks[sink] -= taken
                left -= taken
                for step in pairwise(path):
                    flows[step] = flows.get(step, 0) + taken
            if not left:
                break
    return [(a, b, n) for (a, b), n in flows.items()]


def _ways(life: Lifecycle, source: str) -> list[list[str]]:
    """The shortest way from a state to every other, the nearest first."""
    ways, todo, seen = [], [[source]], {source}
    while todo:
        path = todo.pop(0)
        for target in life.targets(path[-1]):
            if target not in seen:
                seen.add(target)
                ways.append([*path, target])
                todo.append([*path, target])
    return ways
