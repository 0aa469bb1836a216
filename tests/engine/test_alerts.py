"""Alerts: one when something begins to be wrong, one line when it is over, however many judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support.item_pipeline import Item, pipeline
from support.scheduling import running_scheduler

from esclusa import (
    App,
    Budget,
    Permanent,
    RunContext,
    To,
    Wait,
    Window,
)
from esclusa.engine.engine import Engine
from esclusa.model.errors import StoreUnavailable
from esclusa.model.kind import Ref
from esclusa.model.settlement import Settlement
from esclusa.model.system_records import Alert, Run
from esclusa.model.texts import load, text


class Inbox:
    """A sink that keeps what it gets: name, subject, and whether it began or ended."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, str]] = []
        self.messages: list[str] = []

    async def __call__(self, alert: Alert) -> None:
        self.got.append((alert.name, alert.subject, "ended" if alert.ended_at else "begun"))
        self.messages.append(alert.message)


async def done(item: Item, at: Any) -> To:
    return To("done")


async def alerts(engine: Engine) -> list[Alert]:
    return [a async for a in engine.records.each(Alert, order="-begun_at")]


async def until(found: Callable[[], Any], seconds: float = 30) -> Any:
    async with asyncio.timeout(seconds):
        while not (result := await found()):
            await asyncio.sleep(0.05)
    return result


async def test_an_always_on_stage_is_judged(new_engine: Any) -> None:
    """20 of 24 failed: nobody ends this run, and the alert comes all the same."""
    broken = True
    inbox = Inbox()

    async def work(item: Item, at: Any) -> To:
        if broken and int(item.name[1:]) % 6:
            raise Permanent("refused", type="refused")
        return To("done")

    engine = await new_engine(pipeline(work), judge=0.2, alert_sink=inbox)
    await engine.records.insert([Item(name=f"a{n}") for n in range(24)])
    async with running_scheduler(engine):
        [alert] = await until(lambda: alerts(engine))
        assert (alert.key, alert.status, alert.ended_at) == ("error_rate:try.work", "raised", None)
        assert "records failed" in load(alert.message)
        broken = False
        for part in range(8):  # those that failed lose their weight
            await engine.records.insert([Item(name=f"{part}b{n}") for n in range(24)])
        await until(lambda: ended(engine))
    [alert] = await alerts(engine)
    assert alert.begun_at < alert.ended_at
    assert inbox.got == [("error_rate", "try.work", "begun"), ("error_rate", "try.work", "ended")]


async def ended(engine: Engine) -> bool:
    return all(alert.status == "ended" for alert in await alerts(engine))


async def test_a_few_failures_in_each_of_many_workers_are_judged_together(new_engine: Any) -> None:
    """Each worker alone has too few attempts."""

    async def work(item: Item, at: Any) -> To:
        raise Permanent("refused", type="refused")

    engines = [await new_engine(pipeline(work)) for _ in range(3)]
    for n, engine in enumerate(engines):
        await engine.records.insert([Item(name=f"{n}{each}") for each in "ab"])
        await engine.run_cycle("try.work")
        assert await alerts(engine) == []
        await engine.rates.flush(all=True)
    async with running_scheduler(engines[0]):
        await until(lambda: asyncio.sleep(0, engines[0].under_way("try.work")))
        await engines[0].judge.judge()
    [alert] = await alerts(engines[0])
    assert (alert.name, alert.details) == ("error_rate", {"failed": 6, "taken": 6})


async def test_runs_that_fail_are_one_alert_until_one_succeeds(new_engine: Any) -> None:
    broken = True
    inbox = Inbox()
    app = App("try", records=[Item])

    @app.cycle(every="1h")
    async def ingest(run: RunContext) -> None:
        if broken:
            raise RuntimeError("no site")

    engine, other = [await new_engine(app, alert_sink=inbox) for _ in range(2)]
    for each in (engine, other, engine):
        assert (await each.run_cycle("try.ingest")).outcome == "error"
    [alert] = await alerts(engine)
    assert (alert.key, alert.number) == ("cycle_failed:try.ingest", 1)
    broken = False
    await other.run_cycle("try.ingest")
    await engine.run_cycle("try.ingest")
    assert inbox.got == [
        ("cycle_failed", "try.ingest", "begun"),
        ("cycle_failed", "try.ingest", "ended"),
    ]
    broken = True
    restarted = await new_engine(app, alert_sink=inbox)
    await restarted.run_cycle("try.ingest")
    assert [(a.number, a.status) for a in await alerts(engine)] == [(2, "raised"), (1, "ended")]
    assert len(inbox.got) == 3


async def test_a_blocked_run_is_an_alert_of_its_own(new_engine: Any) -> None:
    budget = Budget("calls", Window("day", 3))
    engine = await new_engine(pipeline(done, budget=budget, every="1h"))
    await engine.records.insert([Item(name=f"i{n}") for n in range(5)])
    assert (await engine.run_cycle("try.work")).outcome == "blocked"
    [alert] = await alerts(engine)
    assert alert.key == "cycle_blocked:try.work"
    assert "budget calls is empty until" in load(alert.message)
    await engine.store.observe(budget, "day", limit=100)
    assert (await engine.run_cycle("try.work")).outcome == "ok"
    assert await ended(engine)


async def test_a_run_without_records_does_not_end_the_alert_of_a_blocked_one(
    new_engine: Any,
) -> None:
    blocked = True

    async def work(item: Item, at: Any) -> Any:
        if blocked:
            at.run.halt("blocked", "the token is refused")
            return Wait(60, "refused")
        return To("done")

    engine = await new_engine(pipeline(work, every="1h"))
    await engine.records.insert([Item(name="i1")])
    assert (await engine.run_cycle("try.work")).outcome == "blocked"
    assert (await engine.run_cycle("try.work")).counters["taken"] == 0
    await engine.judge.judge()
    assert [a.status for a in await alerts(engine)] == ["raised"]
    blocked = False
    engine.store.clock_offset += 61
    await engine.clock.sync()
    assert (await engine.run_cycle("try.work")).counters["done"] == 1
    assert [a.status for a in await alerts(engine)] == ["ended"]


async def test_a_pipeline_has_alerts_of_its_own(new_engine: Any) -> None:
    wrong, inbox = True, Inbox()
    app = App("try", records=[Item])

    @app.cycle(every="1h")
    async def ingest(run: RunContext) -> None:
        if wrong:
            await run.alert("source_unreadable", "page 0 has no card", page=0)
        else:
            await run.end_alert("source_unreadable")

    engine, other = [await new_engine(app, alert_sink=inbox) for _ in range(2)]
    for each in (engine, other):
        assert (await each.run_cycle("try.ingest")).outcome == "ok"
    [alert] = await alerts(engine)
    assert (alert.key, alert.message) == ("source_unreadable:try.ingest", "page 0 has no card")
    assert alert.details["page"] == 0
    await engine.judge.judge()
    wrong = False
    await other.run_cycle("try.ingest")
    assert inbox.got == [
        ("source_unreadable", "try.ingest", "begun"),
        ("source_unreadable", "try.ingest", "ended"),
    ]


async def test_two_processes_that_report_at_once_begin_and_end_one_alert(new_engine: Any) -> None:
    inbox = Inbox()
    engines = [await new_engine(pipeline(done), alert_sink=inbox) for _ in range(4)]
    message = text("cycle_failed", cycle="try.work", why="x")
    await asyncio.gather(*(e.alerts.begin("test", "all", message) for e in engines * 3))
    assert [(a.key, a.number) for a in await alerts(engines[0])] == [("test:all", 1)]
    assert inbox.got == [("test", "all", "begun")]
    assert inbox.messages == ["try.work failed: x"]
    await asyncio.gather(*(e.alerts.end("test", "all") for e in engines * 3))
    assert inbox.got[1:] == [("test", "all", "ended")]
    await engines[0].alerts.end("test", "never begun")
    assert len(inbox.got) == 2


async def test_a_restarted_process_neither_repeats_nor_forgets(new_engine: Any) -> None:
    inbox = Inbox()
    first = await new_engine(pipeline(done), alert_sink=inbox)
    await first.alerts.begin("test", "all", "wrong")
    second = await new_engine(pipeline(done), alert_sink=inbox)
    await second.alerts.begin("test", "all", "wrong")
    await second.alerts.end("test", "all")
    assert inbox.got == [("test", "all", "begun"), ("test", "all", "ended")]


async def test_a_worker_that_still_sees_it_keeps_an_alert_open(new_engine: Any) -> None:
    """Otherwise two workers that judge differently would begin and end it in turns."""
    inbox = Inbox()
    bad = await new_engine(pipeline(done), register=True, alert_sink=inbox)
    good = await new_engine(pipeline(done), register=True, alert_sink=inbox)
    await bad.alerts.begin("test", "all", "wrong")
    await good.alerts.end("test", "all")
    await good.alerts.retry()
    assert inbox.got == [("test", "all", "begun")]
    later = await new_engine(pipeline(done), offset=121)
    assert later.clock.now() - good.clock.now() > timedelta(seconds=120)
    await later.alerts.end("test", "all")
    assert await ended(good)


async def test_a_report_waits_for_the_store(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = Inbox()
    engine = await new_engine(pipeline(done), alert_sink=inbox)

    async def down(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("down")

    with monkeypatch.context() as patch:
        patch.setattr(engine.store, "insert", down)
        for n in range(100):
            engine.alerts.begin_soon("test", "all", f"wrong {n}")
        await engine.alerts.begin("test", "other", "wrong")
        assert inbox.got == []
    await engine.alerts.retry()
    assert sorted(inbox.got) == [("test", "all", "begun"), ("test", "other", "begun")]
    engine.alerts.end_soon("test", "all")
    await engine.alerts.close()
    assert inbox.got[2:] == [("test", "all", "ended")]


async def test_an_old_backlog_is_an_alert(new_engine: Any) -> None:
    app = pipeline(done, alert_backlog="1m")
    engine = await new_engine(app)
    await engine.records.insert([Item(name="fresh")])
    await engine.judge.judge()
    assert await alerts(engine) == []
    late = await new_engine(app, offset=90, alerts={"alert_no_worker": None})
    await late.judge.judge()
    await late.judge.judge()
    [alert] = await alerts(late)
    assert alert.key == "backlog:try.work"
    assert "longer than 1m" in load(alert.message)
    await late.run_cycle("try.work")
    await late.judge.judge()
    assert await ended(late)


async def test_a_backlog_counts_from_the_slot_in_which_it_could_be_taken(new_engine: Any) -> None:
    app = pipeline(done, every="1h")
    engine = await new_engine(app)
    await engine.records.insert([Item(name="a")])
    limits = {"alert_backlog": 60.0, "alert_no_worker": None}
    late = await new_engine(app, offset=90, alerts=limits)
    slot = late.cycles["try.work"].schedule.next_after(engine.clock.now())
    assert slot is not None
    in_time = (slot - late.clock.now()).total_seconds() > -60
    await late.judge.judge()
    assert (await alerts(late) == []) is in_time
    later = await new_engine(app, offset=3700, alerts=limits)
    await later.operations("ana").pause("try.work", "wait")
    await later.cycle_records.refresh()
    await later.judge.judge()
    assert (await alerts(late) == []) is in_time  # a person said so
    await later.operations("ana").resume("try.work", "go on")
    await later.cycle_records.refresh()
    await later.judge.judge()
    assert [a.key for a in await alerts(later)] == ["backlog:try.work"]


async def test_no_worker_is_an_alert_of_those_that_serve(new_engine: Any) -> None:
    app = pipeline(done)
    server = await new_engine(app)
    await server.records.insert([Item(name="a")])
    await server.judge.judge()
    assert await alerts(server) == []  # not for long yet
    late = await new_engine(app, offset=400)
    await late.judge.judge()
    [alert] = await alerts(late)
    assert (alert.key, "no worker is running" in load(alert.message)) == ("no_worker:esclusa", True)
    worker = await new_engine(app, offset=400, register=True)
    await worker.judge.judge()
    assert await ended(late)


async def test_a_cycle_that_no_worker_runs_is_an_alert_of_the_others(new_engine: Any) -> None:
    app = pipeline(done)

    @app.cycle(every="1h")
    async def other(run: RunContext) -> None: ...

    engine = await new_engine(app)
    await engine.records.insert([Item(name="a")])
    worker = await new_engine(app, offset=400, register=("try.other",))
    await worker.judge.judge()
    assert [a.key for a in await alerts(worker)] == ["no_worker:try.work"]
    await worker.run_cycle("try.work")  # by hand, or by a tick
    await worker.judge.judge()
    assert await ended(worker)


@pytest.mark.parametrize("share", [0.5, None])
async def test_a_budget_that_is_spent_early_is_an_alert(
    new_engine: Any, share: float | None
) -> None:
    budget = Budget("calls", Window("month", 100), Window("minute", 70))
    engine = await new_engine(pipeline(done, budget=budget, every="1h", alert_budget=share))
    await engine.records.insert([Item(name="a")])  # it waits for the budget
    await engine.store.spend(budget, 40, "try.work")
    await engine.judge.judge()
    assert await alerts(engine) == []  # early, but not yet much
    await engine.store.observe(budget, "month", used=99)
    [month] = [use for use in await engine.store.usage(budget) if use.per == "month"]
    early = share is not None and month.runs_out_at(engine.clock.now()) is not None
    await engine.judge.judge()
    assert [a.key for a in await alerts(engine)] == (["budget_early:calls/month"] if early else [])
    await engine.run_cycle("try.work")
    await engine.judge.judge()
    assert await ended(engine)  # nothing waits for the budget any more
    await engine.store.observe(budget, "month", limit=100_000)
    await engine.judge.judge()
    assert await ended(engine)


async def test_a_cycle_that_cannot_start_is_an_alert(new_engine: Any) -> None:
    missing = ["TRY_KEY: set it"]
    inbox = Inbox()
    app = pipeline(done)
    app.needs(lambda settings: missing)

    @app.cycle(every="1s")
    async def tidy(run: RunContext) -> None: ...

    engine = await new_engine(app, alert_sink=inbox)
    async with running_scheduler(engine):
        await until(lambda: asyncio.sleep(0, len(inbox.got) == 2))
        await asyncio.sleep(2.5)
        missing.clear()
        await until(lambda: asyncio.sleep(0, len(inbox.got) == 4), 40)
    assert set(inbox.got) == {
        ("cycle_not_started", f"try.{name}", event)
        for name in ("work", "tidy")
        for event in ("begun", "ended")
    }
    assert "TRY_KEY: set it" in inbox.messages[0]


async def test_a_run_whose_worker_died_is_an_alert(new_engine: Any) -> None:
    engine = await new_engine(pipeline(done, every="1h"))
    now = engine.clock.now()
    await engine.store.insert(
        [
            Run(cycle=cycle, slot="s", worker="gone", started_at=now, leased_by="gone", due_at=now)
            for cycle in ("try.work", "esclusa.prune")
        ]
    )
    await engine.run_cycle("esclusa.end-dead-runs")
    [alert] = await alerts(engine)
    assert alert.key == "cycle_failed:try.work"
    assert "worker gone stopped without finishing this run" in load(alert.message)
    await engine.run_cycle("try.work")
    assert await ended(engine)


@pytest.mark.promise(1)
async def test_a_run_that_was_ended_by_mistake_goes_on_under_a_new_row(new_engine: Any) -> None:
    """Its process did not run for longer than its lease, and another one took it for dead."""
    app = pipeline(done)
    frozen = await new_engine(app, lease=3.0)
    async with running_scheduler(frozen):
        run = await until(lambda: asyncio.sleep(0, frozen.under_way("try.work")))
        former = await until(lambda: asyncio.sleep(0, run.id))
        later = await new_engine(app, offset=100)
        await later.run_cycle("esclusa.end-dead-runs")
        assert (await later.records.get(Run, former)).status == "error"
        assert [alert.details["run"] for alert in await alerts(later)] == [former]
        await until(lambda: asyncio.sleep(0, run.id != former))
        assert (await frozen.records.get(Run, run.id)).status == "running"
        await until(lambda: judged_as_ended(frozen))
        await frozen.records.insert([Item(name="next")])
        await until(lambda: is_done(frozen, "next"))
        steps = await frozen.store.history(Ref(Item.kind, "next"))
        assert {step.run for step in steps} == {run.id}
    row = await frozen.records.get(Run, run.id)
    assert row.status == "ok"
    assert f"continues run {former}, whose worker was taken for dead" in load(row.message)


async def judged_as_ended(engine: Engine) -> bool:
    await engine.judge.judge()
    return await ended(engine)


async def is_done(engine: Engine, name: str) -> bool:
    return (await engine.records.get(Item, name)).status == "done"


async def test_the_alert_of_an_always_on_cycle_ends_when_it_is_quiet(new_engine: Any) -> None:
    app = pipeline(done)
    engine = await new_engine(app)
    await engine.alerts.begin("cycle_failed", "try.work", "crashed")
    later = await new_engine(app, offset=700)
    await later.judge.judge()
    assert not await ended(later)  # nobody runs it
    async with running_scheduler(later):
        await until(lambda: asyncio.sleep(0, later.under_way("try.work")))
        await later.judge.judge()
    assert await ended(later)


async def test_an_alert_that_was_read_ends_too(new_engine: Any) -> None:
    engine = await new_engine(pipeline(done))
    await engine.alerts.begin("test", "all", "wrong")
    [alert] = await alerts(engine)
    await engine.store.settle([Settlement(Ref(Alert.kind, alert.id), "seen", ("raised",), None)])
    await engine.alerts.begin("test", "all", "wrong")
    assert [a.status for a in await alerts(engine)] == ["seen"]
    await engine.alerts.end("test", "all")
    assert await ended(engine)
