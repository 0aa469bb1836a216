"""Handlers and stages that misbehave: every attempt still ends, and the worker continues."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.scheduling import running_scheduler

from esclusa import (
    Add,
    App,
    Attempt,
    Backoff,
    Lifecycle,
    Move,
    Outcome,
    Permanent,
    Record,
    Retry,
    RunContext,
    To,
    Wait,
    Wake,
)
from esclusa.model.kind import Ref
from esclusa.model.system_records import DeadLetter, Run
from esclusa.model.texts import load


class Piece(Record, table="pieces", key="name"):
    name: str
    lifecycle = Lifecycle("""
        new -> busy -> done
        busy -> new | bad
        bad -> new
    """)


class Note(Record, table="notes", key="name"):
    name: str
    seen: int = 0
    url: str | None = None
    lifecycle = Piece.lifecycle


def pipeline(handler: Any, **options: Any) -> App:
    app = App("try")
    options = {
        "take": "new",
        "hold": "busy",
        "exhausted": "bad",
        "retry": Backoff(tries=2, base=0, jitter=0),
    } | options
    app.stage(Piece, name="work", **options)(handler)
    return app


def error(made: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise made

    return fail


async def cancelled() -> None:
    inner = asyncio.get_running_loop().create_future()
    inner.cancel()
    await inner


class Apart(BaseException):
    """No Exception: as some libraries have them, for what nobody should catch by mistake."""


class Mute(Exception):
    def __str__(self) -> str:
        raise AttributeError("nothing to say")


ODD: dict[str, tuple[Callable[[], Any], str]] = {
    "exits": (error(SystemExit(3)), "system_exit"),
    "interrupts": (error(KeyboardInterrupt()), "keyboard_interrupt"),
    "stops": (lambda: next(iter(())), "runtime_error"),
    "groups": (
        error(BaseExceptionGroup("several", [KeyError("k"), KeyboardInterrupt()])),
        "base_exception_group",
    ),
    "one": (error(ExceptionGroup("one", [TimeoutError("slow")])), "timeout"),
    "unstorable": (error(ValueError("nul \0 and half a pair \ud800")), "value_error"),
    "mute": (error(Mute()), "attribute_error"),
    "apart": (error(Apart("out")), "apart"),
    "closes": (error(GeneratorExit()), "generator_exit"),
    "named": (error(Permanent("no", type="nul \0 and \ud800")), "nul \ufffd and \ufffd"),
}


class Load:
    """Something large that a handler had at hand when it failed."""


async def test_a_failed_handlers_locals_are_freed_at_once(new_engine: Any) -> None:
    """By its count, not when the collector comes: that could be long, and much of it."""
    loads: list[weakref.ref[Load]] = []

    async def fail(piece: Piece, at: Attempt) -> Outcome:
        load = Load()
        loads.append(weakref.ref(load))
        raise ValueError("no")

    engine = await new_engine(pipeline(fail, concurrency=2))
    await engine.records.insert([Piece(name=f"p{n}") for n in range(20)])
    gc.collect()
    gc.disable()
    try:
        await engine.run_cycle("try.work")
        kept = sum(load() is not None for load in loads)
    finally:
        gc.enable()
    assert len(loads) == 20
    assert kept <= 2  # what each of the two did last


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_an_unexpected_error_leaves_its_traceback(new_engine: Any, plain: bool) -> None:
    def act(piece: Piece, at: Attempt) -> Outcome:
        if piece.name == "expected":
            raise Permanent("refused", type="refused")
        if piece.name == "answered":
            return Retry(KeyError("answered"))
        return {"fine": To("done")}[piece.name]

    async def act_async(piece: Piece, at: Attempt) -> Outcome:
        await asyncio.sleep(0)
        return act(piece, at)

    policy = Backoff(tries=1)
    engine = await new_engine(pipeline(act if plain else act_async, every="1h", retry=policy))
    names = ("fine", "expected", "answered", "unexpected")
    await engine.records.insert([Piece(name=name) for name in names])
    await engine.run_cycle("try.work")
    found = {p.name: p.last_error async for p in engine.records.each(Piece)}
    assert found["fine"] is None
    assert [name for name in names if "traceback" in (found[name] or {})] == ["unexpected"]
    traceback = found["unexpected"]["traceback"]
    assert "in act\n" in traceback
    assert traceback.endswith("\nKeyError: 'unexpected'")
    assert "esclusa/engine" not in traceback  # it begins where the handler does
    assert (found["unexpected"]["type"], found["unexpected"]["attempt"]) == ("key_error", 1)
    step = (await engine.store.history(Ref(Piece.kind, "unexpected")))[-1]
    assert step.error["traceback"] == traceback
    letter = await engine.records.first(DeadLetter, {"record_id": "unexpected"})
    assert letter is not None
    assert letter.error_message == "'unexpected'"


@pytest.mark.promise(1)
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_whatever_a_handler_raises_is_an_error_of_its_record_alone(
    new_engine: Any, plain: bool
) -> None:
    def act(piece: Piece, at: Attempt) -> Outcome:
        if piece.name in ODD:
            ODD[piece.name][0]()
        return To("done")

    async def act_async(piece: Piece, at: Attempt) -> Outcome:
        if piece.name == "cancels":
            await cancelled()
        return act(piece, at)

    engine = await new_engine(pipeline(act if plain else act_async, every="1h"))
    names = [*ODD, "fine", *([] if plain else ["cancels"])]
    await engine.records.insert([Piece(name=name) for name in names])
    for _ in range(2):
        await asyncio.wait_for(engine.run_cycle("try.work"), 20)
    found = {p.name: p async for p in engine.records.each(Piece)}
    assert found.pop("fine").status == "done"
    assert {p.status for p in found.values()} == {"bad"}
    types = {name: p.last_error["type"] for name, p in found.items()}
    assert types == {name: type for name, (_, type) in ODD.items()} | (
        {} if plain else {"cancels": "cancelled_error"}
    )
    assert {p.leased_by for p in found.values()} == {None}


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), Apart("out")], ids=repr)
async def test_a_cycle_that_raises_anything_ends_as_an_error_and_can_run_again(
    new_engine: Any, raised: BaseException
) -> None:
    app = App("try", records=[Piece])

    @app.cycle(singleton=True)
    async def look(run: RunContext) -> None:
        raise raised

    engine = await new_engine(app)
    for _ in range(2):
        run = await engine.run_cycle("try.look")
        row = await engine.records.get(Run, run.id)
        assert row is not None
        assert (row.status, row.leased_by) == ("error", None)
        assert type(raised).__name__ in (row.message or "")


BAD_ANSWERS: dict[str, Callable[[], Any]] = {
    "attempts of text": lambda: To("done", attempts="x"),  # type: ignore[arg-type]
    "attempts below 0": lambda: To("done", attempts=-5),
    "no effect": lambda: To("done", also=[None]),  # type: ignore[list-item]
    "a record is no effect": lambda: To("done", also=[Note(name="n")]),  # type: ignore[list-item]
    "a text is no effect": lambda: To("done", also="abc"),  # type: ignore[arg-type]
    "a retry with them": lambda: Retry("x", also=[5]),  # type: ignore[list-item]
    "a wait below 0": lambda: Wait(5, "x", attempts=-1),
    "no whole number": lambda: To("done", also=[Add(Note, "n", seen=1.5)]),  # type: ignore[arg-type]
    "no number": lambda: To("done", also=[Add(Note, "n", seen="a")]),  # type: ignore[arg-type]
    "yes or no": lambda: To("done", also=[Add(Note, "n", seen=True)]),
    "an id that is none": lambda: To("done", also=[Wake(Note, 5)]),  # type: ignore[arg-type]
    "an id of nothing": lambda: To("done", also=[Move(Note, None, "busy")]),  # type: ignore[arg-type]
    "a retry of nothing": lambda: Retry(None),  # type: ignore[arg-type]
    "a type that is none": lambda: Retry("x", type=5),  # type: ignore[arg-type]
    "effects too large": lambda: To(
        "done", also=[Add(Note, "n", seen=2**62), Add(Note, "n", seen=2**62)]
    ),
}
"""What no stage can settle as it is; the same on every store."""


async def test_an_answer_that_cannot_be_settled_is_an_error_of_its_record(new_engine: Any) -> None:
    async def act(piece: Piece, at: Attempt) -> Outcome:
        answer: Outcome = (
            BAD_ANSWERS[piece.name]()
            if piece.name in BAD_ANSWERS
            else To("done", also=[Add(Note, "n", seen=1)])
        )
        return answer

    app = pipeline(act, retry=Backoff(tries=1), every="1h")
    app.records.append(Note)
    engine = await new_engine(app)
    await engine.records.insert(
        [Note(name="n"), *(Piece(name=name) for name in (*BAD_ANSWERS, "fine"))]
    )
    await asyncio.wait_for(engine.run_cycle("try.work"), 20)
    found = {p.name: (p.status, p.attempts, p.leased_by) async for p in engine.records.each(Piece)}
    assert found == dict.fromkeys(BAD_ANSWERS, ("bad", 1, None)) | {"fine": ("done", 1, None)}
    note = await engine.records.get(Note, "n")
    assert note is not None
    assert (note.seen, type(note.seen), note.status) == (1, int, "new")


async def test_a_group_of_one_means_what_its_error_means(new_engine: Any) -> None:
    async def work(piece: Piece, at: Attempt) -> Outcome:
        async with asyncio.TaskGroup() as group:
            group.create_task(refuse())
        return To("done")

    async def refuse() -> None:
        raise Permanent("never", type="refused")

    engine = await new_engine(pipeline(work, every="1h"))
    await engine.records.insert([Piece(name="a")])
    await engine.run_cycle("try.work")
    piece = await engine.records.get(Piece, "a")
    assert (piece.status, piece.attempts, piece.last_error["type"]) == ("bad", 1, "refused")


async def test_a_plain_function_around_a_coroutine_is_a_handler(new_engine: Any) -> None:
    async def inner(piece: Piece, at: Attempt) -> Outcome:
        return To("done")

    def outer(piece: Piece, at: Attempt) -> Any:  # as a decorator makes it
        return inner(piece, at)

    engine = await new_engine(pipeline(outer, every="1h"))
    await engine.records.insert([Piece(name="a")])
    await engine.run_cycle("try.work")
    assert (await engine.records.get(Piece, "a")).status == "done"


async def test_a_plain_handler_can_call_async_methods(new_engine: Any) -> None:
    def work(piece: Note, at: Attempt) -> Outcome:
        at.wait(at.save(seen=3))
        return To("done", url=at.wait(at.artifacts.put(f"{piece.name}.txt", b"x")))

    async def wrong(piece: Note, at: Attempt) -> Outcome:
        at.wait(at.save(seen=4))
        return To("done")

    for name, handler in (("right", work), ("wrong", wrong)):
        app = App("try")
        app.stage(Note, take="new", hold="busy", exhausted="bad", name="work", every="1h")(handler)
        engine = await new_engine(app)
        await engine.records.insert([Note(name=name)])
        await engine.run_cycle("try.work")
    right, other = [await engine.records.get(Note, name) for name in ("right", "wrong")]
    assert (right.status, right.seen, right.url.endswith("right.txt")) == ("done", 3, True)
    assert (other.status, other.last_error["message"]) == (
        "new",
        "this handler is async: use await instead of at.wait(…)",
    )


async def test_a_batch_handler_cannot_save(new_engine: Any) -> None:
    async def work(batch: list[Note], at: Attempt) -> list[Outcome]:
        await at.save(seen=1)
        return [To("done") for _ in batch]

    app = App("try")
    app.stage(Note, take="new", hold="busy", exhausted="bad", name="work", every="1h", batch=5)(
        work
    )
    engine = await new_engine(app)
    await engine.records.insert([Note(name=name) for name in "ab"])
    await engine.run_cycle("try.work")
    assert (
        "save needs a handler of single records"
        in (await engine.records.get(Note, "a")).last_error["message"]
    )


async def test_a_hanging_thread_does_not_block_other_calls(new_engine: Any) -> None:
    free = threading.Event()

    def work(piece: Piece, at: Attempt) -> Outcome:
        if piece.name == "hangs":
            free.wait(60)
        return To("done")

    engine = await new_engine(pipeline(work, every="1h", concurrency=1, timeout=0.5, order="name"))
    await engine.records.insert([Piece(name=name) for name in ("hangs", "next", "third")])
    try:
        await asyncio.wait_for(engine.run_cycle("try.work"), 20)
    finally:
        free.set()
    found = {p.name: (p.status, p.attempts) async for p in engine.records.each(Piece)}
    assert found == {"hangs": ("new", 1), "next": ("done", 1), "third": ("done", 1)}


async def test_a_stage_with_a_shorter_lease_is_renewed_in_time(
    new_engine: Any,
) -> None:
    async def work(piece: Piece, at: Attempt) -> Outcome:
        await asyncio.sleep(3)
        return To("done")

    engine = await new_engine(pipeline(work, lease=1), lease=60)
    other = await new_engine(pipeline(work, lease=1), lease=60)
    await engine.records.insert([Piece(name="a")])
    async with running_scheduler(engine), running_scheduler(other), asyncio.timeout(15):
        while (await engine.records.get(Piece, "a")).status != "done":
            await asyncio.sleep(0.05)
    assert (await engine.records.get(Piece, "a")).fence == 1


def _broken(piece: Piece) -> Any:
    raise ZeroDivisionError("no letter")


ENDS: dict[str, dict[str, Any]] = {
    "a dead letter that fails": {"dead_letter": _broken},
    "effects that fail": {"on_exhausted": _broken},
    "effects that are rejected": {"on_exhausted": lambda piece: [Move(Piece, "nobody", "done")]},
}


@pytest.mark.promise(1, 4)
@pytest.mark.parametrize("ends", list(ENDS))
async def test_failed_exhaustion_is_retried_without_the_handler(new_engine: Any, ends: str) -> None:
    calls: list[str] = []

    async def work(piece: Piece, at: Attempt) -> Outcome:
        calls.append(piece.name)
        raise Permanent("refused", type="refused")

    policy = Backoff(tries=3, base=1, cap="10m")
    engine = await new_engine(pipeline(work, every="1h", retry=policy, **ENDS[ends]))
    await engine.records.insert([Piece(name="a")])
    await asyncio.wait_for(engine.run_cycle("try.work"), 20)
    piece = await engine.records.get(Piece, "a")
    assert (piece.status, piece.attempts, piece.leased_by, piece.last_error["of"]["type"]) == (
        "new",
        3,
        None,
        "refused",
    )
    assert piece.last_error["type"] == ("rejected" if "rejected" in ends else "zero_division_error")
    step = (await engine.store.history(Ref(Piece.kind, "a")))[-1]
    assert load(step.reason).startswith("exhaustion failed, will retry: ")

    repaired = await new_engine(pipeline(work, every="1h", retry=policy), offset=601)
    await repaired.run_cycle("try.work")
    piece = await repaired.records.get(Piece, "a")
    assert (piece.status, piece.last_error["type"], calls) == ("bad", "refused", ["a"])
    letter = await repaired.records.first(DeadLetter, {"record_id": "a"})
    assert (letter.error_type, letter.error_message) == ("refused", "refused")


async def test_a_paused_cycle_claims_nothing_more_however_much_is_due(new_engine: Any) -> None:
    handled: list[str] = []

    async def work(piece: Piece, at: Attempt) -> Outcome:
        handled.append(piece.name)
        await asyncio.sleep(0.02)
        return To("done")

    def pieces(name: str) -> Iterator[Piece]:
        return (Piece(name=f"{name}{n}") for n in range(300))

    engine = await new_engine(pipeline(work, concurrency=1), poll=0.2)
    await engine.records.insert(list(pieces("a")))
    async with running_scheduler(engine):
        while not handled:
            await asyncio.sleep(0.01)
        await engine.operations("ana").pause("try.work", "stop that")
        before = await engine.records.count(Piece, {"status": "new"})
        await engine.records.insert(list(pieces("b")))  # the worker hears it, and goes on resting
        await asyncio.sleep(1)
        assert (await engine.records.count(Piece, {"status": "new"}))[0] >= 300 + before[
            0
        ] - 50  # what it had claimed ahead
        before = len(handled)
        await asyncio.sleep(0.5)
        assert len(handled) == before
        await engine.operations("ana").resume("try.work")
        while len(handled) == before:
            await asyncio.sleep(0.01)


async def test_a_worker_that_starts_while_its_cycle_is_paused_claims_nothing(
    new_engine: Any,
) -> None:
    async def work(piece: Piece, at: Attempt) -> Outcome:
        return To("done")

    engine = await new_engine(pipeline(work))
    await engine.operations("ana").pause("try.work")
    await engine.records.insert([Piece(name="a")])
    async with running_scheduler(engine):
        await asyncio.sleep(0.5)
    assert (await engine.records.get(Piece, "a")).status == "new"
