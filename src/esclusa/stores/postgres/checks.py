"""What an existing table cannot hold: found before anything is changed, each with its remedy."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from asyncpg import exceptions as pg

from esclusa.model.columns import EXTRAS, TRACKING, ColumnType
from esclusa.model.kind import Kind
from esclusa.model.migration import TableFindings, situations, text_id_fault
from esclusa.stores.postgres.codec import (
    CHAR_TYPE,
    NUMBER_TYPES,
    PARAMETER_TYPES,
    TEXT_TYPES,
    TIME_WITHOUT_ZONE,
    Table,
    literal,
    literals,
)
from esclusa.stores.postgres.indexes import Index
from esclusa.stores.postgres.introspection import CheckConstraint, ExistingTable
from esclusa.stores.postgres.names import quote

_TRACKING_TYPES: dict[str, frozenset[str]] = {
    "text": TEXT_TYPES | {CHAR_TYPE},
    "int": NUMBER_TYPES,
    "time": frozenset({PARAMETER_TYPES["time"], TIME_WITHOUT_ZONE}),
    "json": frozenset({"json", "jsonb"}) | TEXT_TYPES,
}
_NULLABLE = ("last_error", "leased_by", *EXTRAS)
_TABLE_RELKINDS = ("r", "p")
_OTHER_RELKINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
# A worker's name (host, process, random letters) and the mark of a suspect.
_HOLDER_LETTERS = 64 + len("-1234567-abcd") + len("/8")
_ERROR_TYPE_LETTERS = 100
# How many rows of other programs a CHECK is tried on.
_SAMPLE = 200
_DUPLICATES_SHOWN = 5


async def check(connection: Any, table: Table, existing: ExistingTable) -> TableFindings:
    """Compare an existing table with what Esclusa will read and write."""
    kind = table.kind
    if existing.relkind not in _TABLE_RELKINDS:
        relation = _OTHER_RELKINDS.get(existing.relkind, "not a table")
        why = f"{kind.table} is {relation}; only a table can have the needed columns and indexes"
        return TableFindings([why], [])
    found = TableFindings([], [])
    if existing.rows_hidden:
        found.faults.append(
            f"row level security hides every row of {kind.table} from this role; run as its owner:"
            f" CREATE POLICY esclusa ON {table.ident} TO … USING (true) WITH CHECK (true)"
        )
    found.faults.extend(_missing_columns(kind, existing))
    found.faults.extend(
        f"table {kind.table} has no column {column}, which fill names"
        for column, _ in kind.fill
        if column not in existing.columns
    )
    for name, column in kind.track.items():
        if column in existing.columns:
            where = f"column {kind.table}.{column} (for {name})"
            found.faults.extend(f"{where} {why}" for why in _misfits(table, existing, name, column))
    type = table.id.sql_type
    if kind.makes_text_ids and (type in NUMBER_TYPES or (type == "uuid" and kind.key)):
        found.faults.append(text_id_fault(kind, kind.id_column, type))
    (found.faults if kind.inserted else found.notes).extend(_unfilled(table, existing))
    found.notes.extend(_not_null_fields(kind, existing))
    found.notes.extend(_table_notes(table, existing))
    await _try_constraints(connection, table, existing, found)
    return found


async def duplicates(connection: Any, table: Table, index: Index, nulls_differ: bool) -> list[str]:
    """Return a fault if rows have the same values in the columns of a missing unique index."""
    columns = ", ".join(map(quote, index.columns))
    filled = " AND ".join(f"{quote(c)} IS NOT NULL" for c in index.columns)
    where = f" WHERE {filled}" if nulls_differ or index.purpose == "id" else ""
    query = (
        f"SELECT {columns}, count(*) FROM {table.ident}{where}"
        f" GROUP BY {columns} HAVING count(*) > 1"
    )
    rows = await connection.fetch(f"{query} LIMIT {_DUPLICATES_SHOWN}")
    if not rows:
        return []
    shown = "; ".join(
        f"{', '.join(str(each) for each in row[:-1])} in {row[-1]} rows" for row in rows
    )
    what = "id" if index.purpose == "id" else "key"
    fault = (
        f"table {table.name}: several rows have the same {what} ({', '.join(index.columns)}):"
        f" {shown}; keep one of each. They are found by: {query}"
    )
    return [fault]


def _missing_columns(kind: Kind, existing: ExistingTable) -> Iterator[str]:
    needed: dict[str, tuple[str, ColumnType]] = {kind.id_column: ("id", "text")}
    if kind.attached and existing.made_by is None:
        needed |= {
            f.column: (f"field {f.name}", f.type)
            for f in kind.fields
            if f.name not in kind.added and f.name not in kind.lacks
        }
    for column, (what, type) in needed.items():
        # a field that reads an extra is added with the tracking
        if column not in existing.columns and column not in kind.extras.values():
            add = f"ALTER TABLE {quote(kind.table)} ADD COLUMN {quote(column)}"
            yield (
                f"table {kind.table} has no column {column} (for {what}); it has"
                f" {', '.join(existing.columns)}; map it to one of them, or run:"
                f" {add} {PARAMETER_TYPES[type]}"
            )


def _misfits(table: Table, existing: ExistingTable, name: str, column: str) -> Iterator[str]:
    """Return what a tracking column cannot hold, and how to change it."""
    kind = table.kind
    alter = f"ALTER TABLE {quote(kind.table)} ALTER COLUMN {quote(column)}"
    type, actual = (TRACKING | EXTRAS)[name], existing.columns[column]
    needed = PARAMETER_TYPES[type]
    if column in existing.generated:
        yield (
            "is generated by the table and cannot be written; map the value to another column, or"
            f" run: {alter} DROP EXPRESSION"
        )
        return
    possible = _TRACKING_TYPES[type] | (TEXT_TYPES if name == "created_at" else set())
    if actual not in possible and not (name == "status" and column in existing.enums):
        using = f" USING {quote(column)}::{needed}"
        yield f"is of type {actual}; it must hold {needed}; run: {alter} TYPE {needed}{using}"
        return
    if name in _NULLABLE and column in existing.not_null:
        yield f"is NOT NULL and must be empty at times; run: {alter} DROP NOT NULL"
    if name == "fence" and actual == "smallint":
        yield f"is a smallint and rises with every claim; run: {alter} TYPE bigint"
    needs = {"leased_by": _HOLDER_LETTERS, "error_type": _ERROR_TYPE_LETTERS}.get(name)
    length = existing.lengths.get(column)
    if length is not None:
        if name in ("last_error", "error_message"):
            yield f"holds {length} letters, too few for an error; run: {alter} TYPE text"
        elif needs is not None and length < needs:
            what = "a worker's name and its mark" if name == "leased_by" else "an error's type"
            yield f"holds {length} letters; {what} may have {needs}; run: {alter} TYPE text"
    if name == "status":
        yield from _state_misfits(kind, existing, column, alter)


def _state_misfits(kind: Kind, existing: ExistingTable, column: str, alter: str) -> Iterator[str]:
    states = kind.lifecycle.states
    longest, length = max(states, key=len), existing.lengths.get(column)
    if length is not None and length < len(longest):
        yield f"holds {length} letters, too few for the state {longest}; run: {alter} TYPE text"
    values = existing.enums.get(column, states)
    add_value = f"ALTER TYPE {existing.columns[column]} ADD VALUE"
    for state in states:
        if state not in values:
            yield f"cannot be {state}; run: {add_value} {literal(state)}"
    default = re.fullmatch(r"'((?:[^']|'')*)'(::.*)?", existing.defaults.get(column, ""))
    known = (*states, *kind.lifecycle.renamed)
    if kind.attached and default is not None and default[1].replace("''", "'") not in known:
        yield (
            f"has the default {default[0]}, which is not a state: rows that other programs insert"
            f" would never be taken; run: {alter} SET DEFAULT {literal(kind.initial)}"
        )


def _unfilled(table: Table, existing: ExistingTable) -> Iterator[str]:
    """Return the columns that make the table refuse every row that Esclusa inserts."""
    kind = table.kind
    optional = [c for n, c in kind.track.items() if n in _NULLABLE]
    filled = {*(c.column for c in table.stored.values()), *table.filled} - set(optional)
    if table.makes_ids:
        filled.discard(table.id.column)
    for column in existing.columns:
        required = column in existing.not_null and column not in existing.defaults
        if required and column not in filled and column not in optional:
            alter = f"ALTER TABLE {quote(kind.table)} ALTER COLUMN {quote(column)}"
            yield (
                f"column {kind.table}.{column} ({existing.columns[column]}) is NOT NULL without a"
                " default, and no field fills it: the table refuses every row that Esclusa"
                f" inserts; declare a field for it, set [tables.{kind.as_declared.table}] fill or"
                f" insert = false, or run: {alter} SET DEFAULT …"
            )


def _not_null_fields(kind: Kind, existing: ExistingTable) -> Iterator[str]:
    """Return the fields that may be empty in a record and not in the table."""
    for field in kind.fields:
        required = kind.model.model_fields[field.name].is_required()
        is_null = not required and kind.default_of(field.name) is None
        filled = field.column in existing.defaults or field.column in existing.generated
        if field.column in existing.not_null and is_null and not filled:
            alter = f"ALTER TABLE {quote(kind.table)} ALTER COLUMN {quote(field.column)}"
            yield (
                f"column {kind.table}.{field.column} (for {field.name}) is NOT NULL without a"
                " default: a new record without it is refused; if there are such records, give the"
                f" field a default, or run: {alter} DROP NOT NULL"
            )


def _table_notes(table: Table, existing: ExistingTable) -> Iterator[str]:
    kind = table.kind
    for field in kind.fields:
        if field.column in existing.generated:
            yield (
                f"column {kind.table}.{field.column} (for {field.name}) is generated by the table:"
                " a row that gives it a value is refused"
            )
    key = {table.columns[name].column for name in kind.key}
    by = ", ".join(existing.partition_key) or "an expression"
    if existing.relkind == "p" and kind.unique_key and not set(existing.partition_key) <= key:
        yield (
            f"table {kind.table} is partitioned by {by}: it cannot keep the key"
            f" ({', '.join(sorted(key))}) unique against other programs"
        )
    if existing.row_security and not existing.rows_hidden:
        yield f"table {kind.table} has row security: this role sees only what its policies allow"
    if existing.unlogged:
        yield f"table {kind.table} is unlogged: a crash of the server empties it"


# CHECK constraints


async def _try_constraints(
    connection: Any, table: Table, existing: ExistingTable, found: TableFindings
) -> None:
    """Add what the CHECKs of a table refuse of what Esclusa writes."""
    kind = table.kind
    tracked = {column: name for name, column in kind.track.items()}
    fields = {f.column for f in kind.fields} - set(tracked)
    for check in existing.checks:
        if not any(column in tracked for column in check.columns):
            continue
        others = [column for column in check.columns if column not in tracked]
        try:
            refused = await _refused(connection, table, existing, check, others)
        except (pg.SyntaxOrAccessError, pg.DataError, pg.PLPGSQLError) as error:
            found.notes.append(f"table {kind.table}: CHECK {check.name} was not tried: {error}")
            continue
        if not refused:
            continue
        depends = [column for column in others if column in fields]
        if depends or (others and not all(whole for _, whole in refused)):
            states = ", ".join(dict.fromkeys(state for state, _ in refused))
            found.notes.append(
                f"table {kind.table}: CHECK {check.name} ({check.expr}) allows {states} only with"
                f" some values of {', '.join(others)}"
            )
        else:
            found.faults.append(_constraint_fault(table, check, [s for s, _ in refused]))


def _constraint_fault(table: Table, check: CheckConstraint, refused: list[str]) -> str:
    states = list(dict.fromkeys(refused))
    name, status = quote(check.name), table.status
    wider = ""
    if status.column in check.columns and len(states) < len(table.kind.lifecycle.states):
        wider = (
            f", ADD CONSTRAINT {name} CHECK (({check.expr}) OR"
            f" {status.ident} IN ({literals(states)})) NOT VALID"
        )
    return (
        f"table {table.name}: CHECK {check.name} ({check.expr}) refuses what Esclusa writes to"
        f" {', '.join(check.columns)} in the state {', '.join(states)};"
        f" run: ALTER TABLE {table.ident} DROP CONSTRAINT {name}{wider}"
    )


async def _refused(
    connection: Any,
    table: Table,
    existing: ExistingTable,
    check: CheckConstraint,
    others: list[str],
) -> list[tuple[str, bool]]:
    """Return the states that a CHECK refuses, and whether it does with every row that was tried.

    Columns that Esclusa does not write have the values of existing rows; NULL if there is none.
    """
    tracked = {column: name for name, column in table.kind.track.items()}
    names = [column for column in check.columns if column in tracked]
    tried = list(situations(table.kind, table.stages))
    rows = ", ".join(
        f"({n}, {', '.join(_value(s.values[tracked[c]], existing.columns[c]) for c in names)})"
        for n, s in enumerate(tried)
    )
    given = ", ".join(["esclusa_n", *map(quote, names)])
    source = f"(VALUES {rows}) AS esclusa_given({given})"
    if others:
        columns = ", ".join(map(quote, others))
        sample = f"SELECT {columns} FROM {table.ident} LIMIT {_SAMPLE}"
        empty = ", ".join(f"NULL::{existing.columns[c]} AS {quote(c)}" for c in others)
        source += f""" CROSS JOIN (SELECT * FROM ({sample}) AS esclusa_some
            UNION ALL SELECT {empty} WHERE NOT EXISTS ({sample})) AS esclusa_rows"""
    answers = await connection.fetch(
        f"""SELECT esclusa_n, bool_and(({check.expr}) IS FALSE) FROM {source}
        GROUP BY esclusa_n HAVING bool_or(({check.expr}) IS FALSE) ORDER BY esclusa_n"""
    )
    return [(tried[n].state, whole) for n, whole in answers]


def _value(value: str | int | None, type: str) -> str:
    if value is None:
        return f"NULL::{type}"
    return f"{literal(value) if isinstance(value, str) else value}::{type}"
