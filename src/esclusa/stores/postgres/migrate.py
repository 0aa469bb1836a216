"""Run a migration beside other programs: short locks, no long transaction, continued after a kill.

The steps of one table that may run in a transaction run in one; indexes of tables with rows and
adoptions run outside. Each step is complete in itself, and the plan is made of what the database
holds, so a migration that ended early is continued by the next.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from asyncpg import exceptions as pg

from esclusa.model.errors import (
    SchemaError,
    SchemaRefused,
    StoreConflict,
    StoreUnavailable,
)
from esclusa.model.kind import Kind
from esclusa.model.migration import (
    MigrationStep,
    Progress,
    refuse_foreign,
    summaries,
    transactions,
)
from esclusa.model.stage import Stage
from esclusa.model.texts import text
from esclusa.stores.postgres import locks, schema
from esclusa.stores.postgres.client import ConnectionPools, mapped_errors
from esclusa.stores.postgres.codec import Table
from esclusa.stores.postgres.limits import (
    BESIDE_WRITERS_LIMITS,
    MIGRATION_LIMITS,
)
from esclusa.stores.postgres.migration_lock import POLL_SECONDS, sole_migration
from esclusa.stores.postgres.steps import repeatable

# How often a lock that stops other programs is tried for, with growing pauses between: a minute.
LOCK_ATTEMPTS = 15
_LONGEST_PAUSE = 5.0
# How often the progress of an index is reported.
_REPORT_SECONDS = 5.0

_BUILDING = """SELECT phase, CASE WHEN blocks_total > 0 THEN 100 * blocks_done / blocks_total END
FROM pg_stat_progress_create_index WHERE pid = $1"""


async def migrate(
    connections: ConnectionPools,
    kinds: Sequence[Kind],
    stages: Sequence[Stage],
    tables: dict[str, Table],
    *,
    foreign: bool,
    progress: Progress,
) -> tuple[list[str], list[Kind]]:
    """Run what is missing; put the tables as they are then into ``tables``.

    Return a line for each change, and the kinds whose ids version 0.1.0 made.

    If nothing is missing and with ``foreign``, Esclusa's own indexes that nothing needs any more
    are dropped. Not before: workers of the version before may still use them.
    """
    async with sole_migration(connections, progress) as connection:
        with mapped_errors(connections.url):
            missing = await schema.plan(connection, connections.installation, kinds, stages)
            steps = missing.steps
            if foreign and not missing.is_behind:
                steps = steps + missing.obsolete
            if not foreign:
                refuse_foreign(steps)
                steps = [step for step in steps if not step.foreign]
            runner = _Runner(connections, connection, progress)
            for group in transactions(steps):
                await runner.run(group)
            after = await schema.plan(
                connection, connections.installation, kinds, stages, rows=False
            )
            tables |= after.tables
        return summaries(steps), after.earlier_ids


class _Runner:
    """Runs the steps of a migration on one connection."""

    def __init__(self, connections: ConnectionPools, connection: Any, progress: Progress) -> None:
        self._connections = connections
        self._connection = connection
        self._progress = progress

    async def run(self, group: Sequence[MigrationStep]) -> None:
        """Run one transaction of steps, or one step outside; try again if a lock is not free."""
        summary = "; ".join(summaries(group))
        if summary:
            self._progress(summary)
        begun = time.monotonic()
        attempts = 1 if group[0].outside else LOCK_ATTEMPTS
        for attempt in range(1, attempts + 1):
            holders: dict[int, str] = {}
            try:
                async with self._watched(summary, holders):
                    await self._run_once(group)
                break
            except pg.LockNotAvailableError as error:
                holder = "; ".join(holders.values()) or "another session"
                if attempt == attempts:
                    conflict = text("migration_locked", step=summary, holder=holder)
                    raise StoreConflict(conflict) from error
                self._progress(f"  waiting for a lock of {holder}")
                pause = min(_LONGEST_PAUSE, 0.25 * 2**attempt)
                await asyncio.sleep(pause * random.uniform(0.5, 1))
        seconds = time.monotonic() - begun
        if summary and seconds > 1:
            self._progress(f"  done in {seconds:.0f} s")

    async def _run_once(self, group: Sequence[MigrationStep]) -> None:
        if group[0].outside:
            if not self._connections.pooled:  # a pooler would leave them to other clients
                await self._connection.execute(BESIDE_WRITERS_LIMITS.set_session)
            await self._execute(group[0])
            return
        if self._connections.installation.portable:
            await self._connection.execute(MIGRATION_LIMITS.set_session)
            for step in group:
                for sql in repeatable(step.sql):
                    await self._execute(replace(step, sql=sql))
            return
        async with self._connection.transaction():
            await self._connection.execute(MIGRATION_LIMITS.set_local)
            for step in group:
                await self._execute(step)

    async def _execute(self, step: MigrationStep) -> None:
        try:
            await self._connection.execute(step.sql)
        except (pg.InsufficientPrivilegeError, pg.InvalidSchemaNameError) as error:
            raise SchemaRefused(f"cannot {step.summary}", [f"{error}; {step.help}"]) from error
        except pg.LockNotAvailableError:
            raise
        except (
            pg.SyntaxOrAccessError,
            pg.IntegrityConstraintViolationError,
            pg.DataError,
            pg.FeatureNotSupportedError,
            pg.ObjectNotInPrerequisiteStateError,
        ) as error:
            raise SchemaError(f"cannot {step.summary}", [str(error)]) from error

    @asynccontextmanager
    async def _watched(self, summary: str, holders: dict[int, str]) -> AsyncIterator[None]:
        """Find out, meanwhile, for whom the connection waits, and how far an index is."""
        pid = self._connection.get_server_pid()

        async def watch() -> None:
            reported = time.monotonic()
            while True:
                await asyncio.sleep(POLL_SECONDS)
                with suppress(StoreUnavailable, StoreConflict):
                    found = await locks.blockers(self._connections, pid)
                    holders.update(found)
                    if time.monotonic() - reported > _REPORT_SECONDS:
                        reported = time.monotonic()
                        await self._report(pid, summary, found)

        watching = asyncio.create_task(watch(), name="esclusa-migration")
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _report(self, pid: int, summary: str, blockers: dict[int, str]) -> None:
        if blockers:
            self._progress(f"  waiting for {'; '.join(blockers.values())}")
        for phase, percent in await self._connections.fetch(_BUILDING, pid):
            share = "" if percent is None else f", {percent} %"
            self._progress(f"  {phase}{share}")
