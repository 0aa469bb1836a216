"""The command ``esclusa`` as a process: its log, its exit code, its HTTP answers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self


def environ(**more: str) -> dict[str, str]:
    """This environment without Esclusa's settings, with ``more``."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ESCLUSA_") and name not in ("PORT", "COLUMNS")
    }
    return {**clean, **more}


class Esclusa:
    """A folder with a store and pipelines, in which the command is called."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.settings = {"ESCLUSA_LOG_FORMAT": "json", **settings}

    def call(self, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "esclusa", *argv],
            cwd=self.folder,
            env=environ(**self.settings | more),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def json(self, *argv: str, **more: str) -> Any:
        """The answer of a command that succeeds."""
        done = self.call(*argv, "--json", **more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(self, *argv: str, **more: str) -> EsclusaProcess:
        """Start the command; it is killed at the end of the ``with`` block."""
        return EsclusaProcess(self.folder, argv, environ(**self.settings | more))

    def states(self, table: str) -> dict[str, int]:
        """How many records are in each state."""
        [kind] = [k for k in self.json("kinds")["items"] if k["table"] == table]
        return {c["state"]: c["count"] for c in kind["counts"] if c["count"]}


class EsclusaProcess:
    """A command that goes on until it is stopped."""

    def __init__(self, folder: Path, argv: tuple[str, ...], env: dict[str, str]) -> None:
        self._log = folder / f"log-{len(list(folder.glob('log-*')))}.txt"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "esclusa", *argv],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """What the process wrote to stdout and stderr."""
        return self._log.read_text(errors="replace")

    def events(self, part: str) -> list[dict[str, Any]]:
        """The log lines whose message contains this."""
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return [line for line in lines if part in line["message"]]

    def until(self, done: Callable[[], Any], seconds: float = 60) -> Any:
        """What ``done`` answers as soon as it is true; it fails if the process ends before."""
        deadline = time.monotonic() + seconds
        while not (answer := done()):
            assert self._process.poll() is None, f"it ended: {self.log[-4000:]}"
            assert time.monotonic() < deadline, self.log[-4000:]
            time.sleep(0.1)
        return answer

    def until_logged(self, part: str, seconds: float = 60) -> dict[str, Any]:
        """The first log line whose message contains this."""
        return dict(self.until(lambda: self.events(part), seconds)[0])

    def address(self) -> str:
        """The URL on which it listens."""
        found = self.until(lambda: re.search(r"listen\w* on (http://\S+:\d+)", self.log))
        return str(found[1])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; return the exit code."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self, seconds: float = 60) -> int:
        """Wait for the end; return the exit code."""
        return self._process.wait(seconds)


def get(url: str, timeout: float = 20) -> tuple[int, Any]:
    """The status and the body of an answer; JSON is decoded."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            status, body, kind = answer.status, answer.read(), answer.headers["Content-Type"]
    except urllib.error.HTTPError as error:
        status, body, kind = error.code, error.read(), error.headers["Content-Type"]
    return status, json.loads(body) if "json" in (kind or "") else body.decode()
