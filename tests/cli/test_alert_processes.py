"""Alerts of real processes: workers, a server and a webhook, over restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

PIPELINE = """
from pathlib import Path
from esclusa import App, Attempt, Lifecycle, Outcome, Permanent, Record, To

class Parcel(Record, table="parcels", key="number"):
    number: int
    lifecycle = Lifecycle("here -> moving -> there\\nmoving -> here | lost")

app = App("post")

@app.stage(Parcel, take="here", hold="moving", exhausted="lost")
async def move(parcel: Parcel, at: Attempt) -> Outcome:
    if Path("broken").exists() and parcel.number % 6:
        raise Permanent("the road is closed", type="closed")
    return To("there")
"""


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", got
    finally:
        server.shutdown()
        server.server_close()


class Folder:
    """A working folder with the pipeline, and the environment of its processes."""

    def __init__(self, path: Path, **settings: str) -> None:
        (path / "post.py").write_text(PIPELINE)
        self.path = path
        clean = {n: v for n, v in os.environ.items() if not n.startswith("ESCLUSA_")}
        self.environ = {
            **clean,
            "ESCLUSA_PIPELINES": "post.py:app",
            "ESCLUSA_LOG_FORMAT": "json",
            **settings,
        }

    def call(self, *argv: str) -> Any:
        """What the command answers as JSON."""
        done = subprocess.run(
            [sys.executable, "-m", "esclusa", *argv, "--json"],
            cwd=self.path,
            env={**self.environ, "ESCLUSA_LOG_LEVEL": "error"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return json.loads(done.stdout)

    def drained(self) -> bool:
        return not any(stage["due"] for stage in self.call("status")["stages"])

    def insert(self, numbers: range) -> None:
        rows = "\n".join(json.dumps({"number": n}) for n in numbers)
        (self.path / "rows.jsonl").write_text(rows)
        program = (
            "import asyncio, json\n"
            "from esclusa.app import open_runtime\n"
            "from esclusa.settings import load\n"
            "async def main():\n"
            "    async with open_runtime(load()) as runtime:\n"
            "        Parcel = runtime.engine.kind('parcels').model\n"
            "        rows = [json.loads(line) for line in open('rows.jsonl')]\n"
            "        await runtime.engine.records.insert([Parcel(**row) for row in rows])\n"
            "asyncio.run(main())\n"
        )
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=self.path,
            env={**self.environ, "ESCLUSA_LOG_LEVEL": "error"},
            timeout=60,
            check=True,
        )

    @contextmanager
    def process(self, *argv: str) -> Iterator[Path]:
        """A process that is stopped in order at the end; yields the file of its log."""
        number = len(list(self.path.glob("*.log")))
        log = self.path / f"{argv[0]}-{number}.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "esclusa", *argv],
                cwd=self.path,
                env=self.environ,
                stdout=out,
                stderr=out,
            )
            try:
                yield log
                assert process.poll() is None, log.read_text()
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) == 0, log.read_text()
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def until(found: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < end
        time.sleep(0.2)
    return result


def logged(log: Path, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("alert") == name]


@pytest.mark.promise(12)
def test_workers_report_an_always_on_stage_once_over_restarts(tmp_path: Path) -> None:
    with webhook() as (url, got):
        folder = Folder(tmp_path, ESCLUSA_ALERT_WEBHOOK=url)
        (tmp_path / "broken").touch()
        folder.insert(range(24))
        with folder.process("worker") as first, folder.process("worker") as second:
            until(lambda: got)
            until(folder.drained)
        lines = logged(first, "error_rate") + logged(second, "error_rate")
        assert [(line["severity"], line["subject"]) for line in lines] == [("ERROR", "post.move")]
        assert [(post["event"], post["key"]) for post in got] == [("begun", "error_rate:post.move")]

        folder.insert(range(100, 124))
        with folder.process("worker") as third:
            until(folder.drained)
            assert len(got) == 1  # a restart does not repeat it
            (tmp_path / "broken").unlink()
            folder.insert(range(200, 500))
            until(lambda: len(got) == 2)
        assert (got[1]["event"], got[1]["id"]) == ("ended", got[0]["id"])
        [line] = logged(third, "error_rate")
        assert "over after " in line["message"]
        [alert] = folder.call("alerts")["items"]
        assert (alert["status"], alert["begun_at"], alert["ended_at"]) == (
            "ended",
            got[0]["begun_at"].replace("+00:00", "Z"),
            got[1]["ended_at"].replace("+00:00", "Z"),
        )


def test_a_server_and_the_doctor_report_that_no_worker_runs(tmp_path: Path) -> None:
    with webhook() as (url, got):
        folder = Folder(
            tmp_path, ESCLUSA_ALERT_WEBHOOK=url, ESCLUSA_ALERT_NO_WORKER_SECONDS="2", PORT="0"
        )
        folder.insert(range(1))
        with folder.process("serve"):
            until(lambda: got)
            found = folder.call("doctor")
            checks = {(c["name"], c["verdict"]): c["text"] for c in found["checks"]}
            assert not found["healthy"]
            assert "no worker is running" in checks["workers", "fail"]
            assert "no worker is running" in checks["alerts", "warn"]
            with folder.process("worker"):
                until(lambda: len(got) == 2)
                assert folder.call("doctor")["healthy"]
        assert [(post["event"], post["key"]) for post in got] == [
            ("begun", "no_worker:esclusa"),
            ("ended", "no_worker:esclusa"),
        ]
