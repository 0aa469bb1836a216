"""One run of a cycle: claim, handle, settle, count, end."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from esclusa import (
    Add,
    App,
    Backoff,
    Budget,
    Create,
    Duplicate,
    Failure,
    Inserted,
    Lifecycle,
    Permanent,
    Rate,
    Record,
    Retry,
    RunContext,
    Throttled,
    To,
    Wait,
    Window,
    not_null,
)  # fmt: skip
from esclusa.model.errors import AlreadyRunning, BadQuery, NotFound, Paused, StoreUnavailable
from esclusa.model.kind import Ref
from esclusa.model.system_records import Alert, DeadLetter, Run
from esclusa.model.texts import load


class Item(Record, table="items", key="name"):
    name: str
    note: str | None = None
    lifecycle = Lifecycle("""
        new -> busy -> done
        busy -> new | bad
        bad -> new
    """)


class Child(Record, table="children", key="name"):
    name: str
    count: int = 0
    lifecycle = Lifecycle("waiting -> gone")


def items(count: int) -> list[Item]:
    return [Item(name=f"i{n:04}") for n in range(count)]


def pipeline(handler: Any, **options: Any) -> App:
    app = App("try")
    app.records.append(Child)
    options = {
        "take": "new",
        "hold": "busy",
        "exhausted": "bad",
        "retry": Backoff(tries=3, base=0, jitter=0),
        "every": "1h",
    } | options
    app.stage(Item, name="work", **options)(handler)
    return app


async def test_a_run_handles_what_is_due_once(new_engine: Any) -> None:
    seen: list[str] = []

    async def work(item: Item, at: Any) -> To:
        seen.append(item.name)
        assert (item.status, item.attempts, at.number, at.tries) == ("busy", 1, 1, 3)
        return To("done", note="seen")

    engine = await new_engine(pipeline(work))
    await engine.records.insert(items(250))
    run = await engine.run_cycle("try.work")
    assert sorted(seen) == [i.name for i in items(250)]
    assert run.answer() | {"run": ""} == {
        "run": "",
        "cycle": "try.work",
        "outcome": "ok",
        "counters": {"taken": 250, "done": 250},
        "message": None,
        "files": [],
    }
    row = await engine.records.get(Run, run.id)
    assert row is not None
    assert (row.status, row.counters["done"], row.worker) == ("ok", 250, engine.worker)
    assert row.finished_at is not None
    item = await engine.records.get(Item, "i0001")
    assert (item.status, item.note, item.attempts, item.leased_by) == ("done", "seen", 1, None)


async def test_plain_functions_run_in_threads_up_to_the_concurrency(new_engine: Any) -> None:
    now, most, lock = 0, 0, threading.Lock()

    def work(item: Item, at: Any) -> To:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1
        return To("done")

    engine = await new_engine(pipeline(work, concurrency=4))
    await engine.records.insert(items(40))
    run = await engine.run_cycle("try.work")
    assert run.counters["done"] == 40
    assert 2 <= most <= 4


async def test_a_batch_handler_answers_one_outcome_each(new_engine: Any) -> None:
    sizes: list[int] = []

    async def work(batch: list[Item], at: Any) -> list[Any]:
        sizes.append(len(batch))
        return [Retry("odd", type="odd") if int(i.name[1:]) % 2 else To("done") for i in batch]

    engine = await new_engine(pipeline(work, batch=10, concurrency=2))
    await engine.records.insert(items(45))
    run = await engine.run_cycle("try.work")
    assert max(sizes) == 10
    assert sum(sizes) == 45
    assert (run.counters["done"], run.counters["retried"]) == (23, 22)


@pytest.mark.parametrize(
    "answer", [None, [], "done", [To("done")] * 7], ids=["none", "empty", "text", "too many"]
)
async def test_a_batch_answer_that_does_not_fit_is_an_error_of_each(
    new_engine: Any, answer: Any
) -> None:
    async def work(batch: list[Item], at: Any) -> Any:
        return answer

    engine = await new_engine(pipeline(work, batch=10))
    await engine.records.insert(items(3))
    run = await engine.run_cycle("try.work")
    assert (run.outcome, run.counters["bad"]) == ("error", 3)
    item = await engine.records.get(Item, "i0000")
    assert item.last_error["type"] == "wrong_answer"


@pytest.mark.promise(7)
async def test_errors_are_typed_counted_and_end_in_the_exhausted_state_with_a_dead_letter(
    new_engine: Any,
) -> None:
    async def work(item: Item, at: Any) -> To:
        if item.name == "i0000":
            raise TimeoutError
        if item.name == "i0001":
            raise Permanent("no such thing", type="gone")
        if item.name == "i0002" and at.number < 3:
            raise Failure("not yet", type="early")
        return To("done")

    engine = await new_engine(pipeline(work))
    await engine.records.insert(items(4))
    first = await engine.run_cycle("try.work")
    assert (
        first.outcome,
        first.counters["bad"],
        first.counters["retried"],
        first.counters["done"],
    ) == ("partial", 1, 2, 1)
    await engine.run_cycle("try.work")
    await engine.run_cycle("try.work")
    states = {
        i.name: (i.status, i.attempts, (i.last_error or {}).get("type"))
        async for i in engine.records.each(Item)
    }
    assert states == {
        "i0000": ("bad", 3, "timeout"),
        "i0001": ("bad", 1, "gone"),
        "i0002": ("done", 3, None),
        "i0003": ("done", 1, None),
    }
    letters = {d.record_id: d async for d in engine.records.each(DeadLetter)}
    assert {k: (d.error_type, d.attempts, d.table_name, d.status) for k, d in letters.items()} == {
        "i0000": ("timeout", 3, "items", "open"),
        "i0001": ("gone", 1, "items", "open"),
    }
    steps = await engine.store.history(Ref(Item.kind, "i0000"))
    assert [(s.frm, s.to) for s in steps] == [("new", "busy"), ("busy", "new")] * 2 + [
        ("new", "busy"),
        ("busy", "bad"),
    ]
    assert load(steps[-1].reason) == "reached the maximum of attempts (3)"


async def test_error_texts_are_stored_without_characters_no_store_can_hold(
    new_engine: Any,
) -> None:
    """Errors, reasons and messages may quote text with null characters or lone surrogates."""
    odd = "half \ud800 and null \x00 done"

    async def work(item: Item, at: Any) -> Any:
        if item.name == "i0000":
            raise ValueError(odd)
        if item.name == "i0001":
            return Retry(odd)
        at.run.end("partial", odd)
        return Wait(60, odd) if item.name == "i0002" else To("done", reason=odd)

    engine = await new_engine(pipeline(work))
    await engine.records.insert(items(4))
    run = await engine.run_cycle("try.work")
    assert (run.counters["retried"], run.counters["waited"], run.counters["done"]) == (2, 1, 1)
    given = "half \ufffd and null \ufffd done"
    assert [
        (await engine.records.get(Item, f"i000{n}")).last_error["message"] for n in range(2)
    ] == [given, given]
    reasons = [(await engine.store.history(Ref(Item.kind, f"i000{n}")))[-1].reason for n in (2, 3)]
    row = await engine.records.get(Run, run.id)
    assert (reasons, row.status, row.message) == ([given, given], "partial", given)


@pytest.mark.promise(7)
async def test_waiting_and_throttling_do_not_count_attempts(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> Any:
        if item.name == "i0000":
            return Wait(60, "still running", note="asked")
        raise Throttled("slow down", after=30, stage=False)

    engine = await new_engine(pipeline(work))
    await engine.records.insert(items(2))
    run = await engine.run_cycle("try.work")
    assert run.counters["waited"] == 2
    waiting, throttled = await engine.records.get_many(Item, ["i0000", "i0001"])
    assert (waiting.status, waiting.attempts, waiting.note) == ("new", 0, "asked")
    assert (throttled.status, throttled.attempts) == ("new", 0)
    assert waiting.due_at > throttled.due_at > await engine.store.now()


@pytest.mark.promise(2)
async def test_an_undeclared_answer_is_an_error_of_the_record_and_moves_nothing(
    new_engine: Any,
) -> None:
    async def work(item: Item, at: Any) -> Any:
        return {
            "i0000": To("nowhere"),
            "i0001": To("done", nope=1),
            "i0002": "what",
            "i0003": To("done", note=5),
        }[item.name]

    engine = await new_engine(pipeline(work))
    await engine.records.insert(items(4))
    run = await engine.run_cycle("try.work")
    assert (run.counters["bad"], run.counters["retried"]) == (3, 1)
    errors = {i.name: i.last_error["type"] async for i in engine.records.each(Item)}
    assert errors == {
        "i0000": "undeclared_move",
        "i0001": "undeclared_field",
        "i0002": "wrong_answer",
        "i0003": "bad_record",  # the value may be another one next time
    }


@pytest.mark.promise(4)
async def test_effects_happen_with_the_move_and_a_rejected_one_is_an_error(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        total = "total" if item.name != "i0001" else "missing"
        return To("done", also=[Create(Child(name=f"of-{item.name}")), Add(Child, total, count=1)])

    engine = await new_engine(pipeline(work))
    await engine.records.insert([*items(3), Child(name="total")])
    run = await engine.run_cycle("try.work")
    assert (run.counters["done"], run.counters["retried"]) == (2, 1)
    assert (await engine.records.get(Child, "total")).count == 2
    assert {c.name async for c in engine.records.each(Child)} == {"total", "of-i0000", "of-i0002"}
    assert (await engine.records.get(Item, "i0001")).last_error["type"] == "rejected"


async def test_a_timeout_of_the_stage_is_a_retry_of_type_timeout(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        await asyncio.sleep(30)
        return To("done")

    engine = await new_engine(pipeline(work, timeout=0.05))
    await engine.records.insert(items(1))
    await engine.run_cycle("try.work")
    item = await engine.records.get(Item, "i0000")
    assert (item.status, item.attempts, item.last_error["type"]) == ("new", 1, "timeout")
    assert (
        item.last_error["message"]
        == "the handler did not answer within 0.05 seconds, the stage's timeout"
    )


@pytest.mark.promise(6)
async def test_a_store_that_is_away_while_a_budget_is_asked_ends_no_run(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(item: Item, at: Any) -> To:
        return To("done")

    engine = await new_engine(pipeline(work, budget=Budget("searches", Window("day", 5))))
    await engine.records.insert([Item(name="a"), Item(name="b")])
    spend, calls = engine.store.spend, iter([True, False, True])

    async def away_at_times(*args: Any, **how: Any) -> Any:
        if next(calls, False):
            raise StoreUnavailable("the store is away")
        return await spend(*args, **how)

    monkeypatch.setattr(engine.store, "spend", away_at_times)
    run = await engine.run_cycle("try.work")
    assert (run.outcome, run.counters["done"]) == ("ok", 2)


async def test_a_budget_bounds_a_run_and_leaves_the_rest_untouched(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        if item.name == "i0001":
            await at.refund()
        return To("done")

    budget = Budget("searches", Window("day", 5))
    engine = await new_engine(pipeline(work, budget=budget, order="name"))
    await engine.records.insert(items(9))
    run = await engine.run_cycle("try.work")
    assert run.outcome == "blocked"
    assert "searches" in run.message
    done = [i.name async for i in engine.records.each(Item, {"status": "done"})]
    assert len(done) == 6  # five paid for, one given back
    rest = [i async for i in engine.records.each(Item, {"status": "new"})]
    assert all(i.attempts == 0 and i.fence == 0 for i in rest)
    assert (await engine.store.usage(budget))[0].used == 5


async def test_spending_inside_a_handler_waits_for_the_reset_when_it_is_empty(
    new_engine: Any,
) -> None:
    budget = Budget("weights", Window("day", 10))

    async def work(item: Item, at: Any) -> To:
        await at.spend(budget, 4)
        return To("done")

    engine = await new_engine(pipeline(work, concurrency=1))
    await engine.records.insert(items(3))
    run = await engine.run_cycle("try.work")
    assert (run.counters["done"], run.counters["waited"]) == (2, 1)
    left = await engine.records.first(Item, {"status": "new"})
    assert left.attempts == 0
    assert left.due_at == (await engine.store.usage(budget))[0].reset


async def test_spending_can_wait_for_the_units(new_engine: Any) -> None:
    """Within the time it is worth waiting for; beyond it the record waits."""
    budget = Budget("messages", Rate(20, "second"), Window("day", 12))

    async def work(item: Item, at: Any) -> To:
        await at.spend(budget, 3, wait=10)
        return To("done")

    engine = await new_engine(pipeline(work, concurrency=6))
    await engine.records.insert(items(6))
    run = await engine.run_cycle("try.work")
    assert (run.counters["done"], run.counters["waited"]) == (4, 2)
    left = await engine.records.first(Item, {"status": "new"})
    assert left.attempts == 0
    assert left.due_at > engine.clock.now() + timedelta(seconds=10)


async def test_a_missed_turn_is_given_back_and_the_next_is_taken(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that is blocked past its turn uses another, and none of the units is lost."""
    budget = Budget("paced", Rate(100, "second", late=0.1))
    given_back: list[int] = []

    async def work(item: Item, at: Any) -> To:
        if item.name == "i0001":  # its turn comes while the loop is blocked
            asyncio.get_running_loop().call_later(0.05, time.sleep, 0.4)
        await at.spend(budget, 10, wait=10)
        return To("done")

    engine = await new_engine(pipeline(work, concurrency=3))
    refund = engine.store.refund

    async def count_refund(spent: Budget, units: int, *args: Any) -> None:
        given_back.append(units)
        await refund(spent, units, *args)

    monkeypatch.setattr(engine.store, "refund", count_refund)
    await engine.records.insert(items(3))
    run = await engine.run_cycle("try.work")
    assert run.counters["done"] == 3
    assert given_back
    assert set(given_back) == {10}
    assert sum(use.used for use in await engine.store.usage(budget)) <= 30


async def test_turns_that_are_always_missed_leave_the_record_waiting(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = Budget("paced", Rate(100, "second", late=0.01))

    async def work(item: Item, at: Any) -> To:
        await at.spend(budget, 1, wait=0.1)
        return To("done")

    engine = await new_engine(pipeline(work, concurrency=1))
    spend = engine.store.spend

    async def spend_slowly(*args: Any, **options: Any) -> Any:
        answer = await spend(*args, **options)
        time.sleep(0.05)
        return answer

    monkeypatch.setattr(engine.store, "spend", spend_slowly)
    await engine.records.insert(items(1))
    run = await engine.run_cycle("try.work")
    assert (run.counters["done"], run.counters["waited"]) == (0, 1)
    assert (await engine.records.first(Item, {"status": "new"})).attempts == 0


async def test_save_keeps_fields_before_the_attempt_ends(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        if item.note is None:
            await at.save(note="paid for")
            raise TimeoutError
        assert item.note == "paid for"
        return To("done")

    engine = await new_engine(pipeline(work))
    await engine.records.insert(items(1))
    await engine.run_cycle("try.work")
    await engine.run_cycle("try.work")
    item = await engine.records.get(Item, "i0000")
    assert (item.status, item.attempts) == ("done", 2)


async def test_halting_a_run_gives_back_what_was_not_begun(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> Any:
        at.run.halt("blocked", "the provider refused")
        return Retry("refused", after=0)

    engine = await new_engine(pipeline(work, concurrency=1))
    await engine.records.insert(items(20))
    run = await engine.run_cycle("try.work")
    assert (run.outcome, run.message, run.counters["taken"]) == (
        "blocked",
        "the provider refused",
        1,
    )
    touched = [i.name async for i in engine.records.each(Item) if i.attempts]
    assert len(touched) == 1


async def test_settlements_are_gathered_under_load_and_flushed_when_awaited(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "esclusa.engine.settlement_queue._GATHER", 3600
    )  # only who hurries the settler ends this test
    batches: list[int] = []

    async def work(item: Item, at: Any) -> To:
        await asyncio.sleep(0.001 * (int(item.name[1:]) % 7))
        if item.name == "i0199":
            await at.caught_up()
        return To("done")

    engine = await new_engine(pipeline(work, concurrency=32))
    await engine.records.insert(items(400))
    settle = engine.store.settle

    async def counted(settlements: Any) -> Any:
        batches.append(len(settlements))
        return await settle(settlements)

    monkeypatch.setattr(engine.store, "settle", counted)
    run = await engine.run_cycle("try.work")
    assert run.counters["done"] == 400
    gathered = [size for size in batches if size >= 8]
    # the first crowd, what had gathered when one asked, and then once the handlers are done; the
    # store may part the last
    assert len(gathered) <= 6, batches


async def test_where_limit_and_eager(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> Any:
        return Wait(3600, "later") if item.name == "i0000" else To("done")

    engine = await new_engine(pipeline(work, where={"note": not_null}, eager=True))
    await engine.records.insert([i.but(note="x") if i.name != "i0003" else i for i in items(6)])
    run = await engine.run_cycle("try.work", limit=3)
    assert run.counters["taken"] == 3
    again = await engine.run_cycle("try.work")
    assert again.counters["taken"] == 3  # the two others, and the one that waits: a person asked
    scheduled = await engine.run_cycle("try.work", person=False)
    assert scheduled.counters["taken"] == 0
    assert (await engine.records.get(Item, "i0003")).status == "new"


@pytest.mark.parametrize("eager", [False, True])
async def test_a_run_takes_no_record_twice_with_a_slow_clock(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch, eager: bool
) -> None:
    """A run begins at the time that the store read, even if the reading arrived late."""

    async def work(item: Item, at: Any) -> Wait:
        return Wait(0 if not eager else 60, "not yet")

    app = App("try")
    app.stage(Item, name="work", take="new", hold="busy", exhausted="bad", cycle=False)(work)

    @app.cycle(every="1h", stages=("work",), eager=eager)
    async def look(run: Any) -> None:
        for before in (None, run.started):
            await run.drain("work", before=before)

    engine = await new_engine(app)
    await engine.records.insert(items(1))
    tell = engine.store.now

    async def late() -> Any:
        await asyncio.sleep(1)
        return await tell()

    monkeypatch.setattr(engine.store, "now", late)
    run = await engine.run_cycle("try.look")
    assert run.counters["taken"] == 1


async def test_a_cycle_never_overlaps_itself_and_a_singleton_not_in_the_cluster(
    new_engine: Any,
) -> None:
    gate = asyncio.Event()
    app = App("try")

    @app.cycle(every="1h", singleton=True)
    async def ingest(run: Any) -> None:
        run.count("new", 2)
        await gate.wait()

    first, second = await new_engine(app), await new_engine(app)
    task = asyncio.create_task(first.run_cycle("try.ingest"))
    while (run := first.under_way("try.ingest")) is None or run.lock is None:
        await asyncio.sleep(0.01)
    for engine in (first, second):
        with pytest.raises(AlreadyRunning):
            await engine.run_cycle("try.ingest")
    gate.set()
    assert (await task).counters == {"new": 2}
    assert (await second.run_cycle("try.ingest")).outcome == "ok"


async def test_a_cycle_that_breaks_is_an_error_and_an_alert(new_engine: Any) -> None:
    app = App("try")
    given: list[Any] = []

    async def sink(alert: Any) -> None:
        given.append(alert)

    @app.cycle(every="1h")
    async def ingest(run: Any) -> None:
        raise RuntimeError("no site")

    engine = await new_engine(app, alert_sink=sink)
    run = await engine.run_cycle("try.ingest")
    assert (run.outcome, run.message) == ("error", "RuntimeError: no site")
    assert [a.name for a in given] == ["cycle_failed"]
    assert [a.subject async for a in engine.records.each(Alert)] == ["try.ingest"]
    with pytest.raises(NotFound, match=r"there are: try\.ingest"):
        await engine.run_cycle("try.nothing")


async def test_a_function_in_the_place_of_a_stage_is_named(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        return To("done")

    app, drained = pipeline(work), list[Any]()

    @app.cycle()
    async def sweep(run: RunContext) -> None:
        await run.drain(drained[-1])

    engine = await new_engine(app)
    for function, named in ((work, "write 'try.work', not the"), (items, "items is no stage; ")):
        drained.append(function)
        run = await engine.run_cycle("try.sweep")
        assert named in (run.message or "")


async def test_an_error_rate_over_the_threshold_raises_one_alert(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        if int(item.name[1:]) < 3:
            raise TimeoutError
        return To("done")

    engine = await new_engine(pipeline(work, retry=Backoff(base=60)))
    await engine.records.insert(items(10))
    await engine.run_cycle("try.work")
    alerts = [a async for a in engine.records.each(Alert)]
    assert [(a.name, a.details["failed"], a.details["taken"]) for a in alerts] == [
        ("error_rate", 3, 10)
    ]
    await engine.run_cycle("try.work")
    assert len([a async for a in engine.records.each(Alert)]) == 1


async def test_operator_retry_move_pause_and_redrive(new_engine: Any) -> None:
    broken = True

    async def work(item: Item, at: Any) -> To:
        if broken:
            raise Permanent("down", type="down")
        return To("done")

    engine = await new_engine(pipeline(work))
    operator, read_model = engine.operations("ana"), engine.read_model()
    await engine.records.insert(items(5))
    await engine.run_cycle("try.work")
    assert (await read_model.why("items", "i0000")).reasons[0].code == "exhausted"
    preview = await operator.retry("items", where={"status": "bad"}, reason="fixed", dry_run=True)
    assert (preview.matched, preview.moved) == (5, 0)
    broken = False
    assert (await operator.retry("items", ids=["i0000", "i0001"], reason="fixed")).moved == 2
    assert (
        await operator.redrive(
            where={"record_id": "i0002"}, fields={"note": "edited"}, reason="fixed"
        )
    ).moved == 1
    await operator.pause("try.work", "lunch")
    with pytest.raises(Paused):
        await engine.run_cycle("try.work")
    assert "paused" in {r.code for r in (await read_model.why("items", "i0000")).reasons}
    await operator.resume("try.work")
    await engine.run_cycle("try.work")
    states = {i.name: (i.status, i.note) async for i in engine.records.each(Item)}
    assert states["i0002"] == ("done", "edited")
    assert [states[n][0] for n in ("i0000", "i0001", "i0003")] == ["done", "done", "bad"]
    steps = await read_model.history("items", "i0002")
    assert [(s.frm, s.to, s.who) for s in steps][2] == ("bad", "new", "ana")
    status = await read_model.status()
    assert status["dead_letters"] == 2  # a retry closes them, too
    counts = {
        kind["table"]: {c["state"]: c["count"] for c in kind["counts"] if c["count"]}
        for kind in status["kinds"]
    }
    assert counts["items"] == {"done": 3, "bad": 2}


@pytest.mark.promise(2)
async def test_an_operator_cannot_move_system_records(new_engine: Any) -> None:
    async def work(item: Item, at: Any) -> To:
        return To("done")

    engine = await new_engine(pipeline(work))
    with pytest.raises(BadQuery, match="is a system table"):
        await engine.operations("ana").move(
            "esclusa_cycles", "running", where={"status": "idle"}, reason="mischief"
        )


async def test_a_cycle_names_its_counters(new_engine: Any) -> None:
    """Declared names are present even at 0; the engine keeps its own names."""
    app = App("own")

    @app.cycle(counters={"retried": "retryable", "failed": "failed"})
    async def counting(run: RunContext) -> None:
        run.count("retried", 2)
        run.count("seen")

    engine = await new_engine(app)
    run = await engine.run_cycle("own.counting")
    assert run.answer()["counters"] == {"retryable": 2, "failed": 0, "seen": 1}
    [row] = (await engine.records.find(Run, {"cycle": "own.counting"})).items
    assert row.counters == run.named_counters


async def test_handlers_read_what_the_cycle_function_shares(new_engine: Any) -> None:
    app = App("shared")
    seen: list[Any] = []

    @app.stage(Item, take="new", hold="busy", exhausted="bad")
    async def work(item: Item, at: Any) -> To:
        seen.append(at.run.shared)
        return To("done")

    @app.cycle(stages=["work"])
    async def shares(run: RunContext) -> None:
        assert run.shared is None
        run.shared = {"session": 7}
        await run.drain("work")

    engine = await new_engine(app)
    await engine.records.insert(items(2))
    await engine.run_cycle("shared.shares")
    assert seen == [{"session": 7}] * 2


async def test_put_adds_and_replaces(new_engine: Any) -> None:
    class Shelf(Record, table="shelves", key="name"):
        name: str
        system: list[str] = []

        lifecycle = Lifecycle("full -> empty -> full", endless=True)

    engine = await new_engine(App("put", records=[Shelf]))
    assert isinstance(
        (await engine.records.put([Shelf(name="a", system=["x"])], who="me"))[0], Inserted
    )
    for status in ("empty", "full"):
        assert isinstance(
            (await engine.records.put([Shelf(name="a", system=[status], status=status)], who="me"))[
                0
            ],
            Duplicate,
        )
        found = await engine.records.get(Shelf, "a")
        assert found is not None
        assert (found.status, found.system) == (status, [status])
    assert [(s.frm, s.to, s.who) for s in await engine.store.history(found.ref)] == [
        ("full", "empty", "me"),
        ("empty", "full", "me"),
    ]
