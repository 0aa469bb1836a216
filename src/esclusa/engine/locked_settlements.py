"""Settlements that wait for a lock of another program."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from math import inf
from typing import Any

from esclusa.engine.settlement_entry import Entry
from esclusa.ports.telemetry import Telemetry

# The first and the longest pause, in seconds, before the settlements are sent again.
_PAUSE, _PAUSE_MOST = 0.25, 2.0
# Seconds between two warnings about the same record.
_WARN_AGAIN = 30.0
# The most lines about the records of one batch.
_LINES = 10


class LockedSettlements:
    """Has settlements sent again, all together, until the locks on their records are gone.

    ``resend`` sends some of them and calls ``add`` or ``remove`` with them. ``spawn`` starts a
    task.
    """

    def __init__(
        self,
        name: str,
        telemetry: Telemetry,
        resend: Callable[[list[Entry]], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._name = name
        self._telemetry = telemetry
        self._resend = resend
        self._spawn = spawn
        # By identity: the entry, since when it waits, and when that was last reported.
        self._waiting: dict[int, tuple[Entry, float, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def clear(self) -> None:
        """Forget them all."""
        self._waiting.clear()

    def add(self, locked: Sequence[tuple[Entry, str]]) -> None:
        """Let settlements wait, or go on waiting."""
        now, reported = _now(), list[tuple[str, Entry, float]]()
        if locked and not self._waiting:
            self._spawn(self._send_again())
        for entry, why in locked:
            _, since, warned = self._waiting.get(id(entry), (entry, now, -inf))
            if now - warned >= _WARN_AGAIN:
                warned = now
                message = f"settle: {why}; its outcome is kept, will retry"
                reported.append((message, entry, since))
            self._waiting[id(entry)] = entry, since, warned
        self._report("warning", reported)

    def remove(self, written: Iterable[Entry]) -> None:
        """End the wait of settlements that were written, of those that waited."""
        message = "settle: the lock is gone; the outcome is written"
        waited = [self._waiting.pop(id(entry), None) for entry in written]
        self._report("info", [(message, each[0], each[1]) for each in waited if each is not None])

    async def _send_again(self) -> None:
        pause = _PAUSE
        while self._waiting:
            await asyncio.sleep(pause)
            entries = [entry for entry, *_ in self._waiting.values()]
            await self._resend(entries)
            pause = _PAUSE if len(self._waiting) < len(entries) else min(_PAUSE_MOST, pause * 2)

    def _report(self, level: str, lines: Sequence[tuple[str, Entry, float]]) -> None:
        """Write a line for each record, up to a number; the last one stands for the rest."""
        for n, (message, entry, since) in enumerate(lines[:_LINES], 1):
            about = {"record": str(entry[0].ref), "seconds": round(_now() - since, 1)}
            if n == _LINES < len(lines):
                about["records"] = len(lines) - n + 1
            self._telemetry.event(level, message, queue=self._name, **about)


def _now() -> float:
    return asyncio.get_running_loop().time()
