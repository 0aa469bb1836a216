# ruff: noqa: S608 - statements are composed from declared names alone, quoted; values are bound
"""The schema: what is there, what the declared kinds need, and the statements that lead from one to the other.

Everything is additive: nothing is ever dropped or changed. One transaction under one lock, so that it happens whole,
once, whoever else migrates at the same time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from esclusa.model.columns import EXTRAS, TRACKING
from esclusa.model.errors import MigrationError, SchemaError
from esclusa.model.record import Kind
from esclusa.model.stage import Stage
from esclusa.stores.postgres.statements import fixed, in_states, ordering
from esclusa.stores.postgres.table import (
    NUMBERS,
    PADDED,
    PLAIN_TIME,
    TEXTS,
    WIRE,
    Column,
    Table,
    literal,
    quote,
)

LOCK = 0x65_73_63_6C_75_73_61
"""The advisory lock under which schemas are migrated."""

_TRACKED_AS: dict[str, frozenset[str]] = {
    "text": TEXTS | {PADDED},
    "int": NUMBERS,
    "time": frozenset({WIRE["time"], PLAIN_TIME}),
    "json": frozenset({"json", "jsonb"}) | TEXTS,
}
_EMPTIED = ("last_error", "leased_by", *EXTRAS)
"""Tracking that is null most of the time."""
_TABLES = ("r", "p")
_OTHERS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
_MIGRATIONS = """CREATE TABLE esclusa_migrations (
    number bigint PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
)"""


@dataclass(frozen=True)
class Step:
    """One statement of a migration, and what it does in a line."""

    what: str
    sql: str
    values: tuple[Any, ...] = ()


@dataclass
class Found:
    """A table as it is: its columns with their types, its indexes by name, the columns of each unique one."""

    columns: dict[str, str] = field(default_factory=dict)
    sort: str = "r"
    """What it is, as ``pg_class`` says."""
    enums: dict[str, list[str]] = field(default_factory=dict)
    """The values of the columns that are of an enumerated type."""
    limits: dict[str, int] = field(default_factory=dict)
    """How many letters a column holds, where that is declared."""
    filled: set[str] = field(default_factory=set)
    """Columns that are never null."""
    made: set[str] = field(default_factory=set)
    """Columns that the table fills itself where an insert does not."""
    indexes: set[str] = field(default_factory=set)
    unique: list[frozenset[str]] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """What is to be done, and the tables as they will be then."""

    steps: list[Step]
    tables: dict[str, Table]


async def plan(connection: Any, kinds: Sequence[Kind], stages: Sequence[Stage]) -> Plan:
    """Compare; SchemaError tells every table and column that cannot be mended by adding."""
    steps = await _migrations(connection)
    found = await introspect(
        connection,
        [quote(k.table) for k in kinds] + [f"archive.{quote(k.table)}" for k in kinds if k.archive],
    )
    version = connection.get_server_version().major
    nulls = "" if version < 15 else " NULLS NOT DISTINCT"
    faults: list[str] = []
    tables: dict[str, Table] = {}
    for kind in kinds:
        there = found.get(quote(kind.table))
        faults += _faults(kind, there)
        own = [s for s in stages if s.kind == kind]
        makes_ids = kind.database_id and (there is None or kind.id_column in there.made)
        table = tables[kind.table] = Table(
            kind, own, None if there is None else there.columns, version >= 18, makes_ids
        )
        archived = found.get(f"archive.{quote(kind.table)}")
        steps += (
            _table_steps(table, there)
            + _index_steps(table, there or Found(), nulls)
            + _archive_steps(table, there, archived)
        )
    if faults:
        raise SchemaError("the tables do not fit the declared records", faults)
    return Plan(steps, tables)


async def introspect(connection: Any, names: Iterable[str]) -> dict[str, Found]:
    """The tables of these (quoted) names that exist, found as the connection's search path finds them."""
    wanted = list(dict.fromkeys(names))
    found: dict[str, Found] = {}
    columns = await connection.fetch(
        """SELECT n.name, a.attname, format_type(a.atttypid, -1) AS type, c.relkind::text, a.attnotnull,
            CASE WHEN y.typtype = 'e' THEN ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = y.oid) END AS enum,
            CASE WHEN y.typname IN ('varchar', 'bpchar') AND a.atttypmod > 4 THEN a.atttypmod - 4 END AS letters,
            a.atthasdef OR a.attidentity <> '' AS made
        FROM unnest($1::text[]) AS n(name) JOIN pg_class c ON c.oid = to_regclass(n.name) JOIN pg_attribute a ON a.attrelid = c.oid
        JOIN pg_type y ON y.oid = a.atttypid WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY n.name, a.attnum""",
        wanted,
    )
    for name, column, type, sort, filled, enum, letters, made in columns:
        there = found.setdefault(name, Found(sort=sort))
        there.columns[column] = type
        if filled:
            there.filled.add(column)
        if enum is not None:
            there.enums[column] = enum
        if letters is not None:
            there.limits[column] = letters
        if made:
            there.made.add(column)
    indexes = await connection.fetch(
        """SELECT n.name, c.relname, i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AS whole,
            ARRAY(SELECT a.attname::text FROM pg_attribute a
                WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey[0:i.indnkeyatts - 1]))
        FROM unnest($1::text[]) AS n(name) JOIN pg_index i ON i.indrelid = to_regclass(n.name) JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indisvalid""",
        wanted,
    )
    for name, index, whole, of in indexes:
        if name in found:
            found[name].indexes.add(index)
            if whole:
                found[name].unique.append(frozenset(of))
    return found


def files() -> list[tuple[int, str, str]]:
    """Our migrations: number, name, text."""
    folder = resources.files("esclusa.stores.postgres.migrations")
    named = sorted(f.name for f in folder.iterdir() if re.fullmatch(r"\d{4}_\w+\.sql", f.name))
    return [(int(name[:4]), name, (folder / name).read_text(encoding="utf-8")) for name in named]


async def _migrations(connection: Any) -> list[Step]:
    ours = {
        number: (name, text, hashlib.sha256(text.encode()).hexdigest())
        for number, name, text in files()
    }
    there = await connection.fetchval("SELECT to_regclass('esclusa_migrations') IS NOT NULL")
    applied = (
        {r["number"]: r for r in await connection.fetch("SELECT * FROM esclusa_migrations")}
        if there
        else {}
    )
    for number, row in sorted(applied.items()):
        if number not in ours:
            raise MigrationError(
                f"the schema has migration {row['name']}, which this program does not know: it is newer; use a newer version of Esclusa"
            )
        name, _, checksum = ours[number]
        if row["checksum"] != checksum:
            raise MigrationError(
                f"migration {name} was edited after it ran on {row['applied_at']:%Y-%m-%d}; put the file back as it was and write a new one"
            )
    steps = [] if there else [Step("create table esclusa_migrations", _MIGRATIONS)]
    for number, (name, text, checksum) in sorted(ours.items()):
        if number not in applied:
            steps.append(Step(f"run migration {name}", text.strip()))
            note = f"INSERT INTO esclusa_migrations (number, name, checksum) VALUES ({number}, {literal(name)}, {literal(checksum)})"
            steps.append(Step("", note))
    return steps


def _faults(kind: Kind, there: Found | None) -> list[str]:
    """What adding columns cannot mend."""
    if there is None:
        return []
    if there.sort not in _TABLES:
        return [
            f"{kind.table} is {_OTHERS.get(there.sort, 'no table')}; only a table can have the columns and indexes that are needed"
        ]
    faults = []
    needed = {kind.id_column: "id"} | (
        {f.column: f"field {f.name}" for f in kind.fields} if kind.attached else {}
    )
    written = set(
        kind.extras.values()
    )  # a business field that reads what the engine writes comes with the tracking
    for column, what in needed.items():
        if column not in there.columns and column not in written:
            faults.append(
                f"table {kind.table} has no column {column} (for {what}); it has {', '.join(there.columns)}"
            )
    for name, column in kind.track.columns.items():
        type = (TRACKING | EXTRAS)[name]
        actual = there.columns.get(column)
        if (
            actual is not None
            and actual not in _TRACKED_AS[type]
            and not (name == "status" and column in there.enums)
        ):
            faults.append(
                f"column {kind.table}.{column} (for {name}) is of type {actual}; it must hold {WIRE[type]}"
            )
        elif actual is not None:
            faults += [
                f"column {kind.table}.{column} (for {name}) {why}"
                for why in _narrow(kind, there, name, column)
            ]
    return faults


def _narrow(kind: Kind, there: Found, name: str, column: str) -> list[str]:
    """What a tracking column of the right type cannot hold, and what would let it."""
    alter, faults = f"ALTER TABLE {quote(kind.table)} ALTER COLUMN {quote(column)}", []
    if name in _EMPTIED and column in there.filled:
        faults.append(f"is NOT NULL and must be empty at times; run: {alter} DROP NOT NULL")
    letters = there.limits.get(column)
    if name == "last_error" and letters is not None:
        faults.append(f"holds {letters} letters, too few for an error; run: {alter} TYPE text")
    if name == "status":
        states = kind.lifecycle.states
        longest = max(states, key=len)
        if letters is not None and letters < len(longest):
            faults.append(
                f"holds {letters} letters, too few for the state {longest}; run: {alter} TYPE text"
            )
        lacking = [state for state in states if state not in there.enums.get(column, states)]
        type = there.columns[column]
        faults += [
            f"cannot be {state}; run: ALTER TYPE {type} ADD VALUE {literal(state)}"
            for state in lacking
        ]
    return faults


def _define(column: Column, kind: Kind) -> str:
    """A column of ours: text compares by code point, as on every store."""
    text = f"{column.ident} {column.sql}" + (' COLLATE "C"' if column.sql == "text" else "")
    if column.name == "id":
        return (
            text
            + (" GENERATED BY DEFAULT AS IDENTITY" if kind.database_id else "")
            + " PRIMARY KEY"
        )
    if column.name in TRACKING and not kind.attached:
        return text + _TRACKING_DEFAULTS.get(column.name, "").format(initial=literal(kind.initial))
    if column.name in kind.by_name and not kind.attached:
        info = kind.model.model_fields[column.name]
        default = (
            None
            if info.is_required()
            else info.get_default(call_default_factory=True, validated_data={})
        )
        return text + (f" DEFAULT {column.constant(default)}" if default is not None else "")
    return text


_TRACKING_DEFAULTS = {
    "status": " NOT NULL DEFAULT {initial}",
    "attempts": " NOT NULL DEFAULT 0",
    "due_at": " NOT NULL DEFAULT now()",
    "fence": " NOT NULL DEFAULT 0",
    "created_at": " NOT NULL DEFAULT now()",
    "updated_at": " NOT NULL DEFAULT now()",
}


def _table_steps(table: Table, there: Found | None) -> list[Step]:
    wanted: dict[str, Column] = {}
    for column in (
        *table.columns.values(),
        *table.extras.values(),
    ):  # an extra may share the column of a field
        wanted.setdefault(column.column, column)
    if there is None:
        body = ",\n    ".join(_define(column, table.kind) for column in wanted.values())
        return [Step(f"create table {table.name}", f"CREATE TABLE {table.ident} (\n    {body}\n)")]
    steps = [
        Step(
            f"add column {table.name}.{column.column}",
            f"ALTER TABLE {table.ident} ADD COLUMN {_define(column, table.kind)}",
        )
        for column in wanted.values()
        if column.column not in there.columns
    ]
    return steps if table.status.column in there.columns else steps + _adopt_steps(table)


def _adopt_steps(table: Table) -> list[Step]:
    """Rows that were there before the tracking and need no work any more."""
    status, attempts = table.status.ident, table.columns["attempts"]
    return [
        Step(
            f"adopt rows of {table.name} as {state}",
            f"UPDATE {table.ident} SET {status} = {literal(state)}, {attempts.ident} = {attempts.expr('')}"
            f" WHERE {' AND '.join(fixed(table, name, cond, '') for name, cond in where)} AND {status} IS NULL",
        )
        for state, where in table.kind.adopt
    ]


def _index_steps(table: Table, there: Found, nulls: str) -> list[Step]:
    kind = table.kind
    steps = []

    def index(purpose: str, columns: str, where: str = "", unique: str = "") -> None:
        definition = f"{columns}{nulls if unique else ''}{f' WHERE {where}' if where else ''}"
        name = f"{table.name[:36]}_{purpose[:12]}_{hashlib.sha256(definition.encode()).hexdigest()[:8]}"
        if name not in there.indexes:
            steps.append(
                Step(
                    f"create index {name}",
                    f"CREATE {unique}INDEX {quote(name)} ON {table.ident} {definition}",
                )
            )

    existing = bool(there.columns)
    if existing and frozenset({table.id.column}) not in there.unique:
        index("id", f"({table.id.ident})", unique="UNIQUE ")
    if kind.key and (kind.attached or kind.database_id):
        columns = [table.columns[name].column for name in kind.key]
        if frozenset(columns) not in there.unique:
            index("key", f"({', '.join(map(quote, columns))})", unique="UNIQUE ")
    index("state", f"({_keys(table, [('status', False), ('updated_at', False)])})")
    for stage in table.stages:
        where = " AND ".join(
            [in_states(table, stage.states, ""), *(fixed(table, n, c, "") for n, c in stage.where)]
        )
        index("claim", f"({_keys(table, [('due_at', False), ('id', False)])})", where)
        if stage.order:
            index(
                "order",
                f"({_keys(table, [(o.field, o.descending) for o in stage.order] + [('id', False)])})",
                where,
            )
    for names in kind.indexes:
        index("by", f"({_keys(table, [(n.lstrip('-'), n.startswith('-')) for n in names])})")
    seen: dict[str, Step] = {step.sql: step for step in steps}
    return list(seen.values())


def _keys(table: Table, keys: Sequence[tuple[str, bool]]) -> str:
    parts = []
    for name, descending in keys:
        text = ordering(table, name, descending, "")
        expr = table.columns[name].expr("")
        parts.append(
            text.replace(expr, f"({expr})", 1) if table.columns[name].fallback is not None else text
        )
    return ", ".join(parts)


def _archive_steps(table: Table, there: Found | None, archived: Found | None) -> list[Step]:
    if not table.kind.archive:
        return []
    name = f"{table.name[:36]}_export"
    index = Step(
        f"create index archive.{name}",
        f"CREATE INDEX {quote(name)} ON {table.archive} (export_id, archived_at)",
    )
    if archived is None:
        own = [
            f"{c.ident} {c.sql}"
            for c in table.archived.values()
            if c.column not in table.kind.columns.values()
        ]
        body = ", ".join(
            [f"LIKE {table.ident} INCLUDING DEFAULTS", *own, f"PRIMARY KEY ({table.id.ident})"]
        )
        return [
            Step("create schema archive", "CREATE SCHEMA IF NOT EXISTS archive"),
            Step(f"create table archive.{table.name}", f"CREATE TABLE {table.archive} ({body})"),
            index,
        ]
    columns = dict(there.columns if there is not None else {})
    for column in (*table.columns.values(), *table.extras.values(), *table.archived.values()):
        columns.setdefault(column.column, column.sql)
    steps = [
        Step(
            f"add column archive.{table.name}.{name}",
            f"ALTER TABLE {table.archive} ADD COLUMN {quote(name)} {type}",
        )
        for name, type in columns.items()
        if name not in archived.columns
    ]
    return steps if name in archived.indexes else [*steps, index]


async def archive_columns(connection: Any, table: Table) -> list[str]:
    """Every column of the table, an outsider's too: nothing is left behind when a record goes to the archive."""
    found = await introspect(connection, [table.ident, f"archive.{table.ident}"])
    here, there = (found.get(n, Found()).columns for n in (table.ident, f"archive.{table.ident}"))
    missing = [name for name in (*here, *table.archived) if name not in there]
    if missing:
        raise SchemaError(
            f"archive.{table.name}", [f"it lacks {', '.join(missing)}; run: esclusa migrate"]
        )
    return [name for name in here if name not in table.archived]
