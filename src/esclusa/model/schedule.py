"""Schedules: when a cycle runs.

Every process computes the same slots, so that a slot runs once in the cluster.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from esclusa.model import duration
from esclusa.model.errors import DeclarationError
from esclusa.model.value import value


class Schedule(Protocol):
    """When a cycle runs; ``str()`` describes it for people."""

    def next_after(self, moment: datetime) -> datetime | None:
        """The first slot after ``moment``. None: time does not start it."""
        ...

    def __str__(self) -> str: ...


@value
class Every:
    """A fixed interval; slots are aligned to the epoch."""

    seconds: float

    def next_after(self, moment: datetime) -> datetime:
        count = int(moment.timestamp() // self.seconds) + 1
        slot = datetime.fromtimestamp(count * self.seconds, UTC)
        return slot if slot > moment else slot + timedelta(seconds=self.seconds)

    def __str__(self) -> str:
        return f"every {duration.words(self.seconds)}"


@value
class Cron:
    """A cron line in a time zone.

    If the line names minutes and hours, it runs once at a clock change: a local time that does not
    exist runs right after the change, a local time that comes twice runs the first time. With a
    star for minutes or hours, it runs at every matching time on the clock.
    """

    line: str
    timezone: str = "UTC"

    def next_after(self, moment: datetime) -> datetime:
        zone = ZoneInfo(self.timezone)
        minutes, hours = self.line.split()[-5:-3]
        return (
            self._next_repeating(moment, zone)
            if "*" in (minutes[0], hours[0])
            else self._next_named(moment, zone)
        )

    def _next_named(self, moment: datetime, zone: ZoneInfo) -> datetime:
        times = CronSim(self.line, moment.astimezone(zone).replace(tzinfo=None))
        return next(slot for local in times if (slot := _first(local, zone)) > moment)

    def _next_repeating(self, moment: datetime, zone: ZoneInfo) -> datetime:
        """Compute with a fixed offset; if the clocks change before the slot, go on from there."""
        at, since = moment.astimezone(UTC), moment.astimezone(zone).replace(tzinfo=None)
        while True:
            offset = _offset(at, zone)
            slot = (next(CronSim(self.line, since)) - offset).replace(tzinfo=UTC)
            if _offset(slot, zone) == offset:
                return slot
            at = _change(at, slot, zone)
            since = at.astimezone(zone).replace(tzinfo=None) - timedelta(seconds=1)

    def __str__(self) -> str:
        return f"cron {self.line} ({self.timezone})"


def _first(local: datetime, zone: ZoneInfo) -> datetime:
    """When a clock first shows this time; if it never does, when it jumps over it."""
    moment = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == local:
        return moment
    return _change(local.replace(tzinfo=zone, fold=1).astimezone(UTC), moment, zone)


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def _change(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """When the offset changes between two moments, to the second."""
    offset, low, high = _offset(before, zone), int(before.timestamp()), int(after.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high)
            if _offset(datetime.fromtimestamp(middle, UTC), zone) == offset
            else (low, middle)
        )
    return datetime.fromtimestamp(high, UTC)


@value
class Manual:
    """Only a call or an event starts it."""

    def next_after(self, moment: datetime) -> None:
        return None

    def __str__(self) -> str:
        return "manual"


@value
class Always:
    """Whenever a record is due: a worker claims it at once, woken by the store."""

    def next_after(self, moment: datetime) -> None:
        return None

    def __str__(self) -> str:
        return "always"


def every(value: str | float | timedelta) -> Every:
    """An interval: ``every("5m")``. Raises DeclarationError unless it is a positive duration."""
    try:
        length = duration.seconds(value)
    except ValueError as error:
        raise DeclarationError("schedule", [str(error)]) from None
    if length <= 0:
        raise DeclarationError("schedule", [f"an interval must be more than 0, not {value!r}"])
    return Every(length)


def cron(line: str, timezone: str = "UTC") -> Cron:
    """A cron line: ``cron("17 3 * * *", "America/Santiago")``.

    Raises DeclarationError for a bad line or time zone.
    """
    faults = []
    try:
        if next(CronSim(line, datetime(2026, 1, 1, tzinfo=UTC)), None) is None:
            faults.append(f"{line!r} never runs: no date matches it")
    except (CronSimError, AttributeError, TypeError) as error:
        faults.append(f"{line!r} is not a cron line (minute hour day month weekday): {error}")
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, OSError, TypeError):
        faults.append(f"{timezone!r} is not a time zone name such as America/Santiago")
    if faults:
        raise DeclarationError("schedule", faults)
    return Cron(line, timezone)


def parse(value: Schedule | str | float | timedelta | None) -> Schedule:
    """A schedule from an option: a schedule, an interval, or None for always."""
    if value is None:
        return Always()
    if isinstance(value, str | int | float | timedelta):
        return every(value)
    if not hasattr(value, "next_after"):
        raise DeclarationError(
            "schedule",
            [f"{value!r:.80} is not a schedule; use every='5m' or every=cron('17 3 * * *')"],
        )
    return value
