"""Handlers in processes: the same leases, attempts and errors as in the worker itself."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from support.process_handlers import Sum, add, app

from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Record, To
from esclusa.model.errors import DeclarationError
from esclusa.observability.telemetry import Observer

# A process knows nothing of the store, so one store is enough.
sqlite_only = pytest.mark.parametrize("provider", ["sqlite"], indirect=True)


async def run(new_engine: Any, *names: str, **fields: Any) -> dict[str, Sum]:
    """The records with these names after a run."""
    engine = await new_engine(app)
    await engine.artifacts.put("sums/other.txt", b"other")
    await engine.records.insert([Sum(name=name, upto=4, **fields) for name in names])
    for _ in range(2):  # the second run takes what failed in the first
        await engine.run_cycle("sums.add")
    page = await engine.records.find(Sum, limit=50)
    return {each.name: each for each in page.items}


@sqlite_only
async def test_handlers_run_in_processes_of_their_own(new_engine: Any) -> None:
    found = await run(new_engine, *(f"{n}" for n in range(8)), "asks")
    assert {each.status for each in found.values()} == {"done"}
    assert {each.total for each in found.values()} == {6}
    pids = {each.by for each in found.values()}
    assert os.getpid() not in pids
    assert 1 <= len(pids) <= 2
    assert found["asks"].seen == 1


@sqlite_only
async def test_a_handler_counts_in_the_metrics_of_its_worker(new_engine: Any) -> None:
    telemetry = Observer()
    engine = await new_engine(app, telemetry=telemetry)
    await engine.artifacts.put("sums/other.txt", b"other")
    await engine.records.insert([Sum(name="asks")])
    await engine.run_cycle("sums.add")
    page = telemetry.metrics.render()[0].decode()
    assert 'esclusa_sums_sums_total{size="small"} 2.0' in page


@sqlite_only
async def test_errors_count_as_in_the_worker(new_engine: Any) -> None:
    found = await run(
        new_engine, "refused", "unsendable", "dies", "assigns", "wants", "again", "fine"
    )
    assert found["fine"].status == "done"
    refused = found["refused"]
    assert (refused.status, refused.attempts) == ("bad", 1)
    assert refused.last_error is not None
    assert refused.last_error["type"] == "refused"
    unsendable = found["unsendable"]
    assert unsendable.last_error is not None
    assert unsendable.last_error["message"] == "1 and 2"
    # A process that dies is a failed attempt; the next one gets a new process.
    assert (found["dies"].status, found["dies"].attempts) == ("done", 2)
    # A fault of the handler is final, as everywhere.
    assigns = found["assigns"]
    assert assigns.status == "bad"
    assert assigns.last_error is not None
    assert "total" in assigns.last_error["message"]
    wants = found["wants"]
    assert wants.last_error is not None
    assert "processes=" in wants.last_error["message"]


@sqlite_only
async def test_the_traceback_is_that_of_the_process(new_engine: Any) -> None:
    engine = await new_engine(app)
    await engine.records.insert([Sum(name="raises", upto=0)])
    await engine.run_cycle("sums.add")
    record = await engine.records.get(Sum, "raises")
    assert record is not None
    assert record.last_error is not None
    assert record.last_error["type"] == "zero_division_error"
    assert "process_handlers.py" in record.last_error["traceback"]


@sqlite_only
async def test_a_handler_that_goes_on_after_the_grace_period_is_killed(new_engine: Any) -> None:
    engine = await new_engine(app)
    await engine.records.insert([Sum(name="hangs"), Sum(name="fine", upto=3)])
    run = asyncio.create_task(engine.run_cycle("sums.add"))
    async with asyncio.timeout(60):
        while (fine := await engine.records.get(Sum, "fine")) is None or fine.status != "done":
            await asyncio.sleep(0.05)
    engine.stop("the test")
    engine.abort()  # the grace period is over
    await run
    hangs = await engine.records.get(Sum, "hangs")
    assert hangs is not None
    assert (hangs.status, hangs.attempts) == ("new", 0)


def test_what_cannot_run_in_a_process_is_refused() -> None:
    class Thing(Record, table="things", key="name"):
        name: str
        lifecycle = Lifecycle("new -> done")

    here = App("here")

    async def wait(thing: Thing, at: Attempt) -> Outcome:
        return To("done")

    once = Backoff(tries=None)
    stage = here.stage(Thing, take="new", retry=once, processes=2, concurrency=3)
    with pytest.raises(DeclarationError) as refused:
        stage(wait)
    assert "plain function" in str(refused.value)
    assert "exclude each other" in str(refused.value)
    local = App("local")

    def inner(thing: Thing, at: Attempt) -> Outcome:
        return To("done")

    stage = local.stage(Thing, take="new", retry=once, processes=2)
    with pytest.raises(DeclarationError, match="function of a module"):
        stage(inner)


def test_the_handler_is_found_by_its_module() -> None:
    from esclusa.engine.handler_processes import name_of

    assert name_of(add).load() is add
