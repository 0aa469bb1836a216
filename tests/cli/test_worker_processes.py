"""`esclusa worker --processes`: several workers under a parent, with one port."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from support.loopback import free_port
from support.processes import Esclusa, get

from esclusa.web.processes_port import merged

# Each record names the process that handled it. `crash` ends the process that takes it.
FRUIT = """
import asyncio, os, signal
from pathlib import Path
from esclusa import App, Attempt, Backoff, Lifecycle, Record, RunContext, To

class Apple(Record, table="apples", key="name"):
    name: str
    picked_by: int | None = None
    lifecycle = Lifecycle("new -> picking -> done\\npicking -> new")

app = App("fruit")

@app.stage(Apple, take="new", hold="picking", retry=Backoff(tries=None), concurrency=2)
async def pick(apple: Apple, at: Attempt) -> To:
    if apple.name == "crash" and not Path("crashed").exists():
        Path("crashed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.05)
    return To("done", picked_by=os.getpid())

@app.cycle()
async def fill(run: RunContext) -> None:
    await run.records.insert([Apple(name=f"{n}") for n in range(60)])

@app.cycle()
async def poison(run: RunContext) -> None:
    await run.records.insert([Apple(name="crash")])
"""


@pytest.fixture
def esclusa(tmp_path: Path) -> Esclusa:
    (tmp_path / "fruit.py").write_text(FRUIT)
    made = Esclusa(
        tmp_path,
        ESCLUSA_PIPELINES="fruit.py:app",
        ESCLUSA_LEASE_SECONDS="2",
        ESCLUSA_POLL_SECONDS="0.1",
    )
    assert made.call("migrate", "--yes").returncode == 0
    return made


def test_all_processes_work_and_one_port_answers_for_them(esclusa: Esclusa) -> None:
    with esclusa.start("worker", "--processes", "2", "--port", "0") as worker:
        address = worker.address()
        worker.until(lambda: get(f"{address}/readyz")[0] == 200)
        status, ready = get(f"{address}/readyz")
        assert ready["processes"] == {"1": "ready", "2": "ready"}
        assert {check["verdict"] for check in ready["checks"]} <= {"ok", "warn"}
        assert get(f"{address}/healthz") == (
            200,
            {"status": "ok", "processes": {"1": "ok", "2": "ok"}},
        )
        assert esclusa.call("run", "fruit.fill").returncode == 0
        worker.until(lambda: esclusa.states("apples").get("done") == 60)
        page = esclusa.json("records", "apples", "--limit", "100")
        assert len({apple["picked_by"] for apple in page["items"]}) == 2
        status, metrics = get(f"{address}/metrics")
        assert status == 200
        settled = re.findall(
            r'esclusa_settled_total\{.*stage="fruit.pick".*process="(\d)"\} ([\d.]+)', metrics
        )
        assert sum(float(count) for _, count in settled) == 60
        assert {process for process, _ in settled} == {"1", "2"}
        assert worker.stop() == 0
    assert not worker.events("is started again")


def test_a_process_that_dies_is_started_again(esclusa: Esclusa) -> None:
    with esclusa.start("worker", "--processes", "2", "--port", "0") as worker:
        address = worker.address()
        worker.until(lambda: get(f"{address}/readyz")[0] == 200)
        assert esclusa.call("run", "fruit.poison", ESCLUSA_GRACE_SECONDS="0").returncode in {0, 1}
        line = worker.until_logged("is started again")
        assert "SIGKILL" in line["message"]
        worker.until(lambda: esclusa.states("apples").get("done") == 1)
        worker.until(lambda: get(f"{address}/readyz")[0] == 200)
        assert get(f"{address}/healthz")[0] == 200
        assert worker.stop() == 0


def test_wrong_settings_end_all_processes_with_their_exit_code(esclusa: Esclusa) -> None:
    done = esclusa.call("worker", "--processes", "2", "--only", "fruit.nothing")
    assert done.returncode == 1
    assert "fruit.nothing" in done.stderr
    tokenless = esclusa.call("worker", "-p", "2", "--port", "0", "--host", "0.0.0.0")
    assert tokenless.returncode == 3
    assert "ESCLUSA_API_TOKENS" in tokenless.stderr


def test_the_processes_end_with_their_parent(esclusa: Esclusa) -> None:
    with esclusa.start("worker", "--processes", "2") as worker:
        worker.until(lambda: len(worker.events("runs 3 cycles")) == 2)
        children = children_of(worker.pid)
        assert len(children) == 2
        os.kill(worker.pid, signal.SIGKILL)
        wait_for_end(children)
    assert esclusa.json("workers")["items"] == []


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found]


def wait_for_end(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() and not zombie(pid) for pid in pids):
        assert time.monotonic() < deadline, "a process outlives its parent"
        time.sleep(0.1)


def zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_metrics_need_the_token(esclusa: Esclusa) -> None:
    port, token = str(free_port()), "reader=" + "t" * 30 + ":read"
    with esclusa.start("worker", "-p", "2", "--port", port, ESCLUSA_API_TOKENS=token) as worker:
        address = worker.address()
        assert get(f"{address}/metrics")[0] == 401
        worker.until(lambda: get(f"{address}/healthz")[0] == 200)
        assert worker.stop() == 0


def test_metrics_of_processes_are_merged_by_metric() -> None:
    one = "# HELP a What a is.\n# TYPE a gauge\na 1.0\n# HELP b B.\n# TYPE b counter\nb_total 2.0\n"
    two = '# HELP a What a is.\n# TYPE a gauge\na{x="y"} 3.0\n'
    assert merged({1: one, 2: two}) == (
        "# HELP a What a is.\n# TYPE a gauge\n"
        'a{process="1"} 1.0\na{x="y",process="2"} 3.0\n'
        '# HELP b B.\n# TYPE b counter\nb_total{process="1"} 2.0\n'
    )
