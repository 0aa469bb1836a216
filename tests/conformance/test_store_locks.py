"""Another program holds a lock on a record: only what depends on it waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conformance.databases import Database
from conformance.helpers import advance, claim, insert_new, read, settle, settle_all, settlement_of
from conformance.kinds import WORK, Job, Post

from esclusa.model.effects import Add, Create, Move
from esclusa.model.errors import StoreConflict
from esclusa.model.settlement import Locked, Renewal, Settled

# Longer than a store waits for a lock, shorter than the locks of these tests may last.
SOON = 30.0


@pytest.fixture(autouse=True)
def _rows_can_be_locked(database: Database) -> None:
    if not database.locks_rows():
        pytest.skip("NOT TESTED HERE: a lock of another program is on the whole database")


@pytest.mark.promise(12)
async def test_a_locked_record_is_settled_later_and_the_others_now(
    store: Any, database: Database
) -> None:
    await insert_new(store, *[Job(id=f"j{n}") for n in range(5)])
    made = [settlement_of(lease, "done") for lease in await claim(store, WORK)]
    async with database.locked("t_jobs", "id", "j2"):
        async with asyncio.timeout(SOON):
            verdicts = await settle(store, *made)
        assert [type(v) for v in verdicts] == [Settled, Settled, Locked, Settled, Settled]
        assert "t_jobs j2" in verdicts[2].why  # type: ignore[union-attr]
        assert (await read(store, Job, "j2")).status == "working"
        async with asyncio.timeout(SOON):
            [again] = await settle(store, made[2])
        assert isinstance(again, Locked)
    await settle_all(store, made[2])
    assert len(await store.history(made[2].ref)) == 2


@pytest.mark.promise(12)
async def test_only_settlements_that_change_a_locked_record_wait(
    store: Any, database: Database
) -> None:
    await insert_new(store, *[Post(platform="x", post_id=str(n)) for n in range(2)])
    await insert_new(store, *[Job(id=f"j{n}") for n in range(5)])
    effects: list[tuple[Any, ...]] = [
        (),
        (Add(Post, "x:0", jobs=1),),
        (Add(Post, "x:1", jobs=1),),
        (Move(Post, "x:0", "collecting", frm="waiting"),),
        (Create(Job(id="new")),),
    ]
    made = [
        settlement_of(lease, "done", effects=each)
        for lease, each in zip(await claim(store, WORK), effects, strict=True)
    ]
    async with database.locked("t_posts", "id", "x:0"):
        async with asyncio.timeout(SOON):
            verdicts = await settle(store, *made)
        assert [type(v) for v in verdicts] == [Settled, Locked, Settled, Locked, Settled]
    await settle_all(store, made[1], made[3])
    post = await read(store, Post, "x:0")
    assert (post.jobs, post.status) == (1, "collecting")


@pytest.mark.promise(3)
async def test_the_lease_of_a_locked_record_is_renewed(
    store: Any, new_store: Any, database: Database
) -> None:
    other = await new_store()
    await insert_new(store, Job(id="j0"), Job(id="j1"))
    leases = await claim(store, WORK, lease=60)
    renewals = [Renewal(lease.ref, lease.fence, 500) for lease in leases]
    async with database.locked("t_jobs", "id", "j0"), asyncio.timeout(SOON):
        assert await store.renew(renewals) == {lease.ref for lease in leases}
        stale = Renewal(leases[0].ref, leases[0].fence - 1, 500)
        assert await store.renew([stale]) == set()
    advance(store, other, seconds=300)  # its record was not written: by that alone it would be due
    assert await claim(other, WORK) == []
    await settle_all(store, settlement_of(leases[0], "pending"))
    assert [lease.ref for lease in await claim(other, WORK)] == [leases[0].ref]
    advance(store, other, seconds=300)
    assert {lease.ref for lease in await claim(store, WORK)} == {lease.ref for lease in leases}


async def test_fields_of_a_locked_record_are_refused(store: Any, database: Database) -> None:
    await insert_new(store, Job(id="j0"))
    [lease] = await claim(store, WORK)
    save = Renewal(lease.ref, lease.fence, 60, {"result": "half"})
    async with database.locked("t_jobs", "id", "j0"), asyncio.timeout(SOON):
        with pytest.raises(StoreConflict):
            await store.renew([save])
    assert await store.renew([save]) == {lease.ref}
    assert (await read(store, Job, "j0")).result == "half"


@pytest.mark.promise(12)
async def test_a_locked_record_is_claimed_later_and_the_others_now(
    store: Any, database: Database
) -> None:
    await insert_new(store, *[Job(id=f"j{n}") for n in range(5)])
    async with database.locked("t_jobs", "id", "j2"), asyncio.timeout(SOON):
        claimed = [lease.ref.id for lease in await claim(store, WORK)]
        assert claimed == ["j0", "j1", "j3", "j4"]
    async with asyncio.timeout(SOON):
        while not (later := await claim(store, WORK)):
            await asyncio.sleep(0.2)
    assert [lease.ref.id for lease in later] == ["j2"]
