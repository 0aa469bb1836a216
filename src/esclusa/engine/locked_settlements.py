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
        """Let settlements wait, or go on waiting; one warning says why the first of them waits."""
        now, reported = _now(), list[tuple[str, Entry, float]]()
        if locked and not self._waiting:
            self._spawn(self._send_again())
        for entry, why in locked:
            _, since, warned = self._waiting.get(id(entry), (entry, now, -inf))
            if now - warned >= _WARN_AGAIN:
                warned = now
                reported.append((why, entry, since))
            self._waiting[id(entry)] = entry, since, warned
        if reported:
            why, entry, since = reported[0]
            message = f"settle: {why}; its outcome is kept, will retry"
            self._report("warning", message, entry, since, len(reported))

    def remove(self, written: Iterable[Entry]) -> None:
        """End the wait of settlements that were written, of those that waited."""
        waited = [self._waiting.pop(id(entry), None) for entry in written]
        if ended := [each for each in waited if each is not None]:
            entry, since, _ = ended[0]
            message = "settle: the lock is gone; the outcome is written"
            self._report("info", message, entry, since, len(ended))

    async def _send_again(self) -> None:
        pause = _PAUSE
        while self._waiting:
            await asyncio.sleep(pause)
            entries = [entry for entry, *_ in self._waiting.values()]
            await self._resend(entries)
            pause = _PAUSE if len(self._waiting) < len(entries) else min(_PAUSE_MOST, pause * 2)

    def _report(self, level: str, message: str, entry: Entry, since: float, records: int) -> None:
        """Write a line about this settlement, which stands for so many."""
        about = {"record": str(entry[0].ref), "seconds": round(_now() - since, 1)}
        if records > 1:
            about["records"] = records
        self._telemetry.event(level, message, queue=self._name, **about)


def _now() -> float:
    return asyncio.get_running_loop().time()
