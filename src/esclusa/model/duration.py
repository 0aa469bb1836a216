"""Durations as people write them: ``90s``, ``5m``, ``2h``, ``1d``, or a number of seconds."""

from __future__ import annotations

import re
from datetime import timedelta

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, None: 1.0}

type_hint = "a duration such as 30s, 5m, 2h, 1d, or a number of seconds"


def seconds(value: str | float | timedelta) -> float:
    """The duration in seconds. Raises ValueError with an example."""
    if isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, int | float):
        result = -1.0 if isinstance(value, bool) else float(value)
    else:
        result = _read(value)
    if not 0 <= result < 1e10:
        raise ValueError(f"{value!r} is not {type_hint}")
    return result


def _read(text: str) -> float:
    rest, total = text.strip().lower(), 0.0
    if not rest:
        raise ValueError(f"{text!r} is not {type_hint}")
    while rest:
        match = _PART.match(rest)
        if match is None:
            raise ValueError(f"{text!r} is not {type_hint}")
        total += float(match[1]) * _SECONDS[match[2]]
        rest = rest[match.end() :].strip()
    return total


def words(value: float) -> str:
    """A duration for people: ``1h 5m``, ``3.2s``, ``12ms``."""
    if value < 1:
        return f"{value * 1000:.0f}ms"
    if value < 60:
        return f"{value:.1f}s".replace(".0s", "s")
    parts = []
    rest = round(value)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if rest >= size:
            parts.append(f"{rest // size}{unit}")
            rest %= size
    return " ".join(parts[:2])
