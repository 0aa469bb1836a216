"""Rows of a service that notes no locks, repeats keys, and writes times and ids as it likes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from conformance.databases import SQL, Database
from conformance.helpers import claim, settle_all, settlement_of
from conformance.kinds import stage

from esclusa.model.columns import track
from esclusa.model.errors import SchemaError
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import at_most, query
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted

COLUMNS: dict[str, Any] = {
    "id": "text",
    "platform": "text",
    "post_id": "text",
    "status": "text",
    "created_at": "text",
    "updated_at": "time",
}
NOW = datetime.now(UTC)


class Search(
    Record,
    table="searches",
    key=("platform", "post_id"),
    shared_key=True,
    added=("checks",),
    track=track(
        prefix="esclusa_", status="status", created_at="created_at", updated_at="updated_at"
    ),
):
    """A search at a provider."""

    platform: str
    post_id: str
    checks: int = 0

    lifecycle = Lifecycle("pending -> processing -> done | failed | pending")


CHECK = stage(
    "check",
    Search.kind,
    take="pending",
    hold="processing",
    exhausted="failed",
    order=("created_at",),
    abandoned_after=3600,
)


def row(id: str, post_id: Any, status: str = "pending", **values: Any) -> dict[str, Any]:
    made = {"id": id, "platform": "x", "post_id": post_id, "status": status}
    times = {"created_at": f"2026-01-0{len(id)}T10:00:00", "updated_at": NOW}
    return made | times | values


async def opened(database: Database, bare_store: Any, *rows: dict[str, Any]) -> Any:
    await database.make_table("searches", COLUMNS, "id", rows)
    return await bare_store((Search.kind,), (CHECK,))


async def test_a_held_row_without_a_lease_is_left_until_it_is_abandoned(
    empty_database: Database, bare_store: Any
) -> None:
    """``abandoned_after`` of the stage counts from the last update of the row."""
    now = datetime.now(UTC)
    store = await opened(
        empty_database,
        bare_store,
        row("a", "1", "processing", updated_at=now - timedelta(minutes=50)),
        row("b", "2", "processing", updated_at=now - timedelta(minutes=70)),
        row("c", "3"),
    )
    taken = await claim(store, CHECK, abandoned_after=3600)
    assert sorted(lease.ref.id for lease in taken) == ["b", "c"]
    await settle_all(store, *(settlement_of(lease, "done") for lease in taken))
    assert await claim(store, CHECK, abandoned_after=3600) == []
    store.clock_offset += 11 * 60
    [late] = await claim(store, CHECK, abandoned_after=3600)
    assert late.ref.id == "a"


async def test_several_rows_may_have_one_key(empty_database: Database, bare_store: Any) -> None:
    """Each is worked; a new record of that key is not inserted."""
    store = await opened(empty_database, bare_store, row("a", "1"), row("bb", "1"), row("ccc", "2"))
    drafts = [Search(platform="x", post_id=id) for id in ("1", "2", "3", "3")]
    first, second, third, again = await store.insert(drafts)
    assert isinstance(first, Duplicate)
    assert first.id in ("a", "bb")
    assert second == Duplicate("ccc")
    assert isinstance(third, Inserted)
    assert again == Duplicate(third.id)
    assert len(await claim(store, CHECK)) == 4
    assert await store.adopted(Search.kind) == 3  # also after they were written


ODD_TIMES = (
    row("a", "1", created_at="2026-01-08 12:00:00+00:00"),
    row("b", "2", created_at="2026-01-07T23:00:00-03:00"),
    row("c", "3", created_at="2026-01-07T10:00:00"),
    row("d", "4", created_at="some day"),
    row("e", "5", created_at=None),
)


async def test_text_is_a_time_of_creation(empty_database: Database, bare_store: Any) -> None:
    """It orders claims, and stays as it is; text that is no time is no fault of the row."""
    store = await opened(empty_database, bare_store, *ODD_TIMES)
    taken = [lease.ref.id for lease in await claim(store, CHECK)]
    assert sorted(taken) == ["a", "b", "c", "d", "e"]
    assert taken.index("c") < taken.index("a")
    await store.insert([Search(platform="x", post_id="6")])
    page = await store.find(query(Search.kind, {"post_id": "6"}))
    assert isinstance(page.items[0].created_at, datetime)
    rows = {each["post_id"]: each for each in await empty_database.rows("searches", "post_id")}
    assert rows["4"]["created_at"] == "some day"


@pytest.mark.parametrize("provider", SQL, indirect=True)
async def test_text_is_compared_as_a_time(empty_database: Database, bare_store: Any) -> None:
    """In filters, too. Firestore compares values of one type only."""
    store = await opened(empty_database, bare_store, *ODD_TIMES)
    before = query(Search.kind, {"created_at": at_most(datetime(2026, 1, 7, 12, tzinfo=UTC))})
    found = {record.id: record for record in (await store.find(before)).items}
    assert "c" in found
    assert not {"a", "b"} & found.keys()
    assert found["c"].created_at == datetime(2026, 1, 7, 10, tzinfo=UTC)


async def test_pages_follow_odd_times(empty_database: Database, bare_store: Any) -> None:
    """Every row is on one page, whatever its time of creation is."""
    odd = ["2026-01-08 12:00:00+00:00", "2026-01-08T12:00:00", "some day", None, "yesterday"]
    rows = [row(f"r{n}", str(n), created_at=odd[n % len(odd)]) for n in range(10)]
    store = await opened(empty_database, bare_store, *rows)
    seen: list[str] = []
    after = None
    while True:
        page = await store.find(query(Search.kind, order="created_at", limit=3, after=after))
        seen += [record.id for record in page.items]
        if (after := page.next) is None:
            break
    assert sorted(seen) == sorted(each["id"] for each in rows)


async def test_a_key_is_found_that_is_stored_as_a_number(
    empty_database: Database, bare_store: Any
) -> None:
    long = 1_989_350_000_000_000_123  # as X makes them
    rows = [row("a", 1), row("b", 20), row("c", long)]
    await empty_database.make_table("searches", COLUMNS | {"post_id": "int"}, "id", rows)
    store = await bare_store((Search.kind,), (CHECK,))
    answers = await store.insert(
        [Search(platform="x", post_id=id) for id in ("1", "20", str(long), "30")]
    )
    assert answers[:3] == [Duplicate("a"), Duplicate("b"), Duplicate("c")]
    assert isinstance(answers[3], Inserted)
    for post_id, id in (("1", "a"), ("20", "b"), (str(long), "c")):
        page = await store.find(query(Search.kind, {"platform": "x", "post_id": post_id}))
        assert [record.id for record in page.items] == [id]


@pytest.mark.parametrize("provider", SQL, indirect=True)
async def test_ids_that_are_numbers_are_made_by_the_table(empty_database: Database) -> None:
    """Otherwise no new record could be written there, after its work is done."""
    await empty_database.make_table("searches", COLUMNS | {"id": "int"}, "id")
    store = empty_database.store()
    await store.open()
    try:
        with pytest.raises(SchemaError, match="database_id = true"):
            await store.migrate([Search.kind], [CHECK], foreign=True)
    finally:
        await store.close()
