"""``esclusa dev``: worker and console in a process that is started again after each change.

The supervising process never imports the pipeline, so no fault of it ends the supervision.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import click

from esclusa.cli import OK
from esclusa.cli.options import Seconds
from esclusa.cli.root import Command
from esclusa.cli.session import Session

LOOPBACK = "127.0.0.1"
PORT = 8082
# The files whose changes count, and folders in which none do.
WATCHED = (".py", ".toml", ".html", ".css", ".js", ".po")
IGNORED = frozenset({"__pycache__", "node_modules", "artifacts", "build", "dist"})
# The most files that are watched; a folder with more is no project.
MOST_FILES = 20_000
# Seconds for handlers after a change, unless ESCLUSA_GRACE_SECONDS is set.
GRACE = "2"
# Seconds beyond the grace period after which the process is killed.
KILL_AFTER = 10.0


@click.command(cls=Command)
@click.option("--port", type=click.IntRange(0, 65535), help="The port of the console (8082).")
@click.option(
    "--every",
    type=Seconds(min=0.05),
    default=0.5,
    show_default=True,
    help="Seconds between looks at the files.",
)
@click.pass_obj
def dev(session: Session, port: int | None, every: float) -> int:
    """Run worker and console on loopback, and start them again when a file changes.

    Watches the Python, TOML and template files of this folder. While the pipeline cannot be loaded,
    its error is shown and the next change awaited. Ctrl-C stops it.
    """
    port = _free_port(PORT) if port is None else port or _free_port(0)
    command = [sys.executable, "-m", "esclusa", *_shared(session)]
    command += ["serve", "--worker", "--host", LOOPBACK, "--port", str(port)]
    with Supervisor(session, command, _folders(session, os.environ)) as supervisor:
        supervisor.serve(every)
    return OK


def _shared(session: Session) -> Iterator[str]:
    """The options that were given to this command, for the process that it starts."""
    if session.config:
        yield from ("--config", session.config)
    for name, given in session.overrides.items():
        yield from (f"--{name.replace('_', '-')}", str(given))


def _free_port(wanted: int) -> int:
    """This port, or any free one if it is taken."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
            return found
    raise OSError("there is no free port")


def _folders(session: Session, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The working folder, and those of the settings file and of pipelines that are named by file.

    The settings file itself is not read: it may be wrong, and be corrected while this runs.
    """
    named = session.overrides.get("pipelines") or environ.get("ESCLUSA_PIPELINES", "")
    paths = [part.strip().partition(":")[0] for part in named.split(",")]
    paths = [path for path in paths if path.endswith(".py")]
    if config := session.config or environ.get("ESCLUSA_CONFIG"):
        paths.append(config)
    found = [Path().absolute(), *(Path(path).absolute().parent for path in paths)]
    return tuple(each for each in dict.fromkeys(found) if not any(o in each.parents for o in found))


class Supervisor:
    """Runs one process with this command, and starts it again when a file below changes."""

    def __init__(self, session: Session, command: Sequence[str], folders: Sequence[Path]) -> None:
        self._session = session
        self._command = list(command)
        self._folders = folders
        self._environ = {"ESCLUSA_GRACE_SECONDS": GRACE, **os.environ}
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._handlers: dict[signal.Signals, object] = {}

    def __enter__(self) -> Supervisor:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def serve(self, every: float) -> None:
        """Look at the files, until a signal stops it."""
        seen = modified(self._folders)
        self._start()
        waiting = False
        while not self._stopping:
            time.sleep(every)
            ended = None if self._process is None else self._process.poll()
            if ended is not None and not waiting and not self._stopping:
                self._session.note(f"It ended with exit code {ended}. Waiting for a change …")
                waiting = True
            found = modified(self._folders)
            if found != seen and not self._stopping:
                self._session.note(f"{_first_change(seen, found)} changed. Starting again …")
                self._stop()
                seen, waiting = modified(self._folders), False
                self._start()

    def _start(self) -> None:
        # A session of its own: Ctrl-C reaches it through this process, once.
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            self._command, env=self._environ, start_new_session=True
        )

    def _stop(self) -> None:
        """Stop the process in order; kill it if it does not end."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        if not self._stopping:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(float(self._environ["ESCLUSA_GRACE_SECONDS"]) + KILL_AFTER)
        except (subprocess.TimeoutExpired, ValueError):
            process.kill()
            process.wait()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Pass the signal on: the first stops the process in order, the second aborts."""
        self._stopping = True
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)


def modified(folders: Sequence[Path]) -> dict[Path, int]:
    """When each watched file below these folders was changed."""
    found: dict[Path, int] = {}
    for folder in folders:
        for where, below, names in os.walk(folder):
            below[:] = [d for d in below if d not in IGNORED and not _skipped(Path(where, d))]
            for name in names:
                if name.endswith(WATCHED) and len(found) < MOST_FILES:
                    path = Path(where, name)
                    try:
                        found[path] = path.stat().st_mtime_ns
                    except OSError:  # removed meanwhile
                        continue
    return found


def _skipped(folder: Path) -> bool:
    """Whether it is hidden or a virtual environment."""
    return folder.name.startswith(".") or (folder / "pyvenv.cfg").exists()


def _first_change(before: Mapping[Path, int], after: Mapping[Path, int]) -> str:
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    return changed[0].name if changed else "A file"
