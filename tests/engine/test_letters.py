"""Dead letters in their stage's words and on their topic; clearing results away; a loop of drains that ends when the process stops."""

from __future__ import annotations

from typing import Any

from esclusa import App, Backoff, Lifecycle, Permanent, Record, RunContext, To
from esclusa.model.books import DeadLetter, Message


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
    app.stage(Letter, take="new", hold="busy", exhausted="bad", retry=Backoff(tries=3, base=0), name="work", every="1h", **options)(work)
    return app


async def test_a_dead_letter_says_what_its_stage_says_and_goes_to_its_topic(new_engine: Any) -> None:
    engine = await new_engine(pipeline(letter=lambda record: {"who": record.name}, letters_to=lambda settings: "topic"))
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
    assert [(m.topic, m.data, m.attributes) for m in messages] == [("topic", payload, {"error_type": "unreadable"})]


async def test_without_words_of_its_own_a_dead_letter_holds_the_record_and_nothing_is_published(new_engine: Any) -> None:
    engine = await new_engine(pipeline())
    await engine.records.insert([Letter(name="bad")])
    await engine.run_cycle("mail.work")
    payload = (await engine.records.find(DeadLetter)).items[0].payload
    assert (payload["name"], payload["secret"], payload["error_type"]) == ("bad", "s", "unreadable")
    assert (await engine.records.find(Message)).items == []


async def test_purge_removes_what_matches_and_nothing_else(new_engine: Any) -> None:
    engine = await new_engine(pipeline())
    await engine.records.insert([Letter(name=f"n{n:04}", secret="old" if n % 2 else "new") for n in range(2500)])
    assert await engine.records.purge(Letter, {"secret": "old"}) == 1250
    assert await engine.records.count(Letter) == (1250, True)


async def test_a_function_that_drains_in_a_loop_sees_that_the_process_stops(new_engine: Any) -> None:
    app = pipeline()
    turns = 0

    @app.cycle()
    async def loop(run: RunContext) -> None:
        nonlocal turns
        while not run.stopping:
            turns += 1
            await run.drain("work")
            run.engine.stop()

    engine = await new_engine(app)
    await engine.records.insert([Letter(name="good")])
    run = await engine.run_cycle("mail.loop")
    assert (turns, run.counters["done"]) == (1, 1)
    await engine.records.insert([Letter(name="late")])
    await engine.drain(run, "work")
    assert run.counters["done"] == 1
