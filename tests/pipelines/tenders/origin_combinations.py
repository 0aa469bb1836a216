"""Deliveries of the team's worker in every combination of their columns, and how each must end.

Devices, preferences and tenders vary along with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from typing import Any

from pipelines.tenders import origin

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
STATES = ("pending", "retryable", "sent", "failed", "invalid", "paused")
# How long ago, or None for a column without a value.
PUSHED = (None, HOUR, 2 * DAY)
LOCKED = (None, 2 * MINUTE, 3 * HOUR)
DUE = (None, HOUR, -5 * HOUR)
ATTEMPTS = (0, 8, 500)
DEVICES: tuple[dict[str, Any], ...] = (
    {"active": False},
    {"push_capable": False},
    {"permission_status": "denied"},
    {"invalid_reason": "DeviceNotRegistered"},
    {"push_token": None},
)
PREFERENCES: tuple[dict[str, Any] | None, ...] = (
    None,
    {},
    {"tipo": "LE", "region": "Región del Biobío"},
    {"rubro": "72103300", "monto_min": 1_000_000},
)
OTHER_PREFERENCES: tuple[dict[str, Any], ...] = ({"enabled": False}, {"region": "Región de Ñuble"})
# The codes of the tenders: found, closed, and neither in the table nor in its archive.
FOUND, CLOSED, LOST = "1-1-LE26", "2-2-LE26", "3-3-LE26"


@dataclass(frozen=True)
class Combination:
    """One delivery, with a device of its own."""

    number: int
    state: str
    completed: bool
    ticket: bool
    pushed: timedelta | None
    locked: timedelta | None
    due: timedelta | None
    attempts: int

    @property
    def name(self) -> str:
        return f"device-{self.number}"

    @property
    def token(self) -> str:
        return f"ExponentPushToken[{self.name}]"

    @property
    def tender(self) -> str:
        return FOUND if self.number % 5 else (CLOSED, LOST)[self.number // 5 % 2]

    @property
    def fault(self) -> dict[str, Any]:
        """What keeps messages from the device; nothing for most."""
        return {} if self.number % 7 else DEVICES[self.number // 7 % len(DEVICES)]

    @property
    def preferences(self) -> dict[str, Any] | None:
        if self.number % 11 == 0:
            return OTHER_PREFERENCES[self.number // 11 % 2]
        return PREFERENCES[self.number % len(PREFERENCES)]

    @property
    def ends(self) -> str:
        """The state after dispatch and receipt: ``sent`` with a new push, or as it was."""
        is_open = self.state in ("pending", "retryable", "sent") and not self.completed
        if not is_open or self.locked == LOCKED[1] or (self.due and self.due < timedelta()):
            return self.state
        if self.state == "sent" or (self.state == "retryable" and self.ticket):
            young = self.pushed is not None and self.pushed < DAY
            return "ok" if self.ticket and young else "failed"
        if self.fault:
            return "invalid"
        if self.tender == LOST or self.preferences in OTHER_PREFERENCES:
            return "failed"
        return "sent"

    @property
    def is_pushed(self) -> bool:
        return self.ends == "sent" and self.state != "sent"

    def device(self, now: datetime) -> dict[str, Any]:
        off = {"invalidated_at": now} if "invalid_reason" in self.fault else {}
        row = origin.device(self.name, now, invalidated_at=None, invalid_reason=None)
        return row | self.fault | off

    def delivery(self, now: datetime, events: dict[str, int]) -> dict[str, Any]:
        return {
            "id": self.number,
            "notification_event_id": events[self.tender],
            "installation_id": self.name,
            "status": self.state,
            "attempt_count": self.attempts,
            "next_attempt_at": None if self.due is None else now - self.due,
            "locked_at": None if self.locked is None else now - self.locked,
            "locked_by": None if self.locked is None else "dispatch:12:1700000000000",
            "provider_ticket_id": f"ticket-{self.number}" if self.ticket else None,
            "completed_at": now - HOUR if self.completed else None,
            "last_attempt_at": None if self.pushed is None else now - self.pushed,
            "created_at": now - 3 * DAY,
        }


def combinations() -> Iterator[Combination]:
    values = product(STATES, (False, True), (False, True), PUSHED, LOCKED, DUE, ATTEMPTS)
    for number, each in enumerate(values, 1):
        yield Combination(number, *each)
