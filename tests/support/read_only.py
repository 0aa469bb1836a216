"""A folder that cannot be written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make the folder and its files read-only: by a mount for root, by permissions for others."""
    if os.geteuid() == 0:
        _run("mount", "--bind", str(folder), str(folder))
        try:
            _run("mount", "-o", "remount,bind,ro", str(folder))
            yield
        finally:
            _run("umount", str(folder))
        return
    modes = [(path, path.stat().st_mode) for path in [folder, *folder.iterdir()]]
    for path, mode in modes:
        path.chmod(mode & ~0o222)
    try:
        yield
    finally:
        for path, mode in modes:
            path.chmod(mode)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
