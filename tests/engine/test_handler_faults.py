"""Handlers that are programmed wrongly: loud, not retried, an error of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.scheduling import running_scheduler

from esclusa import (
    Add,
    App,
    Attempt,
    Backoff,
    Create,
    Lifecycle,
    Move,
    Outcome,
    Permanent,
    Record,
    Retry,
    To,
    Wait,
)
from esclusa.model.system_records import Alert, DeadLetter, Run
from esclusa.model.texts import load
from esclusa.ports.telemetry import Silent


class Piece(Record, table="pieces", key="name"):
    name: str
    note: str | None = None
    seen: int = 0
    lifecycle = Lifecycle("""
        new -> busy -> done
        busy -> new | bad
        bad -> new
    """)


class Log(Silent):
    """Telemetry that keeps the fields of settlements."""

    def __init__(self) -> None:
        self.fields: list[dict[str, Any]] = []

    def settled(self, stage: str, result: str, times: Any, fields: Callable[[int], Any]) -> None:
        self.fields += [fields(n) for n in range(len(times))]


def pipeline(handler: Any, **options: Any) -> App:
    app = App("try")
    options = {
        "take": "new",
        "hold": "busy",
        "exhausted": "bad",
        "retry": Backoff(tries=5, base=0, jitter=0),
        "every": "1h",
    } | options
    app.stage(Piece, name="work", **options)(handler)
    return app


def assign(piece: Piece, **fields: Any) -> Outcome:
    for name, value in fields.items():
        setattr(piece, name, value)
    return To("done")


async def misspelt(piece: Piece, at: Attempt) -> Any:
    return To("done", also=[Create(Piece(name="x", nots="y"))])  # type: ignore[call-arg]


async def assigns(piece: Piece, at: Attempt) -> Any:
    piece.note = "lost"
    return To("done", seen=1)


async def assigns_the_state(piece: Piece, at: Attempt) -> Any:
    piece.status = "done"
    return Wait(60, "later")


FAULTS: dict[str, tuple[Callable[[Piece, Attempt], Any], str, str]] = {
    "no answer": (lambda piece, at: None, "wrong_answer", "not NoneType"),
    "a text": (lambda piece, at: "done", "wrong_answer", "not str"),
    "an undeclared state": (lambda piece, at: To("nowhere"), "undeclared_move", "busy -> nowhere"),
    "an unknown field": (lambda piece, at: To("done", nots=1), "undeclared_field", "nots"),
    "a field of the tracking": (
        lambda piece, at: Wait(1, "x", attempts=0, fence=3),
        "undeclared_field",
        "fence",
    ),
    "the key": (lambda piece, at: To("done", name="x"), "undeclared_field", "part of the key"),
    "an unknown field of an effect": (misspelt, "undeclared_field", "pieces has no field nots"),
    "an unknown field of a move": (
        lambda piece, at: To("done", also=[Move(Piece, "x", "busy", nots=1)]),
        "undeclared_field",
        "it has name, note, seen",
    ),
    "an unknown field of an addition": (
        lambda piece, at: To("done", also=[Add(Piece, "x", nots=1)]),
        "undeclared_field",
        "nots",
    ),
    "an undeclared state of a move": (
        lambda piece, at: To("done", also=[Move(Piece, "x", "nowhere")]),
        "undeclared_move",
        "nowhere",
    ),
    "a lost assignment": (assigns, "lost_assignment", "note"),
    "a lost state": (assigns_the_state, "lost_assignment", "status"),
    "a lost fence": (lambda piece, at: assign(piece, fence=99), "lost_assignment", "fence"),
    "an assignment to an unknown field": (
        lambda piece, at: assign(piece, nots=1),
        "undeclared_field",
        "nots",
    ),
}


@pytest.mark.promise(2, 7)
@pytest.mark.parametrize("batch", [None, 3], ids=["single", "batch"])
async def test_a_fault_is_not_retried_and_makes_the_run_an_error(
    new_engine: Any, batch: int | None
) -> None:
    async def one(piece: Piece, at: Attempt) -> Any:
        if piece.name not in FAULTS:
            return To("done")
        answer = FAULTS[piece.name][0](piece, at)
        return await answer if hasattr(answer, "__await__") else answer

    async def many(pieces: list[Piece], at: Attempt) -> Any:
        return [await one(piece, at) for piece in pieces]

    log = Log()
    app = pipeline(one if batch is None else many, batch=batch)
    engine = await new_engine(app, telemetry=log)
    names = list(FAULTS) if batch is None else ["a text", "a lost assignment", "no answer"]
    await engine.records.insert([Piece(name=name) for name in [*names, "fine"]])
    run = await engine.run_cycle("try.work")
    found = {p.name: p async for p in engine.records.each(Piece)}
    assert found.pop("fine").status == "done"
    for name, piece in found.items():
        _, type, message = FAULTS[name]
        error = piece.last_error
        assert (name, piece.status, piece.attempts, error["type"]) == (name, "bad", 1, type)
        assert message in error["message"], name
        assert error["fault"] is True
        assert "test_handler_faults.py" in error["traceback"], name
        letter = await engine.records.first(DeadLetter, {"record_id": piece.id})
        assert letter is not None
        assert load(letter.reason) == "the handler is wrong: not retried"
    assert run.outcome == "error"
    assert "the handler of try.work is wrong" in run.message
    row = await engine.records.get(Run, run.id)
    assert row.status == "error"
    [alert] = [a async for a in engine.records.each(Alert) if a.name != "error_rate"]
    assert alert.key == "cycle_failed:try.work"
    assert "the handler of try.work is wrong" in load(alert.message)
    assert len([f for f in log.fields if f.get("fault") and f["traceback"]]) == len(names)


async def test_an_always_on_stage_with_a_fault_is_an_alert_at_once(new_engine: Any) -> None:
    async def work(piece: Piece, at: Attempt) -> Any:
        return None

    engine = await new_engine(pipeline(work, every=None))
    await engine.records.insert([Piece(name=f"p{n}") for n in range(50)])
    async with running_scheduler(engine):
        for _ in range(200):
            found = [a async for a in engine.records.each(Alert)]
            if found:
                break
            await asyncio.sleep(0.05)
        run = engine.under_way("try.work")
        assert run is not None
    assert [a.key for a in found] == ["cycle_failed:try.work"]
    row = await engine.records.get(Run, run.id)
    assert row.status == "error"


@pytest.mark.parametrize(("cap", "least"), [("1h", 3500), (0, 55)])
async def test_without_an_exhausted_state_it_is_tried_again_late(
    new_engine: Any, cap: Any, least: float
) -> None:
    async def work(piece: Piece, at: Attempt) -> Any:
        return None

    policy = Backoff(tries=None, base=0, cap=cap)
    engine = await new_engine(pipeline(work, exhausted=None, retry=policy))
    await engine.records.insert([Piece(name="a")])
    run = await engine.run_cycle("try.work")
    piece = await engine.records.get(Piece, "a")
    assert (run.outcome, piece.status, piece.last_error["type"]) == (
        "error",
        "new",
        "wrong_answer",
    )
    assert (piece.due_at - engine.clock.now()).total_seconds() > least


async def test_an_assignment_that_is_answered_or_saved_is_no_fault(new_engine: Any) -> None:
    async def work(piece: Piece, at: Attempt) -> Outcome:
        if piece.name == "answers":
            piece.note = "kept"
            return To("done", note=piece.note)
        if piece.name == "saves":
            piece.note = "kept"
            await at.save(note=piece.note)
            return To("done")
        if piece.name == "saves only":
            await at.save(note="kept", seen=3)
            assert piece.seen == 3
            return To("done")
        if piece.name == "no change":
            piece.note = piece.note
            return To("done", note="kept")
        if piece.name == "waits":
            piece.note = "kept"
            return Wait(60, "later", note=piece.note)
        piece.note = "lost with the attempt"
        piece.status, piece.attempts = "done", 0
        if piece.name == "retries":
            return Retry("no", note="kept")
        copy = piece.but(note="a copy")
        copy.seen = 5
        raise Permanent("no", type="refused")

    names = ("answers", "saves", "saves only", "no change", "waits", "retries", "raises")
    engine = await new_engine(pipeline(work, retry=Backoff(tries=5, base=60)))
    await engine.records.insert([Piece(name=name) for name in names])
    run = await engine.run_cycle("try.work")
    assert run.outcome == "partial"
    found = {p.name: (p.status, p.note) async for p in engine.records.each(Piece)}
    assert found == {
        **dict.fromkeys(names[:4], ("done", "kept")),
        "waits": ("new", "kept"),
        "retries": ("new", "kept"),
        "raises": ("bad", None),
    }


async def test_a_fault_of_one_record_in_a_batch_is_its_own(new_engine: Any) -> None:
    async def work(pieces: list[Piece], at: Attempt) -> Any:
        return [None if piece.name == "p1" else To("done") for piece in pieces]

    engine = await new_engine(pipeline(work, batch=10))
    await engine.records.insert([Piece(name=f"p{n}") for n in range(3)])
    await engine.run_cycle("try.work")
    found = {p.name: p.status async for p in engine.records.each(Piece)}
    assert found == {"p0": "done", "p1": "bad", "p2": "done"}
