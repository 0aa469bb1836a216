"""Time limits of connections: no lock and no dead peer holds up other work for long."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from esclusa.model.value import value

# How long work waits for a lock of another session.
LOCK_SECONDS = 0.25
# The limit of what may read many rows: queries of readers, large inserts, archive, purge.
LONG_SECONDS = 60.0
# How long a migration waits for a lock that stops other programs: their statements wait as long.
MIGRATION_LOCK_SECONDS = 0.5
# How long it waits for one that stops nobody: until the transactions that are running have ended.
BESIDE_WRITERS_LOCK_SECONDS = 600.0
# How long a reader may keep a cursor open between two pages.
CURSOR_SECONDS = 600.0

# When TCP gives up a peer that is silent: after idle + count * interval seconds, or when it has not
# acknowledged data for 20 s.
_KEEPALIVE = {"idle": 10, "interval": 5, "count": 3}
_USER_TIMEOUT_MS = 20_000

# Both ends watch each other: these settings are for the server's.
SERVER_KEEPALIVE = {
    **{f"tcp_keepalives_{name}": str(number) for name, number in _KEEPALIVE.items()},
    "tcp_user_timeout": str(_USER_TIMEOUT_MS),
}


@value
class StatementLimits:
    """Seconds: how long a statement runs, waits for a lock, and a transaction waits for the next.

    Zero is no limit.
    """

    statement: float
    lock: float
    idle: float

    @property
    def settings(self) -> dict[str, str]:
        """PostgreSQL's settings for them."""
        seconds = {
            "statement_timeout": self.statement,
            "lock_timeout": self.lock,
            "idle_in_transaction_session_timeout": self.idle,
        }
        return {name: str(round(1000 * each)) for name, each in seconds.items()}

    @property
    def set_local(self) -> str:
        """The statements that set them for the rest of a transaction."""
        return ";".join(f"SET LOCAL {name} = {each}" for name, each in self.settings.items())

    @property
    def set_session(self) -> str:
        """The statements that set them for a session."""
        return ";".join(f"SET {name} = {each}" for name, each in self.settings.items())

    @property
    def client(self) -> float | None:
        """How long the client waits for the answer: the server should have ended it before."""
        return 1.25 * self.statement + 0.25 if self.statement else None


def work_limits(timeout: float) -> StatementLimits:
    """The limits of claims, renewals and settlements."""
    return StatementLimits(timeout, LOCK_SECONDS, 2 * timeout)


def part_limits(limits: StatementLimits) -> StatementLimits:
    """The limits of the parts in which a batch is tried that took too long as a whole."""
    return StatementLimits(max(0.5, 0.1 * limits.statement), 0.1, limits.idle)


READ_LIMITS = StatementLimits(LONG_SECONDS, LOCK_SECONDS, CURSOR_SECONDS)
LONG_LIMITS = StatementLimits(LONG_SECONDS, LOCK_SECONDS, LONG_SECONDS)
# A migration may build an index for hours.
MIGRATION_LIMITS = StatementLimits(0, MIGRATION_LOCK_SECONDS, LONG_SECONDS)
BESIDE_WRITERS_LIMITS = StatementLimits(0, BESIDE_WRITERS_LOCK_SECONDS, LONG_SECONDS)


def watch_peer(connection: Any) -> None:
    """Let the client's end of a connection notice a server that vanished."""
    transport = getattr(connection, "_transport", None)  # asyncpg has no public way
    peer = transport and transport.get_extra_info("socket")
    if peer is None or peer.family not in (socket.AF_INET, socket.AF_INET6):
        return
    options = {
        "TCP_KEEPIDLE": _KEEPALIVE["idle"],
        "TCP_KEEPINTVL": _KEEPALIVE["interval"],
        "TCP_KEEPCNT": _KEEPALIVE["count"],
        "TCP_USER_TIMEOUT": _USER_TIMEOUT_MS,
    }
    with suppress(OSError):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, number in options.items():
            if hasattr(socket, name):  # not every system has them all
                peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), number)
