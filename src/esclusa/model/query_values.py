"""Values of queries, converted to the type of their column."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from esclusa.model import duration
from esclusa.model.storable import fit, fit_decimal, fit_float, fit_int
from esclusa.model.value import value as frozen


@frozen
class FromNow:
    """A time relative to now, as people write it: ``-2h``, ``-7d``, ``+30m``."""

    seconds: float
    # Whether it is a whole day.
    day: bool = False

    def at(self, now: datetime) -> datetime | date:
        """The time, or the day, that it is now."""
        found = now + timedelta(seconds=self.seconds)
        return found.astimezone(UTC).date() if self.day else found


_FROM_NOW = re.compile(r"[+-]\d.*[a-z]\Z")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
# Longer ones could leave the range of times.
_LONGEST = 100 * 366 * 86400.0


def _from_now(value: Any, *, day: bool = False) -> FromNow | None:
    if not isinstance(value, str) or not _FROM_NOW.match(value):
        return None
    seconds = duration.seconds(value[1:])
    if seconds > _LONGEST:
        raise ValueError("more than a hundred years")
    return FromNow(-seconds if value[0] == "-" else seconds, day)


def _text(value: Any) -> str:
    return fit(str(value.value) if hasattr(value, "value") else str(value))


def to_time(value: Any) -> datetime:
    """Convert a time or its text. Raises ValueError if it has no time zone."""
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("a time needs a time zone")
    return moment


def _int(value: Any) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError("a number with a fraction")
    return fit_int(int(value))


def _time_operand(value: Any) -> datetime | FromNow:
    """A time to compare with: also relative to now, or a day, which stands for its beginning."""
    if isinstance(value, FromNow):
        return value
    if isinstance(value, str) and _DAY.fullmatch(value):
        return datetime.combine(date.fromisoformat(value), time(), UTC)
    return _from_now(value) or to_time(value)


def _date_operand(value: Any) -> date | FromNow:
    if isinstance(value, date | FromNow):
        return value
    return _from_now(value, day=True) or date.fromisoformat(value)


_BOOLS = {"true": True, "false": False, "1": True, "0": False}
# What a conversion raises if the value does not fit the type.
UNFIT = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError)
# An example of a value, for messages.
EXAMPLE = {
    "time": "2026-11-16T12:00:00Z, 2026-11-16 or -2h",
    "date": "2026-11-16 or -7d",
    "bool": "true",
}
# Conversions by type.
CONVERT: dict[str, Any] = {
    "text": _text,
    "int": _int,
    "float": lambda v: fit_float(float(v)),
    "bool": lambda v: v if isinstance(v, bool) else _BOOLS[v.lower()],
    "time": _time_operand,
    "date": _date_operand,
    "decimal": fit_decimal,
}
