"""Limits per key: how many records of one key are held at once, and whose turn it is."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from conformance.helpers import (
    advance,
    claim,
    find_all,
    insert_new,
    retry_transient,
    set_clock,
    settle_all,
    settlement_of,
)
from conformance.kinds import CALL, RANK, WORK, Job, Note

from esclusa.model.key_limits import LOOKED_AT, KeyLimit
from esclusa.model.settlement import Leased, Renewal


def calls(post: str | None, count: int, due: datetime | None = None) -> list[Job]:
    return [Job(id=f"{post}-{n:03}", post=post, due_at=due) for n in range(count)]


def by_post(leases: list[Leased]) -> Counter[str | None]:
    return Counter(lease.record.post for lease in leases)  # type: ignore[attr-defined]


async def test_no_more_records_of_one_key_are_held_than_its_stage_allows(store: Any) -> None:
    await insert_new(store, *calls("a", 5), *calls("b", 1))
    first = await claim(store, CALL)
    assert by_post(first) == {"a": 2, "b": 1}
    assert await claim(store, CALL) == []
    done = next(lease for lease in first if lease.record.post == "a")
    await settle_all(store, settlement_of(done, "done"))
    assert by_post(await claim(store, CALL)) == {"a": 1}


async def test_records_without_a_key_are_limited_together(store: Any) -> None:
    await insert_new(store, *calls(None, 4), *calls("", 4))
    assert by_post(await claim(store, CALL)) == {None: 2, "": 2}
    assert await claim(store, CALL) == []


async def test_a_claim_takes_one_of_each_key_before_a_second_of_one(store: Any) -> None:
    now = await set_clock(store)
    long_due = now - timedelta(hours=1)
    await insert_new(store, *calls("a", 9, long_due), *calls("b", 9), *calls("c", 1))
    assert by_post(await claim(store, CALL, limit=3)) == {"a": 1, "b": 1, "c": 1}
    assert by_post(await claim(store, CALL, limit=9)) == {"a": 1, "b": 1}


async def test_a_key_with_many_records_does_not_hold_up_those_with_few(store: Any) -> None:
    now = await set_clock(store)
    await insert_new(store, *calls("m", LOOKED_AT + 30, now - timedelta(hours=1)))
    few = [each for post in "abcxyz" for each in calls(post, 2)]
    await insert_new(store, *few)
    done: Counter[str | None] = Counter()
    while sum(done.values()) - done["m"] < len(few):
        leases = await claim(store, CALL, limit=2)
        assert leases
        done += by_post(leases)
        await settle_all(store, *(settlement_of(lease, "done") for lease in leases))
    assert done["m"] <= 4, "the keys take turns"


async def test_every_key_has_its_turn_though_many_are_due(store: Any) -> None:
    posts = [f"p{n:02}" for n in range(LOOKED_AT // 2)]
    await insert_new(store, *(each for post in posts for each in calls(post, 3)))
    taken: Counter[str | None] = Counter()
    while leases := await claim(store, CALL, limit=17):
        assert max(by_post(leases).values()) == 1 or len(taken) == len(posts)
        taken += by_post(leases)
    assert taken == dict.fromkeys(posts, 2)


async def test_a_key_may_be_a_number_and_its_records_have_an_order(store: Any) -> None:
    notes = [Note(name=f"{key}{n}", number=key) for key in (7, 30, None) for n in range(3)]
    await insert_new(store, *notes)
    assert sorted(lease.ref.id for lease in await claim(store, RANK)) == ["302", "72", "None2"]
    assert await claim(store, RANK) == []


async def test_a_lease_that_has_ended_counts_until_it_is_taken_over(store: Any) -> None:
    await insert_new(store, *calls("a", 4))
    first = await claim(store, CALL, lease=60, worker="w1")
    assert len(first) == 2
    advance(store, seconds=30)
    renewed = first[0]
    assert await store.renew([Renewal(renewed.ref, renewed.fence, 60)]) == {renewed.ref}
    advance(store, seconds=45)
    [orphan] = await claim(store, CALL, lease=60, worker="w2")
    assert orphan.ref == first[1].ref
    assert orphan.group
    assert await claim(store, CALL, worker="w3") == []
    assert await store.renew([Renewal(renewed.ref, renewed.fence, 60)]) == {renewed.ref}
    held = [job for job in await find_all(store, Job) if job.leased_by is not None]
    assert len(held) == 2


async def test_a_claim_by_id_keeps_to_the_limit(store: Any) -> None:
    await insert_new(store, *calls("a", 4))
    wanted = ("a-001", "a-002", "a-003")
    assert len(await claim(store, CALL, ids=wanted)) == 2
    assert await claim(store, CALL, ids=wanted) == []


async def test_claims_at_the_same_time_keep_to_the_limit(new_store: Any) -> None:
    """Each new record comes before the others, so claims that read at once choose differently."""
    stores = [await new_store(), await new_store()]
    now = min([await set_clock(store) for store in stores])
    numbers = itertools.count()
    held: Counter[str | None] = Counter()
    done: Counter[str | None] = Counter()

    async def work(store: Any, worker: str) -> None:
        for _ in range(12):
            n = next(numbers)
            due = now - timedelta(hours=1, seconds=n)
            await retry_transient(insert_new, store, Job(id=f"{n}", post="ab"[n % 2], due_at=due))
            leases = await retry_transient(claim, store, CALL, limit=2, worker=worker)
            held.update(by_post(leases))
            assert all(count <= 2 for count in held.values()), held
            await asyncio.sleep(0.005)
            held.subtract(by_post(leases))
            settlements = [settlement_of(lease, "done", who=worker) for lease in leases]
            await retry_transient(settle_all, store, *settlements)
            done.update(by_post(leases))

    await asyncio.gather(*(work(stores[n % 2], f"w{n}") for n in range(6)))
    while leases := await claim(stores[0], CALL):
        await settle_all(stores[0], *(settlement_of(lease, "done") for lease in leases))
        done.update(by_post(leases))
    assert done == {"a": 36, "b": 36}


@pytest.mark.parametrize("limit", [1, 5])
async def test_a_run_takes_only_what_was_due_when_it_began(store: Any, limit: int) -> None:
    before = await set_clock(store)
    await insert_new(store, *calls("a", 1, before - timedelta(seconds=5)))
    await insert_new(store, *calls("b", 1, before + timedelta(seconds=5)))
    advance(store, seconds=10)
    assert by_post(await claim(store, CALL, before=before, limit=limit)) == {"a": 1}
    assert await claim(store, CALL, before=before) == []


async def test_the_record_of_a_dead_worker_comes_before_the_queue_of_its_key(store: Any) -> None:
    now = await set_clock(store)
    queue = [Note(name=f"{n:03}", number=1) for n in range(LOOKED_AT + 20)]
    await insert_new(store, *queue, *calls("a", LOOKED_AT + 20, now - timedelta(days=1)))
    [note] = await claim(store, RANK, lease=60, worker="w1")
    held = await claim(store, CALL, lease=60, worker="w1")
    assert await claim(store, RANK, worker="w2") == []
    advance(store, seconds=70)
    assert [each.ref for each in await claim(store, RANK, worker="w2")] == [note.ref]
    again = await claim(store, CALL, worker="w2")
    assert {each.ref for each in again} == {each.ref for each in held}


async def test_a_lower_limit_counts_for_what_is_held_already(store: Any) -> None:
    await insert_new(store, *calls("a", 3))
    held = await claim(store, CALL)
    await settle_all(store, settlement_of(held[0], "done"))
    assert await claim(store, CALL, per=KeyLimit("post", 1)) == []
    advance(store, seconds=90)
    assert len(await claim(store, CALL, per=KeyLimit("post", 1))) == 1


async def test_a_head_start_is_a_priority_that_ages(store: Any) -> None:
    """As docs/concepts.md describes it: each step of priority is worth ten minutes."""
    now = await set_clock(store)

    async def insert(id: str, priority: int) -> None:
        head_start = timedelta(minutes=10 * priority)
        await insert_new(store, Job(id=id, due_at=await store.now() - head_start))

    await insert("plain", 0)
    await insert("urgent", 3)
    assert [each.ref.id for each in await claim(store, WORK, limit=1)] == ["urgent"]
    advance(store, seconds=31 * 60)
    await insert("late and urgent", 3)
    assert (await store.now()) > now
    assert [each.ref.id for each in await claim(store, WORK, limit=1)] == ["plain"]
