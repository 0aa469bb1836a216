"""Settle: fences, fields, due times, errors, history; an operator's moves."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta
from typing import Any

import pytest
from conformance.helpers import (
    advance,
    assert_chain,
    claim,
    claim_one,
    insert_new,
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
from conformance.kinds import AGE, COLLECT, READ, WORK, Job, Note, Old, Post

from esclusa.model.effects import Move
from esclusa.model.kind import Ref
from esclusa.model.query import query
from esclusa.model.settlement import Lost, Rejected, Settled, Settlement, Transition

BAD = {
    "message": "Petición rechazada 🚫",
    "type": "http_error",
    "attempt": 1,
    "timestamp": "2026-01-01T00:00:00+00:00",
}


async def test_a_settlement_moves_and_ends_the_lease(store: Any) -> None:
    now = await set_clock(store)
    await insert_new(store, Job(id="j", lane="x"))
    lease = await claim_one(store, WORK)
    advance(store, seconds=7)
    await settle_all(
        store,
        settlement_of(
            lease,
            "done",
            fields={"result": "sí", "rank": 3},
            who="w1",
            run="r9",
            attempt=1,
            reason="because",
        ),
    )
    job = await read(store, Job, "j")
    assert (job.status, job.result, job.rank, job.lane, job.leased_by, job.fence, job.attempts) == (
        "done",
        "sí",
        3,
        "x",
        None,
        1,
        1,
    )
    assert is_near(job.due_at, now + timedelta(seconds=7))
    assert is_near(job.updated_at, now + timedelta(seconds=7))
    assert job.created_at == lease.record.created_at
    step = (await store.history(job.ref))[-1]
    assert (step.frm, step.to, step.who, step.run, step.attempt, step.reason, step.error) == (
        "working",
        "done",
        "w1",
        "r9",
        1,
        "because",
        None,
    )
    assert is_near(step.at, now + timedelta(seconds=7))
    await assert_chain(store, job.ref, [("pending", "working"), ("working", "done")])


@pytest.mark.promise(3)
async def test_an_older_fence_changes_nothing_and_is_lost(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="j"))
    old = await claim_one(store, WORK, lease=10, worker="slow")
    advance(store, seconds=20)
    new = await claim_one(store, WORK, worker="heir")
    was = await snapshot(store, old.ref)
    await settle_lost(store, settlement_of(old, "done", fields={"result": "stale"}, error=BAD))
    assert await snapshot(store, old.ref) == was
    await settle_all(store, settlement_of(new, "failed", error=BAD))
    await settle_lost(
        store, settlement_of(old, "done"), settlement_of(new, "done")
    )  # a settlement that is made again is lost
    await assert_chain(
        store, old.ref, [("pending", "working"), ("working", "working"), ("working", "failed")]
    )


async def test_lost_when_the_record_is_deleted(store: Any) -> None:
    await insert_new(store, Job(id="j"))
    lease = await claim_one(store, WORK)
    await store.purge(query(Job))
    await settle_lost(
        store, settlement_of(lease, "done"), operator_move(lease.ref, "working", "pending")
    )


async def test_a_batch_returns_verdicts_in_order_and_settles_the_others(store: Any) -> None:
    assert await store.settle([]) == []
    await insert_new(store, *[Job(id=f"j{n}") for n in range(5)])
    leases = await claim(store, WORK)
    await settle_all(
        store,
        operator_move(leases[1].ref, "working", "pending"),
        operator_move(leases[3].ref, "working", "failed"),
    )
    verdicts = await settle(
        store, *[settlement_of(x, "done", fields={"result": x.ref.id}) for x in leases]
    )
    assert verdicts == [
        (Lost if n in (1, 3) else Settled)(Ref(Job.kind, f"j{n}")) for n in range(5)
    ]
    assert [(await read(store, Job, f"j{n}")).result for n in range(5)] == [
        "j0",
        None,
        "j2",
        None,
        "j4",
    ]


async def test_different_kinds_and_fields_in_one_call(store: Any) -> None:
    await insert_new(
        store,
        Job(id="a"),
        Job(id="b"),
        Job(id="c"),
        Note(name="n", url="u"),
        Post(platform="x", post_id="1"),
    )
    a, b, c = await claim(store, WORK)
    note, post = await claim_one(store, READ), await claim_one(store, COLLECT)
    await settle_all(
        store,
        settlement_of(a, "done", fields={"result": "A"}),
        settlement_of(note, "read", fields={"text": "leído"}, clear_error=True),
        settlement_of(b, "pending", delay=60.0, error=BAD, fields={"rank": 5}, attempts=0),
        settlement_of(post, "done"),
        settlement_of(c, "failed"),
    )
    got = [await read(store, Job, i) for i in "abc"]
    assert [(j.status, j.result, j.rank, j.attempts) for j in got] == [
        ("done", "A", None, 1),
        ("pending", None, 5, 0),
        ("failed", None, None, 1),
    ]
    assert (await read(store, Note, "n")).text == "leído"
    assert (await read(store, Post, "x:1")).status == "done"
    for ref in (a.ref, b.ref, c.ref, note.ref, post.ref):
        await assert_chain(store, ref)


async def test_a_retry_is_due_after_its_delay_and_keeps_its_attempts(store: Any) -> None:
    now = await set_clock(store)
    await insert_new(store, Job(id="j"))
    lease = await claim_one(store, WORK)
    await settle_all(
        store,
        settlement_of(lease, "pending", delay=90.5, error=BAD, reason="attempt 1/5, will retry"),
    )
    job = await read(store, Job, "j")
    assert (job.status, job.attempts, job.last_error) == ("pending", 1, BAD)
    assert is_near(job.due_at, now + timedelta(seconds=90.5))
    assert await claim(store, WORK) == []
    advance(store, seconds=100)
    again = await claim_one(store, WORK)
    assert (again.attempt, again.record.last_error) == (2, BAD)
    assert (await store.history(job.ref))[1].error == BAD


async def test_a_wait_does_not_count_the_attempt(store: Any) -> None:
    now = await set_clock(store)
    await insert_new(store, Job(id="j"))
    until = now + timedelta(hours=2, microseconds=123457)
    for n in range(3):
        lease = await claim_one(store, WORK)
        assert lease.attempt == 1
        await settle_all(
            store,
            settlement_of(
                lease, "pending", until=until + timedelta(hours=2 * n), attempts=0, reason="quota"
            ),
        )
        job = await read(store, Job, "j")
        assert (job.attempts, job.due_at) == (0, until + timedelta(hours=2 * n))
        advance(store, seconds=7200 + 5)
    await assert_chain(store, job.ref, [("pending", "working"), ("working", "pending")] * 3)


@pytest.mark.promise(8)
async def test_an_attempt_that_stays_in_its_state_has_a_history_row(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Note(name="n", url="u"))
    for _ in range(3):
        await settle_all(
            store, settlement_of(await claim_one(store, READ), "fresh", delay=10.0, error=BAD)
        )
        advance(store, seconds=11)
    await settle_all(store, settlement_of(await claim_one(store, READ), "lost"))
    await assert_chain(store, Ref(Note.kind, "n"), [("fresh", "fresh")] * 3 + [("fresh", "lost")])


async def test_the_last_error_stays_until_it_is_cleared(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="j"))
    await settle_all(store, settlement_of(await claim_one(store, WORK), "pending", error=BAD))
    lease = await claim_one(store, WORK)
    await settle_all(store, settlement_of(lease, "pending", reason="wait"))
    assert (await read(store, Job, "j")).last_error == BAD
    await settle_all(store, settlement_of(await claim_one(store, WORK), "done", clear_error=True))
    assert (await read(store, Job, "j")).last_error is None


async def test_a_field_can_be_set_to_null(store: Any) -> None:
    await insert_new(store, Job(id="j", result="x", rank=1), Job(id="k", result="x", rank=1))
    one, two = await claim(store, WORK)
    await settle_all(
        store,
        settlement_of(one, "done", fields={"result": None}),
        settlement_of(two, "done", fields={"rank": None}),
    )
    assert [
        ((await read(store, Job, i)).result, (await read(store, Job, i)).rank) for i in "jk"
    ] == [(None, 1), ("x", None)]


async def test_fields_of_every_type_are_settled(store: Any) -> None:
    from conformance.kinds import Sample

    now = await store.now()
    await insert_new(store, Sample(name="s"), Old(name="o"))
    fields = {
        "text": "ñ",
        "number": 1,
        "ratio": 0.5,
        "flag": True,
        "moment": now,
        "day": date(2026, 1, 1),
        "data": {"a": [1]},
        "items": ["x"],
        "blob": b"\0",
    }
    await settle_all(
        store,
        operator_move(Ref(Sample.kind, "s"), "kept", "gone", fields=fields),
        operator_move(Ref(Old.kind, "o"), "pending", "working", fields={"size": 2}),
    )
    got = await read(store, Sample, "s")
    assert {n: getattr(got, n) for n in fields} == fields
    emptied = dict.fromkeys(fields)
    await insert_new(store, Sample(name="t", **fields))
    await settle_all(store, operator_move(Ref(Sample.kind, "t"), "kept", "gone", fields=emptied))
    got = await read(store, Sample, "t")
    assert {n: getattr(got, n) for n in fields} == emptied


# an operator's moves


async def test_an_operators_move_ends_a_lease(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="j"))
    lease = await claim_one(store, WORK)
    await settle_all(
        store,
        operator_move(
            lease.ref, ("working", "failed"), "pending", attempts=0, reason="again, please"
        ),
    )
    job = await read(store, Job, "j")
    assert (job.status, job.fence, job.leased_by, job.attempts) == ("pending", 2, None, 0)
    was = await snapshot(store, job.ref)
    await settle_lost(store, settlement_of(lease, "done"))
    assert await snapshot(store, job.ref) == was
    assert (await claim_one(store, WORK)).fence == 3
    steps = await store.history(job.ref)
    assert (steps[1].who, steps[1].reason, steps[1].attempt) == ("operator", "again, please", None)
    await assert_chain(store, job.ref)


async def test_the_history_keeps_what_an_operator_changed(store: Any) -> None:
    await insert_new(store, Job(id="j"), Job(id="k"), Job(id="l"))
    changes = {"tags": [["a"], ["a", "b"]], "note": ["old", None], "deep": [{"x": [[1]]}, 2]}
    refs = [Ref(Job.kind, id) for id in "jkl"]
    await settle_all(
        store,
        operator_move(refs[0], ("pending",), "working", changes=changes),
        operator_move(refs[1], ("pending",), "working"),
        Settlement(
            refs[2],
            "working",
            ("pending",),
            None,
            effects=(Move(Job, "k", "failed", frm="working", changes={"n": [1, 2]}),),
            who="operator",
        ),
    )
    assert [step.changes for step in await store.history(refs[0])] == [changes]
    assert [step.changes for step in await store.history(refs[1])] == [None, {"n": [1, 2]}]
    assert [step.changes for step in await store.history(refs[2])] == [None]


async def test_the_history_keeps_what_a_handler_logged(store: Any) -> None:
    await insert_new(store, Job(id="j"), Job(id="k"))
    log = {"lines": [{"at": "2026-03-02T15:00:00+00:00", "message": "asked\ttwice"}], "omitted": 1}
    done = [settlement_of(await claim_one(store, WORK, id), "done") for id in "jk"]
    await settle_all(store, done[0].but(log=log), done[1])
    found = [await store.history(Ref(Job.kind, id)) for id in "jk"]
    assert [[step.log for step in steps] for steps in found] == [[None, log], [None, None]]
    together = await store.histories(Job.kind, ["j"], 1)
    assert together[0][0].log == log


async def test_an_operators_move_is_lost_from_another_state(store: Any) -> None:
    await insert_new(store, Job(id="j"))
    was = await snapshot(store, Ref(Job.kind, "j"))
    await settle_lost(
        store,
        operator_move(Ref(Job.kind, "j"), ("working", "failed"), "pending"),
        operator_move(Ref(Job.kind, "none"), "pending", "working"),
    )
    assert await snapshot(store, Ref(Job.kind, "j")) == was


async def test_two_operators_move_once(store: Any, new_store: Any) -> None:
    other = await new_store()
    for n in range(10):
        await insert_new(store, Job(id=f"j{n}", status="failed"))
        move = operator_move(Ref(Job.kind, f"j{n}"), "failed", "pending")
        verdicts = await asyncio.gather(
            *(retry_transient(s.settle, [move]) for s in (store, other, store, other))
        )
        assert sorted(type(v[0]).__name__ for v in verdicts) == ["Lost", "Lost", "Lost", "Settled"]
        await assert_chain(store, move.ref, [("failed", "pending")])


@pytest.mark.promise(3)
async def test_a_worker_and_an_operator_race_and_one_of_them_wins(
    store: Any, new_store: Any
) -> None:
    other = await new_store()
    for n in range(15):
        await insert_new(store, Job(id=f"j{n}"))
        lease = await claim_one(store, WORK, f"j{n}")
        work, operate = settlement_of(lease, "done"), operator_move(lease.ref, "working", "failed")
        a, b = await asyncio.gather(
            retry_transient(store.settle, [work]), retry_transient(other.settle, [operate])
        )
        assert sorted(type(v).__name__ for v in (*a, *b)) == ["Lost", "Settled"]
        await assert_chain(
            store,
            lease.ref,
            [
                ("pending", "working"),
                ("working", "done" if a == [Settled(lease.ref)] else "failed"),
            ],
        )


@pytest.mark.promise(8)
async def test_history_is_oldest_first_and_can_be_limited(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="j"), Job(id="other"))
    for n in range(10):
        lease = await claim_one(store, WORK, "j", run=f"r{n}")
        await settle_all(store, settlement_of(lease, "pending", reason=f"n{n}", run=f"r{n}"))
        advance(store, seconds=1)
    ref = Ref(Job.kind, "j")
    assert len(await store.history(ref)) == 20
    assert [s.reason for s in await store.history(ref, limit=4)][1::2] == ["n0", "n1"]
    assert [s.reason for s in await store.history(ref, limit=3, newest=True)][::2] == ["n8", "n9"]
    assert await store.history(Ref(Job.kind, "other")) == []
    assert await store.history(Ref(Post.kind, "j")) == []
    await assert_chain(store, ref)


async def test_a_large_batch_is_claimed_and_settled(store: Any) -> None:
    await store.insert([Job(id=f"j{n:04}") for n in range(2000)])
    leases = await claim(store, WORK, limit=2000)
    verdicts = await store.settle(
        [settlement_of(x, "done", fields={"result": x.ref.id}) for x in leases]
    )
    assert verdicts == [Settled(x.ref) for x in leases]
    assert (await store.count(query(Job, {"status": "done"})))[0] == 2000


@pytest.mark.promise(4)
@pytest.mark.parametrize(
    "unfit", [{"rank": 2**70}, {"result": "half of a pair: \ud800"}, {"rank": object()}]
)
async def test_a_value_that_does_not_fit_rejects_only_its_settlement(
    store: Any, unfit: Any
) -> None:
    await insert_new(store, *(Job(id=id) for id in "abc"))
    first, bad, last = await claim(store, WORK, limit=3)
    verdicts = await settle(
        store,
        settlement_of(first, "done"),
        settlement_of(bad, "done", fields=unfit),
        settlement_of(last, "done"),
    )
    assert [type(v) for v in verdicts] == [Settled, Rejected, Settled]
    assert verdicts[1].ref == bad.ref
    assert (await read(store, Job, bad.ref.id)).status == "working"
    await settle_all(store, settlement_of(bad, "failed", error=BAD))  # the lease is still held


@pytest.mark.promise(4)
async def test_a_settlement_that_cannot_be_written_is_rejected_and_never_raises(store: Any) -> None:
    await insert_new(store, Old(name="o"), *(Job(id=id) for id in "ab"))
    jobs, (old,) = await claim(store, WORK), await claim(store, AGE)
    bad = settlement_of(old, "done", fields={"data": {"no JSON": object()}})
    [alone] = await settle(store, bad)
    together = await settle(store, *(settlement_of(lease, "done") for lease in jobs), bad)
    assert [type(v) for v in (alone, *together)] == [Rejected, Settled, Settled, Rejected]
    assert alone.ref == old.ref
    assert alone.why
    assert (await read(store, Old, "o")).status == "working"


async def test_settlements_that_share_a_transition_are_each_judged_alone(store: Any) -> None:
    """One lease was lost and one record was moved by an operator: the others are settled."""
    await set_clock(store)
    await insert_new(store, *(Job(id=f"j{n:02}") for n in range(20)))
    leases = {x.record.id: x for x in await claim(store, WORK, limit=20)}
    [first, second, *others] = leases.values()
    await settle_all(store, operator_move(first.ref, "working", "done"))
    await settle_all(store, settlement_of(second, "pending"))
    again = await claim_one(store, WORK, second.record.id)
    transition = Transition(
        Job.kind, "done", ("working",), clear_error=True, who="w1", run="r1", attempt=1
    )
    shared = [
        Settlement.with_transition(x.ref, x.fence, transition) for x in (first, second, *others)
    ]
    verdicts = await store.settle(shared)
    assert [type(verdict) for verdict in verdicts] == [Lost, Lost, *[Settled] * 18]
    for lease in others:
        job = await read(store, Job, lease.record.id)
        assert (job.status, job.leased_by, job.fence) == ("done", None, lease.fence)
        steps = await store.history(lease.ref)
        assert [(s.frm, s.to, s.run) for s in steps[-1:]] == [("working", "done", "r1")]
        await assert_chain(store, lease.ref)
    assert (await read(store, Job, second.record.id)).fence == again.fence
    assert [type(v) for v in await store.settle(shared)] == [Lost] * 20  # nothing twice
    assert [len(await store.history(x.ref)) for x in others] == [2] * 18
