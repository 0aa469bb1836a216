"""Google's own emulators for tests and benchmarks: started on a free port, stopped by their process handle.

They are part of the Google Cloud SDK and of no package registry, so a machine may not have them. ``missing()`` says why in one line;
whoever runs tests prints that line where it is seen.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, ClassVar, Self

from .loopback import free_port


class Emulator:
    """One emulator for the session. An address in the environment (``HOST``) is used as it is, and left running."""

    NAME: ClassVar[str]
    HOST: ClassVar[str]
    """The variable that Google's own clients read the address from."""
    JAR: ClassVar[str | None] = None
    """A variable that may name the program itself."""
    PROGRAM: ClassVar[str]
    """The program in the SDK: a jar, or a folder of them."""
    MAIN: ClassVar[tuple[str, ...]]
    """Its main class, and the words before the address."""
    HEAP: ClassVar[str] = "256m"

    def __init__(self) -> None:
        self.host = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @classmethod
    def find(cls) -> Path | None:
        """The program: as the environment names it, else in ``CLOUDSDK_ROOT``, else in the SDK that ``gcloud`` is of."""
        if cls.JAR is not None and (named := os.environ.get(cls.JAR)):
            return Path(named) if Path(named).is_file() else None
        roots = [Path(root)] if (root := os.environ.get("CLOUDSDK_ROOT")) else []
        if gcloud := shutil.which("gcloud"):
            roots.append(Path(gcloud).resolve().parent.parent)
        return next((root / cls.PROGRAM for root in roots if (root / cls.PROGRAM).exists()), None)

    @classmethod
    def missing(cls) -> str | None:
        """Why there is no emulator here; None where there is one."""
        if os.environ.get(cls.HOST):
            return None
        if cls.find() is None:
            return f"Google's {cls.NAME} emulator is not on this machine (set {cls.JAR or 'CLOUDSDK_ROOT'} or {cls.HOST})"
        if shutil.which("java") is None:
            return f"Google's {cls.NAME} emulator is here, but java (17 or later) is not"
        return None

    def start(self) -> None:
        """Start it and return once it answers. Raises RuntimeError with its last words if it does not."""
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
            f"-Xmx{self.HEAP}",
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
        """Stop it, if it is ours. Harmless when it is not running."""
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

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def answers(self, port: int) -> bool:
        """Whether it is there already."""
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
        words = self._log.read()[-2000:].decode(errors="replace").strip()
        self.stop()
        raise RuntimeError(f"the {self.NAME} emulator did not answer on {self.host}: {words}")
