"""Times on the wire. The rows of a batch carry the same few times, so each is made once: reading them is much of a claim's cost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_LAST, _FIRST = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
_INFINITY = 2**63 - 1


async def use(connection: Any) -> None:
    """Let a new connection read and write times with zone this way."""
    await connection.set_type_codec(
        "timestamptz", schema="pg_catalog", encoder=encode, decoder=decode, format="binary"
    )


@lru_cache(maxsize=4096)
def decode(wire: bytes) -> datetime:
    """PostgreSQL's infinities are the last and the first time that Python has."""
    ticks = int.from_bytes(wire, "big", signed=True)
    if abs(ticks) >= _INFINITY:
        return _LAST if ticks > 0 else _FIRST
    return _EPOCH + timedelta(microseconds=ticks)


def encode(time: datetime) -> bytes:
    ticks = (time.astimezone(UTC) - _EPOCH) // _TICK
    return ticks.to_bytes(8, "big", signed=True)
