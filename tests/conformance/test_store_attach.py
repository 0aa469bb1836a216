"""Records in an existing table, which other programs write too."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from conformance.databases import Database
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
    set_clock,
    settle_all,
    settlement_of,
)
from conformance.kinds import stage

from esclusa.model.columns import track
from esclusa.model.effects import Create
from esclusa.model.errors import ForeignTables, SchemaError
from esclusa.model.kind import Ref
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import not_null, query
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted, Renewal

COLUMNS: dict[str, Any] = {
    "pk": "int",
    "Post-Id": "text",
    "imagen": "text",
    "alto": "int",
    "publicado": "time",
    "creado": "time",
    "dueño": "text",
    "likes": "int",
}
KEYED = {
    "id": "pk",
    "track": track(
        prefix="media_", created_at="creado", leased_at="media_tomado", error_message="media_error"
    ),
}


class Media(Record, table="publicaciones", columns={"imagen_url": "imagen"}, **KEYED):
    """Some columns of another program's table; its id is a number."""

    imagen_url: str | None = None
    alto: int | None = None
    imagen_local: str | None = None

    lifecycle = Lifecycle("""
        pending -> downloading -> success | error
        downloading -> pending
        error -> pending
    """)


class Strict(Record, table="publicaciones", columns={"imagen_url": "imagen"}, **KEYED):
    """The same table; the height is required."""

    imagen_url: str
    alto: int
    imagen_local: str | None = None

    lifecycle = Media.lifecycle


LOAD = stage(
    "load",
    Media.kind,
    take="pending",
    hold="downloading",
    exhausted="error",
    where={"imagen_url": not_null},
)
STRICT = stage("strict", Strict.kind, take="pending", hold="downloading", exhausted="error")
WHEN = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)


def rows(count: int = 6) -> list[dict[str, Any]]:
    return [
        {
            "pk": n * 10,
            "Post-Id": f"p{n}",
            "imagen": None if n == 3 else f"http://x/{n}",
            "alto": None if n == 4 else n,
            "publicado": WHEN,
            "creado": WHEN,
            "dueño": "ñ'\"",
            "likes": n,
        }
        for n in range(1, count + 1)
    ]


@pytest.fixture
async def table(empty_database: Database) -> Database:
    columns = {**COLUMNS, "imagen_local": "text"}
    await empty_database.make_table("publicaciones", columns, "pk", rows())
    return empty_database


@pytest.fixture
async def store(table: Database, bare_store: Any) -> Any:
    assert table is not None
    return await bare_store((Media.kind,), (LOAD,))


def foreign(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in COLUMNS} for row in found]


async def test_null_tracking_means_initial_state_and_due(store: Any) -> None:
    fresh = await read(store, Media, "20")
    assert (fresh.id, fresh.status, fresh.attempts, fresh.fence, fresh.imagen_url, fresh.alto) == (
        "20",
        "pending",
        0,
        0,
        "http://x/2",
        2,
    )
    assert fresh.created_at == WHEN
    backlog = await store.backlog(claim_request(LOAD))
    assert (backlog.due, backlog.exact) == (5, True)
    assert {c.state: c.count for c in await store.tally(Media.kind)} == {
        "pending": 6,
        "downloading": 0,
        "success": 0,
        "error": 0,
    }
    assert [
        m.id for m in await find_all(store, Media, where={"status": "pending"}, order="id")
    ] == ["10", "20", "30", "40", "50", "60"]
    [first, second] = await claim(store, LOAD, limit=2)
    assert (first.taken, first.attempt, first.fence, first.record.status) == (
        "pending",
        1,
        1,
        "downloading",
    )
    assert {first.ref.id, second.ref.id} == {"10", "20"}
    await settle_all(
        store,
        settlement_of(first, "success", fields={"imagen_local": "a.jpg"}),
        settlement_of(second, "pending", delay=60.0),
    )
    assert {x.ref.id for x in await claim(store, LOAD)} == {
        "40",
        "50",
        "60",
    }  # 30 has no image, 20 is not due
    await assert_chain(store, first.ref, [("pending", "downloading"), ("downloading", "success")])
    await assert_chain(store, second.ref, [("pending", "downloading"), ("downloading", "pending")])


async def test_an_eager_claim_takes_a_row_of_another_program(store: Any) -> None:
    leases = await claim(store, LOAD, before=await store.now(), eager=True)
    assert len(leases) == 5


async def test_rows_with_null_due_times_come_first(store: Any) -> None:
    await set_clock(store)
    for id in ("10", "20"):
        await settle_all(store, settlement_of(await claim_one(store, LOAD, id), "pending"))
    advance(store, seconds=1)
    assert [x.ref.id for x in await claim(store, LOAD, limit=4)][:3] == ["40", "50", "60"]


async def test_columns_of_other_programs_are_not_changed(store: Any, table: Database) -> None:
    before = await table.rows("publicaciones", "pk")
    leases = await claim(store, LOAD, limit=3)
    await store.renew([Renewal(leases[2].ref, leases[2].fence, 60.0, {"imagen_local": "half"})])
    await settle_all(
        store,
        settlement_of(leases[0], "success", fields={"imagen_local": "a"}),
        settlement_of(leases[1], "error", error={"message": "m", "type": "t"}),
    )
    after = await table.rows("publicaciones", "pk")
    assert foreign(after) == foreign(before)
    ours = {x.ref.id for x in leases}
    untouched = [row for row in after if str(row["pk"]) not in ours]
    assert untouched
    assert all(
        row["media_status"] in (None, "pending") and not row["media_attempts"] for row in untouched
    )
    shown = {str(row["pk"]): row for row in after}
    assert [shown[x.ref.id]["media_status"] for x in leases] == ["success", "error", "downloading"]
    assert [shown[x.ref.id]["imagen_local"] for x in leases] == ["a", None, "half"]
    assert [shown[x.ref.id]["media_error"] for x in leases] == [None, "m", None]
    assert [shown[x.ref.id]["media_tomado"] is None for x in leases] == [True, True, False]


async def test_other_programs_write_while_records_are_processed(
    store: Any, table: Database
) -> None:
    lease = await claim_one(store, LOAD, "10")
    await table.write("publicaciones", "pk", 10, likes=99, imagen="http://x/new")
    await settle_all(store, settlement_of(lease, "success", fields={"imagen_local": "a"}))
    row = (await table.rows("publicaciones", "pk"))[0]
    assert (row["likes"], row["imagen"], row["media_status"]) == (99, "http://x/new", "success")
    await table.write(
        "publicaciones",
        "pk",
        10,
        media_status=None,
        media_due_at=None,
        media_attempts=None,
        media_fence=None,
    )
    again = await claim_one(store, LOAD, "10")
    assert (again.attempt, again.fence, again.taken) == (1, 1, "pending")


async def test_a_row_that_does_not_fit_is_claimed_with_its_fault(
    table: Database, bare_store: Any
) -> None:
    store = await bare_store((Strict.kind,), (STRICT,))
    assert table is not None
    leases = {x.ref.id: x for x in await claim(store, STRICT)}
    assert {i for i, x in leases.items() if x.fault} == {"30", "40"}
    assert "imagen_url" in leases["30"].fault
    assert "alto" in leases["40"].fault
    bad = leases["40"]
    assert (bad.record.imagen_url, bad.record.status, bad.fence, bad.attempt) == (
        "http://x/4",
        "downloading",
        1,
        1,
    )
    await settle_all(
        store, settlement_of(bad, "error", error={"message": bad.fault, "type": "invalid_data"})
    )
    lenient = await read(store, Strict, "40")
    assert (lenient.status, lenient.imagen_url, lenient.id) == ("error", "http://x/4", "40")
    assert [r.id for r in await find_all(store, Strict, where={"status": "error"})] == ["40"]


async def test_ids_are_text_in_get_find_and_history(store: Any) -> None:
    assert [r and r.id for r in await store.get(Media.kind, ["60", "nonsense", "10", "61"])] == [
        "60",
        None,
        "10",
        None,
    ]
    assert [m.id for m in await find_all(store, Media, where={"id": ["20", "30"]}, order="id")] == [
        "20",
        "30",
    ]
    page = await store.find(query(Media, limit=4))
    rest = await store.find(query(Media, limit=4, after=page.next))
    assert [m.id for m in page.items + rest.items] == ["10", "20", "30", "40", "50", "60"]
    assert await store.history(Ref(Media.kind, "nonsense")) == []


async def test_two_stores_claim_from_an_attached_table(
    store: Any, empty_database: Database, bare_store: Any
) -> None:
    other = await bare_store((Media.kind,), (LOAD,))
    batches = await asyncio.gather(*(claim(s, LOAD, limit=1) for s in (store, other) * 3))
    taken = [x.ref.id for batch in batches for x in batch]
    assert len(taken) == len(set(taken))


async def test_migrate_adds_only_what_is_missing_and_once(table: Database, bare_store: Any) -> None:
    before = await table.rows("publicaciones", "pk")
    store = await bare_store()
    assert await store.pending((Media.kind,), (LOAD,))
    with pytest.raises(SchemaError):
        await store.use((Media.kind,), (LOAD,))
    assert await store.migrate((Media.kind,), (LOAD,), foreign=True)
    after = await table.rows("publicaciones", "pk")
    assert [{n: r[n] for n in before[0]} for r in after] == before
    added = set(after[0]) - set(before[0])
    assert added == {
        "media_status",
        "media_attempts",
        "media_due_at",
        "media_fence",
        "media_leased_by",
        "media_last_error",
        "media_updated_at",
        "media_tomado",
        "media_error",
    }
    assert await store.migrate((Media.kind,), (LOAD,), foreign=True) == []
    assert await store.pending((Media.kind,), (LOAD,)) == []


@pytest.mark.promise(12)
async def test_a_table_of_another_program_is_changed_only_if_asked(
    table: Database, bare_store: Any
) -> None:
    before = await table.rows("publicaciones", "pk")
    store = await bare_store()
    assert {s.table for s in await store.pending((Media.kind,), (LOAD,)) if s.foreign} == {
        "publicaciones"
    }
    with pytest.raises(ForeignTables, match="publicaciones: "):
        await store.migrate((Media.kind,), (LOAD,))
    assert await table.rows("publicaciones", "pk") == before
    await store.migrate((Media.kind,), (LOAD,), foreign=True)
    assert await store.migrate((Media.kind,), (LOAD,)) == []


async def test_an_attached_table_that_is_absent_is_created(bare_store: Any) -> None:
    class Letters(Record, table="cartas", key="name", track=track(prefix="x_"), id="key"):
        name: str
        lifecycle = Lifecycle("a -> b")

    work = stage("letters", Letters.kind, take="a", exhausted="b")
    store = await bare_store((Letters.kind,), (work,))
    [id] = await insert_new(store, Letters(name="ñ"))
    lease = await claim_one(store, work)
    await settle_all(store, settlement_of(lease, "b"))
    assert (await read(store, Letters, id)).status == "b"
    assert is_near(lease.record.updated_at, await store.now())


class Numbered(Record, table="t_numbered", key="name", database_id=True):
    """The table generates ids; the key is unique."""

    name: str
    lifecycle = Lifecycle("a -> b -> c")


@pytest.mark.promise(5)
async def test_the_table_may_generate_ids(empty_database: Database, bare_store: Any) -> None:
    store = await bare_store((Numbered.kind,), ())
    one, two = await store.insert([Numbered(name="x"), Numbered(name="ñ")])
    assert isinstance(one, Inserted)
    assert one.id != two.id
    answers = await store.insert([Numbered(name="z"), Numbered(name="x"), Numbered(name="z")])
    [z] = await find_all(store, Numbered, where={"name": "z"})
    assert answers == [Inserted(z.id), Duplicate(one.id), Duplicate(z.id)]
    assert (await read(store, Numbered, one.id)).name == "x"
    ref = Ref(Numbered.kind, two.id)
    await settle_all(
        store,
        operator_move(
            ref, "a", "b", effects=(Create(Numbered(name="x")), Create(Numbered(name="new")))
        ),
    )
    assert sorted(n.name for n in await find_all(store, Numbered)) == ["new", "x", "z", "ñ"]
    await assert_chain(store, ref, [("a", "b")])
