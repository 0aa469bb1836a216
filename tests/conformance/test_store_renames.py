"""Lifecycles that change while records exist: renamed, undeclared and repaired states."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from conformance.helpers import (
    advance,
    claim,
    claim_one,
    claim_request,
    find_all,
    insert_new,
    is_near,
    operator_move,
    read,
    set_clock,
    settle,
    settle_all,
    settle_lost,
    settlement_of,
)
from conformance.kinds import WORK, Job, stage

from esclusa.model.effects import Exists, Move
from esclusa.model.kind import Ref
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import query
from esclusa.model.record import Record
from esclusa.model.settlement import Lost, Renewal, Settled, Settlement
from esclusa.model.texts import load


class OldLetter(Record, table="t_letters", key="name", archive=True):
    """As the version before declares it."""

    name: str

    lifecycle = Lifecycle("""
        new -> writing -> sent | failed
        writing -> new
        failed -> new
    """)


class Letter(Record, table="t_letters", key="name", archive=True):
    """As this version declares it."""

    name: str

    lifecycle = Lifecycle(
        """
        pending -> sending -> sent | failed
        sending -> pending
        failed -> pending
        """,
        renamed={"new": "pending", "writing": "sending"},
    )


class OldQuiet(Record, table="t_quiet_letters", key="name", history=False):
    name: str

    lifecycle = Lifecycle("seen")


class QuietLetter(Record, table="t_quiet_letters", key="name", history=False):
    name: str

    lifecycle = Lifecycle("received", renamed={"seen": "received"})


OLD = stage("send", OldLetter.kind, take="new", hold="writing", exhausted="failed")
NEW = stage("send", Letter.kind, take="pending", hold="sending", exhausted="failed")
KINDS = (Letter.kind, QuietLetter.kind)


@pytest.fixture
async def stores(empty_database: Any) -> Any:
    """A store of the version before, with its schema, and one of this version."""
    old = empty_database.store()
    await old.open()
    await old.migrate((OldLetter.kind, OldQuiet.kind), [OLD])
    await old.use((OldLetter.kind, OldQuiet.kind), [OLD])
    new = empty_database.store()
    await new.open()
    await new.migrate(KINDS, [NEW])
    await new.use(KINDS, [NEW])
    yield old, new
    await old.close()
    await new.close()


async def moves(store: Any, id: str) -> list[tuple[str, str]]:
    return [(s.frm, s.to) for s in await store.history(Ref(Letter.kind, id))]


async def test_records_in_renamed_states_are_moved_in_bounded_batches(stores: Any) -> None:
    old, new = stores
    await insert_new(old, *[OldLetter(name=f"l{n}") for n in range(5)])
    await insert_new(old, OldLetter(name="sent", status="sent"))
    before = {r.id: r for r in await find_all(old, OldLetter)}
    assert [await new.rename_states(Letter.kind, 2) for _ in range(4)] == [2, 2, 1, 0]
    after = {r.id: r for r in await find_all(new, Letter)}
    assert {r.status for r in after.values()} == {"pending", "sent"}
    for id, record in after.items():
        same = {"status": before[id].status}
        assert record.model_dump() | same == before[id].model_dump()
    [step] = await new.history(Ref(Letter.kind, "l0"))
    assert (step.frm, step.to, step.who) == ("new", "pending", "migrate")
    assert load(step.reason) == "the state new is called pending now"
    assert is_near(step.at, await new.now())
    assert await moves(new, "sent") == []
    assert len(await claim(new, NEW)) == 5


async def test_a_renamed_record_without_history_gets_none(stores: Any) -> None:
    old, new = stores
    await insert_new(old, OldQuiet(name="q"))
    assert await new.rename_states(QuietLetter.kind) == 1
    assert (await read(new, QuietLetter, "q")).status == "received"
    assert await new.history(Ref(QuietLetter.kind, "q")) == []


async def test_a_kind_without_renamed_states_renames_nothing(stores: Any) -> None:
    old, _new = stores
    await insert_new(old, OldLetter(name="l"))
    assert await old.rename_states(OldLetter.kind) == 0


async def test_claims_take_a_record_only_after_it_was_moved(stores: Any) -> None:
    old, new = stores
    await insert_new(old, OldLetter(name="l"))
    assert await claim(new, NEW) == []
    assert (await new.rename_states(Letter.kind), await claim(old, OLD)) == (1, [])
    assert [x.record.id for x in await claim(new, NEW)] == ["l"]


@pytest.mark.promise(3)
async def test_a_record_that_an_old_worker_holds_is_renamed_when_it_is_settled(
    stores: Any,
) -> None:
    old, new = stores
    await insert_new(old, OldLetter(name="l"), OldLetter(name="m"))
    first, second = await claim(old, OLD)
    assert await new.rename_states(Letter.kind) == 0
    assert await claim(new, NEW) == []
    assert await old.renew([Renewal(first.ref, first.fence, 90)]) == {first.ref}
    await settle_all(old, settlement_of(first, "sent"), settlement_of(second, "new"))
    assert await new.rename_states(Letter.kind) == 1
    assert await moves(new, first.ref.id) == [("new", "writing"), ("writing", "sent")]
    assert (await read(new, Letter, second.ref.id)).status == "pending"


async def test_a_retry_of_an_old_worker_is_moved_again_and_goes_on(stores: Any) -> None:
    old, new = stores
    await insert_new(old, OldLetter(name="l"))
    lease = await claim_one(old, OLD)
    await settle_all(old, settlement_of(lease, "new", error={"type": "t", "message": "m"}))
    assert await new.rename_states(Letter.kind) == 1
    taken = await claim_one(new, NEW)
    assert taken.attempt == 2
    await settle_all(new, settlement_of(taken, "sent"))
    assert await moves(new, "l") == [
        ("new", "writing"),
        ("writing", "new"),
        ("new", "pending"),
        ("pending", "sending"),
        ("sending", "sent"),
    ]


@pytest.mark.promise(1)
async def test_the_record_of_a_dead_old_worker_is_renamed_and_taken_over(stores: Any) -> None:
    old, new = stores
    await insert_new(old, OldLetter(name="l"))
    lease = await claim_one(old, OLD, lease=30)
    advance(old, new, seconds=31)
    assert await new.rename_states(Letter.kind) == 1
    taken = await claim_one(new, NEW, worker="w2")
    assert taken.fence == lease.fence + 1
    await settle_lost(old, settlement_of(lease, "sent"))
    await settle_all(new, settlement_of(taken, "sent"))


async def test_workers_of_both_versions_neither_lose_nor_double_a_record(stores: Any) -> None:
    old, new = stores
    names = [f"l{n:03d}" for n in range(60)]
    await insert_new(old, *[OldLetter(name=name) for name in names])
    done: list[str] = []

    async def work(store: Any, claims: Any, worker: str) -> None:
        for _ in range(200):
            if len(done) == len(names):
                return
            for lease in await claim(store, claims, limit=4, worker=worker):
                # every third attempt of the old version goes back to its own state
                again = claims is OLD and lease.record.id[-1] in "369" and lease.attempt == 1
                to = claims.take[0] if again else "sent"
                [verdict] = await settle(store, settlement_of(lease, to, who=worker))
                if isinstance(verdict, Settled) and not again:
                    done.append(lease.record.id)
            await asyncio.sleep(0.01)

    async def rename() -> None:
        while len(done) < len(names):
            await new.rename_states(Letter.kind, 7)
            await asyncio.sleep(0.01)

    async with asyncio.timeout(60):
        await asyncio.gather(work(old, OLD, "old"), work(new, NEW, "new"), rename())
    assert sorted(done) == names
    assert await new.states(Letter.kind) == ["sent"]
    for name in names:
        steps = await moves(new, name)
        assert all(a[1] == b[0] for a, b in pairwise(steps)), steps


async def test_operators_move_a_record_under_its_earlier_name(stores: Any) -> None:
    old, new = stores
    await insert_new(old, OldLetter(name="l"), OldLetter(name="m", status="failed"))
    life = Letter.kind.lifecycle
    assert life.sources("sending") == ("pending", "new")
    await settle_all(new, operator_move(Ref(Letter.kind, "l"), life.sources("sending"), "sending"))
    assert await moves(new, "l") == [("new", "sending")]


async def test_effects_and_guards_see_a_record_under_its_earlier_name(stores: Any) -> None:
    old, new = stores
    await insert_new(old, *[OldLetter(name=n) for n in "abc"])
    await insert_new(new, Letter(name="x"), Letter(name="y"), Letter(name="z"))
    x, y, z = await claim(new, NEW)
    guard = Exists(Letter, status="pending", name="c")
    await settle_all(
        new,
        settlement_of(x, "sent", effects=(Move(Letter, "a", "sending", frm="pending"),)),
        settlement_of(y, "sent", effects=(Move(Letter, "b", "sending"),)),
        settlement_of(z, "sent", effects=(Move(Letter, "b", "failed", unless=guard),)),
    )
    states = {r.id: r.status for r in await find_all(new, Letter)}
    assert states == {
        "a": "sending",
        "b": "sending",
        "c": "new",
        "x": "sent",
        "y": "sent",
        "z": "sent",
    }


async def test_a_filter_by_the_earlier_name_finds_both(stores: Any) -> None:
    old, new = stores
    await insert_new(old, OldLetter(name="a"))
    await insert_new(new, Letter(name="b"))
    assert [r.id for r in await find_all(new, Letter, where={"status": "new"})] == ["a", "b"]
    assert [r.id for r in await find_all(new, Letter, where={"status": "pending"})] == ["b"]


async def test_archived_records_are_found_under_both_names(stores: Any) -> None:
    old, new = stores
    await insert_new(old, OldLetter(name="a"))
    assert await old.archive(query(OldLetter)) == 1
    for state in ("new", "pending"):
        found = await new.find(query(Letter, {"status": state}, archived=True))
        assert [r.id for r in found.items] == ["a"]


async def test_states_that_occur_and_their_counts(stores: Any) -> None:
    old, new = stores
    assert await new.states(Letter.kind) == []
    await insert_new(old, *[OldLetter(name=f"l{n}") for n in range(3)])
    await insert_new(old, OldLetter(name="s", status="sent"))
    assert await new.states(Letter.kind) == ["new", "sent"]
    counts = {c.state: c.count for c in await new.tally(Letter.kind, 10)}
    assert counts == {"pending": 0, "sending": 0, "sent": 1, "failed": 0, "new": 3}
    assert await new.count(query(Letter, {"status": "new"})) == (3, True)


async def test_a_table_that_does_not_exist_has_no_states(empty_database: Any) -> None:
    store = empty_database.store()
    await store.open()
    try:
        assert await store.states(Letter.kind) == []
    finally:
        await store.close()


class LastLetter(Record, table="t_letters", key="name", archive=True):
    """A version that has neither declared nor renamed the first states."""

    name: str

    lifecycle = Lifecycle("""
        pending -> sending -> sent | failed
        sending -> pending
        failed -> pending
    """)


@pytest.mark.promise(2)
async def test_only_a_repair_moves_a_record_out_of_an_undeclared_state(stores: Any) -> None:
    old, new = stores
    await insert_new(old, OldLetter(name="l", attempts=5))
    ref = Ref(LastLetter.kind, "l")
    assert await settle(new, operator_move(ref, ("sending", "failed"), "pending")) == [Lost(ref)]
    repair = Settlement(
        ref, "pending", ("new",), None, attempts=0, who="op", reason="why", repair=True
    )
    await settle_all(new, repair)
    assert await settle(new, repair) == [Lost(ref)]
    moved = await read(new, LastLetter, "l")
    assert (moved.status, moved.attempts) == ("pending", 0)
    [step] = await new.history(ref)
    assert (step.frm, step.to, step.who, step.reason) == ("new", "pending", "op", "why")


async def test_a_stage_that_begins_at_a_time_leaves_what_was_due_before(store: Any) -> None:
    start = await set_clock(store)
    await insert_new(store, Job(id="before", due_at=start - timedelta(days=1)))
    await insert_new(store, Job(id="at", due_at=start), Job(id="held"))
    advance(store, seconds=60)
    request = claim_request(WORK, since=start, limit=1, ids=("held",))
    [held] = await store.claim(request)
    assert (await store.backlog(claim_request(WORK, since=start))).due == 1
    assert (await store.backlog(claim_request(WORK))).due == 2
    assert [x.record.id for x in await claim(store, WORK, since=start)] == ["at"]
    assert await claim(store, WORK, since=start) == []
    now = await store.now()
    eager = {"before": now, "eager": True}
    assert await claim(store, WORK, since=start, **eager) == []
    # a retry, an orphan and an operator's move are due again, so they are taken
    await settle_all(store, settlement_of(held, "pending"))
    assert [x.record.id for x in await claim(store, WORK, since=start)] == ["held"]
    advance(store, seconds=120)
    orphans = await claim(store, WORK, since=start)
    assert sorted(x.record.id for x in orphans) == ["at", "held"]
    await settle_all(
        store,
        operator_move(Ref(Job.kind, "before"), "pending", "working"),
    )
    await settle_all(store, operator_move(Ref(Job.kind, "before"), "working", "pending"))
    assert [x.record.id for x in await claim(store, WORK, since=start)] == ["before"]
