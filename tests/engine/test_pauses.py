"""Whole stages pause: when a handler asks for it, when a breaker trips; rates do not idle."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from support.item_pipeline import Item, pipeline
from support.scheduling import running_scheduler

from esclusa import (
    ArtifactError,
    Backoff,
    Breaker,
    Budget,
    Failure,
    Rate,
    Throttled,
    To,
    Wait,
    Window,
)
from esclusa.engine.engine import Engine
from esclusa.model.errors import DeclarationError
from esclusa.model.query import one_of
from esclusa.model.system_records import Alert, Run, StagePause
from esclusa.model.texts import load


def items(count: int, first: int = 0) -> list[Item]:
    return [Item(name=f"i{n:04}") for n in range(first, first + count)]


async def until(found: Callable[[], Any], seconds: float = 30) -> Any:
    async with asyncio.timeout(seconds):
        while not (result := await found()):
            await asyncio.sleep(0.05)
    return result


async def count(engine: Engine, status: str) -> int:
    return (await engine.records.count(Item, {"status": status}))[0]


async def open_alerts(engine: Engine) -> list[str]:
    where = {"status": one_of("raised", "seen")}
    return [a.key async for a in engine.records.each(Alert, where)]


async def shift(*engines: Engine, seconds: float) -> None:
    for engine in engines:
        engine.store.clock_offset += seconds
        await engine.clock.sync()


# even rates


@pytest.mark.promise(6)
async def test_an_always_on_stage_uses_every_second_of_its_budget(new_engine: Any) -> None:
    calls: list[float] = []

    async def work(item: Item, at: Any) -> To:
        calls.append(time.monotonic())
        return To("done")

    budget = Budget("calls", Window("second", 4))
    engine = await new_engine(pipeline(work, budget=budget, concurrency=1), poll=5.0)
    await engine.records.insert(items(16))
    scheduler = engine.scheduler()
    serving = asyncio.create_task(scheduler.serve())
    await until(lambda: asyncio.sleep(0, len(calls) == 16), 20)
    scheduler.stop()
    await serving
    # Four in each of four windows that follow one another, whatever the poll.
    assert calls[-1] - calls[0] < 5.0


async def test_two_workers_share_an_even_rate(new_engine: Any) -> None:
    calls: list[float] = []

    async def work(item: Item, at: Any) -> To:
        calls.append(time.monotonic())
        return To("done")

    app = pipeline(work, budget=Budget("calls", Rate(10, "second")), every="1h")
    engines = [await new_engine(app), await new_engine(app)]
    await engines[0].records.insert(items(20))
    runs = await asyncio.gather(*(e.run_cycle("try.work") for e in engines))
    assert {run.outcome for run in runs} == {"ok"}
    assert len(calls) == 20
    assert calls[-1] - calls[0] >= 1.8
    early, late = min(calls[9:11]) - calls[0], calls[-1] - calls[10]
    assert min(early, late) > 0.7  # neither half came in a burst


async def test_why_says_when_the_next_unit_of_a_rate_is_free(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        return To("done")

    app = pipeline(work, budget=Budget("calls", Rate(2, "hour")), every="1h")
    engine = await new_engine(app, register=True)
    await engine.records.insert(items(2))
    run = await engine.run_cycle("try.work")
    assert (run.outcome, run.counters["done"]) == ("blocked", 1)
    left = await engine.records.first(Item, {"status": "new"})
    answer = await engine.read_model().why("items", left.id)
    [reason] = [r for r in answer.reasons if r.code == "budget"]
    assert "spaces its units evenly" in reason.text
    assert reason.until is not None


# waits of a whole stage


@pytest.mark.parametrize("how", ["answer", "error"])
async def test_a_throttled_stage_claims_nothing_in_any_worker(new_engine: Any, how: str) -> None:
    calls: list[str] = []

    async def work(item: Item, at: Any) -> To | Wait:
        calls.append(item.name)
        if len(calls) == 1 and how == "answer":
            return Wait("10m", "the provider answered 429", stage=True)
        if len(calls) == 1:
            raise Throttled("the provider answered 429", after=600)
        return To("done")

    app = pipeline(work, concurrency=1, every="1h")
    first, second = await new_engine(app, register=True), await new_engine(app)
    await first.records.insert(items(9))
    run = await first.run_cycle("try.work")
    assert run.outcome == "blocked"
    assert "the provider answered 429" in str(run.message)
    assert (await second.run_cycle("try.work")).outcome == "blocked"
    third = await new_engine(app)  # as after a restart
    assert (await third.run_cycle("try.work")).outcome == "blocked"
    assert len(calls) == 1
    rows = [i async for i in first.records.each(Item)]
    assert {(i.status, i.attempts) for i in rows} == {("new", 0)}

    model = first.read_model()
    [stage] = await model.stages()
    assert stage["pause"]["cause"] == "wait"
    assert stage["pause"]["reason"] == "the provider answered 429"
    answer = await model.why("items", rows[-1].id)
    [reason] = [r for r in answer.reasons if r.code == "stage_paused"]
    assert "429" in reason.text
    assert reason.until == stage["pause"]["until"]

    await shift(first, second, third, seconds=601)
    assert (await second.run_cycle("try.work")).outcome == "ok"
    assert await count(first, "done") == 9
    assert [s["pause"] for s in await model.stages()] == [None]
    assert await open_alerts(first) == []


async def test_an_always_on_worker_stops_claiming_when_another_one_is_throttled(
    new_engine: Any,
) -> None:
    calls: list[float] = []

    async def work(item: Item, at: Any) -> To | Wait:
        calls.append(time.monotonic())
        if len(calls) == 1:
            return Wait(2, "429", stage=True)
        return To("done")

    app = pipeline(work, concurrency=1)
    engines = [await new_engine(app), await new_engine(app)]
    schedulers = [engine.scheduler() for engine in engines]
    serving = [asyncio.create_task(s.serve()) for s in schedulers]
    await asyncio.sleep(0.5)
    await engines[0].records.insert(items(1))
    await until(lambda: asyncio.sleep(0, calls))
    await asyncio.sleep(0.6)
    await engines[0].records.insert(items(5, 1))
    await until(lambda: count(engines[0], "done"), 20)
    assert calls[1] - calls[0] >= 1.9
    for scheduler in schedulers:
        scheduler.stop()
    await asyncio.gather(*serving)


@pytest.mark.parametrize("provider", ["firestore"], indirect=True)
async def test_an_idle_worker_reads_pauses_seldom_where_reads_are_paid_for(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        return To("done")

    engine, other = await new_engine(pipeline(work)), await new_engine(pipeline(work))
    here, there = (each.pauses.gate(each.all_stages[0]) for each in (engine, other))
    queries: Counter[str] = Counter()
    engine.store.watch_queries(lambda op, shape: queries.update([shape.collection]))
    async with running_scheduler(engine):
        await asyncio.sleep(1.4)
        assert queries["items"] > 5  # it polls for work
        assert queries[Run.kind.table] > 0  # and looks after runs
        assert queries[StagePause.kind.table] == 1  # when the stage begins
        there.judge(Wait(60, "429", stage=True), attempt=1)
        await until(lambda: asyncio.sleep(0, here.pause))  # notified by the other process
        engine.store.watch_queries(None)


# breakers


class Provider:
    """What a handler depends on: it is away for a while."""

    def __init__(self) -> None:
        self.away = True
        self.calls: list[str] = []

    async def work(self, item: Item, at: Any) -> To:
        self.calls.append(item.name)
        await asyncio.sleep(0)
        if self.away:
            raise ArtifactError("the store does not answer")
        return To("done")


BREAKER = Breaker("storage_error", errors=3, pause=60, cap=240)


async def test_a_breaker_pauses_without_counting_and_tries_one_record_at_a_time(
    new_engine: Any,
) -> None:
    provider = Provider()
    app = pipeline(provider.work, breaker=BREAKER, every="1m", alert_min=1)
    first, second = await new_engine(app), await new_engine(app)
    await first.records.insert(items(40))
    run = await first.run_cycle("try.work")
    assert run.outcome == "blocked"
    assert len(provider.calls) <= 16  # those under way
    assert await count(first, "new") == 40
    rows = [i async for i in first.records.each(Item)]
    assert sum(i.attempts for i in rows) == 2  # the third tripped it
    assert await open_alerts(first) == ["stage_paused:try.work"]

    pauses = []
    for engine in (second, first, second):
        before = len(provider.calls)
        [stage] = await first.read_model().stages()
        now = await first.store.now()
        pauses.append(round((stage["pause"]["until"] - now).total_seconds(), -1))
        await shift(first, second, seconds=pauses[-1] + 5)
        assert (await engine.run_cycle("try.work")).outcome == "blocked"
        assert len(provider.calls) == before + 1
    assert pauses == [60, 120, 240]
    assert await open_alerts(first) == ["stage_paused:try.work"]
    assert await count(first, "bad") == 0

    provider.away = False
    await shift(first, second, seconds=245)
    run = await second.run_cycle("try.work")
    assert (run.outcome, await count(first, "done")) == ("ok", 40)
    await first.judge.judge()
    assert [a.status async for a in first.records.each(Alert)] == ["ended"]
    assert [s["pause"] for s in await first.read_model().stages()] == [None]


async def test_an_always_on_stage_goes_on_when_the_breaker_closes(new_engine: Any) -> None:
    provider = Provider()
    breaker = Breaker("storage_error", errors=2, pause=0.3, factor=1)
    engine = await new_engine(pipeline(provider.work, breaker=breaker, concurrency=4))
    scheduler = engine.scheduler()
    serving = asyncio.create_task(scheduler.serve())
    await engine.records.insert(items(30))
    await until(lambda: asyncio.sleep(0, len(provider.calls) >= 8))
    provider.away = False
    await until(lambda: count(engine, "done"))
    await until(lambda: asyncio.sleep(0, len(set(provider.calls)) == 30))
    scheduler.stop()
    await serving
    assert await count(engine, "done") == 30
    await until(lambda: _none_open(engine))
    assert len([a async for a in engine.records.each(Alert)]) == 1


async def test_an_outage_costs_no_record_its_last_attempt(new_engine: Any) -> None:
    provider = Provider()
    retry = Backoff(tries=1)
    engine = await new_engine(pipeline(provider.work, breaker=BREAKER, retry=retry, every="1m"))
    await engine.records.insert(items(2))  # in one run fewer errors than trip the breaker
    for _ in range(2):
        await engine.run_cycle("try.work")
    assert (await count(engine, "new"), await count(engine, "bad")) == (2, 0)
    provider.away = False
    await shift(engine, seconds=65)
    await engine.run_cycle("try.work")
    assert await count(engine, "done") == 2


async def test_a_record_that_fails_while_others_are_handled_is_exhausted(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        if item.name == "i0000":
            raise Failure("the file is too large", type="storage_error")
        return To("done")

    retry = Backoff(tries=1)
    app = pipeline(work, breaker=BREAKER, retry=retry, every="1m", concurrency=1)
    engine = await new_engine(app)
    await engine.records.insert(items(6))
    for _ in range(2):
        await engine.run_cycle("try.work")
    assert (await count(engine, "done"), await count(engine, "bad")) == (5, 1)


async def _none_open(engine: Engine) -> bool:
    return not await open_alerts(engine)


async def test_other_errors_count_and_do_not_trip_the_breaker(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        raise Failure("a dead link", type="http_error")

    engine = await new_engine(pipeline(work, breaker=BREAKER, every="1m"))
    await engine.records.insert(items(9))
    await engine.run_cycle("try.work")
    assert {i.attempts async for i in engine.records.each(Item)} == {1}
    assert [s["pause"] for s in await engine.read_model().stages()] == [None]


async def test_a_worker_that_dies_while_it_tries_leaves_the_try_to_another(
    new_engine: Any,
) -> None:
    provider = Provider()
    app = pipeline(provider.work, breaker=BREAKER, every="1m")
    first, second = await new_engine(app), await new_engine(app)
    await first.records.insert(items(5))
    await first.run_cycle("try.work")
    await shift(first, second, seconds=65)
    gate = first.pauses.gate(first.all_stages[0])
    await gate.refresh()
    assert await gate.passes(object())
    gate.lease = None  # nobody renews it: the process is gone
    provider.away = False
    assert (await second.run_cycle("try.work")).outcome == "blocked"
    await shift(first, second, seconds=31)  # its lease
    assert (await second.run_cycle("try.work")).outcome == "ok"
    assert await count(second, "done") == 5


async def test_resuming_the_cycle_ends_the_pause(new_engine: Any) -> None:
    provider = Provider()
    engine = await new_engine(pipeline(provider.work, breaker=BREAKER, every="1m"))
    await engine.records.insert(items(5))
    await engine.run_cycle("try.work")
    provider.away = False
    await engine.operations("ana").resume("try.work", "it is back")
    assert (await engine.run_cycle("try.work")).outcome == "ok"
    assert await count(engine, "done") == 5
    await engine.judge.judge()
    assert await open_alerts(engine) == []


def test_a_wrong_breaker_names_every_fault() -> None:
    with pytest.raises(DeclarationError) as caught:
        Breaker((), errors=0, pause="soon", factor=0.5)
    assert len(caught.value.faults) == 4


# alerts


async def test_the_same_failing_records_raise_one_alert(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        if item.name < "i0006":
            raise Failure("a dead link", type="http_error")
        return To("done")

    retry = Backoff(tries=9, base=60, factor=1, jitter=0)
    engine = await new_engine(pipeline(work, retry=retry, every="1m"))
    await engine.records.insert(items(6))
    for n in range(5):
        await engine.run_cycle("try.work")
        await shift(engine, seconds=61)
        await engine.run_cycle("try.work")
        await engine.records.insert(items(30, 100 * (n + 1)))
        await engine.run_cycle("try.work")
        await engine.judge.judge()
    alerts = [a async for a in engine.records.each(Alert, order="begun_at")]
    assert [a.name for a in alerts] == ["error_rate"]
    assert "6 of 6" in load(alerts[0].message)


def test_pauses_grow_to_the_cap() -> None:
    lengths = [timedelta(seconds=BREAKER.seconds(n)) for n in range(1, 9)]
    assert all(a <= b for a, b in pairwise(lengths))
    assert lengths[-1] == timedelta(minutes=4)
