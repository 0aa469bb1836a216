"""The portable profile: its migrations, and the check that finds what it must not use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from conformance.helpers import claim_one, settlement_of
from conformance.kinds import KINDS, STAGES, WORK, Job
from support.postgres import PostgresServer
from support.statement_log import SERVER_OPTIONS, StatementLog

from esclusa.stores.postgres import PostgresStore
from esclusa.stores.postgres.steps import repeatable


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(options=SERVER_OPTIONS) as started:
        yield started


async def migrate(url: str, *, portable: bool) -> list[str]:
    store = PostgresStore(url, portable=portable)
    await store.open()
    try:
        return await store.migrate(KINDS, STAGES)
    finally:
        await store.close()


async def test_the_check_finds_what_the_native_profile_uses(server: PostgresServer) -> None:
    log = StatementLog(server, "esclusa", skip=True)
    url = server.create_database("native")
    await migrate(url, portable=False)
    store = PostgresStore(url)
    await store.open()
    try:
        await store.use(KINDS, STAGES)
        end = await store.listen(lambda table: None)
        await store.insert([Job(id="j")])
        await store.settle([settlement_of(await claim_one(store, WORK), "done")])
        await end()
    finally:
        await store.close()
    found = "\n".join(log.not_portable())
    for feature in ("ctid", "pg_notify", "LISTEN", "advisory", "a schema change in a transaction"):
        assert feature in found


async def test_portable_migrations_wait_for_each_other(server: PostgresServer) -> None:
    log = StatementLog(server, "esclusa", skip=True)
    url = server.create_database("together")
    done = await asyncio.gather(*(migrate(url, portable=True) for _ in range(3)))
    assert sorted(map(bool, done)) == [False, False, True]
    assert log.not_portable() == []


async def test_a_portable_database_serves_the_native_profile(server: PostgresServer) -> None:
    url = server.create_database("both")
    await migrate(url, portable=True)
    assert await migrate(url, portable=False) == []


async def test_a_portable_migration_that_ended_early_is_continued(server: PostgresServer) -> None:
    url = server.create_database("early")
    await migrate(url, portable=True)
    server.run_sql("DELETE FROM esclusa.migrations WHERE number > 1", "early")
    assert await migrate(url, portable=True) != []
    store = await opened_on(url)
    await store.close()


async def opened_on(url: str) -> PostgresStore:
    store = PostgresStore(url, portable=True)
    await store.open()
    await store.use(KINDS, STAGES)
    return store


def test_statements_are_divided_outside_of_function_bodies() -> None:
    sql = """-- what it is
    CREATE TABLE a (b text);
    CREATE FUNCTION f() RETURNS text AS $$ BEGIN; END $$;
    ALTER TABLE a
        ADD COLUMN c text"""
    assert [" ".join(each.split()) for each in repeatable(sql)] == [
        "CREATE TABLE IF NOT EXISTS a (b text)",
        "CREATE OR REPLACE FUNCTION f() RETURNS text AS $$ BEGIN; END $$",
        "ALTER TABLE a ADD COLUMN IF NOT EXISTS c text",
    ]
