"""A tick runs what is due within its time, beside other ticks, and leaves nothing held."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from esclusa import App, Backoff, Create, Lifecycle, Record, RunContext, To
from esclusa.model.schedule import cron
from esclusa.model.system_records import CycleRecord, Run
from esclusa.model.texts import load


class Item(Record, table="items", key="name"):
    name: str
    lifecycle = Lifecycle("""
        new -> busy -> done
        busy -> new | bad
    """)


class Part(Record, table="parts", key="name"):
    name: str
    lifecycle = Lifecycle("""
        new -> busy -> done
        busy -> new | bad
    """)


OPTIONS: dict[str, Any] = {
    "take": "new",
    "hold": "busy",
    "exhausted": "bad",
    "retry": Backoff(tries=3, base=0, jitter=0),
}


def names(ticked: Any) -> list[str]:
    return sorted(
        run.cycle.name for run in ticked.runs if not run.cycle.name.startswith("esclusa.")
    )


async def states(engine: Any, kind: type[Record]) -> dict[str, int]:
    return {c.state: c.count for c in await engine.store.tally(kind.kind) if c.count}


async def test_what_is_due_runs_and_what_follows_from_it_too(new_engine: Any) -> None:
    app = App("try")
    app.stage(Item, name="split", **OPTIONS)(_split)
    app.stage(Part, name="finish", **OPTIONS)(_finish)
    engine = await new_engine(app)
    await engine.records.insert([Item(name=f"i{n}") for n in range(20)])
    ticked = await engine.tick(60)
    assert ticked.complete
    assert await states(engine, Item) == {"done": 20}
    assert await states(engine, Part) == {"done": 40}
    assert {"try.split", "try.finish"} <= set(names(ticked))
    assert ticked.seconds < 30
    assert sum(run.counters["taken"] for run in ticked.runs if run.cycle.name == "try.finish") == 40
    again = await engine.tick(60)
    assert (again.answer()["runs"], again.complete) == (
        [],
        True,
    )  # nothing was due: nothing is written


async def _split(item: Item, at: Any) -> To:
    return To("done", also=[Create(Part(name=f"{item.name}-{n}")) for n in range(2)])


async def _finish(part: Part, at: Any) -> To:
    return To("done")


async def test_due_slots_run_once_and_missed_slots_are_not_replayed(
    new_engine: Any,
) -> None:
    app, ran = App("try"), []

    @app.cycle(every="1h")
    async def hourly(run: RunContext) -> None:
        ran.append("hourly")

    @app.cycle(every="1h", singleton=True)
    async def singleton(run: RunContext) -> None:
        ran.append("singleton")

    @app.cycle(every=cron("0 3 1 1 *"))
    async def yearly(run: RunContext) -> None:
        ran.append("yearly")

    @app.cycle()
    async def called(run: RunContext) -> None:
        ran.append("called")

    engine = await new_engine(app)
    await engine.tick(30)
    await engine.tick(30)
    assert sorted(ran) == ["hourly", "singleton"]
    later = await new_engine(app, offset=3 * 3600 + 300)
    await later.tick(30)
    await later.tick(30)
    assert sorted(ran) == ["hourly", "hourly", "singleton", "singleton"]
    runs = [r async for r in engine.records.each(Run, {"cycle": "try.hourly"})]
    assert [r.status for r in runs] == ["ok", "ok"]


async def test_a_paused_cycle_does_not_run(new_engine: Any) -> None:
    app = App("try")
    app.stage(Item, name="split", **OPTIONS)(_split)
    engine = await new_engine(app)
    await engine.records.insert([Item(name="a")])
    await engine.operations("me").pause("try.split", "wait")
    ticked = await engine.tick(30)
    assert (names(ticked), await states(engine, Item)) == ([], {"new": 1})


async def test_a_tick_keeps_its_time_limit_and_holds_nothing_afterwards(new_engine: Any) -> None:
    app, begun = App("try"), []

    async def slow(item: Item, at: Any) -> To:
        begun.append(item.name)
        await asyncio.sleep(0.25 if len(begun) < 5 else 60)
        return To("done")

    app.stage(Item, name="slow", concurrency=2, **OPTIONS)(slow)
    engine = await new_engine(app)
    await engine.records.insert([Item(name=f"i{n}") for n in range(50)])
    start = time.monotonic()
    ticked = await engine.tick(3)
    assert 2.5 < time.monotonic() - start < 5.9
    assert not ticked.complete
    after = await states(engine, Item)
    assert "busy" not in after  # given back at once, not when the lease ends
    assert after["done"] == len(begun) - 2
    assert [item.attempts async for item in engine.records.each(Item, {"status": "new"})] == [
        0
    ] * after["new"]
    run = await engine.records.first(Run, {"cycle": "try.slow"})
    assert run.counters["taken"] == after["done"]
    assert load(run.message) == "cut by the time limit of the tick; the next run continues"


async def test_a_function_that_does_not_end_is_ended(new_engine: Any) -> None:
    app, begun = App("try"), asyncio.Event()

    @app.cycle(every="1h", singleton=True)
    async def stuck(run: RunContext) -> None:
        begun.set()
        await asyncio.Event().wait()

    engine = await new_engine(app)
    async with asyncio.timeout(60):
        while not begun.is_set():  # on a slow machine the time may be up before the run begins
            await engine.tick(1)
    run = await engine.records.first(Run, {"cycle": "try.stuck"})
    assert (run.status, load(run.message)) == ("error", "stopped before the end")
    card = await engine.records.get(CycleRecord, CycleRecord.kind.id_of("try.stuck"))
    assert card.status == "idle"


@pytest.mark.parametrize("answer", ["claim", "insert"])
async def test_a_run_that_is_ended_while_it_begins_leaves_nothing_behind(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """The store has written its lock or its row, and the answer is still on its way."""
    app, written, go = App("try"), asyncio.Event(), asyncio.Event()

    @app.cycle(every="1h", singleton=True)
    async def never(run: RunContext) -> None:
        raise AssertionError("it was ended before")

    engine = await new_engine(app)
    call = getattr(engine.store, answer)

    async def answer_late(*args: Any) -> Any:
        result = await call(*args)
        written.set()
        await go.wait()
        return result

    with monkeypatch.context() as patch:
        patch.setattr(engine.store, answer, answer_late)
        running = asyncio.create_task(engine.run_cycle("try.never"))
        await written.wait()
        running.cancel()
        await asyncio.sleep(0)
        go.set()
        await asyncio.wait([running])
        assert running.cancelled()
    card = await engine.records.get(CycleRecord, CycleRecord.kind.id_of("try.never"))
    assert (card.status, card.leased_by) == ("idle", None)
    runs = [run async for run in engine.records.each(Run, {"cycle": "try.never"})]
    assert [(run.status, load(run.message)) for run in runs] == [
        ("error", "stopped before the end")
    ]


@pytest.mark.promise(3)
async def test_ticks_may_overlap(new_engine: Any) -> None:
    app, seen = App("try"), []

    async def work(item: Item, at: Any) -> To:
        seen.append(item.name)
        await asyncio.sleep(0.01)
        return To("done")

    app.stage(Item, name="work", concurrency=4, **OPTIONS)(work)

    @app.cycle(every="1h")
    async def hourly(run: RunContext) -> None:
        await asyncio.sleep(0.2)

    engines = [await new_engine(app) for _ in range(3)]
    await engines[0].records.insert([Item(name=f"i{n}") for n in range(60)])
    ticked = await asyncio.gather(*(engine.tick(60) for engine in engines), engines[0].tick(60))
    assert sorted(seen) == sorted(f"i{n}" for n in range(60))
    assert sum(run.cycle.name == "try.hourly" for each in ticked for run in each.runs) == 1
    assert await states(engines[0], Item) == {"done": 60}
