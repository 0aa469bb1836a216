"""The command as a process: signals, terminals, pipes, and what it imports to start."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from esclusa.loading import BUILT_IN

EXAMPLE = Path(__file__).parents[2] / "examples" / "hello.py"
SLOW = """
import asyncio
from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Record, RunContext, To

class Stone(Record, table="stones", key="number"):
    number: int
    lifecycle = Lifecycle("here -> moving -> there\\nmoving -> here | lost")

app = App("slow")

@app.stage(
    Stone, take="here", hold="moving", exhausted="lost", cycle=False, concurrency=2, batch=None
)
async def move(stone: Stone, at: Attempt) -> Outcome:
    await asyncio.sleep(0.3)
    return To("there")

@app.cycle(every="1s")
async def all(run: RunContext) -> None:
    await run.records.insert([Stone(number=n) for n in range(200)])
    print("begun", flush=True)
    await run.drain("move")
"""


def environ(**more: str) -> dict[str, str]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ESCLUSA_") and name not in ("PORT", "COLUMNS")
    }
    return {**clean, "ESCLUSA_PIPELINES": f"{EXAMPLE}:app", "ESCLUSA_LOG_LEVEL": "error", **more}


def call(folder: Path, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "esclusa", *argv]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environ(**more),
    )


def counts(folder: Path, kind: str, pipelines: str) -> dict[str, int]:
    kinds = json.loads(call(folder, "kinds", "--json", ESCLUSA_PIPELINES=pipelines).stdout)["items"]
    return {c["state"]: c["count"] for k in kinds if k["table"] == kind for c in k["counts"]}


def test_looking_starts_without_heavy_imports(tmp_path: Path) -> None:
    assert call(tmp_path, "migrate").returncode == 0
    program = (
        "import sys, json\nfrom esclusa.app import open_runtime, open_store\n"
        "from esclusa.cli import code_of\n"
        "code = code_of(['status', '--json'], open_runtime=open_runtime, open_store=open_store)\n"
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})), file=sys.stderr)\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environ(),
    )
    heavy = {
        "aiohttp",
        "fastapi",
        "uvicorn",
        "asyncpg",
        "rich",
        "structlog",
        "prometheus_client",
        "opentelemetry",
        "obstore",
        "uvloop",
    }
    assert not heavy & set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.promise(9)
def test_a_run_that_is_stopped_ends_in_order(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    process = subprocess.Popen(
        [sys.executable, "-m", "esclusa", "run", "slow.all"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ(ESCLUSA_PIPELINES="slow.py"),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert f"Stopping on {number.name}" in err
    listed = call(tmp_path, "runs", "--json", ESCLUSA_PIPELINES="slow.py")
    [run] = json.loads(listed.stdout)["items"]
    assert run["status"] == "partial"
    assert run["message"] == f"cut by {number.name}; the next run continues"
    after = counts(tmp_path, "stones", "slow.py")
    assert after["moving"] == after["lost"] == 0
    assert after["here"] + after["there"] == 200
    assert after["here"] > 0


STUCK = SLOW.replace("async def move", "def move").replace(
    "await asyncio.sleep(0.3)", "__import__('time').sleep(600)"
)


@pytest.mark.parametrize(
    "command",
    [["run", "slow.all"], ["worker"], ["tick"], ["serve", "--worker", "--port", "0"]],
    ids=" ".join,
)
@pytest.mark.promise(9)
def test_a_handler_that_never_ends_has_the_grace_period_and_no_more(
    tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    process = subprocess.Popen(
        [sys.executable, "-m", "esclusa", *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ(ESCLUSA_PIPELINES="stuck.py", ESCLUSA_GRACE_SECONDS="0.2"),
    )
    try:
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            if (
                call(tmp_path, "leases", ESCLUSA_PIPELINES="stuck.py").stdout.count("slow.move")
                == 2
            ):
                break
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == (130 if command[0] in ("run", "tick") else 0), err
    assert "Traceback" not in err
    listed = json.loads(
        call(
            tmp_path, "records", "stones", "--limit", "1000", "--json", ESCLUSA_PIPELINES="stuck.py"
        ).stdout
    )["items"]
    assert {(stone["status"], stone["attempts"]) for stone in listed} == {("here", 0)}


@pytest.mark.promise(9)
def test_a_worker_works_until_it_is_stopped(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "esclusa", "worker"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ(ESCLUSA_LOG_LEVEL="info"),
    )
    try:
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            listed = call(tmp_path, "records", "greetings", "--status", "greeted", "--json")
            if listed.returncode == 0 and len(json.loads(listed.stdout)["items"]) >= 3:
                break
        workers = json.loads(call(tmp_path, "workers", "--json").stdout)["items"]
        assert [w["pid"] for w in workers] == [process.pid]
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=40)
    assert process.returncode == 0, err
    assert out == ""
    assert "Traceback" not in err
    assert "stopping on SIGTERM: no new claims" in err
    ended = json.loads(call(tmp_path, "workers", "--all", "--json").stdout)["items"]
    assert [w["status"] for w in ended] == ["stopped"]


def test_the_server_listens_and_works(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "esclusa", "serve", "--port", "0", "--worker"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=environ(),
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("esclusa listens on http://127.0.0.1:"), line
        address = line.split()[3]
        with urllib.request.urlopen(f"{address}/readyz", timeout=20) as answer:
            assert json.load(answer)["status"] == "ready"
        with socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1]))) as taken:
            second = call(tmp_path, "serve", "--port", str(taken.getpeername()[1]))
        assert second.returncode == 3
        assert "cannot listen on" in second.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=40)
    assert process.returncode == 0, err
    assert "Traceback" not in err


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    assert call(tmp_path, "run", "hello.greet").returncode == 5
    process = subprocess.Popen(
        [sys.executable, "-m", "esclusa", "records", "greetings"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ(),
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read().decode()
    process.stderr.close()
    process.wait(30)
    assert "Traceback" not in err


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, folder: Path, *argv: str) -> None:
        self._main, other = pty.openpty()
        command = [sys.executable, "-m", "esclusa", *argv]
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=other,
            stdout=other,
            stderr=other,
            env=environ(TERM="xterm", COLUMNS="120"),
            start_new_session=True,
        )
        os.close(other)
        self.seen = ""

    def until(self, text: str) -> None:
        deadline = time.monotonic() + 30
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            ready, _, _ = select.select([self._main], [], [], 1)
            if ready:
                self._read()

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def end(self) -> int:
        while self._read():
            pass
        os.close(self._main)
        return self.process.wait(30)

    def _read(self) -> bool:
        try:
            chunk = os.read(self._main, 65536)
        except OSError:  # the other side is closed
            return False
        self.seen += chunk.decode(errors="replace")
        return bool(chunk)


def test_a_bulk_act_asks_at_a_terminal(tmp_path: Path) -> None:
    assert call(tmp_path, "run", "hello.greet").returncode == 5
    refused = Terminal(tmp_path, "retry", "greetings", "--where", "status=failed")
    refused.until("Retry 1 record of greetings? [y/N]")
    refused.type("n\n")
    assert refused.end() == 1
    agreed = Terminal(tmp_path, "retry", "greetings", "--where", "status=failed")
    agreed.until("[y/N]")
    agreed.type("y\n")
    assert agreed.end() == 0
    assert "1 of 1 done" in agreed.seen


def test_a_bulk_act_does_not_more_than_was_asked_for(tmp_path: Path) -> None:
    assert call(tmp_path, "run", "hello.greet").returncode == 5
    asked = Terminal(tmp_path, "retry", "greetings", "--where", "status=failed")
    asked.until("Retry 1 record of greetings? [y/N]")
    with closing(sqlite3.connect(next(tmp_path.glob("*.db")))) as table, table:
        table.execute("UPDATE greetings SET status = 'failed' WHERE name = 'ada'")
    asked.type("y\n")
    assert asked.end() == 2
    assert "2 match now, 1 matched when you were asked; nothing was changed" in asked.seen
    failed = json.loads(
        call(tmp_path, "records", "greetings", "--where", "status=failed", "--json").stdout
    )
    assert len(failed["items"]) == 2


def test_the_live_status(tmp_path: Path) -> None:
    assert call(tmp_path, "run", "hello.greet").returncode == 5
    watch = Terminal(tmp_path, "status", "--watch", "--every", "0.2")
    watch.until("hello.greet")
    watch.until("Press Ctrl-C to stop")
    watch.process.send_signal(signal.SIGINT)
    assert watch.end() == 130
    assert "Traceback" not in watch.seen


def test_counters_are_shown_while_a_run_lasts(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW.replace("range(200)", "range(8)"))
    run = Terminal(tmp_path, "run", "slow.all", "--pipelines", "slow.py")
    run.until("taken")
    assert run.end() == 0
    assert "slow.all: ok (taken 8, there 8)" in run.seen


@pytest.mark.parametrize(
    "argv",
    [
        ("migrate",),
        ("migrate", "--sql"),
        ("worker",),
        ("serve", "--port", "0"),
        ("run", "media.download"),
        ("tick",),
        ("status",),
        ("records", "posts"),
        ("doctor",),
        ("dead-letters", "list"),
    ],
    ids=" ".join,
)
def test_without_a_named_pipeline_nothing_is_done(tmp_path: Path, argv: tuple[str, ...]) -> None:
    answer = call(tmp_path, *argv, ESCLUSA_PIPELINES="")
    assert answer.returncode == 3
    assert "no pipeline is named" in answer.stdout + answer.stderr
    assert "replies, tenders, media, documents" in answer.stdout + answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_pipelines_own_command_names_its_pipeline(tmp_path: Path) -> None:
    answer = call(tmp_path, "media", "summary", "--json", ESCLUSA_PIPELINES="")
    assert answer.returncode == 3, answer.stderr  # not migrated yet, and reading does not migrate
    (tmp_path / "esclusa.db").unlink(missing_ok=True)
    assert call(tmp_path, "migrate", ESCLUSA_PIPELINES="media").returncode == 0
    assert call(tmp_path, "media", "summary", "--json", ESCLUSA_PIPELINES="").returncode == 0
    kinds = json.loads(call(tmp_path, "kinds", "--json", ESCLUSA_PIPELINES="media").stdout)
    assert {kind["pipeline"] for kind in kinds["items"]} == {"media"}


def test_a_pipeline_that_the_settings_do_not_name_is_refused(tmp_path: Path) -> None:
    answer = call(tmp_path, "media", "summary", ESCLUSA_PIPELINES="tenders")
    assert answer.returncode == 3
    assert "ESCLUSA_PIPELINES: it names tenders, not media; add media" in answer.stderr


def test_help_lists_the_commands_of_the_built_in_pipelines(tmp_path: Path) -> None:
    answer = call(tmp_path, "--help", ESCLUSA_PIPELINES="")
    assert answer.returncode == 0
    listed = [line.split()[0] for line in answer.stdout.splitlines() if line.strip()]
    assert [name for name in listed if name in BUILT_IN] == list(BUILT_IN)
