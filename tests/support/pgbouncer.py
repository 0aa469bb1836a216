"""PgBouncer in front of a PostgreSQL server, started on a free port.

Debian's package ``pgbouncer`` has the program; ``tools/system`` installs it. ``missing()`` gives
the reason in one line where it cannot be had, which the test summary prints.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from support.server import Server

from .loopback import free_port
from .postgres import PostgresServer, unprivileged_user

_SETTINGS = """[databases]
* = host=127.0.0.1 port={server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
server_lifetime = 3600
"""


class PgBouncer(Server):
    """A pooler with PgBouncer's own defaults, in transaction mode unless another is given.

    ``pool_size`` is the number of connections to the server, for each database and role.
    """

    def __init__(
        self,
        server: PostgresServer,
        *,
        mode: str = "transaction",
        pool_size: int = 5,
        roles: Sequence[str] = ("postgres",),
    ) -> None:
        self.server = server
        self.mode = mode
        self.pool_size = pool_size
        self.roles = roles
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    @staticmethod
    def find() -> str | None:
        """The program, from PATH or the folder of Debian's package."""
        return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot run here; None if it can."""
        if cls.find() is None:
            return "pgbouncer is not on this machine (tools/system pgbouncer installs it)"
        return None

    def url(self, database: str, role: str = "postgres") -> str:
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it and return once it listens; RuntimeError with its log otherwise."""
        program = self.find()
        if program is None:
            raise RuntimeError(self.missing())
        user = unprivileged_user()  # it refuses to run as root
        self._folder = Path(tempfile.mkdtemp(prefix="esclusa-pgbouncer-"))
        self._folder.chmod(0o755)
        self.port = free_port()
        users, settings = self._folder / "users.txt", self._folder / "pgbouncer.ini"
        users.write_text("".join(f'"{role}" ""\n' for role in self.roles))
        settings.write_text(
            _SETTINGS.format(
                server=self.server.port,
                port=self.port,
                users=users,
                mode=self.mode,
                size=self.pool_size,
            )
        )
        log = self._folder / "pgbouncer.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [program, str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                user=user,
                cwd="/",
                env={n: v for n, v in os.environ.items() if not n.startswith("PG")},
            )
        self._await_answer(log)

    def stop(self) -> None:
        """Stop it and remove its folder."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _await_answer(self, log: Path, seconds: float = 30) -> None:
        assert self._process is not None
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        output = log.read_text(errors="replace")[-2000:]
        self.stop()
        raise RuntimeError(f"PgBouncer did not answer on port {self.port}: {output}")
