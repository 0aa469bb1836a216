"""PostgreSQL only: migrations of tables that other programs made, fill and use meanwhile."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import asyncpg
import pytest
from conformance.helpers import claim, claim_one, insert_new, settle_all, settlement_of
from conformance.kinds import stage
from support.postgres import PostgresServer

from esclusa.model.columns import track
from esclusa.model.errors import ForeignTables, SchemaBehind, SchemaError, StoreConflict
from esclusa.model.kind import Kind
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import not_null
from esclusa.model.record import Record
from esclusa.model.stage import Stage
from esclusa.stores.postgres import PostgresStore, migrate, schema

numbers = count()

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
    track=track(
        status="estado",
        attempts="intentos",
        due_at="proximo",
        leased_by="locked_by",
        leased_at="locked_at",
        error_type="error_code",
        error_message="error_text",
    ),
):
    """Inserted too: it has a key."""

    code: str
    note: str | None = None
    lifecycle = Lifecycle(LIFE)


ORDER = stage("orders", Order.kind, take="nuevo", hold="tomado", exhausted="malo")
PARCEL = stage("parcels", Parcel.kind, take="nuevo", hold="tomado", exhausted="malo")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.create_database(f"db{next(numbers)}")


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    yield store
    await store.close()


async def sql(url: str, statement: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        if statement.lstrip().upper().startswith("SELECT"):
            return [tuple(row) for row in await connection.fetch(statement)]
        await connection.execute(statement)
        return []
    finally:
        await connection.close()


async def migrated(store: PostgresStore, kind: Kind, work: Stage, **options: Any) -> list[str]:
    done = await store.migrate((kind,), (work,), foreign=True, **options)
    assert await store.pending((kind,), (work,)) == []
    await store.use((kind,), (work,))
    return done


async def faults(store: PostgresStore, kind: Kind, work: Stage) -> list[str]:
    """Return the faults; nothing is changed."""
    before = await sql(store.url, "SELECT oid, relname FROM pg_class ORDER BY oid")
    with pytest.raises(SchemaError) as caught:
        await store.migrate((kind,), (work,), foreign=True)
    assert await sql(store.url, "SELECT oid, relname FROM pg_class ORDER BY oid") == before
    with pytest.raises(SchemaError) as used:
        await store.use((kind,), (work,))
    assert not isinstance(used.value, SchemaBehind)
    return list(caught.value.faults)


async def remedied(store: PostgresStore, found: list[str]) -> None:
    """Run the remedies that the faults name."""
    for fault in found:
        for remedy in re.findall(r"run: (ALTER .*)", fault):
            await sql(store.url, remedy)


# foreign tables


async def test_only_a_migration_that_may_changes_a_table_of_another_program(
    store: PostgresStore, url: str
) -> None:
    await sql(url, "CREATE TABLE orders (id serial PRIMARY KEY, total int)")
    with pytest.raises(ForeignTables, match=r"orders: add columns orders\.t_status") as caught:
        await store.migrate((Order.kind,), (ORDER,))
    assert "run: esclusa migrate" in str(caught.value)
    assert await sql(url, "SELECT relname FROM pg_class WHERE relname LIKE 'esclusa%'") == []
    steps = await store.pending((Order.kind,), (ORDER,))
    assert {s.table for s in steps if s.foreign} == {"orders"}
    assert await migrated(store, Order.kind, ORDER)
    assert await store.migrate((Order.kind,), (ORDER,)) == []


async def test_a_table_of_another_program_is_not_taken_for_a_record_of_its_name(
    store: PostgresStore, url: str
) -> None:
    class Stranger(Record, table="orders"):
        total: int | None = None
        lifecycle = Lifecycle("a -> b")

    await sql(url, "CREATE TABLE orders (id text PRIMARY KEY, total int)")
    work = stage("orders", Stranger.kind, take="a", exhausted="b")
    [fault] = await faults(store, Stranger.kind, work)
    assert "Esclusa did not make it" in fault
    assert "track=track" in fault


# checks


async def test_every_fault_is_named_at_once_and_its_remedy_works(
    store: PostgresStore, url: str
) -> None:
    await sql(
        url,
        """CREATE TYPE estados AS ENUM ('nuevo', 'listo');
        CREATE TABLE parcels (id text PRIMARY KEY, code text NOT NULL,
            note text,
            estado estados NOT NULL DEFAULT 'nuevo', intentos text, proximo timestamptz,
            locked_by varchar(20) NOT NULL, locked_at date, fence smallint,
            error_code varchar(10), error_text varchar(200))""",
    )
    found = await faults(store, Parcel.kind, PARCEL)
    for words in (
        "parcels.estado (for status) cannot be tomado; run: ALTER TYPE estados ADD VALUE 'tomado'",
        "parcels.estado (for status) cannot be malo",
        "parcels.intentos (for attempts) is of type text; it must hold bigint; run: ALTER TABLE",
        "parcels.locked_by (for leased_by) is NOT NULL",
        "parcels.locked_by (for leased_by) holds 20 letters",
        "parcels.locked_at (for leased_at) is of type date",
        "parcels.fence (for fence) is a smallint",
        "parcels.error_code (for error_type) holds 10 letters",
        "parcels.error_text (for error_message) holds 200 letters",
    ):
        assert any(words in fault for fault in found), (words, found)
    await remedied(store, found)
    await migrated(store, Parcel.kind, PARCEL)
    await insert_new(store, Parcel(code="a"))
    await settle_all(store, settlement_of(await claim_one(store, PARCEL), "listo"))


@pytest.mark.parametrize(
    ("check", "states"),
    [
        ("estado IN ('nuevo', 'listo')", "tomado, malo"),
        ("estado <> 'malo'", "malo"),
        ("(locked_by IS NULL) = (locked_at IS NULL)", None),
        ("intentos >= 0 AND fence >= 0", None),
        ("intentos < 2 OR estado = 'malo'", "tomado, listo"),
        ("(estado = 'tomado') = (locked_by IS NOT NULL)", None),
        ("length(locked_by) < 5", "tomado"),
        ("origin <> 'web' OR estado IN ('nuevo')", None),
    ],
)
async def test_a_check_that_refuses_a_state_is_a_fault(
    store: PostgresStore, url: str, check: str, states: str | None
) -> None:
    await sql(
        url,
        f"""CREATE TABLE parcels (id text PRIMARY KEY, code text, note text, origin text,
            estado text, intentos int, fence int, locked_by text, locked_at timestamptz,
            CONSTRAINT "their check" CHECK ({check}));
        INSERT INTO parcels (id, code, origin, estado, intentos)
            VALUES ('1', 'a', 'web', 'nuevo', 0), ('2', 'b', 'app', 'nuevo', 0)""",
    )
    if states is None:
        await migrated(store, Parcel.kind, PARCEL)
        assert len(await claim(store, PARCEL)) >= 1
        return
    [fault] = await faults(store, Parcel.kind, PARCEL)
    assert "CHECK their check" in fault
    assert f"in the state {states};" in fault
    await remedied(store, [fault])
    await migrated(store, Parcel.kind, PARCEL)
    assert len(await claim(store, PARCEL)) == 2


async def test_a_check_that_depends_on_other_columns_is_a_note(
    store: PostgresStore, url: str
) -> None:
    await sql(
        url,
        """CREATE TABLE parcels (id text PRIMARY KEY, code text, note text, estado text,
            CONSTRAINT noted CHECK (estado <> 'listo' OR note IS NOT NULL))""",
    )
    await migrated(store, Parcel.kind, PARCEL)
    [note] = await store.notes((Parcel.kind,), (PARCEL,))
    assert "CHECK noted" in note
    assert "listo only with some values of note" in note


async def test_a_column_that_no_insert_fills_is_a_fault_where_esclusa_inserts(
    store: PostgresStore, url: str
) -> None:
    await sql(
        url,
        """CREATE TABLE parcels (id text PRIMARY KEY, code text, note text, tenant uuid NOT NULL);
        CREATE TABLE orders (id serial PRIMARY KEY, total int, tenant uuid NOT NULL)""",
    )
    [fault] = await faults(store, Parcel.kind, PARCEL)
    assert "column parcels.tenant (uuid) is NOT NULL without a default" in fault
    await migrated(store, Order.kind, ORDER)
    [note] = await store.notes((Order.kind,), (ORDER,))
    assert "orders.tenant" in note


async def test_a_column_that_is_not_null_gets_its_default(store: PostgresStore, url: str) -> None:
    await sql(
        url,
        """CREATE TABLE parcels (id text PRIMARY KEY, code text,
        note text NOT NULL DEFAULT lower('NONE'))""",
    )
    await migrated(store, Parcel.kind, PARCEL)
    await insert_new(store, Parcel(code="a"))
    await insert_new(store, Parcel(code="b", note="given"))
    assert await sql(url, "SELECT note FROM parcels ORDER BY code") == [("none",), ("given",)]


async def test_a_default_that_is_not_a_state_is_a_fault(store: PostgresStore, url: str) -> None:
    await sql(
        url,
        """CREATE TABLE parcels (id text PRIMARY KEY, code text, note text,
        estado varchar(30) DEFAULT 'new')""",
    )
    [fault] = await faults(store, Parcel.kind, PARCEL)
    assert "has the default 'new'" in fault
    await remedied(store, [fault])
    await migrated(store, Parcel.kind, PARCEL)


async def test_a_generated_column_is_a_fault(store: PostgresStore, url: str) -> None:
    await sql(
        url,
        """CREATE TABLE parcels (id text PRIMARY KEY, code text, note text,
        estado text GENERATED ALWAYS AS (lower(code)) STORED)""",
    )
    [fault] = await faults(store, Parcel.kind, PARCEL)
    assert "parcels.estado (for status) is generated" in fault


@pytest.mark.parametrize("kind", ["VIEW", "MATERIALIZED VIEW"])
async def test_a_view_is_a_fault(store: PostgresStore, url: str, kind: str) -> None:
    await sql(url, f"CREATE {kind} orders AS SELECT 1 AS id, 2 AS total")
    [fault] = await faults(store, Order.kind, ORDER)
    assert f"orders is a {kind.lower()}" in fault


async def test_duplicate_keys_are_shown_and_nothing_is_changed(
    store: PostgresStore, url: str
) -> None:
    await sql(
        url,
        """CREATE TABLE parcels (id text DEFAULT gen_random_uuid(), code text, note text);
        INSERT INTO parcels (code) VALUES ('a'), ('b'), ('a'), ('c'), ('c'), ('c')""",
    )
    with pytest.raises(SchemaError) as caught:
        await store.migrate((Parcel.kind,), (PARCEL,), foreign=True)
    [fault] = caught.value.faults
    assert "the same key (code): a in 2 rows; c in 3 rows" in fault
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'parcels'"
    assert len(await sql(url, columns)) == 3
    query = re.search(r"found by: (.*)", fault)
    assert query is not None
    assert len(await sql(url, query[1])) == 2
    await sql(url, "DELETE FROM parcels a USING parcels b WHERE a.code = b.code AND a.id > b.id")
    await migrated(store, Parcel.kind, PARCEL)
    with pytest.raises(asyncpg.UniqueViolationError):
        await sql(url, "INSERT INTO parcels (code) VALUES ('a')")


# execution


def lines_of(progress: list[str]) -> str:
    return "\n".join(progress)


@asynccontextmanager
async def other_program(url: str, statement: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(url, server_settings={"application_name": "payroll"})
    await connection.execute(f"BEGIN; {statement}")
    try:
        yield
    finally:
        await connection.close()


ROWS = """CREATE TABLE orders (id serial PRIMARY KEY, total int);
    INSERT INTO orders (total) SELECT n FROM generate_series(1, 1000) n"""


async def test_a_migration_waits_for_a_lock_in_short_turns(store: PostgresStore, url: str) -> None:
    await sql(url, ROWS)
    progress: list[str] = []
    async with other_program(url, "UPDATE orders SET total = 0 WHERE id = 1"):
        migrating = asyncio.create_task(
            migrated(store, Order.kind, ORDER, progress=progress.append)
        )
        async with asyncio.timeout(20):
            while "waiting for a lock of" not in lines_of(progress):
                await asyncio.sleep(0.05)
        # between two turns, others write
        async with asyncio.timeout(5):
            await sql(url, "UPDATE orders SET total = 0 WHERE id = 2")
    assert "create index" in lines_of(await migrating)
    assert "payroll" in lines_of(progress)


async def test_a_migration_that_gets_no_lock_names_the_holder(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_ATTEMPTS", 2)
    await sql(url, ROWS)
    async with other_program(url, "UPDATE orders SET total = 0 WHERE id = 1"):
        with pytest.raises(StoreConflict, match=r"add columns orders\.t_status.*payroll"):
            await store.migrate((Order.kind,), (ORDER,), foreign=True)
    await migrated(store, Order.kind, ORDER)


async def test_indexes_of_a_table_with_rows_are_built_beside_writers(
    store: PostgresStore, url: str
) -> None:
    await sql(url, ROWS)
    steps = await store.pending((Order.kind,), (ORDER,))
    indexes = [s for s in steps if "INDEX" in s.sql and s.summary and s.table == "orders"]
    assert indexes
    assert all("CONCURRENTLY" in s.sql and s.outside for s in indexes)
    [alter] = [s for s in steps if s.sql.startswith("ALTER TABLE")]
    assert alter.sql.count("ADD COLUMN") == 7
    await migrated(store, Order.kind, ORDER)


async def test_an_index_whose_building_ended_early_is_built_again(
    store: PostgresStore, url: str
) -> None:
    await sql(url, ROWS)
    await migrated(store, Order.kind, ORDER)
    await sql(
        url,
        """UPDATE pg_index SET indisvalid = false
        WHERE indexrelid::regclass::text LIKE 'orders_claim%'""",
    )
    with pytest.raises(SchemaBehind):
        await store.use((Order.kind,), (ORDER,))
    done = await migrated(store, Order.kind, ORDER)
    assert [line.split()[0] for line in done] == ["drop", "create"]
    assert await sql(url, "SELECT 1 FROM pg_index WHERE NOT indisvalid") == []


class Adopted(
    Record, table="orders", track=track(prefix="t_"), adopt={"listo": {"total": not_null}}
):
    total: int | None = None
    lifecycle = Lifecycle(LIFE)


ADOPTED = stage("orders", Adopted.kind, take="nuevo", hold="tomado", exhausted="malo")


async def shape(url: str) -> list[Any]:
    return await sql(
        url,
        """SELECT 'index', indexdef, NULL FROM pg_indexes WHERE schemaname = 'public'
        UNION ALL SELECT 'column', table_name || '.' || column_name, column_default
            FROM information_schema.columns WHERE table_schema = 'public'
        UNION ALL SELECT 'state', t_status, count(*)::text FROM orders GROUP BY t_status
        UNION ALL SELECT 'invalid', indexrelid::regclass::text, NULL FROM pg_index
            WHERE NOT indisvalid
        UNION ALL SELECT 'comment', description, NULL FROM pg_description
            WHERE description LIKE '%Esclusa%' ORDER BY 1, 2, 3""",
    )


async def test_a_migration_that_ends_after_any_step_is_continued(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_ADOPT_BATCH", 70)
    whole = server.create_database(f"db{next(numbers)}")
    rows = ROWS + "; UPDATE orders SET total = NULL WHERE id % 10 = 0"
    await sql(whole, rows)
    store = PostgresStore(whole)
    await store.open()
    await store.migrate((Adopted.kind,), (ADOPTED,), foreign=True)
    await store.close()
    wanted = await shape(whole)
    assert ("state", "listo", "900") in wanted
    assert ("state", None, "100") in wanted
    run = migrate._Runner.run
    for steps in count():
        url = server.create_database(f"db{next(numbers)}")
        await sql(url, rows)
        left = steps

        async def until_killed(self: Any, group: Any) -> None:
            nonlocal left
            if left == 0:
                raise ConnectionAbortedError
            left -= 1
            await run(self, group)

        store = PostgresStore(url)
        await store.open()
        with monkeypatch.context() as patch:
            patch.setattr(migrate._Runner, "run", until_killed)
            try:
                await store.migrate((Adopted.kind,), (ADOPTED,), foreign=True)
            except Exception:  # as if the process had ended here
                if await store.pending((Adopted.kind,), (ADOPTED,)):
                    with pytest.raises(SchemaBehind):
                        await store.use((Adopted.kind,), (ADOPTED,))
        if left > 0:
            await store.close()
            break
        await migrated(store, Adopted.kind, ADOPTED)
        await store.close()
        assert await shape(url) == wanted, steps
    assert steps > 5


async def test_several_migrations_of_a_table_with_rows_wait_for_each_other(url: str) -> None:
    await sql(url, ROWS)
    stores = [PostgresStore(url) for _ in range(3)]
    await asyncio.gather(*(s.open() for s in stores))
    progress: list[str] = []
    async with asyncio.timeout(60):
        done = await asyncio.gather(
            *(
                s.migrate((Order.kind,), (ORDER,), foreign=True, progress=progress.append)
                for s in stores
            )
        )
    assert sorted(bool(lines) for lines in done) == [False, False, True]
    assert "waiting for another migration (pid" in lines_of(progress)
    await asyncio.gather(*(s.close() for s in stores))


async def test_a_migration_behind_a_pooler_holds_its_lock(url: str) -> None:
    await sql(url, ROWS)
    stores = [PostgresStore(url, statement_cache_size=0) for _ in range(2)]
    await asyncio.gather(*(s.open() for s in stores))
    async with asyncio.timeout(60):
        done = await asyncio.gather(
            *(s.migrate((Order.kind,), (ORDER,), foreign=True) for s in stores)
        )
    assert sorted(bool(lines) for lines in done) == [False, True]
    await asyncio.gather(*(s.close() for s in stores))


# indexes that nothing needs any more


async def test_own_indexes_that_nothing_needs_are_dropped_and_no_others(
    store: PostgresStore, url: str
) -> None:
    await sql(url, ROWS)
    earlier = stage(
        "orders",
        Order.kind,
        take="nuevo",
        hold="tomado",
        exhausted="malo",
        where={"total": not_null},
    )
    await migrated(store, Order.kind, earlier)
    await sql(url, "CREATE INDEX orders_claim_0123abcd ON orders (total)")
    names = "SELECT indexname FROM pg_indexes WHERE indexname LIKE 'orders_claim%'"
    [old] = {name for (name,) in await sql(url, names)} - {"orders_claim_0123abcd"}
    newer = PostgresStore(url)
    await newer.open()
    await newer.migrate((Order.kind,), (ORDER,), foreign=True)
    await store.use((Order.kind,), (earlier,))  # as workers of the version before do
    [step] = await newer.pending((Order.kind,), (ORDER,))
    assert step.optional
    done = await newer.migrate((Order.kind,), (ORDER,), foreign=True)
    assert f"drop index {old}, which nothing needs any more" in done
    left = {name for (name,) in await sql(url, names)}
    assert "orders_claim_0123abcd" in left
    assert old not in left
    assert len(left) == 2
    assert await newer.pending((Order.kind,), (ORDER,)) == []
    await newer.close()


# partitions


class Parted(Record, table="parted", key="code", track=track(prefix="x_")):
    code: str
    lifecycle = Lifecycle("new -> done | bad")


PARTED = stage("parted", Parted.kind, take="new", exhausted="bad")


async def test_a_partitioned_table_without_a_unique_key(store: PostgresStore, url: str) -> None:
    await sql(
        url,
        """CREATE TABLE parted (id text NOT NULL, code text NOT NULL,
            made timestamptz NOT NULL DEFAULT now()) PARTITION BY RANGE (made);
        CREATE TABLE parted_2025 PARTITION OF parted
            FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
        CREATE TABLE parted_rest PARTITION OF parted DEFAULT;
        INSERT INTO parted (id, code) SELECT n::text, 'c' || n FROM generate_series(1, 50) n""",
    )
    done = await migrated(store, Parted.kind, PARTED)
    assert any(re.match(r"create index parted_2025_claim_", line) for line in done)
    [note] = await store.notes((Parted.kind,), (PARTED,))
    assert "partitioned by made: it cannot keep the key (code) unique" in note
    leases = await claim(store, PARTED, limit=100)
    assert len(leases) == 50
    await sql(
        url,
        """CREATE TABLE parted_2024 PARTITION OF parted
        FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')""",
    )
    assert await store.pending((Parted.kind,), (PARTED,)) == []
    assert await sql(url, "SELECT 1 FROM pg_index WHERE NOT indisvalid") == []


# keys that other programs could break


class Mapped(
    Record,
    table="mapped",
    key=("event", "device"),
    track=track(attempts="attempt_count"),
    attach=False,
):
    event: str
    device: str
    lifecycle = Lifecycle("a -> b")


@pytest.mark.promise(5)
async def test_a_key_of_mapped_columns_is_a_constraint_of_the_table(
    store: PostgresStore, url: str
) -> None:
    await store.migrate((Mapped.kind,), ())
    await insert_new(store, Mapped(event="e", device="d"))
    with pytest.raises(asyncpg.UniqueViolationError):
        await sql(url, "INSERT INTO mapped (id, event, device) VALUES ('other', 'e', 'd')")
    await sql(url, "INSERT INTO mapped (id, event, device) VALUES ('theirs', 'e', 'x')")
    [answer] = await store.insert([Mapped(event="e", device="x")])
    assert answer.id == "theirs"
