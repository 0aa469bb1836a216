# ruff: noqa: S608 - statements are composed from declared names alone, quoted; values are bound
"""Housekeeping: migrations run, states counted, records purged and archived, listeners told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from asyncpg import exceptions as pg

from esclusa.model.errors import SchemaError
from esclusa.model.query import Query
from esclusa.model.record import Kind, Ref
from esclusa.model.settlement import StateCount, StateSummary
from esclusa.model.stage import Stage
from esclusa.model.system_records import Export
from esclusa.stores.postgres import schema
from esclusa.stores.postgres.connection import Connections, mapped
from esclusa.stores.postgres.insert import Fetch
from esclusa.stores.postgres.statements import CHANNEL, NOW, Binder, filtered, id_array, picked_ids
from esclusa.stores.postgres.table import Table, literal, quote

TALLY_CAP = 50_000
"""States are counted up to here; beyond, the planner's statistics give an estimate."""

_ODD_STATES = 50
"""How many states that nobody declared are told, at most."""


async def migrate(
    connections: Connections,
    kinds: Sequence[Kind],
    stages: Sequence[Stage],
    tables: dict[str, Table],
) -> list[str]:
    """Run what is missing in one transaction, then know the tables as they are."""
    connection = await connections.dedicated()
    try:
        with mapped(connections.url):
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", schema.LOCK)
                plan = await schema.plan(connection, kinds, stages)
                for step in plan.steps:
                    await _run(connection, step)
                tables |= (await schema.plan(connection, kinds, stages)).tables
        return [step.what for step in plan.steps if step.what]
    finally:
        await connection.close()


async def _run(connection: Any, step: schema.Step) -> None:
    try:
        await connection.execute(step.sql)
    except (pg.InsufficientPrivilegeError, pg.InvalidSchemaNameError) as error:
        help = "let a role that may change the schema run what `esclusa migrate --sql` prints"
        raise SchemaError(f"cannot {step.what}", [f"{error}; {help}"]) from error
    except (
        pg.SyntaxOrAccessError,
        pg.IntegrityConstraintViolationError,
        pg.DataError,
        pg.FeatureNotSupportedError,
    ) as error:
        raise SchemaError(f"cannot {step.what}", [str(error)]) from error


async def notify(fetch: Fetch, tables: Sequence[str]) -> None:
    await fetch("SELECT pg_notify($1, name) FROM unnest($2::text[]) AS name", CHANNEL, list(tables))


async def tally(connections: Connections, table: Table, cap: int) -> list[StateCount]:
    """Counts through the index on the state, capped; what is beyond the cap is estimated and says so."""
    states = list(table.kind.lifecycle.states)
    states += [s for s in await _written(connections, table) if s not in states]
    capped = " UNION ALL ".join(
        f"SELECT {n}, (SELECT count(*) FROM (SELECT 1 FROM {table.ident} t WHERE {_is(table, n, s)} LIMIT {cap + 1}) q)"
        for n, s in enumerate(states)
    )
    rows = await connections.fetch(capped)
    counts = {states[n]: int(found) for n, found in rows}
    guesses = await _estimates(connections, table) if any(c > cap for c in counts.values()) else {}
    return [
        StateCount(s, counts[s], True)
        if counts[s] <= cap
        else StateCount(s, max(cap, guesses.get(s, 0)), False)
        for s in states
    ]


async def summary(
    connections: Connections, table: Table, query: Query, average: str
) -> list[StateSummary]:
    """Each state that occurs among what matches, its count and the mean of a number."""
    binder = Binder()
    conditions = filtered(table, query.where, binder)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    source = table.archive if query.archived else table.ident
    state = table.status.read()
    rows = await connections.read(
        f"SELECT {state}, count(*), avg({table.columns[average].expr()})::float8 FROM {source} t{where} GROUP BY {state} ORDER BY {state}",
        *binder.values,
    )
    return [StateSummary(str(state), count, mean) for state, count, mean in rows]


def _is(table: Table, n: int, state: str) -> str:
    return f"{table.status.expr()} = {literal(state)}"


async def _written(connections: Connections, table: Table) -> list[str]:
    """The states in the table, found by jumping through the index from one to the next."""
    status = table.status.expr()
    first = f"(SELECT {status} FROM {table.ident} t ORDER BY {status} LIMIT 1)"
    following = (
        f"(SELECT {status} FROM {table.ident} t WHERE {status} > s.state ORDER BY {status} LIMIT 1)"
    )
    cap = len(table.kind.lifecycle.states) + _ODD_STATES
    rows = await connections.fetch(
        f"""WITH RECURSIVE s(state) AS (
            SELECT {first} UNION ALL SELECT {following} FROM s WHERE s.state IS NOT NULL
        ) SELECT state::text FROM s WHERE state IS NOT NULL LIMIT {cap}"""
    )
    return [row[0] for row in rows]


async def _estimates(connections: Connections, table: Table) -> dict[str, int]:
    """Rows per state by the planner's statistics of the status column."""
    rows = await connections.fetch(
        """SELECT c.reltuples, s.null_frac, s.most_common_vals::text::text[], s.most_common_freqs
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = $2
        WHERE c.oid = to_regclass($1)""",
        table.ident,
        table.status.column,
    )
    if not rows:
        return {}
    tuples, nulls, states, shares = rows[0]
    out = {
        state: int(tuples * share) for state, share in zip(states or [], shares or [], strict=False)
    }
    if nulls and table.kind.attached:
        out[table.kind.initial] = out.get(table.kind.initial, 0) + int(tuples * nulls)
    return out


async def purge(connections: Connections, table: Table, query: Query) -> int:
    """Delete up to the query's limit, with their history."""
    binder = Binder()
    picked = picked_ids(table, query, binder)
    source = table.archive if query.archived else table.ident
    name = binder.add(table.name, "text")
    rows = await connections.fetch(
        f"""WITH gone AS (
            DELETE FROM {source} t WHERE t.{table.id.ident} = ANY(ARRAY({picked})) RETURNING {table.id.read()} AS id
        ), forgotten AS (
            DELETE FROM esclusa_history h WHERE h.table_name = {name} AND h.record_id = ANY(ARRAY(SELECT id FROM gone))
        ) SELECT count(*) FROM gone""",
        *binder.values,
    )
    return int(rows[0][0])


async def remove(
    connections: Connections, tables: Callable[[Kind], Table], refs: Sequence[Ref]
) -> list[bool]:
    """Delete records, with their history; whether each was there. They are there at the same moment or not: a snapshot."""

    async def run(connection: Any) -> set[tuple[str, str]]:
        gone = set()
        for name, kind in sorted({ref.kind.table: ref.kind for ref in refs}.items()):
            table = tables(kind)
            ids = table.ids([ref.id for ref in refs if ref.kind.table == name])
            rows = await connection.fetch(
                f"""WITH gone AS (
                    DELETE FROM {table.ident} t WHERE t.{table.id.ident} = ANY({id_array(table, "$1::text[]")})
                    RETURNING {table.id.read()} AS id
                ), forgotten AS (
                    DELETE FROM esclusa_history h WHERE h.table_name = $2 AND h.record_id = ANY(ARRAY(SELECT id FROM gone))
                ) SELECT id FROM gone""",
                ids,
                name,
            )
            gone |= {(name, row[0]) for row in rows}
        return gone

    gone = await connections.transaction(run, snapshot=True)
    return [(ref.kind.table, ref.id) in gone for ref in refs]


async def archive(
    connections: Connections, table: Table, query: Query, offset: timedelta, export: str | None
) -> int:
    """Move up to the query's limit to the archive. One record per key there too: the newest, which no other export has.
    An export's row is locked, so it cannot end its filling between this and the commit."""

    async def run(connection: Any) -> int:
        columns = [quote(c) for c in await schema.archive_columns(connection, table)]
        binder = Binder(offset)
        picked = picked_ids(table, query, binder)
        given = binder.add(export, "text")
        filling, guard = "", ""
        if export is not None:
            filling = f"filling AS (SELECT 1 FROM {quote(Export.kind.table)} WHERE id = {given} AND status = 'filling' FOR SHARE), "
            guard = " AND EXISTS (SELECT 1 FROM filling)"
        names = ", ".join(columns)
        renewed = ", ".join(
            f"{c} = EXCLUDED.{c}"
            for c in (*columns, "archived_at", "export_id")
            if c != table.id.ident
        )
        rows = await connection.fetch(
            f"""WITH {filling}gone AS (
                DELETE FROM {table.ident} t WHERE t.{table.id.ident} = ANY(ARRAY({picked})){guard} RETURNING t.*
            ), kept AS (
                INSERT INTO {table.archive} ({names}, archived_at, export_id) SELECT {names}, {NOW}, {given} FROM gone
                ON CONFLICT ({table.id.ident}) DO UPDATE SET {renewed} RETURNING 1
            ) SELECT count(*) FROM kept""",
            *binder.values,
        )
        return int(rows[0][0])

    return await connections.transaction(run)


async def assign(connections: Connections, table: Table, query: Query, export: str) -> int:
    """Give archived rows that belong to no export to this one, up to the query's limit."""
    binder = Binder(export)
    where = " AND ".join(["t.export_id IS NULL", *filtered(table, query.where, binder)])
    limit = binder.add(
        query.limit, "bigint"
    )  # the oldest first: the index of the exports has them in that order
    picked = f"SELECT t.ctid FROM {table.archive} t WHERE {where} ORDER BY t.archived_at LIMIT {limit} FOR UPDATE"
    rows = await connections.fetch(
        f"""WITH given AS (
            UPDATE {table.archive} t SET export_id = $1::text WHERE t.ctid = ANY(ARRAY({picked})) RETURNING 1
        ) SELECT count(*) FROM given""",
        *binder.values,
    )
    return int(rows[0][0])


async def undeclared(connections: Connections, table: Table) -> list[str]:
    """The archive's columns that are neither a field of the kind nor the archive's own."""
    rows = await connections.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        table.archive,
    )
    declared = {*table.kind.columns.values(), *table.archived}
    return [name for (name,) in rows if name not in declared]
