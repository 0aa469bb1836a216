"""Read records: get, find, scan, count, tally, totals, backlog."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from esclusa.model.cursors import encode_cursor
from esclusa.model.errors import BadQuery
from esclusa.model.query import Grouping, Page, Query, Total, totals_in_order
from esclusa.model.record import Record
from esclusa.model.settlement import Backlog, ClaimRequest, StateCount
from esclusa.stores.postgres import statements
from esclusa.stores.postgres.candidates import candidates
from esclusa.stores.postgres.client import VALUE_ERRORS, ConnectionPools, Fetch
from esclusa.stores.postgres.codec import Table, literal
from esclusa.stores.postgres.limits import LONG_LIMITS
from esclusa.stores.postgres.statements import NOW, Binder, Statement, conditions, where_clause

# States are counted up to here; beyond it, the planner's statistics give an estimate.
TALLY_CAP = 50_000

# How many undeclared states a tally reports at most.
_MAX_UNDECLARED_STATES = 50

_STATUS_STATISTICS = """
SELECT c.reltuples, s.null_frac, s.most_common_vals::text::text[], s.most_common_freqs
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = $2
WHERE c.oid = to_regclass($1)"""


async def get(
    connections: ConnectionPools, table: Table, ids: Sequence[str]
) -> list[Record | None]:
    """Return records by id, in order; None for an absent one."""
    binder = Binder()
    wanted = binder.ids(table, list(dict.fromkeys(ids)))
    if not binder.values[0]:
        return [None] * len(ids)
    rows = await connections.fetch(
        f"SELECT {table.selection} FROM {table.ident} t WHERE t.{table.id.ident} = ANY({wanted})",
        *binder.values,
    )
    records = {row[0]: table.build(row)[0] for row in rows}
    return [records.get(id) for id in ids]


async def _read(fetch: Fetch, statement: Statement) -> list[Any]:
    try:
        return await fetch(statement[0], *statement[1])
    except VALUE_ERRORS as error:
        raise BadQuery(f"a value in the filter does not fit its column: {error}") from error


async def find(connections: ConnectionPools, table: Table, query: Query) -> Page[Record]:
    """Return one page and the cursor of the next."""
    rows = await _read(connections.read, statements.find(table, query, query.limit + 1))
    items = [table.build(row)[0] for row in rows[: query.limit]]
    if len(rows) <= query.limit:
        return Page(items, None)
    last = table.values(rows[query.limit - 1])
    return Page(items, encode_cursor(query, [*(last[o.field] for o in query.order), last["id"]]))


async def pages(
    connections: ConnectionPools, table: Table, query: Query, size: int, *, ordered: bool = True
) -> AsyncIterator[list[Any]]:
    """Yield all rows of a query, page by page, from one snapshot."""
    statement, values = statements.find(table, query, None, ordered=ordered)
    async with (
        connections.connection("reads") as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        cursor = await connection.cursor(statement, *values)
        while rows := await cursor.fetch(size):
            yield rows


async def count(
    connections: ConnectionPools, table: Table, query: Query, cap: int
) -> tuple[int, bool]:
    """Count up to the cap; return the count and whether it is exact."""
    fetch = partial(connections.fetch, limits=LONG_LIMITS)
    rows = await _read(fetch, statements.count(table, query, cap))
    found = int(rows[0][0])
    return min(found, cap), found <= cap


async def tally(connections: ConnectionPools, table: Table, cap: int) -> list[StateCount]:
    """Count each state along the index on the state, up to the cap; beyond it, estimate."""
    states = list(table.kind.lifecycle.states)
    states += [s for s in await occurring_states(connections, table) if s not in states]
    status = table.status.expr()
    counts = " UNION ALL ".join(
        f"""SELECT {n}, (SELECT count(*) FROM (
            SELECT 1 FROM {table.ident} t WHERE {status} = {literal(state)} LIMIT {cap + 1}
        ) q)"""
        for n, state in enumerate(states)
    )
    rows = await connections.fetch(counts, limits=LONG_LIMITS)
    found = {states[n]: int(number) for n, number in rows}
    capped = any(number > cap for number in found.values())
    estimates = await _estimates(connections, table) if capped else {}
    return [
        StateCount(state, found[state], True)
        if found[state] <= cap
        else StateCount(state, max(cap, estimates.get(state, 0)), False)
        for state in states
    ]


async def occurring_states(connections: ConnectionPools, table: Table) -> list[str]:
    """Return the states in the table, by jumping from one to the next in the index on the state."""
    status = table.status.expr()
    first = f"SELECT {status} FROM {table.ident} t ORDER BY {status} LIMIT 1"
    following = f"""SELECT {status} FROM {table.ident} t
        WHERE {status} > s.state ORDER BY {status} LIMIT 1"""
    limit = len(table.kind.lifecycle.states) + _MAX_UNDECLARED_STATES
    rows = await connections.fetch(
        f"""WITH RECURSIVE s(state) AS (
            SELECT ({first}) UNION ALL SELECT ({following}) FROM s WHERE s.state IS NOT NULL
        ) SELECT state::text FROM s WHERE state IS NOT NULL LIMIT {limit}""",
        limits=LONG_LIMITS,
    )
    return [row[0] for row in rows]


async def _estimates(connections: ConnectionPools, table: Table) -> dict[str, int]:
    """Return the rows in each state by the planner's statistics."""
    rows = await connections.fetch(_STATUS_STATISTICS, table.ident, table.status.column)
    if not rows:
        return {}
    total, nulls, states, shares = rows[0]
    estimates = {
        state: int(total * share) for state, share in zip(states or [], shares or [], strict=False)
    }
    if nulls and table.kind.attached:
        initial = table.kind.initial
        estimates[initial] = estimates.get(initial, 0) + int(total * nulls)
    return estimates


async def totals(
    connections: ConnectionPools, table: Table, query: Query, grouping: Grouping
) -> list[Total]:
    """Return count and sums of number fields by the values of other fields."""
    binder = Binder()
    where = where_clause(conditions(table, query.where, binder))
    keys = [table.columns[name].read() for name in grouping.by]
    sums = [f"COALESCE(sum({table.columns[name].read()}), 0)" for name in grouping.sums]
    # By place: a column that the table lacks is a constant, which cannot be named here.
    group = f" GROUP BY {', '.join(str(n) for n, _ in enumerate(keys, 1))}" if keys else ""
    rows = await connections.fetch(
        f"""SELECT {", ".join([*keys, "count(*)", *sums])}
        FROM {table.source(query.archived)} t{where}{group} LIMIT {grouping.cap + 1}""",
        *binder.values,
        limits=LONG_LIMITS,
    )
    found = []
    for row in rows:
        count, *summed = row[len(keys) :]
        if count:  # without groups, an empty table has one row
            shared = zip(grouping.by, row[: len(keys)], strict=True)
            numbers = [int(s) if isinstance(s, Decimal) else s for s in summed]
            found.append(Total(dict(shared), count, dict(zip(grouping.sums, numbers, strict=True))))
    return totals_in_order(query, grouping, found)


async def backlog(
    connections: ConnectionPools, table: Table, request: ClaimRequest, cap: int, offset: timedelta
) -> Backlog:
    """Count what a claim could take, along its index."""
    statement, values = backlog_statement(table, request, cap, offset)
    [(due, oldest, following)] = await connections.claim(statement, *values)
    return Backlog(min(due, cap), due <= cap, oldest, None if due else following)


def backlog_statement(
    table: Table, request: ClaimRequest, cap: int, offset: timedelta
) -> Statement:
    """Select how many are due, up to the cap; the oldest due time; the next time after now."""
    binder = Binder(offset)
    due = table.columns["due_at"]
    is_due = " AND ".join(candidates(table, request, binder))
    tests = candidates(table, request, binder, due=False)
    is_later = " AND ".join([*tests, f"{due.expr()} > {due.write_time(NOW)}"])
    limit = binder.add(cap + 1, "bigint")
    rows, order = f"FROM {table.ident} t WHERE", f"ORDER BY {due.expr()} LIMIT"
    return (
        f"""SELECT (SELECT count(*) FROM (SELECT 1 {rows} {is_due} {order} {limit}) q),
            (SELECT {due.read()} {rows} {is_due} {order} 1),
            (SELECT {due.read()} {rows} {is_later} {order} 1)""",
        binder.values,
    )
