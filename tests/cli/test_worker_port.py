"""The port of a worker: liveness, readiness and metrics."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.loopback import free_port
from support.processes import Esclusa, get

# The handler waits for the file `go`.
FRUIT = """
import asyncio
from pathlib import Path
from esclusa import App, Attempt, Backoff, Lifecycle, Record, RunContext, To

class Apple(Record, table="apples", key="name"):
    name: str
    lifecycle = Lifecycle("new -> done")

app = App("fruit")

@app.stage(Apple, take="new", retry=Backoff(tries=None))
async def pick(apple: Apple, at: Attempt) -> To:
    Path("begun").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.05)
    return To("done")

@app.cycle()
async def fill(run: RunContext) -> None:
    await run.records.insert([Apple(name=f"{n}") for n in range(3)])
"""


@pytest.fixture
def esclusa(tmp_path: Path) -> Esclusa:
    """Three records are due."""
    (tmp_path / "fruit.py").write_text(FRUIT)
    made = Esclusa(tmp_path, ESCLUSA_PIPELINES="fruit.py:app")
    filled = made.call("run", "fruit.fill")
    assert filled.returncode == 0, filled.stderr
    return made


def test_a_worker_serves_health_and_metrics(esclusa: Esclusa) -> None:
    (esclusa.folder / "go").touch()
    with esclusa.start("worker", "--port", "0") as worker:
        worker.until(lambda: esclusa.states("apples") == {"done": 3})
        address = worker.address()
        assert address.startswith("http://127.0.0.1:")
        assert get(f"{address}/healthz") == (200, {"status": "ok"})
        status, answer = get(f"{address}/readyz")
        assert (status, answer["status"]) == (200, "ready")
        status, metrics = get(f"{address}/metrics")
        assert status == 200
        assert 'stage="fruit.pick"' in metrics
        assert get(f"{address}/api/kinds")[0] == 404
        assert worker.stop() == 0


def test_two_workers_with_one_port_both_run(esclusa: Esclusa) -> None:
    port = str(free_port())
    with (
        esclusa.start("worker", ESCLUSA_WORKER_PORT=port) as first,
        esclusa.start("worker", ESCLUSA_WORKER_PORT=port) as second,
    ):
        both = (first, second)
        first.until(lambda: all(each.events("runs 2 cycles") for each in both))
        first.until(lambda: sum(len(each.events("listening on")) for each in both) == 1)
        first.until(lambda: sum(len(each.events("runs without its port")) for each in both) == 1)
        assert get(f"http://127.0.0.1:{port}/healthz")[0] == 200
        (esclusa.folder / "go").touch()
        first.until(lambda: esclusa.states("apples") == {"done": 3})
        assert (first.stop(), second.stop()) == (0, 0)


def test_a_worker_without_the_setting_listens_nowhere(esclusa: Esclusa) -> None:
    with esclusa.start("worker") as worker:
        worker.until_logged("runs 2 cycles")
        assert not worker.events("listening")
        assert worker.stop() == 0


def test_the_port_beyond_loopback_needs_a_token(esclusa: Esclusa) -> None:
    done = esclusa.call("worker", "--port", "0", "--host", "0.0.0.0")
    assert done.returncode == 3
    assert "ESCLUSA_API_TOKENS" in done.stderr
    token = "operator=" + "t" * 30
    with esclusa.start("worker", "--port", "0", ESCLUSA_API_TOKENS=token) as worker:
        address = worker.address()
        assert get(f"{address}/healthz")[0] == 200
        assert get(f"{address}/metrics")[0] == 401
        assert worker.stop() == 0


@pytest.mark.parametrize("command", [("worker",), ("serve", "--worker")])
def test_liveness_fails_while_nothing_can_be_settled(
    esclusa: Esclusa, command: tuple[str, ...]
) -> None:
    with (
        esclusa.start(*command, "--port", "0", ESCLUSA_LIVENESS_SECONDS="2") as worker,
        closing(sqlite3.connect(esclusa.folder / "esclusa.db", isolation_level=None)) as other,
    ):
        address = worker.address()
        worker.until((esclusa.folder / "begun").exists)
        other.execute("BEGIN IMMEDIATE")
        (esclusa.folder / "go").touch()
        worker.until(lambda: get(f"{address}/healthz") == (503, {"status": "stalled"}))
        other.execute("ROLLBACK")
        worker.until(lambda: get(f"{address}/healthz")[0] == 200)
        worker.until(lambda: esclusa.states("apples") == {"done": 3})
        assert worker.stop() == 0
