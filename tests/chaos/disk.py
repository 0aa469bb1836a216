"""A small disk that can be full: a tmpfs of a fixed size."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self


class SmallDisk:
    """A mounted tmpfs. Mounting needs root, or sudo without a password; else ``missing`` says so.

    PostgreSQL gets the same error from it as from any full disk (ENOSPC).
    """

    def __init__(self, megabytes: int) -> None:
        self.megabytes = megabytes
        self.missing: str | None = None
        self.folder = Path()
        self._base = Path()

    def __enter__(self) -> Self:
        self._base = Path(tempfile.mkdtemp(prefix="esclusa-disk-"))
        self._base.chmod(0o755)
        options = f"size={self.megabytes}m,mode=0755"
        done = _as_root("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self._base))
        if done.returncode:
            self.missing = "cannot mount a tmpfs: " + done.stderr.strip()
            return self
        self.folder = self._base / "data"
        _as_root("install", "-d", "-o", str(os.getuid()), str(self.folder))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.missing is None:
            _as_root("umount", "--lazy", str(self._base))
        self._base.rmdir()

    def fill(self) -> None:
        """Use all space that is left."""
        with self._filler.open("wb") as filler:
            chunk = b"\0" * (1 << 16)
            try:
                while True:
                    filler.write(chunk)
                    filler.flush()
            except OSError:
                return

    def free(self) -> None:
        """Free what ``fill`` used."""
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return self.folder.parent / "filler"


def _as_root(*command: str) -> subprocess.CompletedProcess[str]:
    prefix = () if os.geteuid() == 0 else ("sudo", "-n")
    return subprocess.run([*prefix, *command], capture_output=True, text=True, check=False)
