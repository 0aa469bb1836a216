"""What pipelines use besides stages: exhaustion effects, needs, operations, budgets, files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from esclusa import (
    Add,
    App,
    Attempt,
    Backoff,
    Budget,
    Lifecycle,
    Move,
    Outcome,
    Record,
    Retry,
    RunContext,
    To,
    Wait,
    Window,
)
from esclusa.engine import attempt
from esclusa.model.errors import (
    AlreadyRunning,
    ArtifactError,
    SettingsError,
    StoreConflict,
    StoreUnavailable,
)

BUDGET = Budget("calls", Window("day", 10))


class Parent(Record, table="parents", key="name"):
    name: str
    lost: int = 0
    lifecycle = Lifecycle("waiting -> working -> waiting", endless=True)


class Child(Record, table="offspring", key="name"):
    name: str
    parent: str
    note: str | None = None
    lifecycle = Lifecycle("""
        new -> busy -> done | bad | new
        bad -> new
    """)


def freed(child: Child) -> list[Any]:
    return [Move(Parent, child.parent, "waiting", frm="working"), Add(Parent, child.parent, lost=1)]


def pipeline(handler: Any, **options: Any) -> App:
    app = App("try", records=[Parent])
    options = {
        "take": "new",
        "hold": "busy",
        "exhausted": "bad",
        "retry": Backoff(tries=2, base=0, jitter=0),
    } | options
    app.stage(Child, name="work", on_exhausted=freed, **options)(handler)
    return app


async def test_effects_of_the_exhausted_state_come_however_it_is_reached(new_engine: Any) -> None:
    async def work(child: Child, at: Attempt) -> Outcome:
        raise ValueError("no")

    engine = await new_engine(pipeline(work, every="1h"))
    await engine.records.insert(
        [Parent(name="p", status="working"), Parent(name="q", status="working")]
    )
    await engine.records.insert(
        [Child(name="tried", parent="p"), Child(name="crashed", parent="q", attempts=2)]
    )
    await engine.run_cycle("try.work")
    assert (
        (await engine.records.get(Parent, "q")).status,
        (await engine.records.get(Parent, "p")).status,
    ) == ("waiting", "working")
    await engine.run_cycle("try.work")
    parents = [await engine.records.get(Parent, name) for name in "pq"]
    assert [(p.status, p.lost) for p in parents] == [("waiting", 1), ("waiting", 1)]


async def test_why_says_what_it_waits_for(new_engine: Any) -> None:
    async def work(child: Child, at: Attempt) -> Outcome:
        await at.spend(BUDGET, 11 if child.name == "spends" else 0)
        return Wait("3d", "it is published on Thursday")

    engine = await new_engine(pipeline(work, every="1h", budget=BUDGET))
    await engine.records.insert([Child(name="waits", parent="p"), Child(name="spends", parent="p")])
    await engine.run_cycle("try.work")
    read_model = engine.read_model()
    seen_texts = {
        name: (await read_model.why("offspring", name)).reasons[0].text
        for name in ("waits", "spends")
    }
    assert seen_texts["waits"].endswith(": it is published on Thursday")
    assert ": budget calls has 8 of 10 per day left until " in seen_texts["spends"]
    await engine.store.observe(BUDGET, "day", until=engine.clock.now() + timedelta(minutes=5))
    assert any(
        "grants nothing before" in r.text
        for r in (await read_model.why("offspring", "waits")).reasons
    )


async def test_a_pipeline_that_lacks_a_setting_does_not_run(new_engine: Any) -> None:
    async def work(child: Child, at: Attempt) -> Outcome:
        return To("done")

    app = pipeline(work, every="1h")
    app.needs(lambda settings: ["TRY_KEY is not set"])
    engine = await new_engine(app)
    with pytest.raises(SettingsError, match="TRY_KEY is not set"):
        await engine.run_cycle("try.work")


async def test_draining_an_unknown_stage_names_the_known_ones(new_engine: Any) -> None:
    async def work(child: Child, at: Attempt) -> Outcome:
        return To("done")

    app = pipeline(work, cycle=False)

    @app.cycle()
    async def go(run: RunContext) -> None:
        await run.drain("wrok")

    run = await (await new_engine(app)).run_cycle("try.go")
    assert (run.outcome, run.message) == (
        "error",
        "NotFound: there is no stage 'wrok' to drain; there are: try.work",
    )


async def test_a_lifespan_may_be_a_function_that_yields(new_engine: Any) -> None:
    contexts: list[Any] = []

    async def work(child: Child, at: Attempt) -> Outcome:
        contexts.append(at.context)
        return To("done")

    app = pipeline(work, every="1h")

    @app.lifespan
    async def session(settings: Any) -> AsyncIterator[str]:
        yield "a session"

    engine = await new_engine(app)
    await engine.records.insert([Child(name="a", parent="-")])
    await engine.run_cycle("try.work")
    assert contexts == ["a session"]


async def test_a_cycle_does_not_overlap_itself_even_if_called_at_the_same_moment(
    new_engine: Any,
) -> None:
    others_refused = asyncio.Event()

    async def work(child: Child, at: Attempt) -> Outcome:
        await others_refused.wait()
        return To("done")

    engine = await new_engine(pipeline(work, every="1h"))
    await engine.records.insert([Child(name="c", parent="p")])
    running = {asyncio.create_task(engine.run_cycle("try.work")) for _ in range(3)}
    while len(running) > 1:
        over, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in over:
            assert isinstance(task.exception(), AlreadyRunning)
    others_refused.set()
    assert isinstance(await running.pop(), RunContext)


async def test_an_operation_is_applied_record_by_record(new_engine: Any) -> None:
    async def work(child: Child, at: Attempt) -> Outcome:
        return To("done")

    engine = await new_engine(pipeline(work, every="1h"))
    await engine.records.insert([Parent(name="p")])
    await engine.records.insert(
        [Child(name=f"c{n}", parent="p", status="bad", attempts=2) for n in range(4)]
    )
    await engine.records.insert([Child(name="fine", parent="p", status="bad")])

    async def choose(child: Child) -> To | str:
        return (
            "it is fine"
            if child.name == "fine"
            else To("new", note="again", also=[Add(Parent, child.parent, lost=1)])
        )

    operator = engine.operations("ada")
    dry = await operator.apply("rescue", "offspring", choose, where={"status": "bad"}, dry_run=True)
    assert (dry.matched, dry.moved) == (5, 0)
    acted = await operator.apply("rescue", "offspring", choose, where={"status": "bad"}, limit=3)
    assert (acted.matched, acted.moved) == (5, 3)
    acted = await operator.apply(
        "rescue", "offspring", choose, where={"status": "bad"}, reason="because"
    )
    assert (acted.moved, acted.passed) == (1, [{"id": "fine", "why": "it is fine"}])
    child = await engine.records.get(Child, "c3")
    assert (child.status, child.note, child.attempts) == ("new", "again", 0)
    step = (await engine.store.history(child.ref))[-1]
    assert (step.frm, step.to, step.who, step.reason) == ("bad", "new", "ada", "because")
    assert (await engine.records.get(Parent, "p")).lost == 4


async def test_a_run_observes_budgets_and_drains_before_a_given_time(new_engine: Any) -> None:
    seen: list[str] = []

    async def work(child: Child, at: Attempt) -> Outcome:
        seen.append(child.name)
        return Wait(0, "not yet")

    app = pipeline(work, cycle=False)
    windows: list[Any] = []

    @app.cycle(eager=True)
    async def look(run: RunContext) -> None:
        window = await run.observe(BUDGET, used=4, limit=6)
        windows.append((window.used, window.limit, window.left))
        moment = run.now
        for _ in range(3):
            await run.drain("work", before=moment, eager=False)
        await run.drain("work", before=moment)

    engine = await new_engine(app)
    later = await engine.store.now() + timedelta(hours=1)
    await engine.records.insert(
        [Child(name="due", parent="p"), Child(name="later", parent="p", due_at=later)]
    )
    await engine.run_cycle("try.look")
    assert (windows, seen) == ([(4, 6, 2)], ["due", "later"])


async def test_the_engine_counts_held_records(new_engine: Any) -> None:
    held: list[int] = []

    async def work(child: Child, at: Attempt) -> Outcome:
        held.append(engine.inflight("try.work"))
        return To("done")

    engine = await new_engine(pipeline(work, every="1h"))
    await engine.records.insert([Child(name="c", parent="p")])
    await engine.run_cycle("try.work")
    assert (held, engine.inflight("try.work")) == ([1], 0)


async def test_records_that_were_not_begun_cost_no_budget(new_engine: Any) -> None:
    async def work(child: Child, at: Attempt) -> Outcome:
        at.run.halt("blocked", "enough")
        return To("done")

    engine = await new_engine(pipeline(work, every="1h", concurrency=3, budget=BUDGET))
    await engine.records.insert([Child(name=f"c{n}", parent="p") for n in range(9)])
    run = await engine.run_cycle("try.work")
    window = (await engine.store.usage(BUDGET))[0]
    assert window.used == run.counters["done"] < 9


async def test_a_load_answers_in_order_and_reads_only_a_little_ahead(new_engine: Any) -> None:
    async def work(child: Child, at: Attempt) -> Outcome:
        return To("done")

    engine = await new_engine(pipeline(work))
    made = answered = 0

    def drafts() -> Iterator[Child]:
        nonlocal made
        for n in range(1000):
            made += 1
            assert made - answered <= 400, "more than the parts under way and the one being made"
            yield Child(name=f"c{n % 900}", parent="p")

    kinds: list[str] = []
    async for part in engine.records.load(drafts(), size=100):
        answered += len(part)
        kinds += [type(answer).__name__ for answer in part]
    assert kinds == ["Inserted"] * 900 + ["Duplicate"] * 100
    assert (await engine.records.count(Child))[0] == 900


async def test_a_load_that_breaks_keeps_what_was_written(new_engine: Any) -> None:
    async def work(child: Child, at: Attempt) -> Outcome:
        return To("done")

    def drafts() -> Iterator[Child]:
        for n in range(250):
            yield Child(name=f"c{n}", parent="p")
        raise ValueError("row 251 cannot be read")

    engine = await new_engine(pipeline(work))
    with pytest.raises(ValueError, match="row 251"):
        async for _ in engine.records.load(drafts(), size=100):
            pass
    assert (await engine.records.count(Child))[0] == 200


async def test_kept_files_are_on_disk_before_the_settlement(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    async def work(child: Child, at: Attempt) -> Outcome:
        if child.name == "bare":
            return To("done")
        address = await at.keep(f"files/{child.name}", child.name.encode())
        if child.name == "early":
            await at.save(note=address)
            events.append("saved")
        return To("done", note=address)

    engine = await new_engine(pipeline(work, every="1h"))
    sync, settle, renew = engine.artifacts.sync, engine.store.settle, engine.store.renew

    async def synced(kept: Any) -> None:
        await sync(kept)
        events.append("safe")

    async def settled(settlements: Any) -> Any:
        events.extend(
            f"settled {settlement.ref.id}"
            for settlement in settlements
            if settlement.ref.kind.table == "offspring"
        )
        return await settle(settlements)

    async def renewed(renewals: Any) -> Any:
        events.extend("renewed" for renewal in renewals if renewal.fields)
        return await renew(renewals)

    monkeypatch.setattr(engine.artifacts, "sync", synced)
    monkeypatch.setattr(engine.store, "settle", settled)
    monkeypatch.setattr(engine.store, "renew", renewed)
    for name, expected in {
        "bare": ["settled bare"],
        "late": ["safe", "settled late"],
        "early": ["safe", "renewed", "saved", "safe", "settled early"],
    }.items():
        events.clear()
        await engine.records.insert([Child(name=name, parent="-")])
        await engine.run_cycle("try.work")
        assert events == expected
        child = await engine.records.get(Child, name)
        assert (child.status, child.note) == (
            "done",
            None if name == "bare" else engine.artifacts.public_url(f"files/{name}"),
        )


async def test_a_file_that_is_not_safe_is_an_error_of_its_record_alone(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True

    async def keep(child: Child, at: Attempt) -> Outcome:
        if child.name == "none":
            return To("done")
        if child.name == "failed":
            await at.keep("failed", b"of no use")
            raise ValueError("no")
        return To("done", note=await at.keep(child.name, b"x"))

    engine = await new_engine(pipeline(keep, every="1h", concurrency=4))
    sync = engine.artifacts.sync

    async def bad(kept: Any) -> None:
        await sync(kept)
        for draft in kept if broken else []:
            draft.error = ArtifactError(f"{draft.path}: the disk lost it")

    monkeypatch.setattr(engine.artifacts, "sync", bad)
    await engine.records.insert(
        [Child(name=name, parent="-") for name in ("a", "none", "b", "failed")]
    )
    await engine.run_cycle("try.work")
    children = {
        name: await engine.records.get(Child, name) for name in ("a", "none", "b", "failed")
    }
    assert {name: child.status for name, child in children.items()} == {
        "a": "new",
        "none": "done",
        "b": "new",
        "failed": "new",
    }
    assert (children["a"].last_error["type"], children["a"].last_error["message"]) == (
        "storage_error",
        "a: the disk lost it",
    )
    assert children["failed"].last_error["message"] == "no"
    assert children["a"].note is None
    broken = False
    await engine.run_cycle("try.work")
    child = await engine.records.get(Child, "a")
    assert (child.status, child.note, child.attempts) == (
        "done",
        engine.artifacts.public_url("a"),
        2,
    )


@pytest.mark.parametrize(
    "answer",
    [
        lambda address: Wait(0, "it is not all there", note=address),
        lambda address: Retry("it is not all there", note=address),
        lambda address: Retry("it is torn", permanent=True, note=address),
        lambda address: To("bad", fault=ValueError("it is torn"), note=address),
    ],
)
async def test_whatever_the_answer_its_fields_name_only_files_that_are_safe(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    broken = True

    async def keep(child: Child, at: Attempt) -> Outcome:
        kept = await at.keep(child.name, b"x")
        at.kept[0].error = ArtifactError("the disk lost it") if broken else None
        return answer(kept)

    engine = await new_engine(pipeline(keep, every="1h", retry=Backoff(tries=5, base=0, jitter=0)))
    await engine.records.insert([Parent(name="p"), Child(name="a", parent="p")])
    await engine.run_cycle("try.work")
    child = await engine.records.get(Child, "a")
    assert (child.status, child.note, child.last_error["type"]) == ("new", None, "storage_error")
    broken = False
    await engine.run_cycle("try.work")
    assert (await engine.records.get(Child, "a")).note == engine.artifacts.public_url("a")


async def test_a_settler_that_gives_up_beside_a_lost_file_ends(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict that was already given is not awaited again."""
    away, both = asyncio.Event(), asyncio.Barrier(2)

    async def keep(child: Child, at: Attempt) -> Outcome:
        await at.keep(child.name, b"x")
        await both.wait()
        if child.name == "lost":
            at.kept[0].error = ArtifactError("the disk lost it")
        return To("done")

    engine = await new_engine(pipeline(keep, every="1h", concurrency=2))
    await engine.records.insert([Child(name="lost", parent="-"), Child(name="fine", parent="-")])

    async def no_answer(_: Any) -> Any:
        away.set()
        raise StoreUnavailable("away")

    monkeypatch.setattr(engine.store, "settle", no_answer)
    running = asyncio.create_task(engine.run_cycle("try.work"))
    async with asyncio.timeout(20):
        await away.wait()
        engine.settler.give_up_in(0)
        await engine.settler.stop()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("error", [StoreConflict, StoreUnavailable])
async def test_save_is_tried_again_while_the_store_does_not_write(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    calls: list[int] = []
    failures = iter([True] * 3)

    async def work(child: Child, at: Attempt) -> Outcome:
        calls.append(at.number)
        await at.save(note="paid")
        return To("done")

    engine = await new_engine(pipeline(work, every="1h"))
    renew = engine.store.renew

    async def locked(renewals: Any) -> Any:
        if renewals[0].fields and next(failures, False):
            raise error("another program has locked the row")
        return await renew(renewals)

    monkeypatch.setattr(engine.store, "renew", locked)
    monkeypatch.setattr(attempt, "SAVE_PAUSE", 0.01)
    await engine.records.insert([Child(name="c", parent="-")])
    await engine.run_cycle("try.work")
    child = await engine.records.get(Child, "c")
    assert (child.status, child.note, child.attempts, calls) == ("done", "paid", 1, [1])


async def test_save_gives_up_in_time_and_the_attempt_does_not_count(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(child: Child, at: Attempt) -> Outcome:
        await at.save(note="paid")
        return To("done")

    engine = await new_engine(pipeline(work, every="1h"))

    async def locked(renewals: Any) -> Any:
        raise StoreConflict("another program has locked the row")

    monkeypatch.setattr(attempt, "SAVE_SECONDS", 0.5)
    await engine.records.insert([Child(name="c", parent="-")])
    with monkeypatch.context() as patch:
        patch.setattr(engine.store, "renew", locked)
        run = await engine.run_cycle("try.work")
    assert run.counters == {"taken": 1, "waited": 1}
    child = await engine.records.get(Child, "c")
    assert (child.status, child.attempts, child.last_error) == ("new", 0, None)


async def test_a_broken_artifact_store_does_not_stop_the_settler(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def keep(child: Child, at: Attempt) -> Outcome:
        return To("done", note=await at.keep(child.name, b"x") if child.name == "kept" else None)

    engine = await new_engine(pipeline(keep, every="1h"))

    async def broken(_: Any) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(engine.artifacts, "sync", broken)
    await engine.records.insert([Child(name="kept", parent="-"), Child(name="bare", parent="-")])
    await engine.run_cycle("try.work")
    children = [await engine.records.get(Child, name) for name in ("kept", "bare")]
    assert [child.status for child in children] == ["new", "done"]
    assert "out of order" in children[0].last_error["message"]
