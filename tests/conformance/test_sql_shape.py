"""Tables as other programs made them, and tables that Esclusa creates in that shape."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from conformance.databases import SQL, Database
from conformance.helpers import claim, claim_one, read, settle_all, settlement_of
from conformance.kinds import stage

from esclusa.engine.records import Records
from esclusa.model.columns import track, untracked
from esclusa.model.effects import Add, Create, Move, Wake
from esclusa.model.errors import DeclarationError, SchemaError
from esclusa.model.kind import Kind
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import null, query
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, FanOut, Inserted, RecordWithChildren
from esclusa.model.stage import make_stage
from esclusa.model.table_map import map_tables

pytestmark = pytest.mark.parametrize("provider", SQL, indirect=True)


class Phone(
    Record,
    table="phones",
    id="phone_id",
    key="phone_id",
    track=untracked(created_at="created_at", updated_at="updated_at"),
    insert=True,
    optional=("rank", "labels"),
    added=("tags",),
    unique=[("token",)],
    index=[("rank",)],
):
    """A row with a text key of its own, and without tracking."""

    phone_id: str
    token: str | None = None
    active: bool = False
    rank: int | None = None
    labels: list[str] = ["none"]
    tags: list[str] = []

    lifecycle = Lifecycle("kept")


class Alert(
    Record,
    table="alerts",
    key=("topic", "phone_id"),
    database_id=True,
    track=track(
        attempts="attempt_count",
        due_at="next_attempt_at",
        leased_by="locked_by",
        last_error=None,
        leased_at="locked_at",
        finished_at="completed_at",
    ),
    added=("sends",),
    refs={"phone_id": Phone},
    foreign_keys=("phone_id",),
    types={"attempt_count": "integer", "amount": "numeric(14, 0)"},
):
    """A row with an id by sequence, unique by its key, of a phone."""

    topic: str
    phone_id: str
    amount: Decimal | None = None
    sends: int = 0
    completed_at: datetime | None = None

    lifecycle = Lifecycle("pending -> sent -> ok\npending -> failed\nsent -> failed")


KINDS = (Alert.kind, Phone.kind)
SEND = stage("send", Alert.kind, take="pending", exhausted="failed", where={"completed_at": null})


def of(kind: Kind, **where: Any) -> Any:
    return query(kind, where)


async def phones(database: Database) -> list[dict[str, Any]]:
    return await database.rows("phones", "phone_id")


@pytest.fixture
async def fresh(empty_database: Database, bare_store: Any) -> Any:
    assert empty_database is not None
    return await bare_store(KINDS, (SEND,))


async def test_a_business_column_is_the_id_of_a_new_table(
    fresh: Any, empty_database: Database
) -> None:
    assert await fresh.insert([Phone(phone_id="a"), Phone(phone_id="b", token="t")]) == [
        Inserted("a"),
        Inserted("b"),
    ]
    assert await fresh.insert([Phone(phone_id="a", active=True)]) == [Duplicate("a")]
    found = await read(fresh, Phone, "b")
    assert (found.id, found.phone_id, found.token, found.status) == ("b", "b", "t", "kept")
    assert found.created_at is not None
    [row] = [row for row in await phones(empty_database) if row["phone_id"] == "b"]
    assert set(row) == {
        *("phone_id", "created_at", "updated_at", "token", "active", "rank", "labels", "tags")
    }
    assert Phone.kind.id_of("a") == "a"


async def test_an_untracked_record_is_put_edited_counted_and_removed(fresh: Any) -> None:
    records = Records(fresh)
    await records.put([Phone(phone_id="a", token="t")], who="me")
    await records.put([Phone(phone_id="a", token="u", active=True)], who="me")
    assert await records.edit(Phone, "a", among=("kept",), who="me", reason="r", rank=3)
    found = await read(fresh, Phone, "a")
    assert (found.token, found.active, found.rank) == ("u", True, 3)
    assert (await records.count(Phone, {"status": "kept"}))[0] == 1
    assert [(c.state, c.count) for c in await fresh.tally(Phone.kind)] == [("kept", 1)]
    page = await records.find(Phone, {"active": True}, order=("updated_at", "attempts"))
    assert [p.id for p in page.items] == ["a"]
    assert [step.to for step in await fresh.history(found.ref)] == ["kept", "kept"]
    assert await fresh.states(Phone.kind) == []
    assert await records.remove("a", Phone) == [True]


async def test_no_stage_takes_an_untracked_record(provider: Any) -> None:
    assert provider is not None
    with pytest.raises(DeclarationError, match="no tracking columns"):
        make_stage("take", Phone.kind, lambda record, at: None, take="kept")
    with pytest.raises(DeclarationError, match="several states"):

        class Torn(Record, table="torn", track=untracked()):
            lifecycle = Lifecycle("a -> b")


async def test_ids_by_sequence_and_one_row_per_key(fresh: Any) -> None:
    await fresh.insert([Phone(phone_id="a"), Phone(phone_id="b")])
    made = await fresh.insert([Alert(topic="x", phone_id="a"), Alert(topic="x", phone_id="b")])
    assert int(made[1].id) == int(made[0].id) + 1
    assert await fresh.insert([Alert(topic="x", phone_id="a")]) == [Duplicate(made[0].id)]
    new = RecordWithChildren(
        Phone(phone_id="c"), [FanOut(Alert(topic="y", phone_id=""), "phone_id", ["a", "b", "c"])]
    )
    assert await fresh.insert_if_new([new]) == [3]
    assert await fresh.insert_if_new([new]) == [None]
    removed = FanOut(Alert(topic="g", phone_id=""), "phone_id", ["a", "removed"])
    assert await fresh.insert_if_new([RecordWithChildren(Phone(phone_id="e"), [removed])]) == [1]
    lease = (await claim(fresh, SEND))[0]
    effects = (
        Create(Alert(topic="z", phone_id="a")),
        Create(Alert(topic="z", phone_id="a")),
        Create(Phone(phone_id="d")),
        Add(Phone, "a", rank=2),
        Wake(Phone, "a"),
    )
    await settle_all(fresh, settlement_of(lease, "sent", effects=effects, fields={"sends": 1}))
    found = await read(fresh, Alert, lease.ref.id)
    assert (found.status, found.sends, found.attempts) == ("sent", 1, 1)
    assert (await fresh.count(of(Alert.kind, topic="z")))[0] == 1
    assert (await read(fresh, Phone, "a")).rank == 2


async def test_a_foreign_key_cascades(fresh: Any) -> None:
    await fresh.insert([Phone(phone_id="a"), Phone(phone_id="b")])
    await fresh.insert([Alert(topic="x", phone_id="a"), Alert(topic="x", phone_id="b")])
    await Records(fresh).remove("a", Phone)
    left = (await fresh.find(of(Alert.kind))).items
    assert [alert.phone_id for alert in left] == ["b"]


async def test_a_declared_unique_column_is_unique(fresh: Any, empty_database: Database) -> None:
    await fresh.insert([Phone(phone_id="a", token="t"), Phone(phone_id="n"), Phone(phone_id="m")])
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        await empty_database.write("phones", "phone_id", "n", token="t")
    assert await fresh.pending(KINDS, (SEND,)) == []


async def test_types_of_a_new_table(fresh: Any, empty_database: Database) -> None:
    await fresh.insert([Phone(phone_id="a")])
    await fresh.insert([Alert(topic="x", phone_id="a", amount=Decimal(1234))])
    lease = await claim_one(fresh, SEND)
    assert lease.record.amount == 1234
    [row] = await empty_database.rows("alerts", "id")
    assert isinstance(row["id"], int)
    assert row["attempt_count"] == 1


OLD_PHONES = {"phone_id": "text", "token": "text", "active": "bool", "created_at": "time"}


async def test_a_table_may_lack_optional_columns(empty_database: Database, bare_store: Any) -> None:
    """They are neither read nor written; what the program needs is added."""
    columns = {**OLD_PHONES, "updated_at": "time", "other": "text"}
    rows = [{"phone_id": "a", "token": "t", "active": True, "other": "kept"}]
    await empty_database.make_table("phones", columns, "phone_id", rows)  # type: ignore[arg-type]
    store = await bare_store((Phone.kind,), ())
    found = await read(store, Phone, "a")
    assert (found.rank, found.labels, found.tags) == (None, ["none"], [])
    found.labels.append("x")
    assert (await read(store, Phone, "a")).labels == ["none"]
    await store.insert([Phone(phone_id="b", rank=7, labels=["l"], tags=["g"])])
    records = Records(store)
    assert await records.edit(Phone, "b", among=("kept",), who="me", reason="r", rank=9)
    assert await records.edit(Phone, "b", among=("kept",), who="me", reason="r", active=True)
    found = await read(store, Phone, "b")
    assert (found.rank, found.labels, found.tags, found.active) == (None, ["none"], ["g"], True)
    page = await records.find(Phone, {"rank": null}, order="rank")
    assert sorted(phone.id for phone in page.items) == ["a", "b"]
    assert (await records.find(Phone, {"rank": 7})).items == []
    [row, _] = await phones(empty_database)
    assert set(row) == {*columns, "tags"}
    assert row["other"] == "kept"
    assert await store.pending((Phone.kind,), ()) == []


async def test_a_missing_column_that_is_not_optional_is_refused(
    empty_database: Database, bare_store: Any
) -> None:
    columns = {n: t for n, t in OLD_PHONES.items() if n != "token"}
    await empty_database.make_table("phones", columns, "phone_id")  # type: ignore[arg-type]
    store = await bare_store()
    with pytest.raises(SchemaError, match="token"):
        await store.migrate((Phone.kind,), (), foreign=True)


FULL: dict[str, Any] = {**OLD_PHONES, "updated_at": "time", "page": "int", "owner": "text"}


async def refuse_null(database: Any, store_name: str) -> None:
    """Make a table whose columns page and owner must have values."""
    if store_name == "sqlite":
        database._run(
            """CREATE TABLE phones (phone_id TEXT PRIMARY KEY, token TEXT, active INTEGER,
            created_at TEXT, updated_at TEXT, page INTEGER NOT NULL, owner TEXT NOT NULL)"""
        )
        return
    await database._run(
        """CREATE TABLE phones (phone_id text PRIMARY KEY, token text, active boolean,
        created_at timestamptz, updated_at timestamptz,
        page integer NOT NULL, owner varchar(20) NOT NULL)"""
    )


async def test_settings_fill_columns_that_no_field_fills(
    empty_database: Database, bare_store: Any, request: pytest.FixtureRequest
) -> None:
    kind = "sqlite" if "sqlite" in empty_database.url else "postgres"
    await refuse_null(empty_database, kind)
    store = await bare_store()
    with pytest.raises(SchemaError, match=r"page.*fill or insert = false"):
        await store.migrate((Phone.kind,), (), foreign=True)
    request.addfinalizer(lambda: map_tables([Phone.kind], {}) and None)
    assert map_tables([Phone.kind], {"phones": {"fill": {"page": 12, "owner": "it's"}}}) == []
    await store.migrate((Phone.kind,), (), foreign=True)
    assert await store.insert([Phone(phone_id="a"), Phone(phone_id="b")]) == [
        Inserted("a"),
        Inserted("b"),
    ]
    assert [(r["page"], r["owner"]) for r in await phones(empty_database)] == [(12, "it's")] * 2
    assert map_tables([Phone.kind], {"phones": {"insert": False}}) == []
    await store.migrate((Phone.kind,), (), foreign=True)
    assert any("page" in note for note in await store.notes((Phone.kind,), ()))
    assert map_tables([Phone.kind], {"phones": {"fill": {"token": "x", "no col": 1}}}) == [
        "phones: fill.token: it is the column of token",
        "phones: fill.no col: it is not a column name",
    ]
    assert map_tables([Phone.kind], {"phones": {"fill": {"pages": 1}}}) == []
    with pytest.raises(SchemaError, match="pages, which fill names"):
        await store.migrate((Phone.kind,), (), foreign=True)


async def test_a_move_of_an_untracked_record_sets_fields(fresh: Any) -> None:
    """``Move`` to the state it is in changes fields of a record that has only one."""
    await fresh.insert([Phone(phone_id="a", active=True), Phone(phone_id="b", active=True)])
    await fresh.insert([Alert(topic="x", phone_id="a")])
    lease = await claim_one(fresh, SEND)
    effects = (Move(Phone, "a", "kept", frm="kept", active=False),)
    await settle_all(fresh, settlement_of(lease, "sent", effects=effects))
    assert not (await read(fresh, Phone, "a")).active
    assert (await read(fresh, Phone, "b")).active


async def test_children_get_the_id_that_the_table_made(fresh: Any) -> None:
    """A parent of a parent, each with an id by sequence, in one transaction."""
    await fresh.insert([Phone(phone_id="a"), Phone(phone_id="b")])
    inner = RecordWithChildren(
        Alert(topic="x", phone_id="a"),
        [FanOut(Alert(topic="", phone_id=""), "phone_id", ["a", "b"])],
        link="topic",
    )
    new = RecordWithChildren(Phone(phone_id="c"), [Alert(topic="y", phone_id="c"), inner])
    assert await fresh.insert_if_new([new, new]) == [4, None]
    alerts = (await fresh.find(of(Alert.kind))).items
    [parent] = [alert.id for alert in alerts if alert.topic == "x"]
    assert sorted((a.topic, a.phone_id) for a in alerts) == sorted(
        [("x", "a"), ("y", "c"), (parent, "a"), (parent, "b")]
    )


async def test_children_of_a_new_parent_that_exist_already_are_left(fresh: Any) -> None:
    """By their key, although the parent is new; the children of the other parents are added."""
    await fresh.insert([Phone(phone_id=name) for name in "abc"])
    await fresh.insert([Alert(topic="y", phone_id="a")])

    def with_alerts(parent: str) -> RecordWithChildren:
        alerts = FanOut(Alert(topic="", phone_id=""), "phone_id", ["a", "b", "removed", "c"])
        return RecordWithChildren(Phone(phone_id=parent), [alerts], link="topic")

    assert await fresh.insert_if_new([with_alerts(name) for name in "xyzx"]) == [3, 2, 3, None]
    assert (await fresh.count(of(Alert.kind)))[0] == 9
