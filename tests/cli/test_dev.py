"""``esclusa dev`` runs worker and console, starts them again after a change, survives errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from esclusa.cli.dev import modified
from esclusa.cli.new import write_project

LIMIT = 60.0


class Dev:
    """The command in a project's folder, on a free port; its output goes to a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder.parent / "dev.log"
        clean = {n: v for n, v in os.environ.items() if not n.startswith("ESCLUSA_")}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "esclusa", "dev", "--port", "0", "--every", "0.1"],
                cwd=folder,
                env=clean,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_for(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT
        while not what():
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)

    def wait_for_text(self, text: str, times: int = 1) -> None:
        self.wait_for(lambda: self.log.read_text().count(text) >= times)

    @property
    def url(self) -> str:
        return self.log.read_text().partition("esclusa listens on ")[2].partition(" ")[0]

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ValueError, OSError):
            return False


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    folder = tmp_path / "bakery"
    write_project("bakery", folder)
    running = Dev(folder)
    yield running
    if running.process.poll() is None:
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(30)


def test_it_reloads_shows_errors_and_stops(dev: Dev) -> None:
    source = dev.folder / "bakery.py"
    good = source.read_text()
    dev.wait_for_text("esclusa listens on http://127.0.0.1:")
    url = dev.url
    dev.wait_for(dev.answers)
    dev.wait_for_text("bakery.work: exhausted")  # the worker works

    source.write_text(good.replace("app = App(", "app = Ap("))
    dev.wait_for_text("NameError: name 'Ap' is not defined (bakery.py, line ")
    dev.wait_for_text("Waiting for a change")
    assert not dev.answers()

    source.write_text(good.replace("6)]", "8)]"))
    dev.wait_for_text("bakery.py changed. Starting again", times=2)
    dev.wait_for_text("esclusa listens on ", times=2)
    dev.wait_for(dev.answers)
    assert dev.log.read_text().count(url) >= 2  # the same address
    dev.wait_for_text('"record": "7"')

    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(30) == 0
    assert not dev.answers()
    assert "Traceback" not in dev.log.read_text()


def test_what_is_watched(tmp_path: Path) -> None:
    for name in ("a.py", "b.html", "notes.txt", ".venv/c.py", "venv/d.py", "below/e.toml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    found = {str(path.relative_to(tmp_path)) for path in modified([tmp_path])}
    assert found == {"a.py", "b.html", "below/e.toml"}
