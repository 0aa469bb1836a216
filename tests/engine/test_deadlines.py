"""Deadlines of states: a record that stays too long goes on by itself, and an alert says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from esclusa.engine.operations import Operations
from esclusa.engine.read_model import ReadModel
from esclusa.model.errors import DeclarationError
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.outcome import Retry, To
from esclusa.model.pipeline import App
from esclusa.model.record import Record
from esclusa.model.retry import Backoff
from esclusa.model.system_records import Alert

DAY = 86_400


class Claim(Record, table="claims", key="name"):
    name: str
    note: str = ""
    lifecycle = Lifecycle(
        """
        open -> review -> approved | escalated
        escalated -> approved
        review -> open
        """
    )


class Limits(BaseModel):
    review: str | None = "2d"


def pipeline() -> App:
    app = App("try", settings=Limits, records=[Claim])

    @app.stage(Claim, take="open", retry=Backoff(tries=None))
    async def work(claim: Claim, at: Any) -> To | Retry:
        return Retry("once more", after=0) if at.number == 1 else To("review")

    app.deadline(Claim, "review", after=lambda s: s.review, to="escalated")
    return app


async def later(engine: Any, seconds: float) -> None:
    engine.store.clock_offset += seconds
    await engine.clock.sync()


async def work_all(engine: Any) -> None:
    """Run the stage for each of its two attempts, and then the deadline."""
    for cycle in ("try.work", "try.work", "try.review-deadline"):
        await engine.run_cycle(cycle)


async def states(engine: Any) -> dict[str, str]:
    return {c.name: c.status for c in (await engine.records.find(Claim)).items}


async def open_alerts(engine: Any) -> list[str]:
    found = (await engine.records.find(Alert)).items
    return [a.name for a in found if a.status == "raised"]


async def test_record_goes_on_after_its_deadline_and_one_alert_begins(new_engine: Any) -> None:
    engine = await new_engine(pipeline())
    await engine.records.insert([Claim(name="a"), Claim(name="b")])
    await work_all(engine)
    await later(engine, DAY)
    await engine.records.insert([Claim(name="late")])
    await work_all(engine)
    assert set((await states(engine)).values()) == {"review"}
    assert await open_alerts(engine) == []
    await later(engine, DAY + 60)
    await work_all(engine)
    assert await states(engine) == {"a": "escalated", "b": "escalated", "late": "review"}
    assert await open_alerts(engine) == ["deadline"]
    [found] = (await engine.records.find(Claim, {"name": "a"})).items
    assert found.attempts == 2  # those of the stage before: a deadline counts none
    steps = await engine.store.history(found.ref)
    assert [(s.frm, s.to) for s in steps if s.frm != s.to] == [
        ("open", "review"),
        ("review", "escalated"),
    ]


async def test_alert_ends_when_no_record_is_left_in_the_state(new_engine: Any) -> None:
    engine = await new_engine(pipeline())
    await engine.records.insert([Claim(name="a")])
    await work_all(engine)
    await later(engine, 3 * DAY)
    await work_all(engine)
    await engine.judge.judge()
    assert await open_alerts(engine) == ["deadline"]
    await operations(engine).move("claims", "approved", reason="looked at", where={"note": ""})
    await engine.judge.judge()
    assert await open_alerts(engine) == []


async def test_writes_within_the_state_do_not_move_the_deadline(new_engine: Any) -> None:
    engine = await new_engine(pipeline())
    await engine.records.insert([Claim(name="a")])
    await work_all(engine)
    await later(engine, 1.5 * DAY)

    async def choose(claim: Claim) -> To:
        return To("review", note="looked at")

    await operations(engine).apply("note", "claims", choose, where={"note": ""})
    await work_all(engine)
    assert await states(engine) == {"a": "review"}
    await later(engine, 0.6 * DAY)
    await work_all(engine)
    assert await states(engine) == {"a": "escalated"}


async def test_a_record_that_returns_to_the_state_begins_anew(new_engine: Any) -> None:
    engine = await new_engine(pipeline())
    await engine.records.insert([Claim(name="a")])
    await work_all(engine)
    await later(engine, 1.9 * DAY)
    await operations(engine).move("claims", "open", reason="again", where={"note": ""})
    await work_all(engine)
    await later(engine, 1.9 * DAY)
    await work_all(engine)
    assert await states(engine) == {"a": "review"}


async def test_why_names_the_deadline(new_engine: Any) -> None:
    engine = await new_engine(pipeline())
    await engine.records.insert([Claim(name="a")])
    for _ in range(2):
        await engine.run_cycle("try.work")
    [found] = (await engine.records.find(Claim)).items
    model = read_model(engine)
    first = await model.why("claims", found.id)
    await engine.run_cycle("try.review-deadline")
    answer = await model.why("claims", found.id)
    assert [r.code for r in answer.reasons] == ["no_stage", "deadline"]
    assert first.reasons[1].until == answer.reasons[1].until
    steps = await engine.store.history(found.ref)
    entered = next(step.at for step in steps if (step.frm, step.to) == ("open", "review"))
    assert answer.reasons[1].until == entered + timedelta(days=2)
    assert "after 2d in review, it goes to escalated by itself" in answer.text


def operations(engine: Any) -> Operations:
    return engine.operations("ana")


def read_model(engine: Any) -> ReadModel:
    return engine.read_model()


# declarations


class Silent(Record, table="silents", key="name", history=False):
    name: str
    lifecycle = Lifecycle("open -> review -> done")


@pytest.mark.parametrize(
    ("declare", "fault"),
    [
        (lambda app: app.deadline(Claim, "reviews", after="2d", to="escalated"), "not a state"),
        (lambda app: app.deadline(Claim, "review", after="2d", to="closed"), "is not declared"),
        (lambda app: app.deadline(Silent, "review", after="2d", to="done"), "needs a history"),
        (lambda app: app.deadline(Claim, "review", after="soon", to="escalated"), "a duration"),
        (lambda app: app.deadline(Claim, "open", after="2d", to="review"), "takes this state"),
    ],
)
def test_wrong_deadlines_are_refused(declare: Any, fault: str) -> None:
    def declared() -> None:
        app = pipeline()
        declare(app)
        app.bind(Limits())

    with pytest.raises(DeclarationError, match=fault):
        declared()


def test_a_setting_without_a_deadline_leaves_it_out() -> None:
    plan = pipeline().bind(Limits(review=None))
    assert [stage.name for stage in plan.stages] == ["try.work"]
    assert [cycle.name for cycle in plan.cycles] == ["try.work"]
