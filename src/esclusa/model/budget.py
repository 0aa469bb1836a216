"""Budgets: how many units of a metered service all workers together may use in a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

from esclusa.model.errors import DeclarationError, NotFound, Refusal
from esclusa.model.texts import text
from esclusa.model.value import set_fields, value

Per = Literal["second", "minute", "hour", "day", "month"]
_STEP = {"second": timedelta(seconds=1), "minute": timedelta(minutes=1), "hour": timedelta(hours=1)}

_MIDNIGHT = {"hour": 0, "minute": 0, "second": 0, "microsecond": 0, "fold": 0}
# The fields of a time at the beginning of each window.
_BEGINNING: dict[str, dict[str, Any]] = {
    "second": {"microsecond": 0},
    "minute": {"second": 0, "microsecond": 0},
    "hour": {"minute": 0, "second": 0, "microsecond": 0},
    "day": _MIDNIGHT,
    "month": {"day": 1, **_MIDNIGHT},
}


@value
class Window:
    """A number of units per calendar period, in the provider's time zone."""

    per: Per
    limit: int
    timezone: str = "UTC"

    def start(self, now: datetime) -> datetime:
        """When the window that contains ``now`` began."""
        local = now.astimezone(ZoneInfo(self.timezone))
        return local.replace(**_BEGINNING[self.per]).astimezone(UTC)

    def reset(self, now: datetime) -> datetime:
        """When the window that contains ``now`` ends and the next begins."""
        if self.per in _STEP:
            start = self.start(now)
            after = start + _STEP[self.per]
            while self.start(after) == start:  # the clocks go back: this hour is longer
                after += _STEP["minute"]
            return self.start(after)  # if the clocks go forward, this hour is shorter
        zone = ZoneInfo(self.timezone)
        # Count from the calendar day, not from the start: on a day without midnight, the start is
        # later than midnight.
        day = now.astimezone(zone).replace(**_BEGINNING["day"], tzinfo=None)
        after = (
            day + timedelta(days=1)
            if self.per == "day"
            else (day.replace(day=1) + timedelta(days=32)).replace(day=1)
        )
        return after.replace(tzinfo=zone).astimezone(UTC)


@value
class Budget:
    """How many units a credential may spend. A spend needs room in every window."""

    name: str
    windows: tuple[Window, ...]

    def __init__(self, name: str, *windows: Window) -> None:
        faults = [] if windows else ["it has no window"]
        for window in windows:
            if window.per not in get_args(Per):
                faults.append(
                    f"{window.per!r} is not a window; there are {', '.join(get_args(Per))}"
                )
            if not isinstance(window.limit, int) or window.limit < 0:
                faults.append(
                    f"its limit per {window.per} must be a whole number, 0 or more, "
                    f"not {window.limit!r}"
                )
            try:
                ZoneInfo(window.timezone)
            except (KeyError, ValueError, OSError, TypeError):
                faults.append(
                    f"{window.timezone!r} is not a time zone name such as America/Santiago"
                )
        if len({w.per for w in windows}) != len(windows):
            faults.append("it has two windows of the same length")
        if faults:
            raise DeclarationError(f"budget {name}", faults)
        set_fields(self, name=name, windows=windows)

    def no_window(self, per: str) -> NotFound:
        """The refusal for a period that this budget does not count."""
        known = ", ".join(window.per for window in self.windows)
        return NotFound(text("window_not_found", budget=self.name, per=per, known=known))


@value
class Granted:
    """``units`` were reserved at ``at``: at least 1, at most what was requested."""

    units: int
    at: datetime | None = field(default=None, compare=False)


@value
class Denied:
    """Nothing was reserved. The empty window resets at ``until``."""

    until: datetime


@value
class WindowUse:
    """The present use of one window of a budget."""

    budget: str
    per: Per
    limit: int
    used: int
    start: datetime
    reset: datetime
    spenders: dict[str, int]
    # Until when the provider refuses calls, whatever is left. None: it does not.
    barred: datetime | None = None

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)

    def projected(self, now: datetime) -> int:
        """How many units will be used at the reset, at the pace of this window so far."""
        elapsed = max(1.0, (now - self.start).total_seconds())
        return round(self.used / elapsed * max(elapsed, (self.reset - self.start).total_seconds()))

    def runs_out_at(self, now: datetime) -> datetime | None:
        """When nothing is left, at the pace of this window so far. None: not before the reset."""
        if self.left == 0:
            return now
        elapsed = max(1.0, (now - self.start).total_seconds())
        seconds = self.left * elapsed / self.used if self.used > 0 else float("inf")
        return (
            now + timedelta(seconds=seconds)
            if seconds < (self.reset - now).total_seconds()
            else None
        )


@dataclass(slots=True)
class OpenWindow:
    """The current window of a budget as a store keeps it: its use, by spender.

    ``limit_seen`` is the limit that the provider reported, if it did.
    """

    window: Window
    start: datetime
    used: int = 0
    limit_seen: int | None = None
    spenders: dict[str, int] = field(default_factory=dict)

    @property
    def limit(self) -> int:
        return self.window.limit if self.limit_seen is None else self.limit_seen

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)

    def learn(self, used: int | None, limit: int | None) -> None:
        """Record what the provider reported: at least ``used`` units used, and its limit."""
        self.used = max(self.used, used or 0)
        self.limit_seen = self.limit_seen if limit is None else limit

    def use(self, budget: str, now: datetime, barred: datetime | None) -> WindowUse:
        return WindowUse(
            budget,
            self.window.per,
            self.limit,
            self.used,
            self.start,
            self.window.reset(now),
            self.spenders,
            barred if barred is not None and barred > now else None,
        )


def reserve(
    windows: Sequence[OpenWindow],
    units: int,
    spender: str,
    least: int,
    *,
    now: datetime,
    barred: datetime | None,
) -> Granted | Denied:
    """Reserve up to ``units``, at least ``least``, in all windows, or nothing.

    ``barred``: until when the provider refuses calls.
    """
    enough = min(max(1, least), units)
    granted = min([units, *(w.left for w in windows)])
    if barred is not None and barred > now:
        return Denied(max([barred, *(w.window.reset(now) for w in windows if w.left < enough)]))
    if granted < enough:
        return Denied(max(w.window.reset(now) for w in windows if w.left < enough))
    if granted > 0:
        for window in windows:
            window.used += granted
            window.spenders[spender] = window.spenders.get(spender, 0) + granted
    return Granted(max(0, granted), now)


def give_back(windows: Sequence[OpenWindow], units: int, spender: str, at: datetime | None) -> None:
    """Undo a reservation that was made at ``at`` (None: in the current windows).

    A window that began later is not changed. No window gives back more than the spender took from
    it, so a refund cannot lead to overspending.
    """
    for window in windows:
        held = window.spenders.get(spender, 0)
        back = 0 if at is not None and at < window.start else min(units, held)
        if back > 0:
            window.used = max(0, window.used - back)
            window.spenders[spender] = held - back
            if held == back:
                del window.spenders[spender]


class BudgetEmpty(Refusal):
    """A handler asked for units that the budget does not have.

    The record waits until the window opens again; the attempt is not counted.
    """

    def __init__(self, budget: str, until: datetime) -> None:
        self.until = until
        super().__init__(text("budget_empty", budget=budget, until=until))
