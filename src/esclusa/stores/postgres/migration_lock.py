"""The lock that lets one migration of a schema run at a time."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from asyncpg import exceptions as pg

from esclusa.model.migration import Progress
from esclusa.stores.postgres.client import ConnectionPools, mapped_errors
from esclusa.stores.postgres.limits import LONG_SECONDS
from esclusa.stores.postgres.system_tables import schema_step

# How often another migration is looked for.
POLL_SECONDS = 0.1
_REPORT_SECONDS = 5.0

_OTHER_MIGRATION = """SELECT concat_ws(', ', 'pid ' || a.pid, nullif(a.application_name, ''),
    a.usename, a.client_addr::text)
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND (l.classid::bigint << 32) + l.objid::bigint = $1
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


@asynccontextmanager
async def sole_migration(connections: ConnectionPools, progress: Progress) -> AsyncIterator[Any]:
    """Wait until no other migration runs; give a connection for this one.

    The lock is asked for again and again: a session that waits for it would hold up the indexes
    that the other migration builds. Behind a pooler, and without advisory locks, it is held by a
    transaction of its own, which does nothing else.
    """
    portable = connections.installation.portable
    connection = await connections.dedicated()
    keeper = await connections.dedicated() if connections.pooled or portable else connection
    try:
        with mapped_errors(connections.url):
            if portable:
                await _make_row(keeper, connections)
            waits = 0
            while not await _try_lock(keeper, connections):
                if waits % round(_REPORT_SECONDS / POLL_SECONDS) == 0:
                    other = "" if portable else await _holder(keeper, connections)
                    progress(f"waiting for another migration ({other or 'another session'})")
                waits += 1
                await asyncio.sleep(POLL_SECONDS)
        yield connection
    finally:
        for each in {connection, keeper}:
            with suppress(Exception):
                await each.close(timeout=LONG_SECONDS)


async def _holder(keeper: Any, connections: ConnectionPools) -> str | None:
    found: str | None = await keeper.fetchval(
        _OTHER_MIGRATION, connections.installation.migration_lock
    )
    return found


async def _try_lock(keeper: Any, connections: ConnectionPools) -> bool:
    lock = connections.installation.migration_lock
    if connections.installation.portable:
        return await _try_row(keeper, connections)
    if not connections.pooled:
        return bool(await keeper.fetchval("SELECT pg_try_advisory_lock($1)", lock))
    await keeper.execute("BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0")
    if await keeper.fetchval("SELECT pg_try_advisory_xact_lock($1)", lock):
        await _drop_snapshot(keeper)
        return True
    await keeper.execute("ROLLBACK")
    return False


async def _make_row(keeper: Any, connections: ConnectionPools) -> None:
    """Create the row that stands for the lock; other migrations may do the same meanwhile."""
    installation = connections.installation
    table = installation.migration_locks
    if await keeper.fetchval("SELECT to_regclass($1) IS NOT NULL", table):
        return
    steps = await schema_step(keeper, installation.schema)
    statements = [each for step in steps for each in step.sql.split(";\n")]
    for statement in (
        *(each.replace("CREATE SCHEMA", "CREATE SCHEMA IF NOT EXISTS") for each in statements),
        f"CREATE TABLE IF NOT EXISTS {table} (id bigint PRIMARY KEY)",
        installation.mark_statement(table),
        f"INSERT INTO {table} (id) VALUES (1) ON CONFLICT DO NOTHING",
    ):
        with suppress(pg.UniqueViolationError, pg.DuplicateTableError, pg.InternalServerError):
            await keeper.execute(statement)


async def _try_row(keeper: Any, connections: ConnectionPools) -> bool:
    table = connections.installation.migration_locks
    await keeper.execute("BEGIN")
    try:
        await keeper.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await keeper.fetch(f"SELECT 1 FROM {table} WHERE id = 1 FOR UPDATE NOWAIT")
    except pg.LockNotAvailableError:
        await keeper.execute("ROLLBACK")
        return False
    await _drop_snapshot(keeper)
    return True


async def _drop_snapshot(keeper: Any) -> None:
    """End the last result, which would keep its snapshot: an index that is built would wait."""
    await keeper.execute("SELECT 1")
