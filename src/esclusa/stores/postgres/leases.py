"""Renew and end leases; a lease whose row cannot be written is kept in a table of its own.

Another program may have locked the row, or a trigger of it may fail. A claim takes no record whose
lease is kept there.
"""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from esclusa.model.errors import StoreUnavailable
from esclusa.model.settlement import ClaimRequest, Renewal, Settlement
from esclusa.stores.isolate import StatementTimeout
from esclusa.stores.postgres.client import TABLE_ERRORS, ConnectionPools
from esclusa.stores.postgres.codec import TIME_WITHOUT_ZONE, Table, TableColumn, literal
from esclusa.stores.postgres.moves import in_joined, joined
from esclusa.stores.postgres.statements import (
    IS_LEASED,
    NOW,
    ROW_LOCK,
    STAMP,
    STAMP_ONCE,
    WriteContext,
)

_FORGET = """WITH old AS MATERIALIZED (
    SELECT table_name, record_id FROM {leases}
    WHERE until < (now() + $1::interval) - interval '1 minute'
    LIMIT 1000 FOR UPDATE SKIP LOCKED
) DELETE FROM {leases} l USING old o
WHERE l.table_name = o.table_name AND l.record_id = o.record_id"""
# A lease of no record, which has ended.
_CHECK = """INSERT INTO {leases} (table_name, record_id, fence, until)
VALUES ('', gen_random_uuid()::text, 0, now())"""


def not_kept(table: Table) -> str:
    """Return the test that a record is not an orphan whose lease is kept apart."""
    c = table.columns
    return f"""(t.{c["leased_by"].ident} IS NULL OR NOT EXISTS (
        SELECT 1 FROM {table.installation.leases} l
        WHERE l.table_name = {literal(table.name)} AND l.record_id = {table.id.read()}
            AND l.fence = {c["fence"].expr()} AND l.until > {NOW}
    ))"""


def not_locked_by_others(table: Table) -> list[str]:
    """Return the test that no other program's worker has a record, or that its lock is old.

    A worker of another program locks rows that are due, and leaves ``due_at`` as it is. Our own
    leases end after they began.
    """
    since = table.extras.get("leased_at")
    if not table.kind.attached or since is None:
        return []
    age = f"interval '{table.kind.track.abandoned_after} seconds'"
    locked, due = _with_zone(since), _with_zone(table.columns["due_at"])
    return [f"(t.{since.ident} IS NULL OR {due} > {locked} OR {locked} <= {NOW} - {age})"]


async def foreign_locks(
    connections: ConnectionPools, table: Table, ids: Sequence[str], offset: timedelta
) -> dict[str, datetime]:
    """Return which of these records another program's worker has, and since when."""
    tests = not_locked_by_others(table)
    if not tests:
        return {}
    since = _with_zone(table.extras["leased_at"])
    rows = await connections.read(
        f"""SELECT {table.id.read()}, {since} FROM {table.ident} t
        WHERE t.{table.id.ident} = ANY({table.id_array("$2::text[]")})
            AND ({tests[0]}) IS NOT TRUE""",
        offset,
        table.possible_ids(ids),
    )
    return dict(rows)


def abandoned(table: Table, request: ClaimRequest) -> list[str]:
    """Return the test that another program left a record in the hold state long ago."""
    if request.hold is None or request.abandoned_after is None:
        return []
    free, updated = table.columns["leased_by"].ident, _with_zone(table.columns["updated_at"])
    age = f"interval '{request.abandoned_after} seconds'"
    held = f"{table.status.expr()} <> {literal(request.hold)} OR t.{free} IS NOT NULL"
    return [f"({held} OR {updated} IS NULL OR {updated} <= {NOW} - {age})"]


def _with_zone(column: TableColumn) -> str:
    value = f"t.{column.ident}"
    return f"({value} AT TIME ZONE 'UTC')" if column.sql_type == TIME_WITHOUT_ZONE else value


async def check_writes(connections: ConnectionPools) -> None:
    """Raise StoreUnavailable unless the store commits a small write in time."""
    try:
        await connections.fetch(_CHECK.format(leases=connections.installation.leases))
    except StatementTimeout as error:  # not the fault of a single record
        raise StoreUnavailable(str(error)) from error


async def renew(
    context: WriteContext, table: Table, marked: bool, renewals: Sequence[Renewal]
) -> set[str]:
    """Extend leases of one kind; return the ids still held.

    ``marked``: write their holder, too, where the row can be written.
    """
    renewals = [r for r in renewals if table.is_possible_id(r.ref.id)]
    statement = table.statement(("renew", marked), lambda: _renew_statement(table, marked))
    holders = [[r.holder for r in renewals]] if marked else []
    try:
        rows = await context.fetch(statement, context.offset, *_arrays(renewals), *holders)
    except (StatementTimeout, *TABLE_ERRORS):  # of a single row, but which?
        return await _keep(context, table, renewals)
    held = {row[0] for row in rows}
    others = [r for r in renewals if r.ref.id not in held]  # they are locked or lost
    return held | await _keep(context, table, others) if others else held


async def end_overtaken(
    context: WriteContext, table: Table, settlements: Sequence[Settlement]
) -> dict[str, str]:
    """End the leases of records that another program has moved; return their states by id.

    Nothing else of such a record is written. Its history says who held it.
    """
    given = [s for s in settlements if table.is_possible_id(s.ref.id)]
    statement = table.statement("overtaken", lambda: _overtaken_statement(table))
    rows = await context.fetch(
        statement,
        context.offset,
        [s.ref.id for s in given],
        [s.fence for s in given],
        [joined(s.transition.held_in) for s in given],
        [s.frm[0] for s in given],
        [s.run for s in given],
        [s.transition.overtaken for s in given],
    )
    return {row[0]: row[1] for row in rows}


def _overtaken_statement(table: Table) -> str:
    c, key, history = table.columns, table.id.ident, ""
    ended = [c["leased_by"], *(x for n, x in table.extras.items() if n == "leased_at")]
    if table.kind.history:
        history = f""",
        history AS (
            INSERT INTO {table.installation.history}
                (table_name, record_id, from_state, to_state, at, who, run, reason)
            SELECT {literal(table.name)}, id, was, state, {STAMP_ONCE}, '', run, reason FROM ended
        )"""
    return f"""WITH ended AS (
            UPDATE {table.ident} t SET {", ".join(f"{column.ident} = NULL" for column in ended)}
            FROM unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[])
                AS u(id, fence, states, was, run, reason)
            WHERE t.{key} = {table.id.write("u.id")}
                AND t.{key} = ANY({table.id_array("$2::text[]")})
                AND {c["fence"].expr()} = u.fence
                AND {IS_LEASED.format(leased_by=c["leased_by"].ident)}
                AND NOT {in_joined(table, "u.states")}
            RETURNING u.id, {table.status.read()} AS state, u.was, u.run, u.reason
        ){history}
        SELECT id, state, $1::interval FROM ended"""


def _arrays(renewals: Sequence[Renewal]) -> tuple[list[str], list[int], list[float]]:
    return (
        [r.ref.id for r in renewals],
        [r.fence for r in renewals],
        [r.seconds for r in renewals],
    )


async def _keep(context: WriteContext, table: Table, renewals: Sequence[Renewal]) -> set[str]:
    """Keep the leases that are held apart from their rows; return their ids."""
    statement = table.statement("keep", lambda: _keep_statement(table))
    rows = await context.fetch(statement, context.offset, *_arrays(renewals))
    await context.fetch(_FORGET.format(leases=table.installation.leases), context.offset)
    return {row[0] for row in rows}


def _held(table: Table, marked: bool = False) -> str:
    """Return the source of the rows ``t`` that are held under the leases ``u``."""
    c, key = table.columns, table.id.ident
    holders, holder = (", $5::text[]", ", holder") if marked else ("", "")
    return f"""{table.ident} t
        JOIN unnest($2::text[], $3::bigint[], $4::double precision[]{holders})
            AS u(id, fence, seconds{holder})
            ON t.{key} = {table.id.write("u.id")} AND {c["fence"].expr()} = u.fence
        WHERE t.{key} = ANY({table.id_array("$2::text[]")})
            AND {IS_LEASED.format(leased_by=c["leased_by"].ident)}"""


def _renew_statement(table: Table, marked: bool) -> str:
    """Extend the leases of rows that nobody has locked; select their ids.

    The update finds its rows by id, not by ctid: another program may have changed a row just
    before it was locked.
    """
    due, key = table.columns["due_at"], table.id.ident
    until = f"{STAMP} + f.seconds * interval '1 second'"
    mark = f", {table.columns['leased_by'].ident} = f.holder" if marked else ""
    return f"""WITH free AS MATERIALIZED (
        SELECT t.{key} AS key, u.* FROM {_held(table, marked)} {ROW_LOCK} OF t SKIP LOCKED
    )
    UPDATE {table.ident} t SET {due.ident} = {due.write_time(until)}{mark}
    FROM free f WHERE t.{key} = f.key
    RETURNING f.id"""


def _keep_statement(table: Table) -> str:
    return f"""INSERT INTO {table.installation.leases} (table_name, record_id, fence, until)
        SELECT {literal(table.name)}, u.id, u.fence, {STAMP} + u.seconds * interval '1 second'
        FROM {_held(table)}
        ON CONFLICT (table_name, record_id)
            DO UPDATE SET fence = EXCLUDED.fence, until = EXCLUDED.until
        RETURNING record_id"""
