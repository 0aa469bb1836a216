"""The peers' virtual environment in .cache/bench, with the versions that peers.txt pins."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "bench"
PINNED = ROOT / "bench" / "peers.txt"


def python_with_peers() -> str:
    """The peers' interpreter. Makes the environment if it is missing or peers.txt has changed."""
    python, stamp = FOLDER / "bin" / "python", FOLDER / "pinned"
    digest = hashlib.sha256(PINNED.read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == digest and python.exists()):
        shutil.rmtree(FOLDER, ignore_errors=True)
        uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
        if uv:
            _run(uv, "venv", "--quiet", "--python", sys.executable, str(FOLDER))
            _run(uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(PINNED))
        else:
            _run(sys.executable, "-m", "venv", str(FOLDER))
            _run(str(python), "-m", "pip", "install", "--quiet", "-r", str(PINNED))
        stamp.write_text(digest)
    return str(python)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
