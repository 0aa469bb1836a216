"""Crash suspects in a worker: in small groups beside other work, then alone."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from support.scheduling import running_scheduler

from esclusa import App, Attempt, Backoff, Lifecycle, Record, To
from esclusa.engine import suspects
from esclusa.model import decide
from esclusa.model.errors import StoreUnavailable
from esclusa.model.system_records import DeadLetter

pytestmark = pytest.mark.promise(7)

STATES = """
    new -> busy -> done
    busy -> new | bad
    bad -> new
"""


class Item(Record, table="items", key="name"):
    name: str
    lifecycle = Lifecycle(STATES)


class Page(Record, table="pages", key="name"):
    name: str
    lifecycle = Lifecycle(STATES)


def pipeline(*handlers: Any, **options: Any) -> App:
    """Stages that handle items and, with a second handler, pages."""
    app = App("try")
    options = {
        "take": "new",
        "hold": "busy",
        "exhausted": "bad",
        "retry": Backoff(tries=3, base=0, jitter=0),
        "concurrency": 16,
    } | options
    for kind, handler in zip((Item, Page), handlers, strict=False):
        app.stage(kind, name=kind.kind.table, **options)(handler)
    if len(handlers) == 1:
        app.records += [Page]
    return app


async def insert_orphans(engine: Any, names: list[str], holder: str, **fields: Any) -> None:
    """Insert items as a crashed worker leaves them."""
    due = await engine.store.now() - timedelta(seconds=1)
    values = {"status": "busy", "attempts": 1, "leased_by": holder, "due_at": due} | fields
    await engine.records.insert([Item(name=name, **values) for name in names])


async def until_done(engine: Any, count: int, kind: type[Record] = Item) -> None:
    async with asyncio.timeout(20):
        while (await engine.records.count(kind, {"status": "done"}))[0] < count:
            await asyncio.sleep(0.02)


async def eventually(check: Any) -> None:
    async with asyncio.timeout(20):
        while not check():
            await asyncio.sleep(0.02)


async def items(engine: Any) -> dict[str, Item]:
    return {item.name: item async for item in engine.records.each(Item)}


def is_suspect(record: Any) -> bool:
    return bool(record.name.startswith("s"))


async def test_at_most_eight_are_handled_at_a_time_beside_other_work(new_engine: Any) -> None:
    running: set[str] = set()
    most, go_on = [0], asyncio.Event()

    async def work(item: Item, at: Attempt) -> To:
        assert at.number == 1
        if is_suspect(item):
            running.add(item.name)
            most[0] = max(most[0], len(running))
            [stored] = await engine.store.get(Item.kind, [item.name])
            assert stored.leased_by == f"{engine.worker}/8"
            await go_on.wait()
            running.discard(item.name)
        return To("done")

    engine = await new_engine(pipeline(work))
    await insert_orphans(engine, [f"s{n:02}" for n in range(20)], "dead")
    await engine.records.insert([Item(name=f"i{n:02}") for n in range(60)])
    async with running_scheduler(engine):
        await until_done(engine, 60)  # the others are not held up
        await eventually(lambda: len(running) == 8)
        go_on.set()
        await until_done(engine, 80)
    assert most == [8]
    assert {(i.attempts, i.leased_by) for i in (await items(engine)).values()} == {(1, None)}


async def test_what_was_in_a_group_is_handled_alone_in_the_whole_process(new_engine: Any) -> None:
    running: list[str] = []
    alone: list[str] = []

    async def work(record: Any, at: Attempt) -> To:
        assert not any(name.startswith("s") for name in running)
        if is_suspect(record):
            assert not running
            [stored] = await engine.store.get(Item.kind, [record.name])
            assert stored.leased_by == f"{engine.worker}/1"
            alone.append(record.name)
        running.append(record.name)
        await asyncio.sleep(0.02)
        running.remove(record.name)
        return To("done")

    engine = await new_engine(pipeline(work, work))
    await engine.records.insert([Item(name=f"i{n:02}") for n in range(100)])
    await engine.records.insert([Page(name=f"p{n:02}") for n in range(100)])
    async with running_scheduler(engine):
        await eventually(lambda: running)
        await insert_orphans(engine, ["s1", "s2", "s3"], "dead/8")
        await insert_orphans(engine, ["s4"], "dead/1")
        await until_done(engine, 104)
        await until_done(engine, 100, Page)
    assert sorted(alone) == ["s1", "s2", "s3", "s4"]
    found = await items(engine)
    assert {name: item.attempts for name, item in found.items() if item.attempts != 1} == {"s4": 2}


async def test_a_batch_of_suspects_is_no_larger_than_its_group(new_engine: Any) -> None:
    sizes: list[tuple[int, bool]] = []

    async def work(batch: list[Item], at: Attempt) -> list[To]:
        names = [item.name for item in batch]
        assert len({name[0] for name in names}) == 1, names  # no suspect beside another record
        sizes.append((len(batch), names[0][0]))
        await asyncio.sleep(0.01)
        return [To("done")] * len(batch)

    engine = await new_engine(pipeline(work, batch=20, concurrency=2))
    await insert_orphans(engine, [f"g{n:02}" for n in range(20)], "dead")
    await insert_orphans(engine, [f"a{n:02}" for n in range(5)], "dead/8")
    await engine.records.insert([Item(name=f"i{n:02}") for n in range(40)])
    await engine.run_cycle("try.items")
    assert max(size for size, kind in sizes if kind == "g") <= 8
    assert [size for size, kind in sizes if kind == "a"] == [1] * 5
    assert max(size for size, kind in sizes if kind == "i") == 20
    assert {(i.status, i.attempts) for i in (await items(engine)).values()} == {("done", 1)}


async def test_a_record_that_crashed_alone_with_its_last_attempt_is_exhausted(
    new_engine: Any,
) -> None:
    called: list[str] = []

    async def work(item: Item, at: Attempt) -> To:
        called.append(item.name)
        return To("done")

    engine = await new_engine(pipeline(work))
    await insert_orphans(engine, ["poison"], "dead/1", attempts=3)
    await insert_orphans(engine, ["last"], "dead/8", attempts=3)
    await insert_orphans(engine, ["before"], "dead/1", attempts=2)
    await engine.run_cycle("try.items")
    assert sorted(called) == ["before", "last"]
    found = {n: (i.status, i.attempts, i.leased_by) for n, i in (await items(engine)).items()}
    assert found == {
        "poison": ("bad", 3, None),
        "last": ("done", 3, None),
        "before": ("done", 3, None),
    }
    [letter] = (await engine.records.find(DeadLetter)).items
    assert (letter.record_id, letter.error_type, letter.attempts) == ("poison", "crash", 3)


@pytest.mark.promise(9)
@pytest.mark.parametrize("stops", [1, 2])
async def test_suspects_that_are_given_back_keep_their_rank(new_engine: Any, stops: int) -> None:
    """``stops``: 1 lets the handlers end, 2 aborts them."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    handled: list[str] = []

    async def work(item: Item, at: Attempt) -> To:
        begun.set()
        await go_on.wait()
        handled.append(item.name)
        return To("done")

    first = await new_engine(pipeline(work, concurrency=4), lease=600, grace=60)
    await insert_orphans(first, ["a1", "a2"], "dead/8")
    await insert_orphans(first, ["g1", "g2"], "dead")
    async with running_scheduler(first) as scheduler:
        await begun.wait()
        for _ in range(stops):
            scheduler.stop()
        if stops == 1:
            go_on.set()
    left = {n: i for n, i in (await items(first)).items() if i.status == "busy"}
    assert len(left) == (3 if stops == 1 else 4)
    now = await first.store.now()
    for name, item in left.items():
        mark = "/8" if name.startswith("a") else ""
        assert (item.attempts, item.leased_by) == (1, first.worker + mark)
        assert item.due_at <= now
    go_on.set()
    second = await new_engine(pipeline(work), lease=600)  # nothing has to expire
    run = await second.run_cycle("try.items")
    assert run.counters == {"taken": len(left), "done": len(left)}
    assert sorted(handled) == ["a1", "a2", "g1", "g2"]
    assert {(i.status, i.attempts) for i in (await items(first)).values()} == {("done", 1)}


async def test_a_suspect_that_is_lost_while_it_waits_is_not_handled(new_engine: Any) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    called: list[str] = []

    async def work(item: Item, at: Attempt) -> To:
        called.append(item.name)
        begun.set()
        await go_on.wait()
        return To("done")

    engine = await new_engine(pipeline(work))
    await engine.records.insert([Item(name="long")])
    async with running_scheduler(engine):
        await begun.wait()
        await insert_orphans(engine, ["s1", "s2"], "dead/8")
        await eventually(lambda: engine._suspects.paused)
        await engine.operations("ana").move("items", "bad", ids=["s1"], reason="stop that")
        go_on.set()
        await until_done(engine, 2)
    assert sorted(called) == ["long", "s2"]
    assert (await items(engine))["s1"].status == "bad"


async def test_a_long_handler_delays_a_suspect_but_not_the_others(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspects, "DRAIN", 0.2)
    begun, go_on = asyncio.Event(), asyncio.Event()
    handled: list[str] = []

    async def work(item: Item, at: Attempt) -> To:
        if item.name == "long":
            begun.set()
            await go_on.wait()
        handled.append(item.name)
        return To("done")

    engine = await new_engine(pipeline(work))
    await engine.records.insert([Item(name="long")])
    async with running_scheduler(engine):
        await begun.wait()
        await insert_orphans(engine, ["s1"], "dead/8")
        await eventually(lambda: engine._suspects.paused)
        await engine.records.insert([Item(name=f"i{n}") for n in range(50)])
        await until_done(engine, 50)
        assert "s1" not in handled
        go_on.set()
        await until_done(engine, 52)
    assert (await items(engine))["s1"].attempts == 1


async def test_a_suspect_that_takes_long_is_not_alone_for_ever(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspects, "ALONE", 0.2)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(item: Item, at: Attempt) -> To:
        if is_suspect(item):
            begun.set()
            await go_on.wait()
        return To("done")

    engine = await new_engine(pipeline(work, concurrency=2))
    await insert_orphans(engine, ["s1"], "dead/8")
    async with running_scheduler(engine):
        await begun.wait()
        await engine.records.insert([Item(name=f"i{n}") for n in range(50)])
        await until_done(engine, 50)
        go_on.set()
        await until_done(engine, 51)


@pytest.mark.parametrize("failures", [2, 99])
async def test_a_suspect_is_not_handled_while_it_cannot_be_marked(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    monkeypatch.setattr(suspects, "PAUSE", 0.01)
    called: list[str] = []
    left = [failures]

    async def work(item: Item, at: Attempt) -> To:
        called.append(item.name)
        return To("done")

    engine = await new_engine(pipeline(work))
    await insert_orphans(engine, ["s1"], "dead")
    await insert_orphans(engine, ["s2"], "dead/8")
    await engine.records.insert([Item(name="i1")])
    renew = engine.store.renew

    async def away(renewals: Any) -> Any:
        if left[0] and any(renewal.holder for renewal in renewals):
            left[0] -= 1
            raise StoreUnavailable("the store is away")
        return await renew(renewals)

    with monkeypatch.context() as patch:
        patch.setattr(engine.store, "renew", away)
        run = await engine.run_cycle("try.items")
    if failures == 2:
        assert sorted(called) == ["i1", "s1", "s2"]
        return
    assert called == ["i1"]
    assert run.counters == {"taken": 1, "done": 1}
    engine.store.clock_offset += 60  # their leases expire
    await engine.run_cycle("try.items")
    assert sorted(called) == ["i1", "s1", "s2"]
    assert {(i.status, i.attempts) for i in (await items(engine)).values()} == {("done", 1)}


async def test_an_error_of_the_store_in_a_handler_counts_no_attempt(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "STORE_PAUSE", 0.01)
    numbers: list[int] = []

    async def work(item: Item, at: Attempt) -> To:
        numbers.append(at.number)
        if len(numbers) < 6:
            raise StoreUnavailable("the store is away")
        return To("done")

    engine = await new_engine(pipeline(work))
    await engine.records.insert([Item(name="i1")])
    async with running_scheduler(engine):
        await until_done(engine, 1)
    assert numbers == [1] * 6
    steps = await engine.store.history((await items(engine))["i1"].ref)
    assert "the store is away" in str(steps[1].reason)
