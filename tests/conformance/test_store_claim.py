"""Claim: which records, in which order, how many; leases, renewals, backlog."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from conformance.helpers import (
    advance,
    assert_chain,
    claim,
    claim_one,
    claim_request,
    find_all,
    insert_new,
    is_near,
    operator_move,
    read,
    retry_transient,
    set_clock,
    settle_all,
    settle_lost,
    settlement_of,
)
from conformance.kinds import HUSH, READ, TRACE, WORK, Job, Note, Quiet, Traced

from esclusa.model.kind import Ref
from esclusa.model.query import Order, above, conditions, query
from esclusa.model.settlement import Renewal
from esclusa.model.texts import text


async def test_a_claim_leases_the_record(store: Any) -> None:
    now = await set_clock(store)
    await insert_new(store, Job(id="j", lane="ñ"))
    [lease] = await claim(store, WORK, lease=90, worker="w7", run="r1")
    assert lease.ref.id == "j"
    assert (lease.taken, lease.fence, lease.attempt, lease.fault) == ("pending", 1, 1, None)
    assert is_near(lease.until, now + timedelta(seconds=90))
    stored = await read(store, Job, "j")
    assert lease.record == stored
    assert (stored.status, stored.leased_by, stored.fence, stored.attempts, stored.lane) == (
        "working",
        "w7",
        1,
        1,
        "ñ",
    )
    assert stored.due_at == lease.until
    [step] = await store.history(lease.ref)
    assert (step.frm, step.to, step.who, step.run) == ("pending", "working", "w7", "r1")


async def test_without_a_hold_state_the_state_stays(store: Any) -> None:
    await insert_new(store, Note(name="n", url="u"))
    lease = await claim_one(store, READ)
    assert (lease.taken, lease.record.status, lease.fence, lease.record.leased_by) == (
        "fresh",
        "fresh",
        1,
        "w1",
    )
    assert await claim(store, READ) == []
    assert await store.history(lease.ref) == []
    await settle_all(store, settlement_of(lease, "read"))
    await assert_chain(store, lease.ref, [("fresh", "read")])


async def test_the_oldest_due_comes_first_then_the_id_and_never_more_than_the_limit(
    store: Any,
) -> None:
    now = await set_clock(store)
    late, early = now - timedelta(hours=1), now - timedelta(hours=2)
    await insert_new(
        store,
        Job(id="c", due_at=late),
        Job(id="b", due_at=early),
        Job(id="d", due_at=late),
        Job(id="a", due_at=now + timedelta(hours=1)),
    )
    assert [lease.ref.id for lease in await claim(store, WORK, limit=2)] == ["b", "c"]
    assert [lease.ref.id for lease in await claim(store, WORK, limit=2)] == ["d"]
    assert await claim(store, WORK) == []


async def test_a_declared_order(store: Any) -> None:
    await insert_new(
        store, Job(id="a", rank=1), Job(id="b", rank=3), Job(id="c"), Job(id="d", rank=3)
    )
    assert [
        x.ref.id for x in await claim(store, WORK, order=(Order("rank", descending=True),), limit=2)
    ] == ["b", "d"]
    assert [x.ref.id for x in await claim(store, WORK, order=(Order("rank"),), limit=2)] == [
        "c",
        "a",
    ]


async def test_a_record_is_not_claimed_before_it_is_due(store: Any) -> None:
    now = await set_clock(store)
    await insert_new(store, Job(id="j", due_at=now + timedelta(minutes=10)))
    assert await claim(store, WORK) == []
    advance(store, seconds=590)
    assert await claim(store, WORK) == []
    advance(store, seconds=20)
    assert (await claim_one(store, WORK)).ref.id == "j"


async def test_only_the_states_of_the_stage_are_claimed(store: Any) -> None:
    await insert_new(store, Job(id="a", status="done"), Job(id="b", status="failed"), Job(id="c"))
    assert [x.ref.id for x in await claim(store, WORK)] == ["c"]
    assert (await read(store, Job, "a")).fence == 0
    assert [
        (x.ref.id, x.taken) for x in await claim(store, WORK, take=("failed", "pending"), hold=None)
    ] == [("b", "failed")]


async def test_where_restricts_the_claim(store: Any) -> None:
    await insert_new(
        store,
        Job(id="a", lane="x", rank=5),
        Job(id="b", lane="y", rank=5),
        Job(id="c", lane="x"),
        Job(id="d", lane="x", rank=1),
    )
    was = [await read(store, Job, i) for i in "bcd"]
    where = conditions(Job.kind, {"lane": "x", "rank": above(1)})
    assert [x.ref.id for x in await claim(store, WORK, where=where)] == ["a"]
    assert [await read(store, Job, i) for i in "bcd"] == was
    await insert_new(store, Note(name="with", url="u"), Note(name="without"))
    assert [x.ref.id for x in await claim(store, READ)] == ["with"]


async def test_ids_restrict_the_claim_to_due_records(store: Any) -> None:
    now = await set_clock(store)
    await insert_new(
        store,
        Job(id="a"),
        Job(id="b"),
        Job(id="c", status="done"),
        Job(id="d", due_at=now + timedelta(hours=1)),
    )
    assert [x.ref.id for x in await claim(store, WORK, ids=("b", "c", "d", "zz"))] == ["b"]


async def test_before_takes_only_records_due_at_that_time(store: Any) -> None:
    now = await set_clock(store)
    await insert_new(
        store,
        Job(id="a", due_at=now - timedelta(seconds=5)),
        Job(id="b", due_at=now + timedelta(seconds=5)),
        Job(id="c", due_at=now),
    )
    advance(store, seconds=60)
    assert [x.ref.id for x in await claim(store, WORK, before=now)] == ["a", "c"]
    assert await claim(store, WORK, before=now) == []
    assert [x.ref.id for x in await claim(store, WORK, before=now + timedelta(days=1))] == ["b"]


async def test_before_in_the_future_makes_nothing_due(store: Any) -> None:
    now = await set_clock(store)
    await insert_new(store, Job(id="a", due_at=now + timedelta(hours=1)))
    assert await claim(store, WORK, before=now + timedelta(days=1)) == []


async def test_an_eager_claim_takes_records_that_are_not_due_once(store: Any) -> None:
    now = await set_clock(store)
    await insert_new(
        store,
        Job(id="later", due_at=now + timedelta(hours=1)),
        Job(id="held"),
        Job(id="done", status="done"),
    )
    held = await claim_one(store, WORK, "held", lease=600)
    advance(store, seconds=60)
    start = await store.now()
    [lease] = await claim(store, WORK, before=start, eager=True)
    assert (lease.ref.id, lease.taken) == ("later", "pending")
    advance(store, seconds=1)
    await settle_all(store, settlement_of(lease, "pending", delay=3600.0))
    assert await claim(store, WORK, before=start, eager=True) == []  # written after the run began
    assert [x.ref.id for x in await claim(store, WORK, before=await store.now(), eager=True)] == [
        "later"
    ]
    assert (await read(store, Job, "held")).fence == held.fence


async def test_an_eager_claim_respects_a_lease_without_hold_state(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Note(name="n", url="u"))
    await claim_one(store, READ, lease=600)
    advance(store, seconds=60)
    assert await claim(store, READ, before=await store.now(), eager=True) == []


@pytest.mark.promise(1)
async def test_an_orphan_becomes_due_by_itself(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="j"))
    first = await claim_one(store, WORK, lease=60, worker="dead")
    advance(store, seconds=59)
    assert await claim(store, WORK) == []
    advance(store, seconds=2)
    second = await claim_one(store, WORK, worker="heir")
    assert (second.taken, second.fence, second.record.leased_by) == ("pending", 2, "heir")
    steps = await store.history(first.ref)
    assert [(s.frm, s.to, s.who) for s in steps] == [
        ("pending", "working", "dead"),
        ("working", "working", "heir"),
    ]
    assert steps[1].reason == text("lease_expired", worker="dead").dump()
    await settle_lost(store, settlement_of(first, "done"))
    await settle_all(store, settlement_of(second, "done"))
    await assert_chain(
        store, first.ref, [("pending", "working"), ("working", "working"), ("working", "done")]
    )


@pytest.mark.promise(7)
async def test_attempts_are_counted_up_to_the_limit(store: Any) -> None:
    """A record that has had all its attempts is claimed, too, and marked ``over``.

    A column may hold no more than the attempts that are counted.
    """
    await insert_new(
        store,
        Job(id="new"),
        Job(id="last", attempts=4),
        Job(id="over", attempts=5),
        Job(id="far over", attempts=9),
    )
    taken = {
        lease.ref.id: (lease.over, lease.attempt, lease.fence)
        for lease in await claim(store, WORK, tries=5)
    }
    assert taken == {
        "new": (False, 1, 1),
        "last": (False, 5, 1),
        "over": (True, 5, 1),
        "far over": (True, 9, 1),
    }
    assert {j.id: j.attempts for j in await find_all(store, Job)} == {
        "new": 1,
        "last": 5,
        "over": 5,
        "far over": 9,
    }


@pytest.mark.promise(1)
async def test_an_orphan_without_hold_state(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Note(name="n", url="u"))
    first = await claim_one(store, READ, lease=60, worker="dead")
    advance(store, seconds=61)
    second = await claim_one(store, READ, worker="heir")
    assert (second.taken, second.fence) == ("fresh", 2)
    [step] = await store.history(first.ref)
    assert (step.frm, step.to, step.who, step.reason) == (
        "fresh",
        "fresh",
        "heir",
        text("lease_expired", worker="dead").dump(),
    )


async def test_a_free_record_in_the_hold_state_is_claimed_without_history(
    store: Any,
) -> None:
    await insert_new(store, Job(id="j", status="working"))
    lease = await claim_one(store, WORK)
    assert (lease.taken, lease.record.status) == ("pending", "working")
    assert await store.history(lease.ref) == []


async def test_orphans_and_waiting_records_share_one_order(store: Any) -> None:
    now = await set_clock(store)
    await insert_new(store, Job(id="orphan"))
    await claim_one(store, WORK, lease=30)
    await insert_new(
        store,
        Job(id="early", due_at=now - timedelta(seconds=60)),
        Job(id="late", due_at=now + timedelta(seconds=60)),
    )
    advance(store, seconds=120)
    assert [x.ref.id for x in await claim(store, WORK)] == ["early", "orphan", "late"]


async def test_a_kind_without_history_writes_none(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Quiet(name="q"))
    await claim_one(store, HUSH, lease=1)
    advance(store, seconds=5)
    lease = await claim_one(store, HUSH)
    await settle_all(store, settlement_of(lease, "failed", error={"message": "no", "type": "t"}))
    await settle_all(store, operator_move(lease.ref, "failed", "pending"))
    assert await store.history(lease.ref) == []


@pytest.mark.promise(3)
async def test_no_record_is_claimed_twice_by_eight_claimers(store: Any, new_store: Any) -> None:
    await store.insert([Job(id=f"j{n:03}", rank=n % 5) for n in range(500)])
    stores = [store, await new_store()]

    async def claimer(n: int) -> list[str]:
        got: list[str] = []
        while True:
            leases = await retry_transient(claim, stores[n % 2], WORK, limit=7 + n, worker=f"w{n}")
            if not leases:  # other claimers may hold locks for a moment
                left = await stores[n % 2].count(query(Job, {"status": "pending"}))
                if left[0] == 0:
                    return got
                await asyncio.sleep(0.001)
            got += [lease.ref.id for lease in leases]

    taken = [id for ids in await asyncio.gather(*(claimer(n) for n in range(8))) for id in ids]
    assert sorted(taken) == [f"j{n:03}" for n in range(500)]
    assert {(j.fence, j.attempts, j.status) for j in await find_all(store, Job)} == {
        (1, 1, "working")
    }


@pytest.mark.promise(3)
async def test_claimers_and_settlers_race_and_each_record_ends_once(
    store: Any, new_store: Any
) -> None:
    await store.insert([Job(id=f"j{n:03}") for n in range(200)])
    stores = [store, await new_store()]
    ended: Counter[str] = Counter()

    async def worker(n: int) -> None:
        mine = stores[n % 2]
        while (await mine.count(query(Job, {"status": ("pending", "working")})))[0]:
            leases = await retry_transient(claim, mine, WORK, limit=10, worker=f"w{n}", lease=300)
            for verdict in await retry_transient(
                mine.settle, [settlement_of(x, "done") for x in leases]
            ):
                ended[f"{type(verdict).__name__} {verdict.ref.id}"] += 1

    await asyncio.gather(*(worker(n) for n in range(6)))
    assert ended == Counter({f"Settled j{n:03}": 1 for n in range(200)})
    for n in range(0, 200, 20):
        await assert_chain(
            store, Ref(Job.kind, f"j{n:03}"), [("pending", "working"), ("working", "done")]
        )


# renew


async def test_a_renewal_extends_the_lease(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="a"), Job(id="b"))
    one, two = await claim(store, WORK, lease=60)
    was = await read(store, Job, "a")
    advance(store, seconds=50)
    assert await store.renew([Renewal(one.ref, one.fence, 120.0)]) == {one.ref}
    now = await read(store, Job, "a")
    assert is_near(now.due_at, await store.now() + timedelta(seconds=120))
    assert now == was.but(due_at=now.due_at)
    advance(store, seconds=50)
    [heir] = await claim(store, WORK)
    assert heir.ref == two.ref
    assert await store.renew(
        [Renewal(one.ref, one.fence, 60.0), Renewal(two.ref, two.fence, 60.0)]
    ) == {one.ref}
    await settle_all(store, settlement_of(one, "done"))
    assert await store.renew([Renewal(one.ref, one.fence, 60.0)]) == set()
    assert await store.renew([]) == set()


async def test_an_expired_lease_that_nobody_claimed_can_be_renewed_and_settled(
    store: Any,
) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="a"))
    lease = await claim_one(store, WORK, lease=10)
    advance(store, seconds=60)
    assert await store.renew([Renewal(lease.ref, lease.fence, 60.0)]) == {lease.ref}
    assert await claim(store, WORK) == []
    advance(store, seconds=600)
    await settle_all(store, settlement_of(lease, "done"))


async def test_a_renewal_writes_fields_unless_the_lease_is_lost(
    store: Any,
) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="a", result="old"), Job(id="b", result="old"))
    one, two = await claim(store, WORK)
    await settle_all(store, operator_move(two.ref, "working", "pending"))
    was = await read(store, Job, "b")
    advance(store, seconds=5)
    held = await store.renew(
        [
            Renewal(one.ref, one.fence, 60.0, {"result": "half", "rank": 2}),
            Renewal(two.ref, two.fence, 60.0, {"result": "no"}),
        ]
    )
    assert held == {one.ref}
    a = await read(store, Job, "a")
    assert (a.result, a.rank, a.lane, a.status) == ("half", 2, "a", "working")
    assert is_near(a.updated_at, await store.now())
    assert a.updated_at > one.record.updated_at
    assert await read(store, Job, "b") == was


async def test_a_renewal_of_a_deleted_record_is_lost(store: Any) -> None:
    await insert_new(store, Job(id="a"))
    lease = await claim_one(store, WORK)
    await store.purge(query(Job, {"id": "a"}))
    assert await store.renew([Renewal(lease.ref, lease.fence, 60.0)]) == set()
    await settle_lost(store, settlement_of(lease, "done"))


# backlog


async def test_the_backlog_counts_what_a_claim_could_take(store: Any) -> None:
    now = await set_clock(store)
    empty = await store.backlog(claim_request(WORK))
    assert (empty.due, empty.exact, empty.oldest, empty.next) == (0, True, None, None)
    oldest, soon = now - timedelta(hours=3), now + timedelta(hours=2)
    await insert_new(
        store,
        Job(id="later", due_at=now + timedelta(hours=5)),
        Job(id="soon", due_at=soon),
        Job(id="done", status="done"),
    )
    waiting = await store.backlog(claim_request(WORK))
    assert (waiting.due, waiting.oldest, waiting.next) == (0, None, soon)
    await insert_new(store, Job(id="a", due_at=oldest), Job(id="b", lane="z"), Job(id="c"))
    full = await store.backlog(claim_request(WORK))
    assert (full.due, full.exact, full.oldest) == (3, True, oldest)
    capped = await store.backlog(claim_request(WORK), cap=2)
    assert (capped.due, capped.exact) == (2, False)
    narrow = await store.backlog(claim_request(WORK, where=conditions(Job.kind, {"lane": "z"})))
    assert narrow.due == 1
    await claim(store, WORK, lease=60)
    assert (await store.backlog(claim_request(WORK))).due == 0
    advance(store, seconds=61)
    assert (await store.backlog(claim_request(WORK))).due == 3


@pytest.mark.promise(10)
async def test_a_claim_is_bounded_by_its_limit(store: Any) -> None:
    await store.insert([Job(id=f"d{n:04}", status="done") for n in range(3000)])
    await store.insert([Job(id=f"p{n:04}") for n in range(40)])
    assert [x.ref.id for x in await claim(store, WORK, limit=3)] == ["p0000", "p0001", "p0002"]
    assert len(await claim(store, WORK, limit=10_000)) == 37


async def test_extras_describe_the_lease(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Traced(name="t"))
    lease = await claim_one(store, TRACE, lease=60)
    first = await read(store, Traced, "t")
    assert is_near(first.taken_at, await store.now())
    assert lease.record.taken_at == first.taken_at
    advance(store, seconds=100)
    heir = await claim_one(store, TRACE)
    assert (await read(store, Traced, "t")).taken_at > first.taken_at
    await settle_all(
        store, settlement_of(heir, "failed", error={"message": "no luck", "type": "http_error"})
    )
    t = await read(store, Traced, "t")
    assert t.taken_at is None
    assert t.error_kind == "http_error"
    assert is_near(t.ended_at, await store.now())
    assert t.last_error == {"message": "no luck", "type": "http_error"}
    await settle_all(store, operator_move(t.ref, "failed", "pending", clear_error=True))
    t = await read(store, Traced, "t")
    assert (t.taken_at, t.ended_at, t.error_kind, t.last_error, t.attempts) == (
        None,
        None,
        None,
        None,
        1,
    )
