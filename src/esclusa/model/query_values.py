"""Values of queries, converted to the type of their column."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from esclusa.model.storable import fit, fit_decimal, fit_float, fit_int


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


_BOOLS = {"true": True, "false": False, "1": True, "0": False}
# What a conversion raises if the value does not fit the type.
UNFIT = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError)
# An example of a value, for messages.
EXAMPLE = {"time": "2026-11-16T12:00:00Z", "date": "2026-11-16", "bool": "true"}
# Conversions by type.
CONVERT: dict[str, Any] = {
    "text": _text,
    "int": _int,
    "float": lambda v: fit_float(float(v)),
    "bool": lambda v: v if isinstance(v, bool) else _BOOLS[v.lower()],
    "time": to_time,
    "date": lambda v: v if isinstance(v, date) else date.fromisoformat(v),
    "decimal": fit_decimal,
}
