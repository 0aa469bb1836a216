"""A primary with a synchronous standby, and a supervisor that promotes the standby.

Plain streaming replication. The supervisor does what Patroni or a cloud's failover does, for one
pair of servers: it promotes the standby once the primary has not answered for a second.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path

from support.server import Server

from .loopback import free_port
from .postgres import PostgresServer, find_programs

PROBE_SECONDS = 0.25
PROMOTE_AFTER_SECONDS = 1.0


class StandbyServer(PostgresServer):
    """A copy of a running server, which follows it."""

    def __init__(self, primary: PostgresServer, *, durable: bool = False) -> None:
        super().__init__(durable=durable)
        self.primary = primary

    def _create(self) -> None:
        self._base = Path(tempfile.mkdtemp(prefix="esclusa-pg-"))
        try:
            self._base.chmod(0o755)
            self._programs = self._reachable(find_programs())
            data = self._base / "data"
            data.mkdir(mode=0o700)
            self._own(data)
            source = f"host=127.0.0.1 port={self.primary.port} user=postgres"
            self._run(
                ["pg_basebackup", "-D", str(data), "-d", source, "-R", "-X", "stream", "-c", "fast"]
            )
            self.port = free_port()
        except BaseException:
            shutil.rmtree(self._base, ignore_errors=True)
            self._base = None
            raise

    def promote(self) -> None:
        """Let it take writes; return when it does."""
        self.run_sql("SELECT pg_promote(true, 60)")


class ReplicatedPostgres(Server):
    """Two servers: every commit is on both before it is acknowledged, until the primary is gone."""

    def __init__(self, *, durable: bool = False) -> None:
        self.primary = PostgresServer(durable=durable, options={"wal_keep_size": "64MB"})
        self.standby = StandbyServer(self.primary, durable=durable)
        # Times of time.time: when the primary was killed, missed, and the standby promoted.
        self.killed = self.missed = self.promoted = 0.0
        self._stopping = threading.Event()
        self._supervisor: threading.Thread | None = None

    def start(self) -> None:
        self.primary.start()
        self.standby.start()
        self.primary.run_sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.run_sql("SELECT pg_reload_conf()")
        deadline = time.monotonic() + 30
        while self.primary.run_sql("SELECT sync_state FROM pg_stat_replication") != "sync":
            assert time.monotonic() < deadline, "the standby does not follow"
            time.sleep(0.1)

    def stop(self) -> None:
        self._stopping.set()
        if self._supervisor is not None:
            self._supervisor.join(30)
        self.primary.stop()
        self.standby.stop()

    def url(self, database: str) -> str:
        ports = (self.primary.port, self.standby.port)
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write"

    def create_database(self, name: str) -> str:
        """Create an empty database on both; return the URL for both."""
        self.primary.create_database(name)
        deadline = time.monotonic() + 30
        while not self.standby.run_sql(f"SELECT 1 FROM pg_database WHERE datname = '{name}'"):
            assert time.monotonic() < deadline, "the standby does not follow"
            time.sleep(0.05)
        return self.url(name)

    def supervise(self) -> None:
        """Promote the standby, in a thread, when the primary does not answer for a second."""
        self._supervisor = threading.Thread(target=self._watch, name="supervisor")
        self._supervisor.start()

    def kill_primary(self) -> None:
        self.killed = time.time()
        self.primary.crash()

    def until_promoted(self, seconds: float = 60) -> None:
        assert self._supervisor is not None
        self._supervisor.join(seconds)
        assert self.promoted, "the standby was not promoted"

    def _watch(self) -> None:
        answered = time.monotonic()
        while not self._stopping.wait(PROBE_SECONDS):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.primary.port), 1).close()
                answered = time.monotonic()
            if time.monotonic() - answered > PROMOTE_AFTER_SECONDS:
                self.missed = time.time()
                self.standby.promote()
                self.promoted = time.time()
                return
