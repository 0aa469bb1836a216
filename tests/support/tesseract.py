"""Tesseract, with which scans are read. ``tools/system`` installs Debian's packages."""

from __future__ import annotations

import shutil
import subprocess

LANGUAGES = ("spa", "eng", "osd")


def missing() -> str | None:
    """Return in one line why scans cannot be read here, or None."""
    if shutil.which("tesseract") is None:
        return "the program tesseract is not installed; tools/system installs it where it may"
    shown = subprocess.run(
        ["tesseract", "--list-langs"], capture_output=True, text=True, check=True
    ).stdout.split()
    absent = [name for name in LANGUAGES if name not in shown]
    return f"tesseract has no data for {', '.join(absent)}" if absent else None
