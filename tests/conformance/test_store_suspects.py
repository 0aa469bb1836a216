"""Crash suspects: how the claim of an orphan counts, and what its holder says about it."""

from __future__ import annotations

from typing import Any

import pytest
from conformance.helpers import (
    advance,
    assert_chain,
    claim,
    claim_one,
    insert_new,
    operator_move,
    read,
    set_clock,
    settle_all,
    settlement_of,
)
from conformance.kinds import READ, TRACE, WORK, Job, Note, Traced

from esclusa.model.settlement import Leased, Renewal
from esclusa.model.texts import text

LEASE = 60.0


async def mark(store: Any, lease: Leased, holder: str) -> None:
    renewal = Renewal(lease.ref, lease.fence, LEASE, holder=holder)
    assert await store.renew([renewal]) == {lease.ref}


async def crash_and_claim(store: Any, worker: str, stage: Any = WORK, **options: Any) -> Leased:
    """Let the lease expire and claim the record again."""
    advance(store, seconds=LEASE + 1)
    return await claim_one(store, stage, lease=LEASE, worker=worker, **options)


def described(lease: Leased) -> tuple[int, int, str | None]:
    return lease.attempt, lease.group, lease.record.leased_by


@pytest.mark.promise(7)
async def test_a_crash_counts_only_for_a_record_that_was_handled_alone(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="j"))
    lease = await claim_one(store, WORK, lease=LEASE, worker="a")
    assert described(lease) == (1, 0, "a")
    lease = await crash_and_claim(store, "b")
    assert described(lease) == (1, 8, "b")
    lease = await crash_and_claim(store, "c")
    assert described(lease) == (1, 8, "c")  # it had not begun
    await mark(store, lease, "c/8")
    lease = await crash_and_claim(store, "d")
    assert described(lease) == (1, 1, "d/8")
    lease = await crash_and_claim(store, "e")
    assert described(lease) == (1, 1, "e/8")  # it had not begun
    await mark(store, lease, "e/1")
    lease = await crash_and_claim(store, "f")
    assert described(lease) == (2, 1, "f/8")
    assert lease.record == await read(store, Job, "j")
    await mark(store, lease, "f/1")
    lease = await crash_and_claim(store, "g")
    assert described(lease) == (3, 1, "g/8")
    assert lease.fence == 7
    steps = await store.history(lease.ref)
    assert [(s.who, s.attempt) for s in steps] == list(
        zip("abcdefg", (1, 1, 1, 1, 1, 2, 3), strict=True)
    )
    assert [s.reason for s in steps[1:]] == [
        text("lease_expired", worker=worker).dump() for worker in "abcdef"
    ]
    await assert_chain(store, lease.ref)


@pytest.mark.promise(7)
async def test_attempts_are_used_up_only_by_a_crash_alone(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="j", attempts=2))
    options: dict[str, Any] = {"tries": 3}
    lease = await claim_one(store, WORK, lease=LEASE, worker="a", **options)
    assert (lease.over, *described(lease)) == (False, 3, 0, "a")
    lease = await crash_and_claim(store, "b", **options)
    assert (lease.over, *described(lease)) == (False, 3, 8, "b")
    await mark(store, lease, "b/8")
    lease = await crash_and_claim(store, "c", **options)
    assert (lease.over, *described(lease)) == (False, 3, 1, "c/8")
    await mark(store, lease, "c/1")
    for worker in "de":  # used up they stay, also if the next worker crashes before it settles
        lease = await crash_and_claim(store, worker, **options)
        assert (lease.over, *described(lease)) == (True, 3, 1, f"{worker}/1")
    assert (await read(store, Job, "j")).attempts == 3


@pytest.mark.promise(7)
async def test_attempts_that_were_used_up_before_stay_so_after_a_crash(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="j", attempts=5))
    lease = await claim_one(store, WORK, lease=LEASE, worker="a", tries=5)
    assert lease.over
    lease = await crash_and_claim(store, "b", tries=5)
    assert (lease.over, lease.attempt) == (True, 5)
    await settle_all(store, settlement_of(lease, "failed"))


async def test_an_orphan_is_over_when_fewer_attempts_are_allowed_now(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="j", attempts=3))
    await claim_one(store, WORK, lease=LEASE, worker="a", tries=5)
    lease = await crash_and_claim(store, "b", tries=3)
    assert (lease.over, lease.attempt) == (True, 4)


async def test_an_orphan_that_never_had_an_attempt_has_its_first(store: Any) -> None:
    await insert_new(store, Job(id="j", leased_by="another program"))
    lease = await claim_one(store, WORK, worker="a", tries=1)
    assert (lease.over, *described(lease)) == (False, 1, 8, "a")


async def test_a_settled_record_is_no_suspect(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="j"))
    await claim_one(store, WORK, lease=LEASE, worker="a")
    lease = await crash_and_claim(store, "b")
    await mark(store, lease, "b/8")
    await settle_all(store, settlement_of(lease, "pending", attempts=1))
    lease = await claim_one(store, WORK, worker="c")
    assert described(lease) == (2, 0, "c")
    await mark(store, lease, "c/1")
    await settle_all(store, operator_move(lease.ref, "working", "pending", attempts=0))
    lease = await claim_one(store, WORK, worker="d")
    assert described(lease) == (1, 0, "d")


async def test_a_lease_that_ends_now_keeps_the_rank_of_its_record(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="j"))
    await claim_one(store, WORK, lease=LEASE, worker="a")
    lease = await crash_and_claim(store, "b")
    await mark(store, lease, "b/8")
    lease = await crash_and_claim(store, "c")
    await mark(store, lease, "c/1")
    assert await store.renew([Renewal(lease.ref, lease.fence, 0.0, holder="c/8")]) == {lease.ref}
    lease = await claim_one(store, WORK, worker="d")
    assert described(lease) == (1, 1, "d/8")


async def test_a_mark_changes_only_the_holder(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="a"), Job(id="b"), Job(id="c"))
    one, two, three = await claim(store, WORK, lease=LEASE, worker="w")
    await settle_all(store, operator_move(three.ref, "working", "pending"))
    was = [await read(store, Job, id) for id in "abc"]
    held = await store.renew(
        [
            Renewal(one.ref, one.fence, LEASE, holder="w/8"),
            Renewal(two.ref, two.fence, LEASE, {"result": "half"}, holder="w/1"),
            Renewal(three.ref, three.fence, LEASE, holder="w/8"),
        ]
    )
    assert held == {one.ref, two.ref}
    a, b, c = [await read(store, Job, id) for id in "abc"]
    assert a == was[0].but(leased_by="w/8", due_at=a.due_at)
    assert (b.leased_by, b.result) == ("w/1", "half")
    assert c == was[2]
    await store.renew([Renewal(one.ref, one.fence, LEASE)])
    assert (await read(store, Job, "a")).leased_by == "w/8"


async def test_suspects_of_other_kinds(store: Any) -> None:
    """Without a hold state, and with mapped tracking."""
    await set_clock(store)
    await insert_new(store, Note(name="n", url="u"), Traced(name="t"))
    for stage in (READ, TRACE):
        await claim_one(store, stage, lease=LEASE, worker="a")
    for stage in (READ, TRACE):
        lease = await crash_and_claim(store, "b", stage, tries=1)
        assert (lease.over, *described(lease)) == (False, 1, 8, "b")
        await mark(store, lease, "b/1")
        lease = await crash_and_claim(store, "c", stage, tries=1)
        assert (lease.over, *described(lease)) == (True, 1, 1, "c/1")


async def test_orphans_of_every_rank_in_one_claim(store: Any) -> None:
    await set_clock(store)
    holders = {"new": None, "plain": "x", "grouped": "x/8", "alone": "x/1", "used": "y/1"}
    await insert_new(
        store,
        *[
            Job(id=id, leased_by=holder, attempts=2 if id == "used" else 1 if holder else 0)
            for id, holder in holders.items()
        ],
    )
    leases = {x.ref.id: x for x in await claim(store, WORK, worker="w", tries=2)}
    assert {id: (lease.over, *described(lease)) for id, lease in leases.items()} == {
        "new": (False, 1, 0, "w"),
        "plain": (False, 1, 8, "w"),
        "grouped": (False, 1, 1, "w/8"),
        "alone": (False, 2, 1, "w/8"),
        "used": (True, 2, 1, "w/1"),
    }
    for id, lease in leases.items():
        assert lease.record == await read(store, Job, id)
