"""docs/tutorial.md: its files and commands work as the page shows them, from an empty folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.loopback import free_port
from support.pages import Page, pattern

PAGE = Page("tutorial.md")
ATLANTIS = re.compile(r'        if city == "atlantis":\n.*\n')


class Tutorial:
    """An empty folder in which the reader's commands are typed.

    The minute of the store begins when the test begins, so that no budget resets while it runs.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.files = {name: text.replace("8099", str(port)) for name, text in PAGE.files().items()}
        (folder / "bin").mkdir()
        for name, module in (("esclusa", "esclusa"), ("python", "")):
            command = folder / "bin" / name
            call = f"-m {module}" if module else ""
            command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {call} "$@"\n')
            command.chmod(0o755)
        clean = {n: v for n, v in os.environ.items() if not n.startswith(("ESCLUSA_", "PYTEST_"))}
        self.offset = 60 - time.time() % 60
        self.environ = {**clean, "PATH": f"{folder / 'bin'}:{clean['PATH']}", "COLUMNS": "200"}
        self.service: subprocess.Popen[str] | None = None

    def write(self, name: str) -> None:
        path = self.folder / name if name == "service.py" else self.folder / "weather" / name
        path.write_text(self.files[name], encoding="utf-8")

    def start_service(self) -> None:
        self.stop_service()
        self.service = subprocess.Popen(
            [sys.executable, "service.py"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.service.stdout is not None
        address = f"http://127.0.0.1:{self.port}"
        assert self.service.stdout.readline() == f"The service listens on {address}\n"

    def stop_service(self) -> None:
        if self.service is not None:
            self.service.kill()
            self.service.wait()
            assert self.service.stdout is not None
            self.service.stdout.close()

    def run(self, command: str) -> str:
        """Type a command; return what it prints, without its log."""
        folder = self.folder / "weather"
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=folder if folder.exists() else self.folder,
            env=self.environ | {"ESCLUSA_CLOCK_OFFSET_SECONDS": str(self.offset)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode in (0, 1, 5), f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def skip_a_minute(self) -> None:
        """Shift the store's clock, and let the service forget its calls."""
        self.offset += 60
        self.start_service()


@pytest.fixture
def tutorial(tmp_path: Path) -> Iterator[Tutorial]:
    found = Tutorial(tmp_path, free_port())
    yield found
    found.stop_service()


def test_the_way_from_an_empty_folder_to_a_record_that_is_sent_back(tutorial: Tutorial) -> None:
    tutorial.write("service.py")
    tutorial.start_service()
    commands = [c for c in PAGE.commands() if c[0] != "cd weather"][3:]  # without the installation
    first, shown = commands.pop(0)
    assert first == "esclusa new weather"
    assert re.search(pattern(shown), tutorial.run(first))
    tutorial.write("weather.py")
    runs = 0
    for command, shown in commands:
        if command == "esclusa run weather.ask":
            runs += 1
            if runs == 2:
                tutorial.skip_a_minute()
                settle(tutorial)
                dev(tutorial)
                tutorial.write("test_weather.py")
                continue
        if command.startswith("esclusa retry"):
            changed = ATLANTIS.sub("", tutorial.files["service.py"])
            assert len(changed.splitlines()) == len(tutorial.files["service.py"].splitlines()) - 2
            tutorial.files["service.py"] = changed
            tutorial.write("service.py")
            tutorial.skip_a_minute()
        output = tutorial.run(command)
        assert re.search(pattern(shown), output), f"{command}\n{output}"
    assert runs == 3
    assert "done" in tutorial.run("esclusa why readings atlantis")
    checks = "python -m mypy --cache-dir ../mypy && python -m ruff check --no-cache . && echo fine"
    assert tutorial.run(checks).endswith("fine\n")


def settle(tutorial: Tutorial) -> None:
    """Run the stage until only the unknown city is left, as the page says."""
    for _ in range(10):
        tutorial.run("esclusa run weather.ask")
        counts = json.loads(tutorial.run("esclusa kinds --json"))["items"][0]["counts"]
        if {c["state"]: c["count"] for c in counts if c["count"]} == {"done": 24, "failed": 1}:
            return
        tutorial.skip_a_minute()
    raise AssertionError(tutorial.run("esclusa status"))


def dev(tutorial: Tutorial) -> None:
    """``esclusa dev`` serves the console, shows the mistake of the page, and goes on without it."""
    folder, log = tutorial.folder / "weather", tutorial.folder / "dev.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "esclusa", "dev", "--port", "0", "--every", "0.1"],
            cwd=folder,
            env=tutorial.environ,
            stdout=file,
            stderr=subprocess.STDOUT,
        )

    def wait_for(text: str, times: int = 1) -> None:
        deadline = time.monotonic() + 60
        while log.read_text().count(text) < times:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)

    try:
        wait_for("esclusa listens on ")
        url = log.read_text().partition("esclusa listens on ")[2].partition(" ")[0]
        with urllib.request.urlopen(
            f"{url}/console/records/readings/atlantis", timeout=30
        ) as answer:
            page = answer.read().decode()
        assert "unknown_city" in page
        source = folder / "weather.py"
        good = source.read_text()
        source.write_text(good.replace('App("weather"', 'Ap("weather"'))
        wait_for("NameError: name 'Ap' is not defined (weather.py, line ")
        wait_for("Waiting for a change")
        source.write_text(good)
        wait_for("esclusa listens on ", times=2)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
