"""A pipeline whose lifespan fails: the others run, it is named, and it is tried again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.processes import Esclusa, get

# The lifespan of `bad` needs the file `key`; HANG: it waits for it without end. It breaks while it
# is open if the file `break` exists. EXIT: it raises an error when it is closed.
FRUIT = """
import asyncio, os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from esclusa import App, Attempt, Backoff, Lifecycle, Record, RunContext, To

class Apple(Record, table="apples", key="name"):
    name: str
    lifecycle = Lifecycle("new -> done")

class Pear(Record, table="pears", key="name"):
    name: str
    opened_with: str = ""
    lifecycle = Lifecycle("new -> done")

good, bad = App("good"), App("bad")

@good.stage(Apple, take="new", retry=Backoff(tries=None))
async def pick_apples(apple: Apple, at: Attempt) -> To:
    return To("done")

@good.cycle()
async def fill(run: RunContext) -> None:
    await run.records.insert([Apple(name=f"{n}") for n in range(3)])
    await run.records.insert([Pear(name=f"{n}") for n in range(3)])

async def watch() -> None:
    while not Path("break").exists():
        await asyncio.sleep(0.05)
    Path("break").unlink()
    Path("key").unlink()
    raise ConnectionError("the connection broke")

@bad.lifespan
async def open_key(settings: Any) -> AsyncIterator[str]:
    if not Path("key").exists():
        if os.environ.get("HANG"):
            await asyncio.Event().wait()
        raise FileNotFoundError("there is no key")
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        yield Path("key").read_text()
        watching.cancel()
    if os.environ.get("EXIT"):
        raise OSError("the key is stuck")

@bad.stage(Pear, take="new", retry=Backoff(tries=None))
async def pick_pears(pear: Pear, at: Attempt) -> To:
    return To("done", opened_with=at.context)

@bad.cycle(every="1s")
async def count(run: RunContext) -> None:
    run.count("letters", len(run.context))

@bad.routes
def routes(runtime: Any) -> Any:
    from fastapi import APIRouter

    api = APIRouter()

    @api.get("/bad/key")
    async def key() -> Any:
        return {"key": runtime.engine.contexts["bad"]}

    return api
"""


@pytest.fixture
def esclusa(tmp_path: Path) -> Esclusa:
    """Two pipelines with three records each; one cannot start before the file ``key`` exists."""
    (tmp_path / "fruit.py").write_text(FRUIT)
    made = Esclusa(
        tmp_path,
        ESCLUSA_PIPELINES="fruit.py:good,fruit.py:bad",
        ESCLUSA_LEASE_SECONDS="5",
        ESCLUSA_LIFESPAN_SECONDS="3",
    )
    filled = made.call("run", "good.fill")
    assert filled.returncode == 0, filled.stderr
    return made


def put_key(esclusa: Esclusa) -> None:
    (esclusa.folder / "key").write_text("gold")


@pytest.mark.promise(12)
@pytest.mark.parametrize("hang", ["", "1"], ids=["fails", "hangs"])
def test_a_worker_runs_the_other_pipelines(esclusa: Esclusa, hang: str) -> None:
    why = (
        "TimeoutError: the lifespan was not open after 3 seconds"
        if hang
        else "FileNotFoundError: there is no key"
    )
    with esclusa.start("worker", HANG=hang) as worker:
        worker.until(lambda: esclusa.states("apples") == {"done": 3})
        logged = worker.until_logged(f"pipeline bad is not ready: {why}")
        assert "open_key" in logged["stack_trace"] or hang
        assert esclusa.states("pears") == {"new": 3}
        alerts = esclusa.json("alerts")["items"]
        assert [a["message"] for a in alerts if a["subject"] == "bad"] == [
            f"pipeline bad is not ready: {why}"
        ]
        put_key(esclusa)
        worker.until(lambda: esclusa.states("pears") == {"done": 3})
        assert worker.events("pipeline bad is ready now")
        assert {p["opened_with"] for p in esclusa.json("records", "pears")["items"]} == {"gold"}
        assert worker.stop() == 0
        alerts = esclusa.json("alerts")["items"]
        assert sum(a["subject"] == "bad" for a in alerts) == 1  # not one for each attempt


@pytest.mark.promise(12)
def test_a_server_names_the_pipeline_that_failed(esclusa: Esclusa) -> None:
    with esclusa.start("serve", "--port", "0") as server:
        address = server.address()
        status, answer = get(f"{address}/readyz")
        assert status == 503
        assert {c["name"]: c["text"] for c in answer["checks"] if c["verdict"] == "fail"} == {
            "bad": "its lifespan failed: FileNotFoundError"
        }
        status, problem = get(f"{address}/bad/key")
        assert (status, problem["type"]) == (503, "urn:esclusa:problem:pipeline-not-ready")
        assert problem["detail"] == (
            "pipeline bad is not ready (FileNotFoundError); it is tried again"
        )
        assert get(f"{address}/api/kinds")[0] == 200
        put_key(esclusa)
        server.until_logged("pipeline bad is ready now")
        assert get(f"{address}/bad/key") == (200, {"key": "gold"})
        assert get(f"{address}/readyz")[0] == 200
        assert server.stop() == 0


def test_a_run_of_the_pipeline_fails_with_its_error(esclusa: Esclusa) -> None:
    done = esclusa.call("run", "bad.count")
    assert done.returncode == 1
    assert "pipeline bad is not ready: FileNotFoundError: there is no key" in done.stderr
    assert esclusa.call("run", "good.pick-apples").returncode == 0
    assert esclusa.states("apples") == {"done": 3}
    put_key(esclusa)
    assert esclusa.json("run", "bad.count")["counters"] == {"letters": 4}


def test_the_doctor_names_the_pipeline(esclusa: Esclusa) -> None:
    done = esclusa.call("doctor")
    assert done.returncode == 4
    assert "fail  bad: its lifespan failed: FileNotFoundError: there is no key" in done.stdout
    put_key(esclusa)
    assert esclusa.call("doctor").returncode == 0


def test_a_lifespan_that_breaks_while_it_is_open_is_opened_again(esclusa: Esclusa) -> None:
    put_key(esclusa)
    with esclusa.start("worker") as worker:
        worker.until(lambda: esclusa.states("pears") == {"done": 3})
        (esclusa.folder / "break").touch()
        worker.until_logged("pipeline bad is not ready: ConnectionError: the connection broke")
        put_key(esclusa)
        worker.until_logged("pipeline bad is ready now")
        assert worker.stop() == 0


@pytest.mark.promise(9)
def test_a_lifespan_whose_exit_raises_does_not_stop_the_stop(esclusa: Esclusa) -> None:
    put_key(esclusa)
    with esclusa.start("worker", EXIT="1") as worker:
        worker.until(lambda: esclusa.states("pears") == {"done": 3})
        assert worker.stop(signal.SIGINT) == 0
        [failed] = worker.events("pipeline bad did not close: OSError: the key is stuck")
        assert "open_key" in failed["stack_trace"]
    [ended] = esclusa.json("workers", "--all")["items"]
    assert ended["status"] == "stopped"
