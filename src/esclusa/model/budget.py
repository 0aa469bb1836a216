"""Budgets: how many units of a metered service all workers together may use in a window."""

from __future__ import annotations

from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, get_args
from zoneinfo import ZoneInfo

from esclusa.model.errors import DeclarationError, NotFound, Refusal
from esclusa.model.texts import Text, text
from esclusa.model.value import set_fields, value

Per = Literal["second", "minute", "hour", "day", "month"]
_STEP = {"second": timedelta(seconds=1), "minute": timedelta(minutes=1), "hour": timedelta(hours=1)}

# How long each period of an even rate is.
_PERIODS = _STEP | {"day": timedelta(days=1)}
# The start of a rate's only row.
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

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
class Rate:
    """A number of units in any span of a period, evenly spaced: for providers that count so.

    At most ``burst`` units are used at once; then one is free every ``per / limit``. In no span of
    the period, wherever it begins, are more than ``limit`` used. A spend of more than ``burst``
    units is granted when none is owed.

    ``late``: how many seconds after their turn units may reach the provider. They are counted for
    so much longer, so that the provider never counts more than ``limit`` in a period. For all
    units together the rate is lower by that much.
    """

    limit: int
    per: Per
    burst: int = 1
    late: float = 0.0

    @property
    def period(self) -> timedelta:
        """How long a unit counts."""
        return _PERIODS[self.per] + timedelta(seconds=self.late)

    def start(self, now: datetime) -> datetime:
        """The same for all times: a rate has one row."""
        return EPOCH

    def reset(self, now: datetime) -> datetime:
        """When all that was used before ``now`` is free again."""
        return now + self.period


@value
class Budget:
    """How many units a credential may spend. A spend needs room in every window and rate."""

    name: str
    windows: tuple[Window | Rate, ...]

    def __init__(self, name: str, *windows: Window | Rate) -> None:
        faults = [] if windows else ["it has no window"]
        for window in windows:
            periods = tuple(_PERIODS) if isinstance(window, Rate) else get_args(Per)
            if window.per not in periods:
                what = "the period of a rate" if isinstance(window, Rate) else "a window"
                faults.append(f"{window.per!r} is not {what}; there are {', '.join(periods)}")
            if not isinstance(window.limit, int) or window.limit < 0:
                faults.append(
                    f"its limit per {window.per} must be a whole number, 0 or more, "
                    f"not {window.limit!r}"
                )
            elif isinstance(window, Rate):
                most = max(1, window.limit)
                if not isinstance(window.burst, int) or not 1 <= window.burst <= most:
                    faults.append(
                        f"its burst must be a whole number from 1 to its limit, {most}, "
                        f"not {window.burst!r}"
                    )
                if not 0 <= window.late < 3600:
                    faults.append(
                        f"late must be a number of seconds from 0 to 3600, not {window.late!r}"
                    )
            if isinstance(window, Window):
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

    @property
    def late(self) -> float:
        """How many seconds after their turn units may reach the provider; 0: no rate says so."""
        return min((w.late for w in self.windows if isinstance(w, Rate) and w.late), default=0.0)

    def no_window(self, per: str) -> NotFound:
        """The refusal for a period that this budget does not count."""
        known = ", ".join(window.per for window in self.windows)
        return NotFound(text("window_not_found", budget=self.name, per=per, known=known))


@value
class Granted:
    """``units`` were reserved at ``at``: at least 1, at most what was requested.

    ``wait``: the seconds until they may be used, if they were reserved ahead.
    """

    units: int
    at: datetime | None = field(default=None, compare=False)
    wait: float = field(default=0.0, compare=False)


@value
class Denied:
    """Nothing was reserved; ``until`` is when ``least`` units may be free.

    ``window``: the one without room. None: the provider refuses calls until then.
    """

    until: datetime
    least: int = field(default=1, compare=False)
    window: WindowUse | None = field(default=None, compare=False)

    def reason(self, budget: str) -> Text:
        """Why there is nothing to spend of the budget."""
        if self.window is None:
            return text("why_budget_blocked", budget=budget, until=self.until)
        return self.window.denial(budget, self.least, self.until)


@value
class WindowUse:
    """The present use of one window of a budget, or of its rate.

    A rate has a ``burst``; its window is the last period, and ``reset`` is when the oldest use
    leaves it. ``free_at``: when its next unit is free; None: now.
    """

    budget: str
    per: Per
    limit: int
    used: int
    start: datetime
    reset: datetime
    spenders: dict[str, int]
    # Until when the provider refuses calls, whatever is left. None: it does not.
    barred: datetime | None = None
    burst: int | None = None
    free_at: datetime | None = None

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)

    def denial(self, budget: str, cost: int, until: datetime) -> Text:
        """Why a record that costs so much gets nothing of the budget."""
        if self.burst is not None and self.left >= cost:
            return text("why_budget_even", budget=budget, until=until)
        values = {"budget": budget, "limit": self.limit, "per": self.per, "reset": until}
        if self.left:
            return text("why_budget_short", left=self.left, cost=cost, **values)
        return text("why_budget_empty", used=self.used, **values)

    def projected(self, now: datetime) -> int:
        """How many units will be used at the reset, at the pace of this window so far."""
        elapsed = max(1.0, (now - self.start).total_seconds())
        return round(self.used / elapsed * max(elapsed, (self.reset - self.start).total_seconds()))

    def runs_out_at(self, now: datetime) -> datetime | None:
        """When nothing is left, at the pace of this window so far. None: not before the reset."""
        if self.burst is not None:
            return None  # its units are evenly spaced
        if self.left == 0:
            return now
        elapsed = max(1.0, (now - self.start).total_seconds())
        seconds = self.left * elapsed / self.used if self.used > 0 else float("inf")
        return (
            now + timedelta(seconds=seconds)
            if seconds < (self.reset - now).total_seconds()
            else None
        )


@value
class PastWindow:
    """What was used in a window that began at ``start``; ``limit`` is the one that counted."""

    start: datetime
    used: int
    limit: int
    spenders: dict[str, int]


class BudgetEmpty(Refusal):
    """A handler asked for units that the budget does not have.

    The record waits until the window opens again; the attempt is not counted.
    """

    def __init__(self, budget: str, until: datetime, why: Text | None = None) -> None:
        self.until = until
        super().__init__(why or text("budget_empty", budget=budget, until=until))
