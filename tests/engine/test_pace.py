"""The pace of a stage with a budget, seen by a provider that counts in sliding windows."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from esclusa import App, Attempt, Backoff, Budget, Lifecycle, Outcome, Rate, Record, To, Window

# Longer than a test takes: whatever happens between two polls was not found by one.
NEVER = 60.0


class Item(Record, table="items", key="name"):
    name: str
    lifecycle = Lifecycle("new -> done")


def pipeline(budget: Budget, calls: list[float]) -> App:
    app = App("paced")

    @app.stage(Item, take="new", retry=Backoff(tries=None), budget=budget)
    async def call(item: Item, at: Attempt) -> Outcome:
        calls.append(time.monotonic())
        return To("done")

    return app


async def serve(engine: Any, calls: list[float], count: int) -> None:
    """Serve until the provider has seen this many calls."""
    scheduler = engine.scheduler()
    serving = asyncio.create_task(scheduler.serve())
    async with asyncio.timeout(NEVER - 5):
        while len(calls) < count:
            await asyncio.sleep(0.05)
    scheduler.stop()
    await serving


@pytest.mark.promise(6)
async def test_a_denied_stage_goes_on_when_the_window_opens_not_at_the_next_poll(
    new_engine: Any,
) -> None:
    calls: list[float] = []
    budget = Budget("calls", Window("second", 5))
    engine = await new_engine(pipeline(budget, calls), poll=NEVER)
    await engine.records.insert([Item(name=f"{n}") for n in range(15)])
    await serve(engine, calls, 15)
    assert len(calls) == 15


@pytest.mark.promise(6)
async def test_a_rate_is_never_exceeded_in_any_sliding_second(new_engine: Any) -> None:
    calls: list[float] = []
    budget = Budget("calls", Rate(10, "second", burst=1, late=0.1))
    engine = await new_engine(pipeline(budget, calls), poll=NEVER)
    await engine.records.insert([Item(name=f"{n}") for n in range(20)])
    await serve(engine, calls, 20)
    assert len(calls) == 20
    # Of any eleven calls, the last comes more than a second after the first.
    assert all(calls[n + 10] - calls[n] >= 1.0 for n in range(len(calls) - 10))
    assert all(later >= earlier for earlier, later in pairwise(calls))
