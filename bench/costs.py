"""What work costs: processor time of both sides, the server's log, statements and bytes stored."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import asyncpg
from support.postgres import PostgresServer

# What the server must load to count the statements.
SERVER_OPTIONS = {"shared_preload_libraries": "pg_stat_statements"}

_TICK = os.sysconf("SC_CLK_TCK")
_WAL = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"
_STATEMENTS = """SELECT coalesce(sum(calls), 0) FROM pg_stat_statements s
    JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database()"""
_WAITS = """SELECT coalesce(wait_event_type || ' ' || wait_event, 'running'), count(*)
FROM pg_stat_activity WHERE state = 'active' AND datname = current_database()
    AND pid <> pg_backend_pid() GROUP BY 1"""
_BYTES = "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest($1::text[]) name"


@dataclass(frozen=True)
class Costs:
    """Totals at a moment; the difference of two is what happened between them."""

    worker: float  # seconds of processor time
    server: float
    wal: float  # bytes
    statements: float  # each of them is a round trip

    def __sub__(self, other: Costs) -> Costs:
        return Costs(
            self.worker - other.worker,
            self.server - other.server,
            self.wal - other.wal,
            self.statements - other.statements,
        )

    def per(self, count: int) -> dict[str, float]:
        """The costs of one record, in the units of the table."""
        return {
            "worker": 1e6 * self.worker / count,
            "server": 1e6 * self.server / count,
            "wal": self.wal / count,
            "statements": self.statements / count,
        }


class Meter:
    """Reads the costs of a database and of the processes that work on it."""

    def __init__(self, server: PostgresServer, connection: Any, statements: bool) -> None:
        self._server = server
        self._connection = connection
        self._statements = statements

    @classmethod
    async def open(cls, server: PostgresServer, url: str, *, statements: bool = True) -> Self:
        """``statements``: the server was started with SERVER_OPTIONS, and counts them."""
        connection = await asyncpg.connect(url)
        if statements:
            await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        return cls(server, connection, statements)

    async def close(self) -> None:
        await self._connection.close()

    async def read(self, workers: Iterable[int] = ()) -> Costs:
        """The totals so far; ``workers`` are the process ids of the other side."""
        wal = await self._connection.fetchval(_WAL)
        statements = await self._connection.fetchval(_STATEMENTS) if self._statements else 0
        worker, server = sum(map(cpu_seconds, workers)), server_cpu(self._server.pid)
        return Costs(worker, server, float(wal), float(statements))

    async def row(self, statement: str) -> Any:
        """The one row that a query finds."""
        return await self._connection.fetchrow(statement)

    async def watch(self, waits: Counter[str]) -> None:
        """Count what active sessions wait for, twenty times a second, until cancelled."""
        while True:
            for event, found in await self._connection.fetch(_WAITS):
                waits[event] += found
            await asyncio.sleep(0.05)

    async def bytes_of(self, tables: Sequence[str]) -> int:
        """The bytes of these tables with their indexes."""
        return int(await self._connection.fetchval(_BYTES, list(tables)))


def cpu_seconds(pid: int, *, ended_children: bool = False) -> float:
    """The processor time that a process has used."""
    # The name of the process, in brackets, may have spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if ended_children else 13])) / _TICK


def server_cpu(postmaster: int) -> float:
    """The processor time of a PostgreSQL server, with its sessions that have ended."""
    used = cpu_seconds(postmaster, ended_children=True)
    for child in children(postmaster):
        try:
            used += cpu_seconds(child)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    return used


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            found.append(int(folder.name))
    return found
