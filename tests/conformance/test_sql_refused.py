"""A table that does not let some of its records be changed: the others are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from conformance.databases import SQL, Database
from conformance.helpers import claim, insert_new, read
from conformance.kinds import WORK, Job
from conformance.test_store_renames import Letter, OldLetter, stores

from esclusa.model.errors import BadRecord
from esclusa.model.kind import Ref
from esclusa.stores import isolate

__all__ = ["stores"]  # a fixture

pytestmark = pytest.mark.parametrize("provider", SQL, indirect=True)


@pytest.fixture
async def store(empty_database: Database) -> AsyncIterator[Any]:
    store = empty_database.store()
    await store.open()
    await store.migrate([Job.kind], [WORK], foreign=True)
    yield store
    await store.close()


@pytest.mark.promise(12)
@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_the_others_are_claimed(store: Any, empty_database: Database, limit: int) -> None:
    reports: list[tuple[Ref, str]] = []
    store.on_refused = lambda ref, why: reports.append((ref, why))
    await insert_new(store, *[Job(id=f"j{n:02}") for n in range(20)])
    bad = ["j00", "j07", "j19"]
    await empty_database.refuse("t_jobs", "id", bad)
    claimed: list[str] = []
    while leases := await claim(store, WORK, limit=limit):
        assert len(leases) <= limit
        claimed += [lease.ref.id for lease in leases]
    assert sorted(claimed) == [f"j{n:02}" for n in range(20) if f"j{n:02}" not in bad]
    assert sorted(ref.id for ref, _ in reports) == bad
    assert all("not allowed" in why for _, why in reports)
    assert (await read(store, Job, "j00")).status == "pending"
    assert await claim(store, WORK) == []


async def test_a_record_is_tried_again_some_minutes_later_and_reported_each_time(
    store: Any, empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[Ref] = []
    store.on_refused = lambda ref, why: reports.append(ref)
    monkeypatch.setattr(isolate, "_LEFT_OUT", 0.0)
    await insert_new(store, Job(id="a"), Job(id="b"))
    await empty_database.refuse("t_jobs", "id", ["a"])
    assert [lease.ref.id for lease in await claim(store, WORK)] == ["b"]
    with pytest.raises(BadRecord, match="not allowed"):
        await claim(store, WORK)
    assert reports == [Ref(Job.kind, "a")] * 2
    await empty_database.allow("t_jobs")
    assert [lease.ref.id for lease in await claim(store, WORK)] == ["a"]


async def test_a_table_that_refuses_every_claim_is_an_error(
    store: Any, empty_database: Database
) -> None:
    ids = [f"j{n:02}" for n in range(50)]
    await insert_new(store, *[Job(id=id) for id in ids])
    await empty_database.refuse("t_jobs", "id", ids)
    with pytest.raises(BadRecord, match="not allowed"):
        await claim(store, WORK)


@pytest.mark.promise(12)
async def test_the_others_are_renamed_and_the_row_is_named(
    stores: Any, empty_database: Database
) -> None:
    old, new = stores
    await insert_new(old, *[OldLetter(name=f"l{n:02}") for n in range(20)])
    bad = ["l00", "l07", "l19"]
    await empty_database.refuse("t_letters", "id", bad)
    moved = [await new.rename_states(Letter.kind, 8) for _ in range(3)]
    assert sum(moved) == 17
    with pytest.raises(BadRecord, match=r"l00: .*not allowed.*l07: .*l19: ") as caught:
        await new.rename_states(Letter.kind, 8)
    assert "l01" not in str(caught.value)
    assert [s.to for s in await new.history(Ref(Letter.kind, "l01"))] == ["pending"]
    assert await new.history(Ref(Letter.kind, "l00")) == []
    await empty_database.allow("t_letters")
    assert await new.rename_states(Letter.kind) == 3
