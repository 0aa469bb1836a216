"""PostgreSQL only: a trigger wakes workers when another program commits a row."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import asyncpg
import pytest
from support.postgres import PostgresServer
from support.scheduling import running_scheduler

from esclusa import App, Lifecycle, Record, To, track
from esclusa.artifacts.local import LocalArtifacts
from esclusa.engine.engine import Engine
from esclusa.engine.options import Options
from esclusa.model.errors import ForeignTables, SchemaBehind
from esclusa.model.kind import Kind
from esclusa.stores.postgres import PostgresStore

numbers = count()
TABLE = "CREATE TABLE readings (id bigserial PRIMARY KEY, value int, other text)"


class Reading(Record, table="readings", track=track(prefix="e_", notify=True)):
    value: int
    lifecycle = Lifecycle("new -> done | bad")


class Quiet(Record, table="readings", track=track(prefix="e_")):
    """The same table without the trigger."""

    value: int
    lifecycle = Reading.lifecycle


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
async def store(server: PostgresServer) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(server.create_database(f"notify{next(numbers)}"))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def writer(store: PostgresStore) -> AsyncIterator[Any]:
    """A connection of another program, to a database that has its table."""
    connection = await asyncpg.connect(store.url)
    await connection.execute(TABLE)
    yield connection
    await connection.close()


@asynccontextmanager
async def working(store: PostgresStore, app: App, folder: Path, poll: float) -> AsyncIterator[None]:
    engine = Engine(
        store,
        [app.bind(app.settings())],
        LocalArtifacts(folder),
        options=Options(lease=30.0, poll=poll, grace=5.0),
    )
    await store.migrate(engine.all_kinds, engine.all_stages, foreign=True)
    await store.use(engine.all_kinds, engine.all_stages)
    async with engine.running(register=True), running_scheduler(engine):
        await asyncio.sleep(1)  # until it is idle
        yield


async def triggers(writer: Any) -> list[str]:
    found = await writer.fetch("SELECT tgname::text FROM pg_trigger WHERE NOT tgisinternal")
    return [row[0] for row in found]


async def test_a_committed_row_is_handled_because_of_the_trigger(
    store: PostgresStore, writer: Any, tmp_path: Path, record_property: Any
) -> None:
    """The poll would come after an hour."""
    app, handled = App("sensors"), asyncio.Queue[tuple[int, float]]()

    @app.stage(Reading, take="new", exhausted="bad")
    async def read(reading: Reading, at: Any) -> To:
        handled.put_nowait((reading.value, perf_counter()))
        return To("done")

    took = []
    async with working(store, app, tmp_path, poll=3600), asyncio.timeout(60):
        for value in range(20):
            await writer.execute("INSERT INTO readings (value, other) VALUES ($1, 'x')", value)
            committed = perf_counter()
            found, at = await handled.get()
            assert found == value
            took.append((at - committed) * 1000)
            await asyncio.sleep(0.05)
        async with writer.transaction():
            await writer.execute("INSERT INTO readings (value) VALUES (97)")
            await writer.execute("UPDATE readings SET other = 'y' WHERE value < 10")
        assert (await handled.get())[0] == 97
        await writer.execute("UPDATE readings SET e_status = NULL, e_due_at = NULL WHERE value = 5")
        assert (await handled.get())[0] == 5
        await asyncio.sleep(0.2)
    assert handled.empty()
    record_property("milliseconds", sorted(took))
    print(f"insert to handler: p50 {sorted(took)[10]:.1f} ms, slowest {max(took):.1f} ms")
    rows = await writer.fetch("SELECT other, e_status FROM readings WHERE value < 10")
    assert {tuple(row) for row in rows} == {("y", "done")}


async def test_a_plain_notify_wakes_workers_too(
    store: PostgresStore, writer: Any, tmp_path: Path
) -> None:
    app, handled = App("sensors"), asyncio.Queue[int]()

    @app.stage(Quiet, take="new", exhausted="bad")
    async def read(reading: Quiet, at: Any) -> To:
        handled.put_nowait(reading.value)
        return To("done")

    async with working(store, app, tmp_path, poll=3600), asyncio.timeout(60):
        assert await triggers(writer) == []
        async with writer.transaction():
            await writer.execute("INSERT INTO readings (value) VALUES (1)")
            await writer.execute("NOTIFY esclusa, 'readings'")
        assert await handled.get() == 1


async def test_only_migrate_installs_the_trigger_and_removes_it(
    store: PostgresStore, writer: Any
) -> None:
    async def migrate(kind: Kind) -> list[str]:
        return await store.migrate((kind,), (), foreign=True)

    await migrate(Quiet.kind)
    with pytest.raises(SchemaBehind, match="esclusa_notify"):
        await store.use((Reading.kind,), ())
    with pytest.raises(ForeignTables, match="readings: create trigger esclusa_notify"):
        await store.migrate((Reading.kind,), ())
    assert await triggers(writer) == []
    await migrate(Reading.kind)
    assert await triggers(writer) == ["esclusa_notify"]
    assert await migrate(Reading.kind) == []
    await store.use((Quiet.kind,), ())  # nothing is missing
    await migrate(Quiet.kind)
    assert await triggers(writer) == []


async def test_another_role_writes_without_rights_to_the_schema(
    store: PostgresStore, writer: Any
) -> None:
    await store.migrate((Reading.kind,), (), foreign=True)
    await writer.execute("CREATE ROLE plain_writer LOGIN")
    await writer.execute("GRANT INSERT ON readings TO plain_writer")
    await writer.execute("GRANT USAGE ON SEQUENCE readings_id_seq TO plain_writer")
    notified = asyncio.Event()
    remove = await store.listen(lambda table: notified.set() if table == "readings" else None)
    await writer.execute("SET ROLE plain_writer")
    await writer.execute("INSERT INTO readings (value) VALUES (1)")
    await asyncio.wait_for(notified.wait(), 30)
    await writer.execute("RESET ROLE")
    await remove()


async def test_other_programs_write_while_a_drain_runs(
    store: PostgresStore, writer: Any, tmp_path: Path
) -> None:
    """Nothing is lost, and only Esclusa's columns are written."""
    app, total = App("sensors"), 600
    seen: list[int] = []

    @app.stage(Reading, take="new", exhausted="bad", concurrency=20)
    async def read(reading: Reading, at: Any) -> To:
        seen.append(reading.value)
        await asyncio.sleep(0.001)
        return To("done")

    async with working(store, app, tmp_path, poll=3600), asyncio.timeout(60):
        for value in range(total):
            await writer.execute("INSERT INTO readings (value, other) VALUES ($1, 'a')", value)
            await writer.execute(
                "UPDATE readings SET other = 'w' || value WHERE value BETWEEN $1 - 20 AND $1", value
            )
        done = "SELECT count(*) FROM readings WHERE e_status = 'done'"
        while await writer.fetchval(done) < total:
            await asyncio.sleep(0.05)
    assert sorted(seen) == list(range(total))
    rows = await writer.fetch("SELECT value, other FROM readings ORDER BY value")
    assert [tuple(row) for row in rows] == [(value, f"w{value}") for value in range(total)]
