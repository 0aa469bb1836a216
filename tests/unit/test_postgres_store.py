"""PostgreSQL only: outages, notifications, column types of other programs, migrations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from conformance.helpers import claim_one, claim_request, operator_move, settlement_of
from conformance.kinds import KINDS, STAGES, WORK, Job, Note, Post, stage
from support.postgres import PostgresServer

from esclusa.model.columns import track
from esclusa.model.effects import Add, Create, Move
from esclusa.model.errors import BadQuery, BadRecord, MigrationError, SchemaError, StoreUnavailable
from esclusa.model.kind import Ref
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import at_least, query
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted, Locked, Lost, Rejected, Settled
from esclusa.stores.postgres import PostgresStore
from esclusa.stores.postgres.client import PooledConnection

numbers = count()


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
    await store.migrate(KINDS, STAGES)
    yield store
    await store.close()


async def run(store: PostgresStore, statement: str, *values: Any) -> Any:
    return await store._connections.fetch(statement, *values)


async def until(condition: Any, seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


# outages


async def test_a_dsn_that_does_not_answer_is_named_without_its_password() -> None:
    store = PostgresStore("postgresql://me:secret@127.0.0.1:1/none")
    assert "secret" not in store.url
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/none") as caught:
        await store.open()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("immediate", [True, False])
async def test_the_pool_recovers_from_a_restart(
    server: PostgresServer, store: PostgresStore, immediate: bool
) -> None:
    await store.insert([Job(id="j")])
    await asyncio.gather(*(store.now() for _ in range(8)))
    await asyncio.to_thread(server.restart, immediate)
    for _ in range(20):  # each stale connection may cost one call
        try:
            lease = await claim_one(store, WORK)
            break
        except StoreUnavailable:
            continue
    assert await store.settle([settlement_of(lease, "done")]) == [Settled(lease.ref)]


async def test_the_pool_recovers_from_terminated_backends(store: PostgresStore) -> None:
    await asyncio.gather(*(store.now() for _ in range(8)))
    admin = await store._connections.dedicated()
    await admin.execute(
        """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()"""
    )
    await admin.close()
    failures = 0
    for _ in range(20):
        try:
            await store.now()
        except StoreUnavailable:
            failures += 1
    assert failures <= 8
    assert await store.insert([Job(id="j")]) == [Inserted("j")]


async def test_a_closed_store_is_unavailable(url: str) -> None:
    store = PostgresStore(url)
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.now()


# waking


async def test_a_listener_reconnects_and_reports_any_table(
    store: PostgresStore,
) -> None:
    woken: list[str] = []
    end = await store.listen(woken.append)
    await store.insert([Job(id="a")])
    await until(lambda: woken == ["t_jobs"])
    await run(
        store,
        """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE query LIKE 'LISTEN%' AND datname = current_database()""",
    )
    await until(lambda: "*" in woken)
    await store.insert([Job(id="b")])
    await until(lambda: woken[-1] == "t_jobs" and len(woken) == 3)
    await end()


async def test_a_settlement_that_leaves_nothing_due_does_not_notify(store: PostgresStore) -> None:
    await store.insert([Job(id="a"), Job(id="b"), Job(id="c")])
    leases = await store.claim(claim_request(WORK))
    woken: list[str] = []
    end = await store.listen(woken.append)
    await store.settle([settlement_of(leases[0], "done")])
    await store.settle([settlement_of(leases[1], "pending", delay=60.0)])
    await store.settle([settlement_of(leases[2], "pending")])
    await store.wake(Post.kind)
    await until(lambda: "t_posts" in woken)
    assert woken == ["t_jobs", "t_posts"]
    await end()


# values that do not fit


async def test_a_value_that_postgres_cannot_hold_rejects_only_its_settlement(
    store: PostgresStore,
) -> None:
    await store.insert([Job(id=f"j{n}") for n in range(5)])
    leases = await store.claim(claim_request(WORK))
    made = [
        settlement_of(x, "done", fields={"result": "a\0b" if n == 2 else "fine"})
        for n, x in enumerate(leases)
    ]
    verdicts = await store.settle(made)
    assert [type(v) for v in verdicts] == [Settled, Settled, Rejected, Settled, Settled]
    assert (await store.get(Job.kind, ["j2"]))[0].status == "working"  # type: ignore[union-attr]


async def test_a_draft_that_postgres_cannot_hold_is_a_bad_record_and_nothing_is_written(
    store: PostgresStore,
) -> None:
    with pytest.raises(BadRecord, match="t_notes"):
        await store.insert([Job(id="j"), Note(name="good"), Note(name="n", text="a\0b")])
    assert await store.count(query(Note)) == (0, True)
    assert await store.count(query(Job)) == (0, True)


async def test_an_undeclared_state_cannot_be_inserted(store: PostgresStore) -> None:
    with pytest.raises(BadRecord, match="nowhere"):
        await store.insert([Job(id="j", status="nowhere")])


async def test_many_settlements_on_one_target_need_few_statements(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.insert(
        [Post(platform="x", post_id="1"), *[Job(id=f"j{n}", post="x:1") for n in range(200)]]
    )
    leases = await store.claim(claim_request(WORK, limit=200))
    calls = count()
    fetch = PooledConnection.fetch

    async def counted(self: Any, *args: Any, **options: Any) -> Any:
        next(calls)
        return await fetch(self, *args, **options)

    monkeypatch.setattr(PooledConnection, "fetch", counted)
    effects = (
        Add(Post, "x:1", jobs=1),
        Move(Post, "x:1", "collecting", frm="waiting"),
        Create(Note(name="same")),
    )
    verdicts = await store.settle([settlement_of(x, "done", effects=effects) for x in leases])
    assert next(calls) < 10
    assert {type(v) for v in verdicts} == {Settled}
    [post] = await store.get(Post.kind, ["x:1"])
    assert post is not None
    assert (post.jobs, post.status) == (200, "collecting")  # type: ignore[attr-defined]
    assert len(await store.history(Ref(Post.kind, "x:1"))) == 1


async def test_settlements_in_opposite_orders_do_not_deadlock(
    url: str, store: PostgresStore
) -> None:
    other = PostgresStore(url)
    await other.open()
    await other.use(KINDS, STAGES)
    ids = [f"j{n:03}" for n in range(100)]
    await store.insert([Job(id=i, status="failed") for i in ids])
    there = [operator_move(Ref(Job.kind, i), ("failed", "pending"), "pending") for i in ids]
    back = [
        operator_move(Ref(Job.kind, i), ("failed", "pending"), "pending") for i in reversed(ids)
    ]
    for verdicts in await asyncio.gather(
        *(s.settle(b) for _ in range(5) for s, b in ((store, there), (other, back)))
    ):
        assert {type(v) for v in verdicts} <= {Settled, Lost, Locked}
    await other.close()


# tables of other programs


class Foreign(
    Record,
    table="foreign_rows",
    track=track(prefix="t_", due_at="next_try", status="estado", attempts="intentos"),
    id="uid",
    key="code",
    database_id=True,
):
    code: str
    size: int | None = None
    seen: datetime | None = None
    tags: list[str] | None = None
    info: dict[str, Any] | None = None
    other: str | None = None

    lifecycle = Lifecycle("""
        nuevo -> tomado -> listo | malo
        tomado -> nuevo
    """)


FOREIGN = stage("foreign", Foreign.kind, take="nuevo", hold="tomado", exhausted="malo")
DDL = """
    CREATE TYPE estados AS ENUM ('nuevo', 'tomado', 'listo', 'malo');
    CREATE TABLE foreign_rows (
        uid uuid PRIMARY KEY DEFAULT gen_random_uuid(), code varchar(20) UNIQUE, size integer,
        seen timestamp, tags text[], info json, other uuid, estado estados, intentos smallint,
        next_try timestamp
    );
    INSERT INTO foreign_rows (uid, code, size, seen, tags, info, other) VALUES
        ('00000000-0000-0000-0000-000000000001', 'a', 1, '2026-01-01 12:00', '{x,y}', '{"k": 1}',
            '00000000-0000-0000-0000-00000000000a'),
        ('00000000-0000-0000-0000-000000000002', 'b', NULL, NULL, NULL, NULL, NULL)
"""
FIRST = "00000000-0000-0000-0000-000000000001"


async def test_a_table_of_other_types_is_read_claimed_settled_and_filtered(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    connection = await store._connections.dedicated()
    await connection.execute(DDL)
    await connection.close()
    await store.migrate((Foreign.kind,), (FOREIGN,), foreign=True)
    assert await store.pending((Foreign.kind,), (FOREIGN,)) == []
    leases = await store.claim(claim_request(FOREIGN))
    assert [x.ref.id for x in leases] == [FIRST, FIRST[:-1] + "2"]
    first: Any = leases[0].record
    assert leases[0].fault is None
    assert (first.size, first.seen, first.tags, first.info) == (
        1,
        datetime(2026, 1, 1, 12, tzinfo=UTC),
        ["x", "y"],
        {"k": 1},
    )
    assert first.other.endswith("a")
    moment = datetime(2026, 5, 5, 5, tzinfo=UTC)
    fields = {"size": 7, "seen": moment, "tags": ["z"], "info": {"ñ": [1]}, "other": FIRST}
    assert await store.settle(
        [settlement_of(leases[0], "nuevo", fields=fields, until=moment, error={"type": "t"})]
    ) == [Settled(leases[0].ref)]
    [got] = await store.get(Foreign.kind, [FIRST])
    assert got is not None
    assert {n: getattr(got, n) for n in fields} == fields
    assert (got.status, got.due_at, got.last_error) == ("nuevo", moment, {"type": "t"})
    for where in (
        {"seen": moment},
        {"seen": [moment]},
        {"size": at_least(7)},
        {"size": [7]},
        {"other": FIRST},
        {"status": "nuevo"},
        {"id": FIRST},
    ):
        assert [r.id for r in (await store.find(query(Foreign, where))).items] == [FIRST], where
    assert await store.get(Foreign.kind, ["no uuid"]) == [None]
    with pytest.raises(BadQuery):
        await store.find(query(Foreign, {"other": "no uuid"}))
    assert await store.settle([operator_move(Ref(Foreign.kind, "no uuid"), "nuevo", "tomado")]) == [
        Lost(Ref(Foreign.kind, "no uuid"))
    ]
    page = await store.find(query(Foreign, order="-seen", limit=1))
    assert page.next is not None
    assert (
        len((await store.find(query(Foreign, order="-seen", limit=5, after=page.next))).items) == 1
    )
    await store.close()


class Parted(Record, table="parted", track=track(prefix="x_")):
    note: str | None = None
    lifecycle = Lifecycle("new -> done | bad")


PARTED = stage("parted", Parted.kind, take="new", exhausted="bad")


async def test_rows_of_a_partitioned_table_are_claimed_once(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    connection = await store._connections.dedicated()
    await connection.execute("""
        CREATE TABLE parted (id bigint PRIMARY KEY, note text) PARTITION BY RANGE (id);
        CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (100);
        CREATE TABLE parted_high PARTITION OF parted FOR VALUES FROM (100) TO (200);
        INSERT INTO parted SELECT n, 'n' FROM generate_series(0, 199) n
    """)
    await connection.close()
    await store.migrate((Parted.kind,), (PARTED,), foreign=True)
    taken = [await store.claim(claim_request(PARTED, limit=30)) for _ in range(7)]
    assert [len(leases) for leases in taken] == [30] * 6 + [20]
    assert sorted(int(lease.ref.id) for leases in taken for lease in leases) == list(range(200))
    verdicts = await store.settle(
        [settlement_of(lease, "done") for leases in taken for lease in leases]
    )
    assert verdicts == [Settled(lease.ref) for leases in taken for lease in leases]
    await store.close()


class Numbered(Record, table="numbered", key="code", database_id=True):
    code: str
    lifecycle = Lifecycle("a -> b")


async def test_the_database_generates_ids_and_the_key_is_unique(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.migrate((Numbered.kind,), ())
    answers = await store.insert([Numbered(code="x"), Numbered(code="y"), Numbered(code="x")])
    assert answers == [Inserted("1"), Inserted("2"), Duplicate("1")]
    [again, new] = await store.insert([Numbered(code="y"), Numbered(code="z")])
    assert (again, type(new)) == (Duplicate("2"), Inserted)
    await store.close()


async def test_a_tracking_column_of_a_wrong_type_is_named(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await run(
        store,
        """CREATE TABLE foreign_rows (uid uuid, code text, size int, seen timestamp, tags text[],
        info json, other uuid, next_try text)""",
    )
    with pytest.raises(SchemaError, match="next_try"):
        await store.migrate((Foreign.kind,), (FOREIGN,), foreign=True)
    with pytest.raises(SchemaError, match="next_try"):
        await store.pending((Foreign.kind,), (FOREIGN,))
    await store.close()


# migrations


async def test_a_schema_of_a_newer_program_is_refused(store: PostgresStore) -> None:
    await run(
        store,
        """INSERT INTO esclusa.migrations (number, name, checksum)
        VALUES (9999, '9999_future.sql', 'x')""",
    )
    with pytest.raises(MigrationError, match="9999_future"):
        await store.migrate(KINDS, STAGES)


async def test_an_edited_migration_is_named(store: PostgresStore) -> None:
    await run(store, "UPDATE esclusa.migrations SET checksum = 'edited'")
    with pytest.raises(MigrationError, match="0001_engine"):
        await store.migrate(KINDS, STAGES)


async def test_what_is_pending_is_exactly_what_migrate_runs(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    pending = await store.pending(KINDS, STAGES)
    connection = await store._connections.dedicated()
    for step in pending:
        await connection.execute(step.sql)
    await connection.close()
    assert await store.pending(KINDS, STAGES) == []
    assert await store.migrate(KINDS, STAGES) == []
    await store.close()


async def test_several_stores_may_migrate_at_the_same_time(url: str) -> None:
    stores = [PostgresStore(url) for _ in range(4)]
    await asyncio.gather(*(s.open() for s in stores))
    done = await asyncio.gather(*(s.migrate(KINDS, STAGES) for s in stores))
    assert sorted(bool(d) for d in done) == [False, False, False, True]
    await asyncio.gather(*(s.close() for s in stores))


async def test_tables_are_created_in_the_first_schema_of_the_search_path(url: str) -> None:
    store = PostgresStore(url + "?options=-csearch_path%3Dmine")
    await store.open()
    await run(store, "CREATE SCHEMA mine")
    await store.migrate(KINDS, STAGES)
    rows = await run(
        store,
        """SELECT DISTINCT schemaname, left(tablename, 2) = 't_' FROM pg_tables
        WHERE schemaname NOT IN ('pg_catalog', 'information_schema')""",
    )
    assert {tuple(r) for r in rows} == {("mine", True), ("archive", True), ("esclusa", False)}
    assert await store.insert([Job(id="j")]) == [Inserted("j")]
    await store.close()


async def test_without_a_statement_cache_as_behind_a_pooler(url: str, store: PostgresStore) -> None:
    plain = PostgresStore(url, statement_cache_size=0)
    await plain.open()
    await plain.use(KINDS, STAGES)
    await plain.insert([Job(id="j")])
    lease = await claim_one(plain, WORK)
    assert await plain.settle([settlement_of(lease, "done")]) == [Settled(lease.ref)]
    await plain.close()
