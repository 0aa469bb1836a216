"""The peers' virtual environment in .cache/bench, with the versions that peers.txt pins."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "bench"
PINNED = ROOT / "bench" / "peers.txt"


def python_with_peers() -> str:
    """The peers' interpreter. Makes the environment if it is missing or peers.txt has changed.

    BENCH_PEERS_PYTHON is the interpreter to make it with, by default this one: Oban needs 3.12.
    """
    base = os.environ.get("BENCH_PEERS_PYTHON", sys.executable)
    python, stamp = FOLDER / "bin" / "python", FOLDER / "pinned"
    digest = hashlib.sha256(PINNED.read_bytes() + base.encode()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == digest and python.exists()):
        shutil.rmtree(FOLDER, ignore_errors=True)
        uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
        if uv:
            _run(uv, "venv", "--quiet", "--no-python-downloads", "--python", base, str(FOLDER))
            _run(uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(PINNED))
        else:
            _run(base, "-m", "venv", str(FOLDER))
            _run(str(python), "-m", "pip", "install", "--quiet", "-r", str(PINNED))
        stamp.write_text(digest)
    return str(python)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
