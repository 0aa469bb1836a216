"""Runs contenders, each role in a process of its own.

Every measurement gets a fresh copy of the contender's empty tables.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw
import asyncpg
from support.postgres import PostgresServer

from bench.peers_env import ROOT, python_with_peers
from bench.services import PeerServers
from bench.timings import Timings


@dataclass(frozen=True)
class Side:
    """A contender: its module, its database, and how many records it gets.

    ``unsettled`` is the SQL that counts unsettled records. None: the contender removes a record
    from its queue before handling it, so the drain ends with the last handler.
    """

    label: str
    module: str
    unsettled: str | None = None
    work: str = "noop"
    sqlite: bool = False
    # A server of its own instead of PostgreSQL: "redis" or "temporal".
    server: str = ""
    peer: bool = True
    count: int = 30_000
    portable: bool = False


OURS = Side(
    "ours, one history row", "ours", "SELECT count(*) FROM plain WHERE status = 'ready'", peer=False
)
HELD = Side(
    "ours, hold state, two history rows",
    "ours",
    "SELECT count(*) FROM held WHERE status IN ('ready', 'working')",
    "held",
    peer=False,
)
NOTIFIED = Side("INSERT of another program, notify=True", "ours", work="notified", peer=False)
LIMIT = Side(
    "bare asyncpg loop",
    "limit",
    "SELECT count(*) FROM bare WHERE status IN ('ready', 'working')",
    peer=False,
)
PGQUEUER = Side("PgQueuer, batch 500", "pgqueuer", "SELECT count(*) FROM pgqueuer", count=15_000)
PROCRASTINATE = Side(
    "Procrastinate",
    "procrastinate",
    "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
    count=1500,
)
DBOS = Side(
    "DBOS",
    "dbos",
    "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')",
    count=1500,
)
OBAN = Side(
    "Oban for Python",
    "oban",
    "SELECT count(*) FROM oban_jobs WHERE state NOT IN ('completed', 'discarded', 'cancelled')",
    count=6000,
)
OURS_SQLITE = Side("ours, one history row", "ours", OURS.unsettled, sqlite=True, peer=False)
HELD_SQLITE = Side("ours, hold state", "ours", HELD.unsettled, "held", sqlite=True, peer=False)
LIMIT_SQLITE = Side("bare apsw loop", "limit_sqlite", LIMIT.unsettled, sqlite=True, peer=False)
HUEY = Side("Huey", "huey", None, sqlite=True, count=6000)
CELERY = Side("Celery on Redis", "celery", None, server="redis", count=3000)
DRAMATIQ = Side("Dramatiq on Redis", "dramatiq", None, server="redis", count=6000)
TEMPORAL = Side("Temporal, its SQLite server", "temporal", None, server="temporal", count=1000)


@dataclass(frozen=True)
class Drained:
    """The result of a drain."""

    fill: float  # records inserted per second
    rate: float  # records per second from the first handler's start until all are settled
    span: float  # seconds from the first handler's start to the last handler's end


class Driver:
    """Owns a PostgreSQL server and a temporary folder, and runs contenders on them."""

    def __init__(self, server_options: dict[str, str] | None = None) -> None:
        self.server = PostgresServer(durable=True, options=server_options)
        self.folder = Path(tempfile.mkdtemp(prefix="esclusa-bench-"))
        self._python = {False: sys.executable}
        self._made: set[str] = set()
        self._peer_servers = PeerServers(self.folder)

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._peer_servers.close()
        self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    # the contender's database

    def fresh_database(self, side: Side) -> str:
        """Make a fresh copy of the contender's empty tables; return its URL or path."""
        if side.server:
            return self._peer_servers.fresh(side.server, self._python_of(side).parent)
        name = f"{side.module}-{'file' if side.sqlite else 'empty'}"
        if name not in self._made:
            self.server.drop_database(name)
            self._call(side, self._new(side, name), "setup")
            self._made.add(name)
        if side.sqlite:
            return self._copy(name)
        self.server.drop_database(f"{side.module}-run")
        self.server.run_sql(f'CREATE DATABASE "{side.module}-run" TEMPLATE "{name}"')
        return self.server.url(f"{side.module}-run")

    def _new(self, side: Side, name: str) -> str:
        return str(self.folder / f"{name}.db") if side.sqlite else self.server.create_database(name)

    def _copy(self, name: str) -> str:
        for old in self.folder.glob(f"{name}-run.db*"):
            old.unlink()
        for source in self.folder.glob(f"{name}.db*"):
            shutil.copy(source, self.folder / source.name.replace(name, f"{name}-run"))
        return str(self.folder / f"{name}-run.db")

    def create_tables(self, side: Side, url: str) -> None:
        """Create the contender's tables in a database that is kept from round to round."""
        self._call(side, url, "setup")

    # the contender's processes

    def _start(self, side: Side, url: str, *role: str) -> subprocess.Popen[str]:
        environment = os.environ | {
            "BENCH_URL": url,
            "BENCH_TIMINGS": str(self.folder / "timings"),
            "BENCH_SLOTS": str(self._slots()),
            "BENCH_FOLDER": str(self.folder),
            "BENCH_PORTABLE": "1" if side.portable else "",
            "PYTHONPATH": str(ROOT),
        }
        errors = (self.folder / f"{side.module}.log").open("w")
        command = [str(self._python_of(side)), "-m", f"bench.contenders.{side.module}", *role]
        return subprocess.Popen(
            command,
            env=environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    def _python_of(self, side: Side) -> Path:
        if side.peer not in self._python:
            self._python[side.peer] = python_with_peers()
        return Path(self._python[side.peer])

    def _slots(self) -> int:
        file = self.folder / "timings"
        return file.stat().st_size // Timings.RECORD_BYTES if file.exists() else 0

    def _call(self, side: Side, url: str, *role: str) -> Any:
        process = self._start(side, url, *role)
        answer, _ = process.communicate(timeout=900)
        if process.returncode:
            raise RuntimeError(f"{side.label}: {' '.join(role)} failed:\n{self._log(side)}")
        return json.loads(answer.strip().splitlines()[-1])

    def _log(self, side: Side) -> str:
        return (self.folder / f"{side.module}.log").read_text()[-3000:]

    @asynccontextmanager
    async def working(
        self, side: Side, url: str, work: str, concurrency: int = 0
    ) -> AsyncIterator[subprocess.Popen[str]]:
        """Run the contender's worker process during the block."""
        process = self._start(side, url, "work", work, str(concurrency))
        try:
            yield process
            if process.poll() is not None:
                raise RuntimeError(f"{side.label}: the worker ended:\n{self._log(side)}")
        finally:
            process.kill()
            process.wait()

    # measurements

    def fill(self, side: Side, url: str, count: int, work: str | None = None) -> float:
        """Insert records in bulk; return how many per second."""
        return count / float(self._call(side, url, "fill", work or side.work, str(count)))

    def timings(self, count: int) -> Timings:
        """Fresh timings for this many records. Processes started from now on write to them."""
        return Timings.create(self.folder / "timings", count)

    async def drain(
        self,
        side: Side,
        count: int | None = None,
        *,
        work: str | None = None,
        concurrency: int = 0,
        url: str | None = None,
    ) -> Drained:
        """Insert records, start a worker, and wait until all records are settled."""
        count, work = count or side.count, work or side.work
        url = url or self.fresh_database(side)
        timings = self.timings(count)
        filled = self.fill(side, url, count, work)
        if not side.sqlite and not side.server:
            self.vacuum(url)
        async with self.working(side, url, work, concurrency) as process:
            await self.handled(side, process, timings, count)
            await self.settled(side, url)
            end = time.monotonic()
            first, last = timings.first(), timings.last()
            seconds = (end if side.unsettled else last) - first
            return Drained(filled, count / seconds, last - first)

    def vacuum(self, url: str) -> None:
        """Vacuum and checkpoint now, so that neither happens during the measurement."""
        database = url.rsplit("/", 1)[1]
        self.server.run_sql("VACUUM ANALYZE", database)
        self.server.run_sql("CHECKPOINT", database)

    async def handled(
        self,
        side: Side,
        process: subprocess.Popen[str],
        timings: Timings,
        count: int,
        deadline: float = 30,
    ) -> None:
        """Wait until all handlers have ended.

        Raises RuntimeError if the worker ends, or if no handler ends for ``deadline`` seconds.
        """
        before, since = 0, time.monotonic()
        while (done := timings.handled()) < count:
            if done > before:
                before, since = done, time.monotonic()
            if process.poll() is not None or time.monotonic() - since > deadline:
                raise RuntimeError(
                    f"{side.label}: stopped at {done} of {count}:\n{self._log(side)}"
                )
            await asyncio.sleep(0.005)

    async def settled(self, side: Side, url: str) -> None:
        """Wait until all records are settled."""
        if side.unsettled is None:
            return
        if side.sqlite:
            reader = apsw.Connection(url)
            reader.set_busy_timeout(5000)
            while reader.execute(side.unsettled).fetchone() != (0,):
                await asyncio.sleep(0.005)
            reader.close()
            return
        # Count by an index: reading a large table would take part of the measured time.
        connection = await asyncpg.connect(url, server_settings={"enable_seqscan": "off"})
        while await connection.fetchval(side.unsettled):
            await asyncio.sleep(0.005)
        await connection.close()

    async def pickups(self, side: Side, count: int, idle: float = 2.5) -> list[float]:
        """Milliseconds until an idle worker begins each record, sent one at a time."""
        url = self.fresh_database(side)
        self.timings(count)
        async with self.working(side, url, side.work):
            await asyncio.sleep(idle)
            answer = self._call(side, url, "send", side.work, str(count))
        if not answer:
            raise RuntimeError(f"{side.label}: no record was picked up:\n{self._log(side)}")
        return [float(milliseconds) for milliseconds in answer]
