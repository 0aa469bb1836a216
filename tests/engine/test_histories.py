"""Times in states, the event log and the use of budgets, from what the store keeps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from esclusa import App, Budget, Lifecycle, Record, To, Window
from esclusa.engine.read_history import stays_of
from esclusa.engine.read_time import starts_before
from esclusa.model.settlement import Step

T0 = datetime(2026, 11, 18, 12, tzinfo=UTC)
CALLS = Budget("calls", Window("day", 100, "America/Santiago"))


class Letter(Record, table="letters", key="name"):
    name: str
    lifecycle = Lifecycle("""
        new -> busy -> done
        busy -> new | bad
    """)


def post() -> App:
    app = App("post", budgets=[CALLS])

    @app.stage(Letter, name="sort", take="new", hold="busy", exhausted="bad")
    async def sort(letter: Letter, at: Any) -> To:
        return To("done")

    return app


def move(frm: str, to: str, minutes: int) -> Step:
    return Step(frm, to, T0 + timedelta(minutes=minutes), "w", None, None, None, None)


def test_stays_are_the_times_between_moves() -> None:
    letter = Letter(id="a", name="a", status="done", created_at=T0)
    steps = [move("new", "busy", 2), move("busy", "busy", 3), move("busy", "done", 7)]
    stays = stays_of(letter, steps, whole=True)
    assert [(s.state, s.seconds(T0 + timedelta(hours=1))) for s in stays] == [
        ("new", 120),
        ("busy", 300),
        ("done", 3180),
    ]
    cut = stays_of(letter, steps[2:], whole=False)
    assert [(s.state, s.until) for s in cut] == [("done", None)]
    assert stays_of(letter.but(status="new"), [], whole=True)[0].since == T0


async def test_times_in_states_and_the_slowest_records(new_engine: Any) -> None:
    engine = await new_engine(post())
    await engine.records.insert([Letter(name=f"l{n}") for n in range(12)])
    engine.store.clock_offset += 100
    await engine.clock.sync()
    await engine.run_cycle("post.sort", limit=5)
    read_model = engine.read_model()
    found = await read_model.time_in_state("letters")
    states = {s["state"]: s for s in found["states"]}
    assert (found["exact"], found["records"]) == (True, 12)
    assert (states["new"]["ended"], states["new"]["present"]) == (5, 7)
    assert 99 <= states["new"]["median"] <= states["new"]["p95"] <= 130
    assert len(states["new"]["slowest"]) == 10
    assert states["new"]["slowest"][0]["until"] is None
    assert states["done"]["ended"] == 0
    assert states["bad"]["slowest"] == []


async def test_the_histories_of_all_records_within_a_time(new_engine: Any) -> None:
    engine = await new_engine(post())
    await engine.records.insert([Letter(name=f"l{n}") for n in range(7)])
    await engine.run_cycle("post.sort", limit=4)
    read_model = engine.read_model()
    found = {r.id: steps async for r, steps in read_model.histories(["letters"])}
    assert len(found) == 7
    assert [[(s.frm, s.to) for s in steps] for steps in found.values() if steps] == [
        [("new", "busy"), ("busy", "done")]
    ] * 4
    later = engine.clock.now() + timedelta(hours=1)
    assert [r async for r in read_model.histories(["letters"], since=later)] == []


async def test_the_use_of_a_budget_by_day(new_engine: Any) -> None:
    engine = await new_engine(post())
    await engine.store.spend(CALLS, 5, "post.sort")
    engine.store.clock_offset += 2 * 86_400
    await engine.clock.sync()
    await engine.store.spend(CALLS, 3, "post.sort")
    use = await engine.read_model().budget_use("calls")
    assert (use["per"], use["timezone"], len(use["items"])) == ("day", "America/Santiago", 31)
    assert [item["used"] for item in use["items"][-3:]] == [5, 0, 3]
    assert use["items"][-1]["spenders"] == {"post.sort": 3}


def test_days_begin_at_midnight_of_the_windows_zone() -> None:
    starts = starts_before(Window("day", 1, "America/Santiago"), T0, 400)
    zone = [s.astimezone(starts[0].tzinfo) for s in starts]
    assert zone == sorted(set(starts))
    assert len(starts) == 400
