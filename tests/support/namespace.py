"""A network namespace whose only link to this machine can be cut and healed.

Needs root and iproute2, which ``tools/system`` installs. ``missing()`` gives the reason in one line
where it cannot be had, which the test summary prints.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

from support.server import Server


class Namespace(Server):
    """``HOST`` is this machine as processes in the namespace reach it."""

    def __init__(self) -> None:
        number = os.getpid() % 16384
        self.name = f"esclusa-{os.getpid()}"
        self._link, self._inside = f"ve{number}a", f"ve{number}b"
        network = f"10.{200 + number // 4096}.{number // 16 % 256}"
        self.host, self._address = (f"{network}.{number % 16 * 4 + n}" for n in (1, 2))

    @classmethod
    @cache
    def missing(cls) -> str | None:
        """Why it cannot be made here; None if it can."""
        if shutil.which("ip") is None:
            return "ip is not on this machine (tools/system ip installs iproute2)"
        try:
            with cls():
                return None
        except RuntimeError as error:
            return f"network namespaces are not permitted here: {error}"

    def command(self, *argv: str) -> list[str]:
        """The command that runs ``argv`` in the namespace."""
        return ["ip", "netns", "exec", self.name, *argv]

    def start(self) -> None:
        """Create the namespace and its link; RuntimeError if that is not permitted."""
        _run("netns", "add", self.name)
        try:
            _run("link", "add", self._link, "type", "veth", "peer", "name", self._inside)
            _run("link", "set", self._inside, "netns", self.name)
            _run("addr", "add", f"{self.host}/30", "dev", self._link)
            _run("link", "set", self._link, "up")
            inside = ("-n", self.name)
            _run(*inside, "addr", "add", f"{self._address}/30", "dev", self._inside)
            _run(*inside, "link", "set", self._inside, "up")
            _run(*inside, "link", "set", "lo", "up")
        except RuntimeError:
            self.stop()
            raise

    def cut(self) -> None:
        """From now on no packet passes, and no error is sent."""
        _run("link", "set", self._link, "down")

    def heal(self) -> None:
        _run("link", "set", self._link, "up")

    def stop(self) -> None:
        """Remove it and its link."""
        for command in (("link", "del", self._link), ("netns", "del", self.name)):
            subprocess.run(["ip", *command], capture_output=True, check=False)


def _run(*command: str) -> None:
    done = subprocess.run(["ip", *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"ip {' '.join(command)} failed")
