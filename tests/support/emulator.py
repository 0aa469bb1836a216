"""Google's own emulators, each started on a free port and stopped by its process handle.

They are part of the Google Cloud SDK and not in any package registry, so a machine may lack them.
``missing()`` gives the reason in one line, which the test summary prints.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, ClassVar

from support.server import Server

from .loopback import free_port


class Emulator(Server):
    """An emulator. An address in the environment (``HOST``) is used and left running."""

    NAME: ClassVar[str]
    HOST: ClassVar[str]
    """The variable from which Google's own clients read the address."""
    JAR: ClassVar[str | None] = None
    """A variable that may name the program."""
    PROGRAM: ClassVar[str]
    """The program in the SDK: a jar, or a folder of them."""
    MAIN: ClassVar[tuple[str, ...]]
    """Its main class, and the arguments before the address."""
    OPTIONS: ClassVar[tuple[str, ...]] = ("-Xmx256m",)
    """Options of java, besides those that let a short run start soon and use less of the CPU."""

    def __init__(self) -> None:
        self.host = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @classmethod
    def find(cls) -> Path | None:
        """The program: from the environment, in ``CLOUDSDK_ROOT``, or in the SDK of ``gcloud``."""
        if cls.JAR is not None and (named := os.environ.get(cls.JAR)):
            return Path(named) if Path(named).is_file() else None
        roots = [Path(root)] if (root := os.environ.get("CLOUDSDK_ROOT")) else []
        if gcloud := shutil.which("gcloud"):
            roots.append(Path(gcloud).resolve().parent.parent)
        return next((root / cls.PROGRAM for root in roots if (root / cls.PROGRAM).exists()), None)

    @classmethod
    def missing(cls) -> str | None:
        """Why the emulator cannot run here; None if it can."""
        if os.environ.get(cls.HOST):
            return None
        if cls.find() is None:
            variable = cls.JAR or "CLOUDSDK_ROOT"
            return (
                f"Google's {cls.NAME} emulator is not on this machine"
                f" (set {variable} or {cls.HOST})"
            )
        if shutil.which("java") is None:
            return f"Google's {cls.NAME} emulator needs java (17 or later), which is missing"
        return None

    def start(self) -> None:
        """Start it and return once it answers; RuntimeError with the end of its log otherwise."""
        if given := os.environ.get(self.HOST):
            self.host = given
            return
        program = self.find()
        if reason := self.missing():
            raise RuntimeError(reason)
        port = free_port()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the emulator
        jars = f"{program}/*" if program is not None and program.is_dir() else str(program)
        command = [
            "java",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            *self.OPTIONS,
            "-cp",
            jars,
            *self.MAIN,
            "--host=127.0.0.1",
            f"--port={port}",
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT
        )
        self.host = f"127.0.0.1:{port}"
        self._await_answer(port)

    def stop(self) -> None:
        """Stop it if this object started it."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def answers(self, port: int) -> bool:
        """Whether it accepts connections."""
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    def _await_answer(self, port: int, seconds: float = 60) -> None:
        assert self._process is not None
        assert self._log is not None
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._process.poll() is None:
            if self.answers(port):
                return
            time.sleep(0.1)
        self._log.seek(0)
        output = self._log.read()[-2000:].decode(errors="replace").strip()
        self.stop()
        raise RuntimeError(f"the {self.NAME} emulator did not answer on {self.host}: {output}")
