"""Connect to one of several servers: the one that takes writes now."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg
from asyncpg import exceptions as pg

_CONNECT: Any = asyncpg.connect  # asyncpg has no types
# Another host may do what this one cannot do now.
_TRY_NEXT = (
    OSError,
    TimeoutError,
    pg.CannotConnectNowError,
    pg.TooManyConnectionsError,
    pg.ConnectionDoesNotExistError,
    pg.TargetServerAttributeNotMatched,
)


class Hosts:
    """The servers of a DSN such as ``postgresql://one,two:5433/db``.

    With several, ``target_session_attrs`` is ``read-write`` unless the DSN sets it. The server that
    was right the last time is tried first, and one that does not answer does not use up the time
    for the others.
    """

    def __init__(self, dsn: str) -> None:
        self._dsns = _single(dsn)
        self._first = 0

    async def connect(self, *_: Any, timeout: float = 10.0, **options: Any) -> Any:
        """Connect as ``asyncpg.connect`` does; raise the error of the server tried last."""
        count = len(self._dsns)
        for n in range(self._first, self._first + count):
            try:
                connected = await _CONNECT(
                    self._dsns[n % count], timeout=timeout / count, **options
                )
            except _TRY_NEXT:
                if n == self._first + count - 1:
                    raise
                await asyncio.sleep(0)
            else:
                self._first = n % count
                return connected
        raise AssertionError("a DSN has at least one host")


def _single(dsn: str) -> list[str]:
    """Return a DSN for each host."""
    parts = urlsplit(dsn)
    user, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [dsn]
    query = parts.query
    if "target_session_attrs" not in parse_qs(query):
        query += f"{'&' if query else ''}target_session_attrs=read-write"
    return [
        urlunsplit(parts._replace(netloc=f"{user}{at}{host}", query=query))
        for host in hosts.split(",")
    ]
