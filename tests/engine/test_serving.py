"""A worker that serves: woken, scheduled, beating, stopped in order."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.item_pipeline import Item, pipeline
from support.scheduling import running_scheduler

from esclusa import App, Backoff, To
from esclusa.model.errors import StoreUnavailable
from esclusa.model.kind import Ref
from esclusa.model.system_records import RateRecord, Run, WorkerRecord
from esclusa.model.texts import load


async def until(check: Any, seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not await check():
            await asyncio.sleep(0.02)


def count(engine: Any, state: str) -> Any:
    async def full() -> int:
        return (await engine.records.count(Item, {"status": state}))[0]

    return full


async def test_an_idle_worker_is_woken_by_an_insert_from_another_process(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        return To("done")

    engine = await new_engine(pipeline(work), poll=30, register=True)
    other = await new_engine(pipeline(work))
    async with running_scheduler(engine):
        await asyncio.sleep(0.3)
        await other.records.insert([Item(name="a")])
        await until(lambda: _is(other, "a", "done"), 10)  # long before the poll
        workers = await other.read_model().workers()
        assert [(w["id"], w["alive"]) for w in workers] == [(engine.worker, True)]
    run = await other.records.first(Run, {"cycle": "try.work"})
    assert (run.status, run.counters) == ("ok", {"taken": 1, "done": 1})


async def _is(engine: Any, id: str, state: str) -> bool:
    return (await engine.records.get(Item, id)).status == state


async def test_a_long_handler_keeps_its_lease(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        await asyncio.sleep(5)
        return To("done")

    first = await new_engine(pipeline(work), lease=2)
    second = await new_engine(pipeline(work), lease=2)
    await first.records.insert([Item(name="a")])
    async with running_scheduler(first), running_scheduler(second):
        await until(lambda: _is(first, "a", "done"))
    item = await first.records.get(Item, "a")
    assert (item.attempts, item.fence) == (1, 1)


async def test_a_slow_record_does_not_hold_up_those_that_come_later(new_engine: Any) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(item: Item, at: Any) -> To:
        if item.name == "slow":
            begun.set()
            await go_on.wait()
        return To("done")

    engine = await new_engine(pipeline(work, concurrency=2))
    await engine.records.insert([Item(name="slow")])
    async with running_scheduler(engine):
        await begun.wait()
        await engine.records.insert([Item(name="later")])
        try:
            await until(lambda: _is(engine, "later", "done"))
        finally:
            go_on.set()


@pytest.mark.promise(3)
async def test_a_lost_lease_cancels_the_work_and_its_outcome_does_not_count(
    new_engine: Any,
) -> None:
    cancelled, started = asyncio.Event(), asyncio.Event()

    async def work(item: Item, at: Any) -> To:
        started.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            assert at.lost
            cancelled.set()
            raise
        return To("done")

    engine = await new_engine(pipeline(work), lease=1.0)
    await engine.records.insert([Item(name="a")])
    async with running_scheduler(engine) as scheduler:
        await started.wait()
        await engine.operations("ana").move("items", "bad", ids=["a"], reason="stop that")
        await asyncio.wait_for(cancelled.wait(), 10)
        scheduler.stop()
    item = await engine.records.get(Item, "a")
    assert (item.status, item.last_error) == ("bad", None)
    assert [(s.frm, s.to) for s in await engine.store.history(Ref(Item.kind, "a"))] == [
        ("new", "busy"),
        ("busy", "bad"),
    ]


@pytest.mark.promise(9)
async def test_an_orderly_stop_lets_handlers_end_and_gives_back_the_rest(new_engine: Any) -> None:
    begun = asyncio.Event()

    async def work(item: Item, at: Any) -> To:
        begun.set()
        await asyncio.sleep(0.3)
        return To("done")

    engine = await new_engine(pipeline(work, concurrency=2, batch=None))
    await engine.records.insert([Item(name=f"i{n:02}") for n in range(50)])
    async with running_scheduler(engine) as scheduler:
        await begun.wait()
        scheduler.stop()
    states: dict[str, int] = {}
    async for item in engine.records.each(Item):
        states[item.status] = states.get(item.status, 0) + 1
        assert item.leased_by is None
        assert item.attempts == (1 if item.status == "done" else 0)
    assert states["done"] == 2
    assert states["done"] + states["new"] == 50


@pytest.mark.promise(9)
async def test_a_second_stop_aborts_and_gives_records_back_at_once(new_engine: Any) -> None:
    begun = asyncio.Event()

    async def work(item: Item, at: Any) -> To:
        begun.set()
        await asyncio.sleep(60)
        return To("done")

    engine = await new_engine(pipeline(work), grace=60)
    await engine.records.insert([Item(name="a")])
    async with running_scheduler(engine) as scheduler:
        await begun.wait()
        scheduler.stop()
        scheduler.stop()
    item = await engine.records.get(Item, "a")
    assert (item.status, item.attempts, item.leased_by) == ("new", 0, None)


async def test_intervals_run_at_start_then_by_the_clock_and_shared_cycles_share(
    new_engine: Any,
) -> None:
    async def work(item: Item, at: Any) -> To:
        return To("done")

    app = pipeline(work, every="0.2s")
    first, second = await new_engine(app), await new_engine(app)
    await first.records.insert([Item(name=f"i{n:03}") for n in range(100)])
    async with running_scheduler(first), running_scheduler(second):
        await until(lambda: _equals(count(first, "done"), 100))
        await until(lambda: _several_runs(first))
    runs = [r async for r in first.records.each(Run, {"cycle": "try.work"})]
    assert sum(r.counters.get("done", 0) for r in runs) == 100
    # The end of the test may cut the last run of each scheduler.
    assert {r.status for r in runs if "by_stop" not in (r.message or "")} == {"ok"}


async def _equals(ask: Any, wanted: int) -> bool:
    return await ask() == wanted


async def _several_runs(engine: Any) -> bool:
    return (await engine.records.count(Run, {"cycle": "try.work", "status": "ok"}))[0] >= 3


async def test_a_singleton_cycle_runs_once_per_slot_in_the_cluster(new_engine: Any) -> None:
    running, most, total = 0, 0, 0
    app = App("try")

    @app.cycle(every="0.3s", singleton=True)
    async def ingest(run: Any) -> None:
        nonlocal running, most, total
        running, total = running + 1, total + 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1

    first, second, third = [await new_engine(app) for _ in range(3)]

    async def several() -> bool:
        return total >= 4

    async with running_scheduler(first), running_scheduler(second), running_scheduler(third):
        await until(several)
    assert most == 1
    slots = sorted(
        [
            datetime.fromisoformat(run.slot).timestamp() / 0.3
            async for run in first.records.each(Run, {"cycle": "try.ingest"})
        ]
    )
    assert len({round(slot, 2) for slot in slots}) == len(slots) == total
    assert all(slot == pytest.approx(round(slot), abs=0.01) for slot in slots[1:]), (
        "after the first, which is at once, all share the slots"
    )


async def test_runs_and_workers_that_died_are_ended(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        return To("done")

    engine = await new_engine(pipeline(work))
    now = await engine.store.now()
    expired = {"leased_by": "gone", "due_at": now}
    await engine.store.insert([
        Run(cycle="try.work", slot="1", worker="gone", started_at=now, **expired),
        WorkerRecord(id="gone", host="h", pid=1, version="0", started_at=now, **expired),
    ])  # fmt: skip
    await engine.run_cycle("esclusa.end-dead-runs")
    await engine.run_cycle("esclusa.end-dead-workers")
    run = await engine.records.first(Run, {"cycle": "try.work"})
    assert (run.status, load(run.message)) == (
        "error",
        "worker gone stopped without finishing this run",
    )
    assert (await engine.records.get(WorkerRecord, "gone")).status == "lost"


async def test_a_lost_worker_is_pruned(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        return To("done")

    engine = await new_engine(pipeline(work))
    now = await engine.store.now()
    expired = {"leased_by": "gone", "due_at": now}
    for id, started in (("old", now - timedelta(days=15)), ("new", now - timedelta(days=13))):
        worker = WorkerRecord(id=id, host="h", pid=1, version="0", started_at=started, **expired)
        await engine.store.insert([worker])
    await engine.run_cycle("esclusa.end-dead-workers")
    await engine.run_cycle("esclusa.prune")
    assert await engine.records.get(WorkerRecord, "old") is None
    assert (await engine.records.get(WorkerRecord, "new")).status == "lost"


async def test_a_worker_whose_record_was_pruned_registers_again(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        return To("done")

    engine = await new_engine(pipeline(work), register=True)
    before = await engine.records.get(WorkerRecord, engine.worker)
    await engine.store.remove([before.ref])
    await engine.registration.restore([before.ref])
    after = await engine.records.get(WorkerRecord, engine.worker)
    assert (after.status, after.cycles, after.leased_by) == (
        "running",
        before.cycles,
        engine.worker,
    )


async def test_rates_are_kept_by_minute(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        return To("done")

    engine = await new_engine(pipeline(work, every="1h"))
    await engine.records.insert([Item(name=f"i{n}") for n in range(7)])
    await engine.run_cycle("try.work")
    await engine.rates.flush(all=True)
    rows = [r async for r in engine.records.each(RateRecord, {"stage": "try.work"})]
    assert sum(r.moved for r in rows) == 7
    assert sum(sum(r.histogram) for r in rows) == 7


@pytest.mark.promise(9)
async def test_a_handler_that_is_slow_to_stop_does_not_hold_up_the_end(new_engine: Any) -> None:
    """The run may be cancelled before its handler ends; the task still ends."""
    begun = asyncio.Event()

    async def work(item: Item, at: Any) -> To:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(60)
        return To("done")

    engine = await new_engine(pipeline(work, every="1h"))
    await engine.records.insert([Item(name="a")])
    run = asyncio.create_task(engine.run_cycle("try.work"))
    await begun.wait()
    engine.stop()
    engine.abort()
    await asyncio.sleep(0)
    run.cancel()  # as a server does with a request that is not over in time
    await asyncio.wait([run], timeout=10)
    assert run.done()
    handlers = [task for task in asyncio.all_tasks() if task.get_name() == "try.work handler"]
    assert len(handlers) == 1
    handlers[0].cancel()  # as the end of a process does with every task
    await asyncio.wait(handlers, timeout=10)
    assert handlers[0].done()


@pytest.mark.promise(9)
@pytest.mark.parametrize("stops", [1, 2])
async def test_a_store_that_is_away_does_not_hold_up_the_end(
    new_engine: Any, monkeypatch: Any, stops: int
) -> None:
    """Outcomes that cannot be written within the grace period are lost; the leases expire."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def work(item: Item, at: Any) -> To:
        begun.set()
        await end.wait()
        return To("done")

    async def away(batch: Any) -> Any:
        raise StoreUnavailable("the store is away")

    engine = await new_engine(pipeline(work), grace=0.5 if stops == 1 else 60, register=True)
    await engine.records.insert([Item(name="a")])
    async with running_scheduler(engine) as scheduler:
        await begun.wait()
        with monkeypatch.context() as patch:
            patch.setattr(engine.store, "settle", away)
            patch.setattr(engine.store, "renew", away)
            end.set()
            for _ in range(stops):
                scheduler.stop()
            await until(lambda: _ended("try.work"))
    item = await engine.records.get(Item, "a")
    assert (item.status, item.leased_by) == ("busy", engine.worker)


async def _ended(task: str) -> bool:
    return all(other.get_name() != task for other in asyncio.all_tasks())


async def test_a_failed_exhaustion_is_logged_and_retried(new_engine: Any) -> None:
    """A failing ``on_exhausted`` delays its own record only."""

    async def work(item: Item, at: Any) -> To:
        if item.name == "a":
            raise ValueError("no")
        return To("done")

    def effects(item: Item) -> list[Any]:
        raise KeyError("price")

    engine = await new_engine(
        pipeline(
            work, every="1h", concurrency=1, retry=Backoff(tries=1, base=60), on_exhausted=effects
        )
    )
    await engine.records.insert([Item(name="a"), Item(name="b")])
    async with asyncio.timeout(20):
        run = await engine.run_cycle("try.work")
    assert (run.counters["retried"], run.counters["done"]) == (1, 1)
    item = await engine.records.get(Item, "a")
    assert (item.status, item.attempts, item.last_error["type"]) == ("new", 1, "key_error")
