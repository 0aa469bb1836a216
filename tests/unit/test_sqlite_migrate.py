"""SQLite only: migrations of tables that other programs made and fill."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from conformance.helpers import claim, claim_one, insert_new, settle_all, settlement_of
from conformance.kinds import stage

from esclusa.model.columns import track
from esclusa.model.errors import ForeignTables, SchemaBehind, SchemaError
from esclusa.model.kind import Kind
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import not_null
from esclusa.model.record import Record
from esclusa.model.stage import Stage
from esclusa.stores.sqlite import SqliteStore, schema
from esclusa.stores.sqlite.checks import check_expressions

LIFE = """
    nuevo -> tomado -> listo | malo
    tomado -> nuevo
    malo -> nuevo
"""


class Order(Record, table="orders", track=track(prefix="t_")):
    """Only taken from the table."""

    total: int | None = None
    lifecycle = Lifecycle(LIFE)


class Parcel(
    Record,
    table="parcels",
    key="code",
    track=track(status="estado", attempts="intentos", leased_by="locked_by", leased_at="locked_at"),
):
    """Inserted too: it has a key."""

    code: str
    note: str | None = None
    lifecycle = Lifecycle(LIFE)


ORDER = stage("orders", Order.kind, take="nuevo", hold="tomado", exhausted="malo")
PARCEL = stage("parcels", Parcel.kind, take="nuevo", hold="tomado", exhausted="malo")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "theirs.db")
    await store.open()
    yield store
    await store.close()


def sql(store: SqliteStore, statement: str) -> list[Any]:
    connection = apsw.Connection(str(store.path))
    try:
        return list(connection.execute(statement))
    finally:
        connection.close()


def shape(store: SqliteStore) -> list[Any]:
    return sql(store, "SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2")


async def migrated(store: SqliteStore, kind: Kind, work: Stage) -> list[str]:
    done = await store.migrate((kind,), (work,), foreign=True)
    assert await store.pending((kind,), (work,)) == []
    await store.use((kind,), (work,))
    return done


async def faults(store: SqliteStore, kind: Kind, work: Stage) -> list[str]:
    """Return the faults; nothing is changed."""
    before = shape(store)
    with pytest.raises(SchemaError) as caught:
        await store.migrate((kind,), (work,), foreign=True)
    assert shape(store) == before
    with pytest.raises(SchemaError) as used:
        await store.use((kind,), (work,))
    assert not isinstance(used.value, SchemaBehind)
    return list(caught.value.faults)


async def test_only_a_migration_that_may_changes_a_table_of_another_program(
    store: SqliteStore,
) -> None:
    sql(store, "CREATE TABLE orders (id INTEGER PRIMARY KEY, total INT)")
    before = shape(store)
    with pytest.raises(ForeignTables, match=r"orders: add column orders\.t_status") as caught:
        await store.migrate((Order.kind,), (ORDER,))
    assert "run: esclusa migrate" in str(caught.value)
    assert shape(store) == before
    assert await migrated(store, Order.kind, ORDER)
    assert await store.migrate((Order.kind,), (ORDER,)) == []


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            """CREATE TABLE parcels (id TEXT PRIMARY KEY, code TEXT, note TEXT,
                tenant TEXT NOT NULL)""",
            "parcels.tenant (TEXT) is NOT NULL without a default",
        ),
        (
            """CREATE TABLE parcels (id TEXT PRIMARY KEY, code TEXT, note TEXT,
                estado TEXT GENERATED ALWAYS AS (lower(code)))""",
            "parcels.estado (for status) is generated",
        ),
        (
            """CREATE TABLE parcels (id TEXT PRIMARY KEY, code TEXT, note TEXT,
                estado TEXT DEFAULT 'new')""",
            "has the default 'new', which is not a state",
        ),
        (
            """CREATE TABLE parcels (id TEXT PRIMARY KEY, code TEXT, note TEXT,
                locked_by TEXT NOT NULL)""",
            "parcels.locked_by (for leased_by) is NOT NULL",
        ),
        (
            """CREATE TABLE parcels (id TEXT PRIMARY KEY, code TEXT, note TEXT,
                locked_at INTEGER) STRICT""",
            "parcels.locked_at (for leased_at) is INTEGER in a STRICT table; it must be TEXT",
        ),
        ("CREATE VIEW parcels AS SELECT 1 AS id", "parcels is a view"),
        ("CREATE VIRTUAL TABLE parcels USING fts5(code, note)", "parcels is a virtual table"),
    ],
)
async def test_what_a_table_cannot_hold_is_a_fault(
    store: SqliteStore, table: str, words: str
) -> None:
    sql(store, table)
    [fault] = await faults(store, Parcel.kind, PARCEL)
    assert words in fault


@pytest.mark.parametrize(
    ("check", "states"),
    [
        ("estado IN ('nuevo', 'listo') -- ) '", "tomado, malo"),
        ("\"estado\" <> 'malo'", "malo"),
        ("(locked_by IS NULL) = (locked_at IS NULL)", None),
        ("intentos >= 0", None),
        ("intentos < 2 OR estado = 'malo'", "tomado, listo"),
        ("length([locked_by]) < 5", "tomado"),
        ("origin <> 'web' OR estado IN ('nuevo')", None),
    ],
)
async def test_a_check_that_refuses_a_state_is_a_fault(
    store: SqliteStore, check: str, states: str | None
) -> None:
    sql(
        store,
        f"""CREATE TABLE parcels (id TEXT PRIMARY KEY, code TEXT, note TEXT, origin TEXT,
            estado TEXT, intentos INT, locked_by TEXT, locked_at TEXT, CHECK ({check}
            ));
        INSERT INTO parcels (id, code, origin, estado, intentos)
            VALUES ('1', 'a', 'web', 'nuevo', 0), ('2', 'b', 'app', 'nuevo', 0)""",
    )
    if states is None:
        await migrated(store, Parcel.kind, PARCEL)
        assert len(await claim(store, PARCEL)) >= 1
        return
    [fault] = await faults(store, Parcel.kind, PARCEL)
    assert f"in the state {states};" in fault


async def test_a_check_that_depends_on_other_columns_is_a_note(store: SqliteStore) -> None:
    sql(
        store,
        """CREATE TABLE parcels (id TEXT PRIMARY KEY, code TEXT, note TEXT,
        estado TEXT CHECK (estado <> 'listo' OR note IS NOT NULL))""",
    )
    await migrated(store, Parcel.kind, PARCEL)
    [note] = await store.notes((Parcel.kind,), (PARCEL,))
    assert "listo only with some values of note" in note


def test_the_checks_of_a_statement() -> None:
    statement = """CREATE TABLE t (a TEXT CHECK (a IN ('x)', 'y''(')), -- CHECK (no)
        "check" INT /* CHECK (no) */, CONSTRAINT c CHECK((b > (1)) AND [a] = "check"))"""
    assert [expr for expr, _ in check_expressions(statement)] == [
        "a IN ('x)', 'y''(')",
        '(b > (1)) AND [a] = "check"',
    ]


@pytest.mark.parametrize("options", ["", "WITHOUT ROWID", "STRICT", "STRICT, WITHOUT ROWID"])
async def test_tables_of_every_form_are_worked(store: SqliteStore, options: str) -> None:
    sql(
        store,
        f"""CREATE TABLE parcels (id TEXT PRIMARY KEY, code TEXT UNIQUE, note TEXT) {options};
        INSERT INTO parcels VALUES ('1', 'a', NULL)""",
    )
    await migrated(store, Parcel.kind, PARCEL)
    await insert_new(store, Parcel(code="b"))
    for lease in await claim(store, PARCEL):
        await settle_all(store, settlement_of(lease, "listo", error={"type": "e"}))
    assert sql(store, "SELECT estado FROM parcels") == [("listo",)] * 2


async def test_a_column_that_is_not_null_gets_its_default(store: SqliteStore) -> None:
    sql(
        store,
        """CREATE TABLE parcels (id TEXT PRIMARY KEY, code TEXT,
        Note TEXT NOT NULL DEFAULT (lower('NONE')))""",
    )
    await migrated(store, Parcel.kind, PARCEL)
    await store.insert([Parcel(code="a"), Parcel(code="b", note="given")])
    assert sql(store, "SELECT note FROM parcels ORDER BY code") == [("none",), ("given",)]


async def test_duplicate_keys_are_shown_and_nothing_is_changed(store: SqliteStore) -> None:
    sql(
        store,
        """CREATE TABLE parcels (id TEXT DEFAULT (hex(randomblob(8))), code TEXT, note TEXT);
        INSERT INTO parcels (code) VALUES ('a'), ('b'), ('a'), ('c'), ('c'), ('c')""",
    )
    before = shape(store)
    with pytest.raises(SchemaError) as caught:
        await store.migrate((Parcel.kind,), (PARCEL,), foreign=True)
    assert shape(store) == before
    [fault] = caught.value.faults
    assert "the same key (code): a in 2 rows; c in 3 rows" in fault
    query = re.search(r"found by: (.*)", fault)
    assert query is not None
    assert len(sql(store, query[1])) == 2


class Adopted(
    Record, table="orders", track=track(prefix="t_"), adopt={"listo": {"total": not_null}}
):
    total: int | None = None
    lifecycle = Lifecycle(LIFE)


ADOPTED = stage("orders", Adopted.kind, take="nuevo", hold="tomado", exhausted="malo")


async def test_a_migration_that_ends_after_any_step_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, shapes = schema.apply, []
    for steps in range(9):
        store = SqliteStore(tmp_path / f"{steps}.db")
        await store.open()
        sql(
            store,
            """CREATE TABLE orders (id INTEGER PRIMARY KEY, total INT);
            INSERT INTO orders (total) VALUES (1), (NULL), (3)""",
        )
        left = steps

        def until_killed(connection: Any, changes: Any) -> list[str]:
            nonlocal left
            if left == 0:
                raise ConnectionAbortedError
            left -= 1
            return apply(connection, changes)

        with monkeypatch.context() as patch:
            patch.setattr(schema, "apply", until_killed)
            try:
                await store.migrate((Adopted.kind,), (ADOPTED,), foreign=True)
            except ConnectionAbortedError:
                with pytest.raises(SchemaBehind):
                    await store.use((Adopted.kind,), (ADOPTED,))
        await store.migrate((Adopted.kind,), (ADOPTED,), foreign=True)
        assert await store.pending((Adopted.kind,), (ADOPTED,)) == []
        states = sql(store, "SELECT t_status FROM orders ORDER BY id")
        assert states == [("listo",), (None,), ("listo",)]
        shapes.append(shape(store))
        await store.close()
    assert left > 0
    assert all(each == shapes[0] for each in shapes)


async def test_own_indexes_that_nothing_needs_are_dropped_and_no_others(
    store: SqliteStore,
) -> None:
    sql(store, "CREATE TABLE orders (id INTEGER PRIMARY KEY, total INT)")
    earlier = stage(
        "orders",
        Order.kind,
        take="nuevo",
        hold="tomado",
        exhausted="malo",
        where={"total": not_null},
    )
    await migrated(store, Order.kind, earlier)
    sql(store, "CREATE INDEX esclusa_orders_claim_0123abcd ON orders (total)")
    names = "SELECT name FROM sqlite_schema WHERE name LIKE 'esclusa_orders_claim%'"
    [old] = {name for (name,) in sql(store, names)} - {"esclusa_orders_claim_0123abcd"}
    await store.migrate((Order.kind,), (ORDER,), foreign=True)
    await store.use((Order.kind,), (earlier,))  # as workers of the version before do
    [step] = await store.pending((Order.kind,), (ORDER,))
    assert step.optional
    done = await migrated(store, Order.kind, ORDER)
    assert f"drop index {old}, which nothing needs any more" in done
    left = {name for (name,) in sql(store, names)}
    assert "esclusa_orders_claim_0123abcd" in left
    assert old not in left
    assert len(left) == 2
    sql(store, "INSERT INTO orders (total) VALUES (1)")
    await claim_one(store, ORDER)


async def test_a_field_that_may_be_empty_and_a_column_that_may_not_are_noted(
    store: SqliteStore,
) -> None:
    sql(store, "CREATE TABLE parcels (id TEXT PRIMARY KEY, code TEXT, note TEXT NOT NULL)")
    [note] = await store.notes((Parcel.kind,), (PARCEL,))
    assert "parcels.note (for note) is NOT NULL without a default" in note
    await migrated(store, Parcel.kind, PARCEL)
