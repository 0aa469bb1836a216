"""Effects: other writes that happen in the same settlement, all or nothing with it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from conformance.helpers import (
    advance,
    assert_chain,
    claim,
    claim_one,
    find_all,
    insert_new,
    is_absent,
    is_near,
    operator_move,
    read,
    retry_transient,
    set_clock,
    settle,
    settle_all,
    settle_lost,
    settlement_of,
    snapshot,
)
from conformance.kinds import COLLECT, READ, WORK, Job, Note, Post

from esclusa.model.effects import Add, Create, Exists, Move, Wake
from esclusa.model.kind import Ref
from esclusa.model.query import one_of
from esclusa.model.settlement import Rejected, Settled

POST = Ref(Post.kind, "x:1")


def close(post: str = "x:1", to: str = "failed") -> Move:
    """Close the post unless one of its jobs is open: a guard that write skew would break."""
    return Move(
        Post,
        post,
        to,
        frm="collecting",
        unless=Exists(Job, post=post, status=one_of("pending", "working")),
    )


@pytest.fixture
async def post(store: Any) -> Any:
    await set_clock(store)
    await insert_new(store, Post(platform="x", post_id="1"))
    return await read(store, Post, "x:1")


async def job(store: Any, id: str = "j", **fields: Any) -> Any:
    """Return a lease of a new job."""
    await insert_new(store, Job(id=id, **fields))
    return await claim_one(store, WORK, id)


# create


async def test_create_inserts_a_draft(store: Any, post: Any) -> None:
    lease = await job(store)
    later = await store.now() + timedelta(hours=1)
    await settle_all(
        store,
        settlement_of(
            lease,
            "done",
            effects=(Create(Note(name="n", text="ñ")), Create(Job(id="k", due_at=later, lane="z"))),
        ),
    )
    note, child = await read(store, Note, "n"), await read(store, Job, "k")
    assert (note.status, note.text, note.fence, note.attempts) == ("fresh", "ñ", 0, 0)
    assert is_near(note.due_at, await store.now())
    assert (child.due_at, child.lane, child.status) == (later, "z", "pending")
    assert await store.history(note.ref) == []


async def test_create_of_an_existing_key_does_nothing(store: Any, post: Any) -> None:
    await insert_new(store, Note(name="n", text="old"))
    was = await read(store, Note, "n")
    await settle_all(
        store,
        settlement_of(
            await job(store),
            "done",
            effects=(
                Create(Note(name="n", text="new")),
                Create(Note(name="m")),
                Create(Note(name="m", text="2")),
            ),
        ),
    )
    assert await read(store, Note, "n") == was
    assert (await read(store, Note, "m")).text is None


async def test_records_without_a_key_are_created_each_time(store: Any, post: Any) -> None:
    await settle_all(
        store,
        settlement_of(
            await job(store), "done", effects=(Create(Job(lane="new")), Create(Job(lane="new")))
        ),
    )
    assert len(await find_all(store, Job, where={"lane": "new"})) == 2


@pytest.mark.promise(5)
async def test_two_settlements_create_one_record(store: Any, new_store: Any, post: Any) -> None:
    other = await new_store(clock_offset=store.clock_offset)
    for n in range(8):
        a, b = await job(store, f"a{n}"), await job(store, f"b{n}")
        verdicts = await asyncio.gather(
            retry_transient(
                store.settle,
                [settlement_of(a, "done", effects=(Create(Note(name=f"n{n}", text="a")),))],
            ),
            retry_transient(
                other.settle,
                [settlement_of(b, "done", effects=(Create(Note(name=f"n{n}", text="b")),))],
            ),
        )
        assert verdicts == [[Settled(a.ref)], [Settled(b.ref)]]
    assert len(await find_all(store, Note)) == 8


# move


async def test_move_moves_another_record_and_ends_its_lease(store: Any, post: Any) -> None:
    held = await claim_one(store, COLLECT, worker="other")
    effect = Move(Post, "x:1", "done", frm="collecting", reason="all jobs are done", note="closed")
    await settle_all(
        store, settlement_of(await job(store), "done", effects=(effect,), who="w3", run="r3")
    )
    moved = await read(store, Post, "x:1")
    assert (moved.status, moved.note, moved.fence, moved.attempts, moved.leased_by) == (
        "done",
        "closed",
        held.fence + 1,
        0,
        None,
    )
    assert is_near(moved.due_at, await store.now())
    step = (await store.history(POST))[-1]
    assert (step.frm, step.to, step.who, step.run, step.reason) == (
        "collecting",
        "done",
        "w3",
        "r3",
        "all jobs are done",
    )
    await settle_lost(store, settlement_of(held, "failed"))
    await assert_chain(store, POST, [("waiting", "collecting"), ("collecting", "done")])


async def test_move_with_frm_does_nothing_in_another_state_or_without_a_record(
    store: Any, post: Any
) -> None:
    was = await snapshot(store, POST)
    effects = (
        Move(Post, "x:1", "done", frm="collecting"),
        Move(Post, "none", "done", frm="collecting"),
    )
    await settle_all(store, settlement_of(await job(store), "done", effects=effects))
    assert await snapshot(store, POST) == was
    assert await is_absent(store, Post, "none")


async def test_move_without_frm_from_a_declared_state(store: Any, post: Any) -> None:
    await settle_all(
        store, settlement_of(await job(store), "done", effects=(Move(Post, "x:1", "collecting"),))
    )
    await assert_chain(store, POST, [("waiting", "collecting")])


@pytest.mark.promise(2)
@pytest.mark.promise(4)
@pytest.mark.parametrize(
    "effect",
    [Move(Post, "x:1", "done"), Move(Post, "none", "collecting"), Add(Post, "none", jobs=1)],
)
async def test_a_rejected_settlement_writes_nothing_and_the_others_are_settled(
    store: Any, post: Any, effect: Any
) -> None:
    await insert_new(store, Post(platform="x", post_id="2"))
    first, bad, last = await job(store, "a"), await job(store, "b"), await job(store, "c")
    was = await snapshot(store, bad.ref, POST)
    good = (Create(Note(name="bad")), Add(Post, "x:1", jobs=5), Wake(Post, "x:1"))
    verdicts = await settle(
        store,
        settlement_of(first, "done", effects=(Add(Post, "x:2", jobs=1),)),
        settlement_of(
            bad,
            "done",
            fields={"result": "never"},
            effects=(*good, effect, Create(Note(name="bad too"))),
        ),
        settlement_of(
            last, "failed", effects=(Create(Note(name="good")), Add(Post, "x:2", jobs=1))
        ),
    )
    assert [type(v) for v in verdicts] == [Settled, Rejected, Settled]
    assert verdicts[1].why
    assert verdicts[1].ref == bad.ref
    assert await snapshot(store, bad.ref, POST) == was
    assert [n.id for n in await find_all(store, Note)] == ["good"]
    assert (await read(store, Post, "x:2")).jobs == 2
    assert [(await read(store, Job, i)).status for i in "abc"] == ["done", "working", "failed"]
    await settle_all(store, settlement_of(bad, "done"))  # the lease is still held
    for id in "abc":
        await assert_chain(store, Ref(Job.kind, id))


@pytest.mark.promise(4)
async def test_effects_of_a_lost_settlement_are_not_applied(store: Any, post: Any) -> None:
    lease = await job(store)
    await settle_all(store, operator_move(lease.ref, "working", "pending"))
    was = await snapshot(store, POST, lease.ref)
    effects = (
        Create(Note(name="n")),
        Move(Post, "x:1", "collecting"),
        Add(Post, "x:1", jobs=1),
        Wake(Post, "x:1"),
        Move(Post, "none", "done"),
    )
    await settle_lost(store, settlement_of(lease, "done", effects=effects))
    assert await snapshot(store, POST, lease.ref) == was
    assert await is_absent(store, Note, "n")


async def test_a_true_guard_prevents_the_move_with_and_without_frm(store: Any, post: Any) -> None:
    await claim_one(store, COLLECT)
    busy = await job(store, "busy", post="x:1")
    was = await snapshot(store, POST)
    guard = Exists(Job, post="x:1", status=one_of("pending", "working"))
    effects = (
        close(),
        Move(Post, "x:1", "failed", unless=guard),
        Move(Post, "x:1", "done", unless=Exists(Job, lane="a", rank=None)),
    )
    await settle_all(store, settlement_of(await job(store, "other"), "done", effects=effects))
    assert await snapshot(store, POST) == was
    await settle_all(store, settlement_of(busy, "failed", effects=(close(),)))
    assert (await read(store, Post, "x:1")).status == "failed"


async def test_a_guard_sees_every_move_of_the_call(store: Any, post: Any) -> None:
    await claim_one(store, COLLECT)
    a, b = await job(store, "a", post="x:1"), await job(store, "b", post="x:1")
    await settle_all(
        store,
        settlement_of(a, "failed", effects=(close(),)),
        settlement_of(b, "failed", effects=(close(),)),
    )
    await assert_chain(store, POST, [("waiting", "collecting"), ("collecting", "failed")])


async def test_effects_are_applied_in_order_and_see_each_other(store: Any, post: Any) -> None:
    lease = await job(store)
    effects = (
        Move(Post, "x:1", "collecting", frm="waiting"),
        Create(Job(id="child", post="x:1")),
        Move(Post, "x:1", "failed", frm="collecting", unless=Exists(Job, id="child")),
        Move(Post, "x:1", "done", frm="collecting", note="end"),
        Add(Post, "x:1", jobs=2),
        Add(Post, "x:1", jobs=3),
    )
    await settle_all(store, settlement_of(lease, "done", effects=effects))
    got = await read(store, Post, "x:1")
    assert (got.status, got.note, got.jobs) == ("done", "end", 5)
    await assert_chain(store, POST, [("waiting", "collecting"), ("collecting", "done")])


@pytest.mark.promise(4)
async def test_the_last_two_jobs_fail_at_once_and_exactly_one_closes_the_post(
    store: Any, new_store: Any
) -> None:
    other = await new_store()
    for n in range(25):
        await insert_new(store, Post(platform="x", post_id=str(n)))
        ref = Ref(Post.kind, f"x:{n}")
        await claim_one(store, COLLECT, ref.id)
        a, b = await job(store, f"a{n}", post=ref.id), await job(store, f"b{n}", post=ref.id)
        verdicts = await asyncio.gather(
            retry_transient(
                store.settle,
                [
                    settlement_of(
                        a, "failed", effects=(close(ref.id), Add(Post, ref.id, failures=1))
                    )
                ],
            ),
            retry_transient(
                other.settle,
                [
                    settlement_of(
                        b, "failed", effects=(close(ref.id), Add(Post, ref.id, failures=1))
                    )
                ],
            ),
        )
        assert verdicts == [[Settled(a.ref)], [Settled(b.ref)]]
        got = await read(store, Post, ref.id)
        assert (got.status, got.failures) == ("failed", 2)
        await assert_chain(store, ref, [("waiting", "collecting"), ("collecting", "failed")])


@pytest.mark.promise(4)
async def test_crossing_effects_do_not_deadlock(store: Any, new_store: Any) -> None:
    stores = [store, await new_store()]
    await insert_new(store, *[Post(platform="x", post_id=str(n)) for n in range(4)])
    await store.insert([Job(id=f"j{n:02}") for n in range(40)])
    leases = await claim(store, WORK)

    async def finish(n: int) -> None:
        order = range(4) if n % 2 else range(3, -1, -1)
        effects = tuple(Add(Post, f"x:{k}", jobs=1, failures=k) for k in order)
        batch = [settlement_of(x, "done", effects=effects) for x in leases[n * 5 : n * 5 + 5]]
        assert await retry_transient(stores[n % 2].settle, batch) == [Settled(s.ref) for s in batch]

    await asyncio.gather(*(finish(n) for n in range(8)))
    assert [(p.jobs, p.failures) for p in await find_all(store, Post, order="id")] == [
        (40, 40 * k) for k in range(4)
    ]


# wake, add


async def test_wake_makes_a_waiting_record_due_now(store: Any, post: Any) -> None:
    await settle_all(
        store,
        settlement_of(await claim_one(store, COLLECT), "waiting", delay=3600.0, reason="wait"),
    )
    was = await read(store, Post, "x:1")
    await settle_all(store, settlement_of(await job(store), "done", effects=(Wake(Post, "x:1"),)))
    now = await read(store, Post, "x:1")
    assert is_near(now.due_at, await store.now())
    assert (now.status, now.fence, now.attempts) == (was.status, was.fence, was.attempts)
    assert (await claim_one(store, COLLECT)).ref == POST
    await assert_chain(store, POST)


async def test_wake_ignores_leased_due_and_absent_records(store: Any, post: Any) -> None:
    await insert_new(
        store,
        Post(platform="x", post_id="2", due_at=await store.now() - timedelta(hours=5)),
        Note(name="n", url="u"),
    )
    held, noted = (
        await claim_one(store, COLLECT, "x:1", lease=600),
        await claim_one(store, READ, lease=600),
    )
    was = await snapshot(store, POST, Ref(Post.kind, "x:2"), noted.ref)
    wakes = (Wake(Post, "x:1"), Wake(Post, "x:2"), Wake(Post, "none"), Wake(Note, "n"))
    await settle_all(store, settlement_of(await job(store), "done", effects=wakes))
    now = await snapshot(store, POST, Ref(Post.kind, "x:2"), noted.ref)
    assert [(r[0][0].due_at, r[1]) for r in now] == [(r[0][0].due_at, r[1]) for r in was]
    await settle_all(store, settlement_of(held, "done"))


async def test_add_treats_null_as_zero(store: Any, post: Any) -> None:
    held = await claim_one(store, COLLECT)
    advance(store, seconds=3)
    await settle_all(
        store,
        settlement_of(
            await job(store),
            "done",
            effects=(Add(Post, "x:1", jobs=3, failures=2), Add(Post, "x:1", jobs=-1)),
        ),
    )
    got = await read(store, Post, "x:1")
    assert (got.jobs, got.failures) == (2, 2)
    assert (got.status, got.fence, got.due_at, got.leased_by) == (
        "collecting",
        held.fence,
        held.until,
        "w1",
    )
    assert is_near(got.updated_at, await store.now(), 2)
    await settle_all(store, settlement_of(held, "done"))


async def test_an_effect_may_change_the_settled_record(store: Any, post: Any) -> None:
    lease = await claim_one(store, COLLECT)
    await settle_all(store, settlement_of(lease, "done", effects=(Add(Post, "x:1", jobs=1),)))
    got = await read(store, Post, "x:1")
    assert (got.status, got.jobs) == ("done", 1)


async def test_an_operators_move_has_effects_too(store: Any, post: Any) -> None:
    await insert_new(store, Job(id="j", status="failed", post="x:1"))
    await settle_all(
        store,
        operator_move(
            Ref(Job.kind, "j"),
            "failed",
            "pending",
            effects=(Move(Post, "x:1", "collecting"), Create(Note(name="n"))),
        ),
    )
    assert (await read(store, Post, "x:1")).status == "collecting"
    assert not await is_absent(store, Note, "n")
    assert len(await claim(store, WORK)) == 1
