"""Several worker processes on one PostgreSQL, each behind a proxy of its own, and their work."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
from support.postgres import PostgresServer
from support.proxy import TcpProxy

from .disk import SmallDisk
from .outside import DELAY, Outside, outside
from .pipeline import LEDGERS, POISON_EXIT

ROOT = Path(__file__).parents[2]
DATABASE = "chaos"

# The table of the other program, before Esclusa knows it.
_PARCELS = """
    CREATE TABLE parcels (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE,
        poison boolean NOT NULL DEFAULT false, call bigint
    )
"""

_UNAVAILABLE = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.exceptions.InterfaceError,
    asyncpg.exceptions.InternalClientError,
    OSError,
    TimeoutError,
)


@dataclass(frozen=True)
class Size:
    """How large the cluster is. ``questions`` is the budget of the metered stage."""

    workers: int = 3
    concurrency: int = 4
    lease: float = 5.0
    questions: int = 400

    @property
    def pace(self) -> float:
        """Parcels a second, if handlers wait only for the outside."""
        return self.workers * self.concurrency / DELAY


class Machine:
    """A worker process, and its network: a proxy before PostgreSQL."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.number = number
        self.killed = False
        self.log = cluster.folder / f"worker-{number}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._cluster = cluster
        self.proxy = self._new_proxy()

    def start(self) -> None:
        self.killed = False
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "esclusa", "worker"],
                cwd=self._cluster.folder,
                env=self._cluster.environ(self.proxy.url(self._cluster.url)),
                stdout=log,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. After SIGKILL the supervisor starts the worker again."""
        assert self.process is not None
        self.killed = self.killed or number == signal.SIGKILL
        self.process.send_signal(number)

    def vanish(self) -> None:
        """End without a word on the network: the worker goes on elsewhere, on another network."""
        self.signal(signal.SIGKILL)
        self.proxy.freeze()
        self.proxy = self._new_proxy()

    def _new_proxy(self) -> TcpProxy:
        proxy = TcpProxy(self._cluster.server.port)
        proxy.start()
        self._cluster.proxies.append(proxy)
        return proxy


@dataclass
class Cluster:
    """The workers, the database and the outside. ``inserted`` has the acknowledged parcels.

    ``exits`` has the workers that ended by themselves, without a poison record.
    """

    size: Size
    server: PostgresServer
    outside: Outside
    disk: SmallDisk
    folder: Path
    url: str
    machines: list[Machine] = field(default_factory=list)
    proxies: list[TcpProxy] = field(default_factory=list)
    inserted: list[str] = field(default_factory=list)
    poison: set[str] = field(default_factory=set)
    exits: list[str] = field(default_factory=list)
    feeding: bool = True
    stopping: bool = False
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _observer: Any = None
    _observing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def environ(self, store: str) -> dict[str, str]:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("ESCLUSA_")
        }
        return clean | {
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{clean.get('PYTHONPATH', '')}",
            "ESCLUSA_STORE": store,
            "ESCLUSA_PIPELINES": f"{Path(__file__).with_name('pipeline.py')}:app",
            "ESCLUSA_LEASE_SECONDS": str(self.size.lease),
            "ESCLUSA_GRACE_SECONDS": "10",
            "ESCLUSA_LOG_LEVEL": "warning",
            "CHAOS_OUTSIDE": self.outside.address,
            "CHAOS_CONCURRENCY": str(self.size.concurrency),
            "CHAOS_BUDGET": str(self.size.questions),
        }

    async def fetch(self, statement: str, *values: Any, seconds: float = 60) -> list[Any]:
        """Ask PostgreSQL directly, again while it does not answer."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                async with self._observing:
                    if self._observer is None or self._observer.is_closed():
                        self._observer = await self.connect()
                    rows: list[Any] = await self._observer.fetch(statement, *values, timeout=10)
                return rows
            except _UNAVAILABLE:
                self.forget_observer()
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    def forget_observer(self) -> None:
        if self._observer is not None:
            self._observer.terminate()
            self._observer = None

    async def connect(self) -> Any:
        """A connection of another program, beside the proxies."""
        return await asyncpg.connect(
            self.url, timeout=10, server_settings={"search_path": "public,esclusa"}
        )

    async def prepare(self) -> None:
        """Create the tables and the records that do not change in number."""
        await self.fetch(_PARCELS)
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "esclusa", "migrate", "--yes"],
            cwd=self.folder,
            env=self.environ(self.url),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"esclusa migrate: {done.stdout}{done.stderr}")
        for table, names in (
            ("ledgers", [f"ledger-{n}" for n in range(LEDGERS)]),
            ("questions", [f"question-{n}" for n in range(2 * self.size.questions)]),
        ):
            state = {"ledgers": "kept", "questions": "ready"}[table]
            await self.fetch(
                f"""INSERT INTO {table} (id, name, status, attempts, due_at, fence, created_at,
                    updated_at{", sent" if table == "ledgers" else ""})
                SELECT n, n, $2, 0, now(), 0, now(), now(){", 0" if table == "ledgers" else ""}
                FROM unnest($1::text[]) n""",
                names,
                state,
            )

    async def insert(self, count: int, *, poison: bool = False) -> list[str]:
        """Insert parcels as the other program does; return their ids once they are committed.

        Each is due now, behind those that are due already; a poison parcel before all others.
        """
        names = [f"parcel-{next(self._numbers)}" for _ in range(count)]
        await self.fetch(
            """INSERT INTO parcels (name, poison, send_due_at)
            SELECT n, $2, CASE WHEN $2 THEN timestamptz '2000-01-01' ELSE now() END
            FROM unnest($1::text[]) n
            ON CONFLICT (name) DO NOTHING""",
            names,
            poison,
        )
        rows = await self.fetch("SELECT id::text FROM parcels WHERE name = ANY($1)", names)
        ids = [row[0] for row in rows]
        self.inserted += ids
        if poison:
            self.poison.update(ids)
        return ids

    async def open_parcels(self) -> int:
        """How many parcels have not ended."""
        [row] = await self.fetch(
            """SELECT count(*) FROM parcels
            WHERE coalesce(send_status, 'ready') IN ('ready', 'sending')"""
        )
        return int(row[0])

    async def until(
        self, condition: Callable[[], Awaitable[bool]], seconds: float, what: str
    ) -> None:
        deadline = time.monotonic() + seconds
        while not await condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:.0f} s: {what}")
            await asyncio.sleep(0.1)

    async def feed(self) -> None:
        """Keep parcels due for two seconds, as long as ``feeding``.

        Fewer would let workers be idle; more would let orphans wait behind them.
        """
        enough = int(self.size.pace * 2)
        while self.feeding:
            if (left := await self.open_parcels()) < enough:
                await self.insert(enough - left)
            await asyncio.sleep(0.2)

    async def supervise(self) -> None:
        """Start workers again that ended, as a service manager does."""
        while not self.stopping:
            for machine in self.machines:
                code = machine.process.poll() if machine.process else None
                if code is not None:
                    if not (machine.killed or code == POISON_EXIT):
                        end = machine.log.read_text(errors="replace")[-2000:]
                        self.exits.append(f"worker {machine.number} exited with {code}:\n{end}")
                    machine.start()
            await asyncio.sleep(0.3)

    async def stop_workers(self) -> list[str]:
        """Stop all in order; return what went wrong. None is started again after that."""
        self.stopping, faults = True, []
        for machine in self.machines:
            machine.signal(signal.SIGTERM)
        for machine in self.machines:
            assert machine.process is not None
            try:
                code = await asyncio.to_thread(machine.process.wait, 30)
            except subprocess.TimeoutExpired:
                code = None
            if code != 0:
                faults.append(f"worker {machine.number}: exit code {code} after SIGTERM")
        return faults

    def end(self) -> None:
        """End every process that is left."""
        for machine in self.machines:
            if machine.process is not None and machine.process.poll() is None:
                machine.process.kill()
                machine.process.wait()
        for proxy in self.proxies:
            proxy.stop()
        self.forget_observer()


@asynccontextmanager
async def cluster(size: Size, folder: Path | None = None) -> AsyncIterator[Cluster]:
    """A running cluster with steady work; everything ends with it."""
    async with AsyncExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="esclusa-chaos-")))
        disk = stack.enter_context(SmallDisk(512))
        server = stack.enter_context(PostgresServer())
        tablespace = "pg_default"
        if disk.missing is None:
            tablespace = "small"
            server.create_tablespace(tablespace, disk.folder)
        url = server.create_database(DATABASE, tablespace)
        made = Cluster(size, server, stack.enter_context(outside()), disk, folder, url)
        stack.callback(made.end)
        await made.prepare()
        made.machines = [Machine(made, number) for number in range(size.workers)]
        for machine in made.machines:
            machine.start()
        async with asyncio.TaskGroup() as group:  # a fault of the harness ends the run
            tasks = [group.create_task(made.supervise()), group.create_task(made.feed())]
            yield made
            for task in tasks:
                task.cancel()
