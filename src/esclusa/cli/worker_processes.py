"""``esclusa worker --processes``: several worker processes under a parent that restarts them.

The parent handles no record and opens no store. It passes signals on, starts a process again that
ended by itself, and serves one port for the probes and metrics of all.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING

from esclusa.cli import FAILED, OK
from esclusa.cli.session import Session, run_fast
from esclusa.engine.signals import on_stop_signals

if TYPE_CHECKING:
    from esclusa.observability.telemetry import Observer
    from esclusa.settings import Settings

LOOPBACK = "127.0.0.1"
# Seconds before a process that ended is started again: the first, and the most. They double.
FIRST_DELAY, MOST_DELAY = 1.0, 30.0
# A process that ran this long is started again after the first delay.
STEADY = 60.0
# Exit codes of wrong usage and wrong settings: another start would end in the same way.
FINAL = (2, 3)
# A process that ends by itself with an error so soon after its first start cannot start.
STARTING = 20.0


def run_processes(session: Session, count: int, only: Sequence[str] = ()) -> int:
    """Run this many workers until stopped; return the exit code. Raises SettingsError."""
    from esclusa.web.auth.tokens import require_tokens

    settings = session.settings
    if settings.worker_port is not None:
        require_tokens(settings.host, settings.api_tokens)
    command = [sys.executable, "-m", "esclusa", "worker"]
    for name in only:
        command += ["--only", name]
    return run_fast(_supervise(settings, command, environment(session), count))


def environment(session: Session) -> dict[str, str]:
    """The environment of a process, with the options that were given to this command."""
    given = {
        f"ESCLUSA_{name.upper()}": str(value)
        for name, value in session.overrides.items()
        if value is not None
    }
    config = {"ESCLUSA_CONFIG": session.config} if session.config else {}
    return {**os.environ, **given, **config}


async def _supervise(
    settings: Settings, command: Sequence[str], env: Mapping[str, str], count: int
) -> int:
    from esclusa.observability import log
    from esclusa.observability.telemetry import Observer

    log.configure(settings.log_format, settings.log_level, project=settings.google_project)
    telemetry = Observer()
    wants_port = settings.worker_port is not None
    processes = [WorkerProcess(n, command, env, wants_port, telemetry) for n in range(1, count + 1)]
    try:
        async with _port(settings, processes, telemetry) if wants_port else nullcontext():
            telemetry.event("info", f"{count} workers are started", processes=count)
            return await _until_ended(processes)
    finally:
        for process in processes:
            process.close()


def _port(
    settings: Settings, processes: Sequence[WorkerProcess], telemetry: Observer
) -> AbstractAsyncContextManager[None]:
    from esclusa.web.processes_port import processes_port

    return processes_port(settings, processes, telemetry)


async def _until_ended(processes: Sequence[WorkerProcess]) -> int:
    """Run the processes until a signal or until one cannot run; return the exit code."""

    def stop(by: str) -> None:
        for process in processes:
            process.stop()

    undo = on_stop_signals(stop)
    try:
        codes = await asyncio.gather(*(process.run(lambda: stop("")) for process in processes))
    finally:
        undo()
    return next((code for code in codes if code != OK), OK)


class WorkerProcess:
    """One worker process, started again whenever it ends by itself.

    ``address`` is where it serves its probes, or None; ``answered`` whether it ever did since its
    last start, which its port keeps up to date.
    """

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        env: Mapping[str, str],
        with_port: bool,
        telemetry: Observer,
    ) -> None:
        self.number = number
        self.answered = False
        self._command = list(command)
        self._env = env
        self._telemetry = telemetry
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        # It outlives the process, so that the address is the same after a restart.
        self._socket = _listening() if with_port else None

    @property
    def address(self) -> str | None:
        if self._socket is None:
            return None
        return f"http://{LOOPBACK}:{self._socket.getsockname()[1]}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def run(self, give_up: Callable[[], None]) -> int:
        """Run the process until ``stop``; return its exit code.

        ``give_up`` is called if it ends with a code after which another start makes no sense.
        """
        delay, first = FIRST_DELAY, True
        while True:
            begun = time.monotonic()
            code = await self._run_once()
            ran = time.monotonic() - begun
            if self._stopping.is_set():
                return OK if code == OK else FAILED
            if code in FINAL or (first and code > 0 and ran < STARTING):
                give_up()
                return code
            first = False
            delay = FIRST_DELAY if ran >= STEADY else delay
            self._telemetry.event(
                "error",
                f"worker process {self.number} ended with {_cause(code)}; it is started again"
                f" in {delay:g} s",
                process=self.number,
                exit_code=code,
            )
            try:
                await asyncio.wait_for(self._stopping.wait(), delay)
                return OK
            except TimeoutError:
                delay = min(2 * delay, MOST_DELAY)

    async def _run_once(self) -> int:
        if self._stopping.is_set():
            return OK
        self.answered = False
        shared = () if self._socket is None else (self._socket.fileno(),)
        options = ["--supervised", *(["--port-fd", str(shared[0])] if shared else [])]
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            *options,
            env=dict(self._env),
            # Its end of file says that the parent is gone.
            stdin=asyncio.subprocess.PIPE,
            pass_fds=shared,
            # A session of its own: Ctrl-C reaches it through the parent, once.
            start_new_session=True,
        )
        if self._stopping.is_set():
            self.stop()
        return await self._process.wait()

    def stop(self) -> None:
        """Stop the process in order; the second time, abort it."""
        self._stopping.set()
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        if self._socket is not None:
            self._socket.close()


def _listening() -> socket.socket:
    made = socket.create_server((LOOPBACK, 0))
    made.setblocking(False)
    return made


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def stop_with_parent() -> None:
    """In a process that has a parent: stop in order when stdin ends, because the parent is gone."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()
