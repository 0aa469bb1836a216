"""Settlements that wait for a lock of another program."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
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

    ``resend`` sends some of them and calls ``add`` or ``remove`` for each. ``spawn`` starts a task.
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

    def add(self, entry: Entry, why: str) -> None:
        """Let a settlement wait, or go on waiting."""
        now = _now()
        _, since, warned = self._waiting.get(id(entry), (entry, now, -inf))
        if now - warned >= _WARN_AGAIN:
            warned = now
            self._report("warning", f"settle: {why}; its outcome is kept, will retry", entry, since)
        if not self._waiting:
            self._spawn(self._send_again())
        self._waiting[id(entry)] = entry, since, warned

    def remove(self, entry: Entry) -> None:
        """End the wait of a settlement that was written, if it waited."""
        if waited := self._waiting.pop(id(entry), None):
            message = "settle: the lock is gone; the outcome is written"
            self._report("info", message, entry, waited[1])

    async def _send_again(self) -> None:
        pause = _PAUSE
        while self._waiting:
            await asyncio.sleep(pause)
            entries = [entry for entry, *_ in self._waiting.values()]
            await self._resend(entries)
            pause = _PAUSE if len(self._waiting) < len(entries) else min(_PAUSE_MOST, pause * 2)

    def _report(self, level: str, message: str, entry: Entry, since: float) -> None:
        seconds = round(_now() - since, 1)
        self._telemetry.event(
            level, message, queue=self._name, record=str(entry[0].ref), seconds=seconds
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
