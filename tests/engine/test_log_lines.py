"""Lines that a handler logs are in the history of its record, bounded and storable."""

from __future__ import annotations

from typing import Any

import pytest

from esclusa import App, Attempt, Lifecycle, Record, To
from esclusa.testing import Harness


class Job(Record, table="jobs", key="number"):
    number: int
    lifecycle = Lifecycle("new -> busy -> done | failed | new")


def logging_app(*, batch: int | None = None) -> App:
    app = App("jobs")

    @app.stage(Job, take="new", hold="busy", exhausted="failed", batch=batch)
    async def work(job: Any, at: Attempt) -> Any:
        for n in range(60):
            at.log(f"step {n}", value=float("nan"), name="a\0b", n=n, text="x" * 5000)
        if batch is None and at.number == 1:
            raise TimeoutError("slow")
        return To("done") if batch is None else [To("done") for _ in job]

    return app


async def test_the_last_lines_of_each_attempt_are_kept(empty_database: Any) -> None:
    async with Harness(logging_app(), store=empty_database.url) as h:
        job = await h.insert(Job(number=1))
        await h.run_until_idle("1h")
        logs = [step.log for step in await h.history(job) if step.log is not None]
        assert [log["omitted"] for log in logs] == [10, 10]
        first, *_, last = logs[0]["lines"]
        assert (first["message"], last["message"]) == ("step 10", "step 59")
        assert last["level"] == "info"
        assert last["fields"] == {"value": "nan", "name": "a\ufffdb", "n": 59, "text": "x" * 1000}


async def test_fields_may_have_any_name() -> None:
    app = App("jobs")
    names = ("attempt", "tries", "run", "record", "message", "engine_stage", "cycle", "self")

    @app.stage(Job, take="new", hold="busy", exhausted="failed")
    async def work(job: Job, at: Attempt) -> Any:
        at.log("named", **dict.fromkeys(names, 7))
        at.run.log("named", **dict.fromkeys(names, 7))
        return To("done")

    async with Harness(app) as h:
        job = await h.insert(Job(number=1))
        await h.run_due()
        await h.assert_state(job, "done")
        log = (await h.history(job))[-1].log
        assert log is not None
        assert log["lines"][0]["fields"] == dict.fromkeys(names, 7)


@pytest.mark.parametrize("records", [1, 3])
async def test_lines_of_a_batch_are_in_the_history_of_each(records: int) -> None:
    async with Harness(logging_app(batch=5)) as h:
        jobs = await h.insert_all([Job(number=n) for n in range(records)])
        await h.run_due()
        for job in jobs:
            [claimed, done] = await h.history(job)
            assert (claimed.log, done.log is not None and len(done.log["lines"])) == (None, 50)
