"""Records in renamed and undeclared states, and with ids of version 0.1.0."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from esclusa.model.earlier_ids import IdChange
from esclusa.model.migration import MigrationStep
from esclusa.model.texts import text
from esclusa.stores.isolate import RefusedRenames
from esclusa.stores.postgres.client import TABLE_ERRORS, ConnectionPools, error_message
from esclusa.stores.postgres.codec import TEXT_TYPES, Table, literal
from esclusa.stores.postgres.limits import LONG_LIMITS
from esclusa.stores.postgres.queries import occurring_states
from esclusa.stores.postgres.statements import (
    NOW,
    ROW_LOCK,
    STAMP_ONCE,
    in_states,
    notify_call,
    row_place,
)
from esclusa.stores.postgres.steps import shown

_HAS_COLUMN = """SELECT EXISTS (
    SELECT 1 FROM pg_attribute
    WHERE attrelid = to_regclass($1) AND attname = $2 AND NOT attisdropped
)"""
_DEFAULT = """SELECT pg_get_expr(d.adbin, d.adrelid)
FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
WHERE d.adrelid = to_regclass($1) AND a.attname = $2"""
_ENUM_VALUES = "SELECT enumlabel::text FROM pg_enum WHERE enumtypid = to_regtype($1)"


async def states(connections: ConnectionPools, table: Table) -> list[str]:
    """Return the states that occur; none if the table has no states yet."""
    if table.status.instead is not None:
        return []
    [(exists,)] = await connections.fetch(_HAS_COLUMN, table.ident, table.status.column)
    return await occurring_states(connections, table) if exists else []


async def default_steps(connection: Any, table: Table) -> list[MigrationStep]:
    """Return the step that lets a table of this installation fill in the present initial state.

    Another program that inserts rows without a state would go on writing the earlier name.
    """
    life = table.kind.lifecycle
    earlier = [literal(old) for old in life.with_earlier([life.initial])[1:]]
    if not earlier or table.kind.attached or table.status.instead is not None:
        return []
    default = await connection.fetchval(_DEFAULT, table.ident, table.status.column)
    if default is None or not default.startswith(tuple(earlier)):
        return []
    column = f"{shown(table.ident)}.{table.status.column}"
    change = f"ALTER COLUMN {table.status.ident} SET DEFAULT {literal(life.initial)}"
    return [
        MigrationStep(
            f"set the default of {column} to {life.initial}",
            f"ALTER TABLE {table.ident} {change}",
            table.name,
        )
    ]


async def rename_states(
    connections: ConnectionPools,
    table: Table,
    limit: int,
    who: str,
    offset: timedelta,
    refused: RefusedRenames,
) -> int:
    """Give records in renamed states their present state; return how many.

    ``refused``: what the table refused so far. A batch with such a row is divided.
    """
    renamed = await _storable(connections, table)
    if not renamed:
        return 0

    async def rename(ids: Sequence[str] | None = None) -> int:
        statement = _rename_statement(table, renamed, only=ids is not None)
        given = list(refused.ids) if ids is None else list(ids)
        rows = await connections.claim(statement, offset, limit, who, given, limits=LONG_LIMITS)
        return int(rows[0][0])

    try:
        return await rename()
    except TABLE_ERRORS:  # a constraint or trigger of another program's table
        states = in_states(table, list(renamed))
        rows = await connections.claim(
            f"""SELECT {table.id.read()} FROM {table.ident} t
            WHERE {states} AND NOT {_is_one_of(table, "$1")} LIMIT $2::bigint""",
            list(refused.ids),
            limit,
            limits=LONG_LIMITS,
        )
        return await refused.divide([row[0] for row in rows], rename, TABLE_ERRORS, error_message)


def _is_one_of(table: Table, ids: str) -> str:
    return f"t.{table.id.ident} = ANY({table.id_array(f'{ids}::text[]')})"


async def _storable(connections: ConnectionPools, table: Table) -> Mapping[str, str]:
    """Return the renamed states that the column can hold: an enumerated type may lack them."""
    renamed, type = table.kind.lifecycle.renamed, table.status.sql_type
    if table.status.instead is not None:
        return {}
    if not renamed or type in TEXT_TYPES:
        return renamed
    values = {value for (value,) in await connections.fetch(_ENUM_VALUES, type)}
    return {o: n for o, n in renamed.items() if not values or o in values}


def _rename_statement(table: Table, renamed: Mapping[str, str], *, only: bool = False) -> str:
    """Pick, change and add to the history. Attempts and times of a record stay.

    A row that another session has locked, or a worker holds, is left for a later call. The last
    value has ids: the only ones to pick, or those to leave out.
    """
    picked = _is_one_of(table, "$4")
    picked = picked if only else f"(cardinality($4::text[]) = 0 OR NOT {picked})"
    if table.kind.track.complete:
        leased_by, due = table.columns["leased_by"], table.columns["due_at"]
        picked += f" AND (t.{leased_by.ident} IS NULL OR {due.expr()} <= {due.write_time(NOW)})"
    status = table.status
    cases = " ".join(
        f"WHEN {literal(old)} THEN {status.write(literal(new))}" for old, new in renamed.items()
    )
    place, same_place = row_place(table)
    history = ""
    if table.kind.history:
        reasons = " ".join(
            f"WHEN {literal(old)} THEN {literal(text('state_renamed', old=old, new=new).dump())}"
            for old, new in renamed.items()
        )
        history = f""",
        history AS (
            INSERT INTO {table.installation.history}
                (table_name, record_id, from_state, to_state, at, who, reason)
            SELECT {literal(table.name)}, id, was, now_is, {STAMP_ONCE}, $3::text,
                CASE was {reasons} END
            FROM moved
        )"""
    return f"""WITH picked AS MATERIALIZED (
            SELECT {place}t.{table.id.ident} AS id, {status.read()} AS was FROM {table.ident} t
            WHERE {in_states(table, list(renamed))} AND {picked}
            LIMIT $2::bigint {ROW_LOCK} SKIP LOCKED
        ),
        moved AS (
            UPDATE {table.ident} t SET {status.ident} = CASE p.was {cases} END
            FROM picked p WHERE {same_place}
            RETURNING {table.id.read()} AS id, p.was, {status.read()} AS now_is
        ){history}
        SELECT count(*), CASE WHEN count(*) > 0 THEN {notify_call(table)} END,
            $1::interval, $3::text
        FROM moved"""


async def change_ids(
    connections: ConnectionPools, table: Table, changes: Sequence[IdChange], archived: bool
) -> int:
    """Give records other ids; history and leases follow. Return how many were changed."""
    if not changes:
        return 0
    names = sorted({name for change in changes for name in change.fields})
    columns = ["id", "new_id", *(f"field_{i}" for i in range(len(names)))]
    values: list[list[str | None]] = [[c.id for c in changes], [c.new for c in changes]]
    values += [[change.fields.get(name) for change in changes] for name in names]
    sets = [f"{table.id.ident} = g.new_id"]
    for i, name in enumerate(names):
        ident = table.columns[name].ident
        sets.append(f"{ident} = COALESCE(g.field_{i}, t.{ident})")
    source = table.source(archived)
    given = ", ".join(f"${i + 2}::text[]" for i in range(len(columns)))
    statement = f"""WITH changed AS (
        UPDATE {source} t SET {", ".join(sets)}
        FROM unnest({given}) AS g({", ".join(columns)})
        WHERE t.{table.id.ident} = g.id AND (g.id = g.new_id OR NOT EXISTS (
            SELECT 1 FROM {source} o WHERE o.{table.id.ident} = g.new_id))
        RETURNING g.id, g.new_id
    ), history AS (
        UPDATE {table.installation.history} h SET record_id = c.new_id
        FROM changed c WHERE h.table_name = $1 AND h.record_id = c.id AND c.id <> c.new_id
    ), leases AS (
        UPDATE {table.installation.leases} l SET record_id = c.new_id
        FROM changed c WHERE l.table_name = $1 AND l.record_id = c.id AND c.id <> c.new_id
    ) SELECT count(*) FROM changed"""
    rows = await connections.claim(statement, table.name, *values, limits=LONG_LIMITS)
    return int(rows[0][0])


async def ids_changed(connections: ConnectionPools, table: Table) -> None:
    """Write down, in the comments of its tables, that no record has an id of version 0.1.0."""
    installation = table.installation
    idents = [table.ident, *([table.archive] if table.kind.archive else [])]
    for ident in idents:
        await connections.fetch(installation.mark_statement(ident), limits=LONG_LIMITS)
