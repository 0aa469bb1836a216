"""What a run may take and spend: its limit holds for all its stages, its message is true."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from esclusa import App, Backoff, Budget, Lifecycle, Rate, Record, RunContext, To, Window


class Parcel(Record, table="parcels", key="name"):
    name: str
    lifecycle = Lifecycle("new -> busy -> packed -> sent\nbusy -> new")


async def packed(parcel: Parcel, at: Any) -> To:
    return To("packed")


async def sent(parcel: Parcel, at: Any) -> To:
    return To("sent")


def pipeline(**options: Any) -> App:
    app = App("post")
    common: dict[str, Any] = {"cycle": False, "retry": Backoff(tries=None)}
    app.stage(Parcel, name="pack", take="new", hold="busy", **common, **options)(packed)
    app.stage(Parcel, name="send", take="packed", **common)(sent)

    @app.cycle()
    async def all(run: RunContext) -> None:
        while not run.stopping:
            before = run.counters["taken"]
            await asyncio.gather(run.drain("pack"), run.drain("send"))
            if run.counters["taken"] == before:
                break

    @app.cycle()
    async def load(run: RunContext) -> None:
        await run.records.insert(parcels(30, "load"))
        await run.records.purge(Parcel, {"name": "load0001"})

    return app


def parcels(count: int, name: str = "p") -> list[Parcel]:
    return [Parcel(name=f"{name}{n:04}") for n in range(count)]


@pytest.mark.parametrize("limit", [1, 7])
async def test_the_limit_of_a_run_holds_for_what_its_function_drains(
    new_engine: Any, limit: int
) -> None:
    engine = await new_engine(pipeline())
    await engine.records.insert(parcels(20))
    run = await engine.run_cycle("post.all", limit=limit)
    assert run.counters["taken"] == limit
    history = [
        await engine.store.history(p.ref, 10) for p in (await engine.records.find(Parcel)).items
    ]
    assert sum(step.frm == "busy" for steps in history for step in steps) <= limit


@pytest.mark.parametrize(
    ("budget", "cost", "message"),
    [
        (Budget("calls", Window("day", 1000)), 1200, "1000 of 1000 per day left"),
        (Budget("calls", Window("day", 800), Window("hour", 0)), 1, "0 of 0 per hour"),
        (Budget("calls", Window("day", 800), Rate(0, "hour")), 1, "0 of 0 per hour"),
    ],
)
async def test_a_run_without_budget_names_what_is_left(
    new_engine: Any, budget: Budget, cost: int, message: str
) -> None:
    engine = await new_engine(pipeline(budget=budget, cost=cost))
    await engine.records.insert(parcels(2))
    run = await engine.run_cycle("post.all")
    assert (run.outcome, run.counters["taken"]) == ("blocked", 0)
    assert message in run.message
    if cost > 1:
        assert "a record needs 1200" in run.message
        assert "is empty" not in run.message


async def test_a_function_that_counts_nothing_has_the_counters_of_what_it_wrote(
    new_engine: Any,
) -> None:
    engine = await new_engine(pipeline())
    run = await engine.run_cycle("post.load")
    assert run.answer()["counters"] == {"created": 30, "removed": 1}
    again = await engine.run_cycle("post.load")
    assert again.answer()["counters"] == {"created": 1, "removed": 1}


async def test_a_run_that_spends_its_last_unit_on_its_last_record_is_ok(new_engine: Any) -> None:
    engine = await new_engine(pipeline(budget=Budget("calls", Window("day", 2))))
    await engine.records.insert(parcels(2))
    run = await engine.run_cycle("post.all")
    assert (run.outcome, run.message) == ("ok", None)
    await engine.records.insert(parcels(1, "late"))
    blocked = await engine.run_cycle("post.all")
    assert blocked.outcome == "blocked"
    assert "budget calls is empty until" in blocked.message
    assert "(2 of 2 per day)" in blocked.message
