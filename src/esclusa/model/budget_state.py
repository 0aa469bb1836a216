"""Budgets as stores keep them: the state of each window and rate, and how a spend changes it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from esclusa.model.budget import EPOCH, Denied, Granted, Rate, Window, WindowUse

# The most entries that a rate keeps of its last period; neighbours are then merged.
_ENTRIES = 200


@dataclass(slots=True)
class OpenWindow:
    """The current window of a budget as a store keeps it: its use, by spender.

    ``limit_seen`` is the limit that the provider reported, if it did. ``kept``: what a store keeps
    of it besides ``used`` and ``limit_seen``, as JSON.
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

    @property
    def kept(self) -> dict[str, Any]:
        return self.spenders

    def load(self, used: int, limit_seen: int | None, kept: dict[str, Any]) -> None:
        """Continue from what a store has kept."""
        self.used, self.limit_seen, self.spenders = used, limit_seen, kept

    def room(self, least: int, now: datetime) -> int:
        """How many units can be reserved now."""
        return self.left

    def opens(self, least: int, now: datetime) -> datetime:
        """When ``least`` units may be free."""
        return self.window.reset(now)

    def take(self, units: int, spender: str, at: datetime, now: datetime) -> None:
        self.used += units
        self.spenders[spender] = self.spenders.get(spender, 0) + units

    def give_back(self, units: int, spender: str, at: datetime | None) -> None:
        held = self.spenders.get(spender, 0)
        back = 0 if at is not None and at < self.start else min(units, held)
        if back > 0:
            self.used = max(0, self.used - back)
            self.spenders[spender] = held - back
            if held == back:
                del self.spenders[spender]

    def learn(self, used: int | None, limit: int | None, now: datetime) -> None:
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


@dataclass(slots=True)
class OpenRate:
    """A rate as a store keeps it. Times are microseconds since 1970.

    ``even_until``: when all units so far are evenly spaced; one is owed for each interval until
    then. ``log``: the units of the last period, by time and spender, oldest first. The log keeps
    any span below the limit, the spacing keeps it even.
    """

    window: Rate
    start: datetime
    limit_seen: int | None = None
    even_until: float = 0.0
    log: list[tuple[int, dict[str, int]]] = field(default_factory=list)

    @property
    def limit(self) -> int:
        return self.window.limit if self.limit_seen is None else self.limit_seen

    @property
    def used(self) -> int:
        return _units(self.log)

    @property
    def kept(self) -> dict[str, Any]:
        return {"even_until": self.even_until, "log": [[at, units] for at, units in self.log]}

    def load(self, used: int, limit_seen: int | None, kept: dict[str, Any]) -> None:
        """Continue from what a store has kept."""
        self.limit_seen = limit_seen
        self.even_until = kept.get("even_until", 0.0)
        self.log = [(at, units) for at, units in kept.get("log", ())]

    @property
    def _period(self) -> int:
        return self.window.period // timedelta(microseconds=1)

    @property
    def _interval(self) -> float:
        return self._period / self.limit

    def _recent(self, at: int) -> list[tuple[int, dict[str, int]]]:
        """The entries of the last period."""
        return [entry for entry in self.log if entry[0] > at - self._period]

    def room(self, least: int, now: datetime) -> int:
        """How many units can be reserved now."""
        at = _microseconds(now)
        if self.limit <= 0:
            return 0
        owed = max(0.0, self.even_until - at) / self._interval
        burst = max(self.window.burst, least)
        return max(0, min(self.limit - _units(self._recent(at)), int(burst - owed + 1e-6)))

    def opens(self, least: int, now: datetime) -> datetime:
        """When ``least`` units may be free."""
        at = _microseconds(now)
        if least > self.limit:
            return now + self.window.period
        even = self.even_until - max(0, self.window.burst - least) * self._interval
        recent = self._recent(at)
        excess, leaves = _units(recent) + least - self.limit, 0
        for entry, units in recent:
            if excess <= 0:
                break
            excess -= sum(units.values())
            leaves = entry + self._period
        return EPOCH + timedelta(microseconds=max(at + 1, leaves, math.ceil(even)))

    def take(self, units: int, spender: str, at: datetime, now: datetime) -> None:
        """Use units at ``at``, which may be after ``now``."""
        turn = _microseconds(at)
        self._add(turn, spender, units, _microseconds(now))
        self.even_until = max(self.even_until, turn) + units * self._interval

    def give_back(self, units: int, spender: str, at: datetime | None) -> None:
        """Undo what was reserved at ``at`` and after it.

        Nothing, if that is no longer in the log: what is there belongs to others.
        """
        since = 0 if at is None else _microseconds(at)
        if at is not None and not any(
            entry == since and spender in spent for entry, spent in self.log
        ):
            return
        for entry, spent in self.log:
            if entry >= since and (back := min(units, spent.get(spender, 0))) > 0:
                spent[spender] -= back
                units -= back
                self.even_until -= back * self._interval
        self.log = [
            (entry, {name: n for name, n in spent.items() if n})
            for entry, spent in self.log
            if any(spent.values())
        ]

    def learn(self, used: int | None, limit: int | None, now: datetime) -> None:
        """Record what the provider reported: at least ``used`` units used, and its limit.

        The limit holds until it reports another.
        """
        at = _microseconds(now)
        self.limit_seen = self.limit_seen if limit is None else limit
        if (unknown := (used or 0) - _units(self._recent(at))) > 0:
            self._add(at, "", unknown, at)

    def use(self, budget: str, now: datetime, barred: datetime | None) -> WindowUse:
        recent = self._recent(_microseconds(now))
        spenders: dict[str, int] = {}
        for _, units in recent:
            for name, count in units.items():
                if name:
                    spenders[name] = spenders.get(name, 0) + count
        oldest = EPOCH + timedelta(microseconds=recent[0][0]) if recent else now
        return WindowUse(
            budget,
            self.window.per,
            self.limit,
            _units(recent),
            now - self.window.period,
            oldest + self.window.period,
            spenders,
            barred if barred is not None and barred > now else None,
            self.window.burst,
            None if self.room(1, now) > 0 else self.opens(1, now),
        )

    def _add(self, at: int, spender: str, units: int, now: int) -> None:
        """Add to the log, in the order of time: a turn that was given back may be before others.

        A merged entry has the later time: it is counted for longer, never less.
        """
        self.log = self._recent(now)
        place = bisect_left(self.log, at, key=lambda entry: entry[0])
        if place == len(self.log) or self.log[place][0] != at:
            self.log.insert(place, (at, {}))
        spent = self.log[place][1]
        spent[spender] = spent.get(spender, 0) + units
        if len(self.log) > _ENTRIES:
            pairs = zip(self.log[::2], self.log[1::2], strict=False)
            odd = self.log[-1:] if len(self.log) % 2 else []
            self.log = [
                (later, {name: a.get(name, 0) + b.get(name, 0) for name in a | b})
                for (_, a), (later, b) in pairs
            ] + odd


def _units(log: Iterable[tuple[int, dict[str, int]]]) -> int:
    return sum(sum(units.values()) for _, units in log)


def _microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def open_windows(windows: Iterable[Window | Rate], now: datetime) -> list[OpenWindow | OpenRate]:
    """The windows and rates of a budget as they are now, nothing used yet."""
    return [
        OpenRate(window, window.start(now))
        if isinstance(window, Rate)
        else OpenWindow(window, window.start(now))
        for window in windows
    ]


def reserve(
    windows: Sequence[OpenWindow | OpenRate],
    units: int,
    spender: str,
    least: int,
    *,
    now: datetime,
    barred: datetime | None,
    ahead: float = 0.0,
) -> Granted | Denied:
    """Reserve up to ``units``, at least ``least``, in all windows, or nothing.

    ``barred``: until when the provider refuses calls. ``ahead``: how many seconds before they may
    be used units of a rate may be reserved; a worker that asks late then loses no turn.
    """
    enough = min(max(1, least), units)
    at = now
    first: Denied | None = None
    while True:
        rooms = [w.room(enough, at) for w in windows]
        granted = min([units, *rooms])
        full = [w for w, room in zip(windows, rooms, strict=True) if room < enough]
        opens = [w.opens(enough, at) for w in full]
        if barred is not None and barred > at:
            opens.append(barred)
        if not opens:
            break
        until = max(opens)
        if first is None:
            last = full[opens.index(until)] if opens.index(until) < len(full) else None
            first = Denied(until, enough, None if last is None else last.use("", now, None))
        if until - now > timedelta(seconds=ahead) or until <= at:
            return first
        at = until
    if granted > 0:
        for window in windows:
            window.take(granted, spender, at, now)
    return Granted(max(0, granted), at, (at - now).total_seconds())


def give_back(
    windows: Sequence[OpenWindow | OpenRate], units: int, spender: str, at: datetime | None
) -> None:
    """Undo a reservation that was made at ``at`` (None: in the current windows).

    A window that began later is not changed. No window gives back more than the spender took from
    it, so a refund cannot lead to overspending.
    """
    for window in windows:
        window.give_back(units, spender, at)
