"""Dead letters, redrives, purges, and drains in a loop."""

from __future__ import annotations

from typing import Any

import pytest

from esclusa import App, Backoff, Lifecycle, Move, Permanent, Record, RunContext, To
from esclusa.model.kind import Ref
from esclusa.model.settlement import Settled, Settlement
from esclusa.model.system_records import Audit, DeadLetter, Message
from esclusa.model.texts import load


class Letter(Record, table="letters", key="name"):
    name: str
    secret: str = "s"
    lifecycle = Lifecycle("""
        new -> busy -> done
        busy -> new | bad
        bad -> new
    """)


async def work(letter: Letter, at: Any) -> To:
    if letter.name == "bad":
        raise Permanent("it cannot be read", type="unreadable")
    return To("done")


def pipeline(**options: Any) -> App:
    app = App("mail")
    app.stage(
        Letter,
        take="new",
        hold="busy",
        exhausted="bad",
        retry=Backoff(tries=3, base=0),
        name="work",
        every="1h",
        **options,
    )(work)
    return app


async def test_a_dead_letter_says_what_its_stage_says_and_goes_to_its_topic(
    new_engine: Any,
) -> None:
    engine = await new_engine(
        pipeline(
            dead_letter=lambda record: {"who": record.name},
            dead_letter_topic=lambda settings: "topic",
        )
    )
    await engine.records.insert([Letter(name="bad"), Letter(name="good")])
    await engine.run_cycle("mail.work")
    letters = (await engine.records.find(DeadLetter)).items
    payload = letters[0].payload
    assert [x.record_id for x in letters] == ["bad"]
    assert payload | {"timestamp": ""} == {
        "who": "bad",
        "error_type": "unreadable",
        "error_message": "it cannot be read",
        "attempts": 1,
        "timestamp": "",
    }
    messages = (await engine.records.find(Message)).items
    assert [(m.topic, m.data, m.attributes) for m in messages] == [
        ("topic", payload, {"error_type": "unreadable"})
    ]


async def test_by_default_a_dead_letter_holds_the_record_and_nothing_is_published(
    new_engine: Any,
) -> None:
    engine = await new_engine(pipeline())
    await engine.records.insert([Letter(name="bad")])
    await engine.run_cycle("mail.work")
    payload = (await engine.records.find(DeadLetter)).items[0].payload
    assert (payload["name"], payload["secret"], payload["error_type"]) == ("bad", "s", "unreadable")
    assert (await engine.records.find(Message)).items == []


async def test_purge_removes_what_matches_and_nothing_else(new_engine: Any) -> None:
    engine = await new_engine(pipeline())
    await engine.records.insert(
        [Letter(name=f"n{n:04}", secret="old" if n % 2 else "new") for n in range(2500)]
    )
    assert await engine.records.purge(Letter, {"secret": "old"}) == 1250
    assert await engine.records.count(Letter) == (1250, True)


async def test_a_function_that_drains_in_a_loop_sees_that_the_process_stops(
    new_engine: Any,
) -> None:
    app = pipeline()
    turns = 0

    @app.cycle()
    async def loop(run: RunContext) -> None:
        nonlocal turns
        while not run.stopping:
            turns += 1
            await run.drain("work")
            engine.stop()

    engine = await new_engine(app)
    await engine.records.insert([Letter(name="good")])
    run = await engine.run_cycle("mail.loop")
    assert (turns, run.counters["done"]) == (1, 1)
    await engine.records.insert([Letter(name="late")])
    await engine.runner.drain(run, "work")
    assert run.counters["done"] == 1


class Page(Record, table="pages", key="name"):
    name: str
    lifecycle = Lifecycle("""
        new -> fetching -> fetched -> parsing -> done
        fetching -> new | error
        parsing -> fetched | error
        error -> new | fetched
    """)


def two_stages(broken: set[str]) -> App:
    """Both give up in the same state."""
    app = App("web")

    def work(stage: str, take: str, hold: str, to: str) -> None:
        async def handle(page: Page, at: Any) -> To:
            if f"{stage} {page.name}" in broken:
                raise Permanent("no")
            return To(to)

        app.stage(Page, take=take, hold=hold, exhausted="error", name=stage, every="1h")(handle)

    work("parse", "fetched", "parsing", "done")
    work("fetch", "new", "fetching", "fetched")
    return app


@pytest.mark.parametrize("verb", ["retry", "redrive"])
async def test_a_record_goes_back_to_the_stage_that_exhausted_it(
    new_engine: Any, verb: str
) -> None:
    engine = await new_engine(two_stages({"fetch a", "parse b"}))
    await engine.records.insert([Page(name="a"), Page(name="b")])
    await engine.run_cycle("web.fetch")
    await engine.run_cycle("web.parse")
    assert {p.status async for p in engine.records.each(Page)} == {"error"}
    operator = engine.operations("ana")
    if verb == "retry":
        acted = await operator.retry("pages", where={"status": "error"}, reason="fixed")
    else:
        acted = await operator.redrive(where={"table_name": "pages"}, reason="fixed")
    assert (acted.moved, acted.passed) == (2, [])
    assert {p.name: p.status async for p in engine.records.each(Page)} == {
        "a": "new",
        "b": "fetched",
    }


async def test_a_dead_letter_whose_record_moved_on_is_skipped(new_engine: Any) -> None:
    engine = await new_engine(pipeline())
    await engine.records.insert([Letter(name="bad")])
    await engine.run_cycle("mail.work")
    operator = engine.operations("ana")
    await _move_by_another_program(engine, "bad", "new")
    acted = await operator.redrive(where={"record_id": "bad"}, reason="once more")
    assert (acted.matched, acted.moved) == (1, 0)
    assert (
        acted.passed[0]["why"]
        == "letters bad is new: it was retried or moved meanwhile; discard the dead letter"
    )
    assert [x.status for x in (await engine.records.find(DeadLetter)).items] == ["open"]


async def _move_by_another_program(engine: Any, id: str, to: str) -> None:
    move = Settlement(Ref(Letter.kind, id), to, Letter.lifecycle.sources(to), None)
    assert isinstance((await engine.store.settle([move]))[0], Settled)


async def _letters(engine: Any) -> list[tuple[str, str]]:
    return [(x.record_id, x.status) for x in (await engine.records.find(DeadLetter)).items]


@pytest.mark.parametrize("verb", ["retry", "move"])
async def test_a_dead_letter_is_closed_when_an_operator_sends_its_record_on(
    new_engine: Any, verb: str
) -> None:
    engine = await new_engine(pipeline())
    await engine.records.insert([Letter(name="bad")])
    await engine.run_cycle("mail.work")
    operator = engine.operations("ana")
    if verb == "retry":
        await operator.retry("letters", ids=["bad"], reason="once more")
    else:
        await operator.move("letters", "new", ids=["bad"], reason="once more")
    [letter] = (await engine.records.find(DeadLetter)).items
    assert letter.status == "resolved"
    [step] = await engine.store.history(letter.ref)
    assert (step.who, str(load(step.reason))) == ("ana", "its record is new")


async def test_dead_letters_are_closed_whoever_sends_their_records_on(new_engine: Any) -> None:
    engine = await new_engine(pipeline())
    await engine.records.insert([Letter(name="bad"), Letter(name="good", status="bad")])
    await engine.run_cycle("mail.work")
    for _ in range(2):  # another program sends it back, and it is exhausted again
        await _move_by_another_program(engine, "bad", "new")
        await engine.run_cycle("mail.work")
    assert await _letters(engine) == [("bad", "open")] * 3
    await engine.run_cycle("esclusa.close-letters")
    assert sorted(await _letters(engine)) == [("bad", "open"), *[("bad", "resolved")] * 2]
    await engine.store.remove([Ref(Letter.kind, "bad")])
    await engine.run_cycle("esclusa.close-letters")
    assert await _letters(engine) == [("bad", "resolved")] * 3


async def test_more_matches_than_previewed_change_nothing(new_engine: Any) -> None:
    """The operator previewed two records; now three match, so none is changed."""
    engine = await new_engine(pipeline())
    await engine.records.insert([Letter(name=f"l{n}", status="bad") for n in range(3)])
    operator, open_ones = engine.operations("tests"), {"status": "open"}
    letter = {
        "table_name": "letters",
        "state_before": "new",
        "error_type": "unreadable",
        "error_message": "m",
    }
    await engine.records.insert([DeadLetter(record_id=f"l{n}", **letter) for n in range(3)])
    for acted in (
        await operator.retry("letters", reason="x", where={"status": "bad"}, seen=2),
        await operator.move("letters", "new", reason="x", where={"status": "bad"}, seen=2),
        await operator.redrive(reason="x", where=open_ones, seen=2),
        await operator.discard(reason="x", where=open_ones, seen=0),
    ):
        assert (acted.matched, acted.moved, acted.dry_run) == (3, 0, True), acted.verb
    assert (await engine.records.find(Audit)).items == []
    acted = await operator.redrive(reason="x", where=open_ones, seen=4)
    assert (acted.moved, acted.dry_run) == (3, False)


class Note(Record, table="notes", key="name"):
    name: str
    lifecycle = Lifecycle("new -> busy -> done\nbusy -> new")


def helping() -> App:
    """The stage of another record, and a second one of the same record, send letters on."""
    app = pipeline()

    async def help(note: Note, at: Any) -> To:
        return To("done", also=[Move(Letter, note.name, "new", frm="bad")])

    async def rescue(letter: Letter, at: Any) -> To:
        return To("new")

    always = {"retry": Backoff(tries=None), "every": "1h"}
    app.stage(Note, take="new", hold="busy", name="help", **always)(help)
    app.stage(Letter, take="bad", name="rescue", **always)(rescue)
    return app


@pytest.mark.parametrize("way", ["effect", "stage", "put"])
async def test_a_dead_letter_is_closed_at_once_when_a_settlement_sends_its_record_on(
    new_engine: Any, way: str
) -> None:
    engine = await new_engine(helping())
    await engine.records.insert([Letter(name="bad"), Note(name="bad")])
    async with engine.running():
        await engine.run_cycle("mail.work")
        assert await _letters(engine) == [("bad", "open")]
        if way == "put":
            await engine.records.put([Letter(name="bad", status="new")], who="import")
        else:
            await engine.run_cycle("mail.help" if way == "effect" else "mail.rescue")
    assert [(r.name, r.status) for r in (await engine.records.find(Letter)).items] == [
        ("bad", "new")
    ]
    assert await _letters(engine) == [("bad", "resolved")]


async def test_closed_letters_audit_and_history_are_pruned_by_age(new_engine: Any) -> None:
    engine = await new_engine(pipeline())
    await engine.records.insert([Letter(name=name) for name in ("bad", "good")])
    await engine.run_cycle("mail.work")
    letter = (await engine.records.find(DeadLetter)).items[0]
    await engine.operations("ana").discard(ids=[letter.id], reason="known")
    await engine.records.insert([letter.but(id="", status="open")])
    for days, statuses, audits in ((170, ["discarded", "open"], 1), (20, ["open"], 1)):
        engine.store.clock_offset += days * 86400
        await engine.clock.sync()
        await engine.run_cycle("esclusa.prune")
        letters = (await engine.records.find(DeadLetter)).items
        assert sorted(x.status for x in letters) == statuses
        assert len((await engine.records.find(Audit)).items) == audits
        assert await engine.store.history(Ref(Letter.kind, "good"))
    engine.store.clock_offset += 600 * 86400
    await engine.clock.sync()
    await engine.run_cycle("esclusa.prune")
    assert (await engine.records.find(Audit)).items == []
    assert [x.status for x in (await engine.records.find(DeadLetter)).items] == ["open"]
