"""Servers that some peers need beside PostgreSQL: Redis and Temporal's own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

from support.loopback import free_port


class PeerServers:
    """Starts each server with its first use, empty, and stops them all at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def fresh(self, name: str, programs: Path) -> str:
        """The address of an empty server: ``redis`` or ``temporal``.

        ``programs``: where the peers' environment has its programs. Raises RuntimeError if the
        program is missing.
        """
        self.stop(name)
        port = free_port()
        folder = self._folder / f"{name}-{port}"
        folder.mkdir()
        if name == "redis":
            program = shutil.which("redis-server")
            if program is None:
                raise RuntimeError("Redis is missing: install Debian's redis-server")
            command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
            address = f"redis://127.0.0.1:{port}/0"
        else:
            command = [str(programs / "temporal"), "server", "start-dev", "--headless"]
            command += ["--ip", "127.0.0.1", "--port", str(port), "--log-level", "error"]
            command += ["--db-filename", str(folder / "temporal.db")]
            address = f"127.0.0.1:{port}"
        log = (self._folder / f"{name}.log").open("ab")
        self._running[name] = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        _wait_for(port, self._running[name])
        return address

    def stop(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            process.terminate()
            process.wait(timeout=30)

    def close(self) -> None:
        for name in list(self._running):
            self.stop(name)


def _wait_for(port: int, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with exit code {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"{process.args!r} did not answer within {seconds:g} s")
