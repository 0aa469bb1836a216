"""Renamed states on PostgreSQL: locked rows, defaults, enumerated types, checks and indexes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import asyncpg
import pytest
from support.postgres import PostgresServer

from esclusa.model.columns import track
from esclusa.model.errors import BadRecord
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.record import Record
from esclusa.stores.postgres import PostgresStore, renames


class FirstLetter(Record, table="letters", key="name"):
    name: str
    lifecycle = Lifecycle("new -> sent")


class Letter(Record, table="letters", key="name"):
    name: str
    lifecycle = Lifecycle("pending -> sent", renamed={"new": "pending"})


class Ticket(Record, table="tickets", track=track()):
    title: str
    lifecycle = Lifecycle("open -> closed", renamed={"fresh": "open", "never": "closed"})


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(options={"autovacuum": "off"}) as server:
        yield server


@pytest.fixture
async def url(server: PostgresServer) -> AsyncIterator[str]:
    yield server.create_database("renames")
    server.drop_database("renames")


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    yield store
    await store.close()


async def test_a_locked_row_does_not_hold_up_the_others(store: PostgresStore, url: str) -> None:
    await store.migrate([FirstLetter.kind], [])
    await store.insert([FirstLetter(name=name) for name in "abc"])
    await store.migrate([Letter.kind], [])
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.execute("SELECT 1 FROM letters WHERE id = 'b' FOR UPDATE")
            assert await store.rename_states(Letter.kind) == 2
            assert await store.states(Letter.kind) == ["new", "pending"]
        assert await store.rename_states(Letter.kind) == 1
    finally:
        await other.close()
    assert await store.states(Letter.kind) == ["pending"]


async def test_a_row_without_a_state_gets_the_present_initial_one(
    store: PostgresStore, url: str
) -> None:
    await store.migrate([FirstLetter.kind], [])
    done = await store.migrate([Letter.kind], [])
    assert "set the default of letters.status to pending" in " ".join(done).replace("public.", "")
    other = await asyncpg.connect(url)
    await other.execute("INSERT INTO letters (id, name) VALUES ('x', 'x')")
    await other.close()
    assert await store.states(Letter.kind) == ["pending"]
    assert await store.pending([Letter.kind], []) == []


async def test_an_enumerated_state_of_another_program_is_renamed(
    store: PostgresStore, url: str
) -> None:
    other = await asyncpg.connect(url)
    await other.execute("CREATE TYPE step AS ENUM ('fresh', 'open', 'closed')")
    await other.execute("CREATE TABLE tickets (id serial PRIMARY KEY, title text, status step)")
    await other.execute("INSERT INTO tickets (title, status) VALUES ('a', 'fresh'), ('b', NULL)")
    await store.migrate([Ticket.kind], [], foreign=True)
    assert await store.rename_states(Ticket.kind) == 1
    assert await store.states(Ticket.kind) == ["open"]
    await other.close()


async def test_a_check_that_refuses_the_present_name_is_named(
    store: PostgresStore, url: str
) -> None:
    other = await asyncpg.connect(url)
    await other.execute("CREATE TABLE tickets (id serial PRIMARY KEY, title text, status text)")
    await other.execute("INSERT INTO tickets (title, status) VALUES ('a', 'fresh')")
    await store.migrate([Ticket.kind], [], foreign=True)
    await other.execute(
        "ALTER TABLE tickets ADD CONSTRAINT known CHECK (status IN ('fresh', 'closed'))"
    )
    with pytest.raises(BadRecord, match=r"does not let states be renamed: 1: .*known"):
        await store.rename_states(Ticket.kind)
    await other.close()


async def test_looking_for_renamed_rows_reads_the_index_only(store: PostgresStore) -> None:
    await store.migrate([Letter.kind], [])
    await store._connections.fetch(
        """INSERT INTO letters (id, name, status)
        SELECT 'o' || n, 'o' || n, 'sent' FROM generate_series(1, 20000) n"""
    )
    table = store._table(Letter.kind)
    statement = renames._rename_statement(table, Letter.lifecycle.renamed)
    [(plan,)] = await store._connections.claim(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", timedelta(0), 1000, "w", []
    )
    text = plan if isinstance(plan, str) else json.dumps(plan)
    assert "Seq Scan" not in text
    assert "letters_state_" in text
    root = json.loads(text)[0]["Plan"]
    assert root["Shared Hit Blocks"] + root["Shared Read Blocks"] < 30
