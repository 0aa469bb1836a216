"""When a cycle runs. Slots are points in time that any process computes alike, so two never share one twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from esclusa.model import duration
from esclusa.model.errors import DeclarationError
from esclusa.model.value import value


class Schedule(Protocol):
    def next_after(self, moment: datetime) -> datetime | None:
        """The first slot strictly after ``moment``; None where time never starts it."""
        ...

    def __str__(self) -> str: ...


@value
class Every:
    """A fixed interval, its slots aligned to the epoch."""

    seconds: float

    def next_after(self, moment: datetime) -> datetime:
        count = int(moment.timestamp() // self.seconds) + 1
        slot = datetime.fromtimestamp(count * self.seconds, UTC)
        return slot if slot > moment else slot + timedelta(seconds=self.seconds)

    def __str__(self) -> str:
        return f"every {duration.words(self.seconds)}"


@value
class Cron:
    """A cron line in a time zone. One that names its minutes and hours: a local time that does not exist runs once, as soon as it is
    over, and one that comes twice runs once. One with a star for either goes by the clock, however that is set."""

    line: str
    timezone: str = "UTC"

    def next_after(self, moment: datetime) -> datetime:
        zone = ZoneInfo(self.timezone)
        minutes, hours = self.line.split()[-5:-3]
        return (
            self._passed(moment, zone)
            if "*" in (minutes[0], hours[0])
            else self._named(moment, zone)
        )

    def _named(self, moment: datetime, zone: ZoneInfo) -> datetime:
        said = CronSim(self.line, moment.astimezone(zone).replace(tzinfo=None))
        return next(slot for local in said if (slot := _first(local, zone)) > moment)

    def _passed(self, moment: datetime, zone: ZoneInfo) -> datetime:
        """As if clocks were never set; if one is before the slot, from there on."""
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
    """When a clock shows this time first; where none does, when it is set past it."""
    moment = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == local:
        return moment
    return _change(local.replace(tzinfo=zone, fold=1).astimezone(UTC), moment, zone)


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def _change(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """When the clocks are set that differ between two moments, to the second."""
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
    """Nothing but a call or an event starts it."""

    def next_after(self, moment: datetime) -> None:
        return None

    def __str__(self) -> str:
        return "on call"


@value
class Always:
    """Whenever something is due: a worker claims at once, woken by the store."""

    def next_after(self, moment: datetime) -> None:
        return None

    def __str__(self) -> str:
        return "always"


def every(value: str | float | timedelta) -> Every:
    """``every("5m")``. Raises DeclarationError on what is no positive duration."""
    try:
        length = duration.seconds(value)
    except ValueError as error:
        raise DeclarationError("schedule", [str(error)]) from None
    if length <= 0:
        raise DeclarationError("schedule", [f"an interval must be more than 0, not {value!r}"])
    return Every(length)


def cron(line: str, timezone: str = "UTC") -> Cron:
    """``cron("17 3 * * *", "America/Santiago")``. Raises DeclarationError on a bad line or zone."""
    faults = []
    try:
        if next(CronSim(line, datetime(2026, 1, 1, tzinfo=UTC)), None) is None:
            faults.append(f"{line!r} never comes: no day is all that it asks for")
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
    """A schedule from what a declaration may say: a schedule, an interval, or None for always."""
    if value is None:
        return Always()
    if isinstance(value, str | int | float | timedelta):
        return every(value)
    if not hasattr(value, "next_after"):
        raise DeclarationError(
            "schedule",
            [f"{value!r:.80} is no schedule; say every='5m', or every=cron('17 3 * * *')"],
        )
    return value
