"""The schema: what the declared kinds need of the database, and the statements that add it.

Everything is additive: nothing is dropped or changed. ``migrate`` runs in one transaction under one
lock, so that it happens whole and once, also if several processes migrate at the same time.
"""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from asyncpg import exceptions as pg

from esclusa.model.columns import EXTRAS, TRACKING
from esclusa.model.errors import SchemaError, SchemaRefused, StoreConflict
from esclusa.model.query import Order
from esclusa.model.record import Kind
from esclusa.model.stage import Stage
from esclusa.model.texts import text
from esclusa.stores.postgres.carry_over import EarlierTables, as_moved
from esclusa.stores.postgres.client import ConnectionPools, mapped_errors
from esclusa.stores.postgres.codec import (
    CHAR_TYPE,
    NUMBER_TYPES,
    PARAMETER_TYPES,
    TEXT_TYPES,
    TIME_WITHOUT_ZONE,
    Table,
    TableColumn,
    literal,
)
from esclusa.stores.postgres.introspection import (
    ExistingTable,
    business_schemas,
    introspect,
    made_elsewhere,
)
from esclusa.stores.postgres.limits import MIGRATION_LIMITS
from esclusa.stores.postgres.locks import session_blockers
from esclusa.stores.postgres.names import Installation, quote
from esclusa.stores.postgres.renames import default_steps
from esclusa.stores.postgres.statements import constant_condition, direction, in_states
from esclusa.stores.postgres.steps import MigrationStep, create_table, shown
from esclusa.stores.postgres.system_tables import plan_system

_TRACKING_TYPES: dict[str, frozenset[str]] = {
    "text": TEXT_TYPES | {CHAR_TYPE},
    "int": NUMBER_TYPES,
    "time": frozenset({PARAMETER_TYPES["time"], TIME_WITHOUT_ZONE}),
    "json": frozenset({"json", "jsonb"}) | TEXT_TYPES,
}
_NULLABLE = ("last_error", "leased_by", *EXTRAS)
_TABLE_RELKINDS = ("r", "p")
_OTHER_RELKINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
_TRACKING_DEFAULTS = {
    "status": " NOT NULL DEFAULT {initial}",
    "attempts": " NOT NULL DEFAULT 0",
    "due_at": " NOT NULL DEFAULT now()",
    "fence": " NOT NULL DEFAULT 0",
    "created_at": " NOT NULL DEFAULT now()",
    "updated_at": " NOT NULL DEFAULT now()",
}


@dataclass(frozen=True)
class SchemaPlan:
    """What is missing, and the tables as they will be."""

    steps: list[MigrationStep]
    tables: dict[str, Table]

    @property
    def summaries(self) -> list[str]:
        return [step.summary for step in self.steps if step.summary]


async def migrate(
    connections: ConnectionPools,
    kinds: Sequence[Kind],
    stages: Sequence[Stage],
    tables: dict[str, Table],
) -> list[str]:
    """Run what is missing in one transaction; put the tables as they are then into ``tables``."""
    connection = await connections.dedicated()
    try:
        with mapped_errors(connections.url):
            async with connection.transaction():
                await connection.execute("SET LOCAL lock_timeout = 0")  # another migration may last
                await connection.execute(
                    "SELECT pg_advisory_xact_lock($1)", connections.installation.migration_lock
                )
                await connection.execute(MIGRATION_LIMITS.set_local)
                missing = await plan(connection, connections.installation, kinds, stages)
                async with session_blockers(connections, connection) as blockers:
                    for step in missing.steps:
                        await _run(connection, step, blockers)
                tables |= (await plan(connection, connections.installation, kinds, stages)).tables
        return missing.summaries
    finally:
        await connection.close()


async def _run(connection: Any, step: MigrationStep, blockers: dict[int, str]) -> None:
    blockers.clear()
    try:
        await connection.execute(step.sql)
    except pg.LockNotAvailableError as error:
        holders = "; ".join(blockers.values()) or "another session"
        raise StoreConflict(text("migration_locked", step=step.summary, holder=holders)) from error
    except (pg.InsufficientPrivilegeError, pg.InvalidSchemaNameError) as error:
        raise SchemaRefused(f"cannot {step.summary}", [f"{error}; {step.help}"]) from error
    except (
        pg.SyntaxOrAccessError,
        pg.IntegrityConstraintViolationError,
        pg.DataError,
        pg.FeatureNotSupportedError,
    ) as error:
        raise SchemaError(f"cannot {step.summary}", [str(error)]) from error


async def plan(
    connection: Any, installation: Installation, kinds: Sequence[Kind], stages: Sequence[Stage]
) -> SchemaPlan:
    """Return what is missing; SchemaError names every fault that adding cannot repair."""
    own = [kind.table for kind in kinds if kind.system]
    has_archive = any(kind.archive for kind in kinds)
    system = await plan_system(connection, installation, own, archives=has_archive)
    steps = system.steps
    schemas = await business_schemas(connection, installation, kinds)
    idents = {kind: installation.table(kind, schemas.get(kind)) for kind in kinds}
    archives = [installation.archive(kind.table) for kind in kinds if kind.archive]
    found = await _existing(connection, installation, [*idents.values(), *archives], system.earlier)
    version = connection.get_server_version().major
    nulls = "" if version < 15 else " NULLS NOT DISTINCT"
    faults: list[str] = []
    refused: list[str] = []
    tables: dict[str, Table] = {}
    for kind in kinds:
        existing = found.get(idents[kind])
        archived = found.get(installation.archive(kind.table)) if kind.archive else None
        refused += _refusals(installation, kind, idents[kind], existing, archived)
        faults += _faults(kind, existing)
        makes_ids = kind.database_id and (existing is None or kind.id_column in existing.defaults)
        table = tables[kind.table] = Table(
            kind,
            [s for s in stages if s.kind == kind],
            None if existing is None else existing.columns,
            version >= 18,
            makes_ids,
            installation=installation,
            schema=schemas.get(kind),
        )
        steps += _table_steps(table, existing)
        steps += await default_steps(connection, table)
        steps += _index_steps(table, existing or ExistingTable(), nulls)
        steps += _archive_steps(table, existing, archived)
    missing = [k.table for k in kinds if not k.system and idents[k] not in found]
    refused += [
        f"table {name} belongs to this installation, and the search path does not have it;"
        " a second installation needs its own ESCLUSA_POSTGRES_SCHEMA"
        for name in await made_elsewhere(connection, installation, missing)
    ]
    if refused:
        raise SchemaRefused("these tables cannot be used", refused)
    if faults:
        raise SchemaError("the tables do not fit the declared records", faults)
    return SchemaPlan(steps, tables)


async def _existing(
    connection: Any, installation: Installation, idents: Sequence[str], earlier: EarlierTables
) -> dict[str, ExistingTable]:
    """Return the tables as they will be when those of an earlier version are carried over."""
    sources = {ident: earlier.moved.get(ident, ident) for ident in idents}
    found = await introspect(connection, sources.values())
    existing = {ident: found[source] for ident, source in sources.items() if source in found}
    for ident, table in existing.items():
        name = ident.rpartition(".")[2]
        if sources[ident] != ident:
            as_moved(table, sources[ident], ident)
        elif f"{quote(table.schema)}.{name}" not in earlier.marked:
            continue
        table.made_by = installation.schema
    return existing


def _refusals(
    installation: Installation,
    kind: Kind,
    ident: str,
    existing: ExistingTable | None,
    archived: ExistingTable | None,
) -> list[str]:
    """Return whose the existing tables are, if they cannot be used for that.

    A record that is attached may use tables of other programs, but not of another installation.
    """
    named = [(ident, existing), (installation.archive(kind.table), archived)]
    faults = [
        installation.refusal(name, table.made_by)
        for name, table in named
        if table is not None and not (kind.attached and table.made_by is None)
    ]
    help = (
        "if it is another program's table, attach to it with track=track(…);"
        " a second installation needs its own ESCLUSA_POSTGRES_SCHEMA and search path"
    )
    return [f"{fault}; {help}" for fault in faults if fault]


def _faults(kind: Kind, existing: ExistingTable | None) -> list[str]:
    """Return why an existing table cannot be used, whatever is added to it."""
    if existing is None:
        return []
    if existing.relkind not in _TABLE_RELKINDS:
        relation = _OTHER_RELKINDS.get(existing.relkind, "not a table")
        return [f"{kind.table} is {relation}; only a table can have the needed columns and indexes"]
    needed = {kind.id_column: "id"}
    if kind.attached:
        needed |= {f.column: f"field {f.name}" for f in kind.fields}
    faults = [
        f"table {kind.table} has no column {column} (for {what}); it has"
        f" {', '.join(existing.columns)}"
        for column, what in needed.items()
        # a field that reads an extra is added with the tracking
        if column not in existing.columns and column not in kind.extras.values()
    ]
    for name, column in kind.track.items():
        if column not in existing.columns:
            continue
        type, actual = (TRACKING | EXTRAS)[name], existing.columns[column]
        where = f"column {kind.table}.{column} (for {name})"
        is_enum = name == "status" and column in existing.enums
        if actual not in _TRACKING_TYPES[type] and not is_enum:
            faults.append(f"{where} is of type {actual}; it must hold {PARAMETER_TYPES[type]}")
        else:
            faults += [f"{where} {why}" for why in _column_faults(kind, existing, name, column)]
    return faults


def _column_faults(kind: Kind, existing: ExistingTable, name: str, column: str) -> list[str]:
    """Return what a tracking column of the right type cannot hold, and how to change it."""
    alter, faults = f"ALTER TABLE {quote(kind.table)} ALTER COLUMN {quote(column)}", []
    if name in _NULLABLE and column in existing.not_null:
        faults.append(f"is NOT NULL and must be empty at times; run: {alter} DROP NOT NULL")
    length = existing.lengths.get(column)
    if name == "last_error" and length is not None:
        faults.append(f"holds {length} letters, too few for an error; run: {alter} TYPE text")
    if name == "status":
        states = kind.lifecycle.states
        longest = max(states, key=len)
        if length is not None and length < len(longest):
            faults.append(
                f"holds {length} letters, too few for the state {longest}; run: {alter} TYPE text"
            )
        values = existing.enums.get(column, states)
        add_value = f"ALTER TYPE {existing.columns[column]} ADD VALUE"
        faults += [
            f"cannot be {state}; run: {add_value} {literal(state)}"
            for state in states
            if state not in values
        ]
    return faults


def _define(column: TableColumn, kind: Kind) -> str:
    """Return a column's definition. Text compares by code point, as on every store."""
    text = f"{column.ident} {column.sql_type}"
    if column.sql_type == "text":
        text += ' COLLATE "C"'
    if column.name == "id":
        identity = " GENERATED BY DEFAULT AS IDENTITY" if kind.database_id else ""
        return f"{text}{identity} PRIMARY KEY"
    if kind.attached:
        return text
    if column.name in TRACKING:
        return text + _TRACKING_DEFAULTS.get(column.name, "").format(initial=literal(kind.initial))
    if column.name in kind.by_name:
        info = kind.model.model_fields[column.name]
        if not info.is_required():
            default = info.get_default(call_default_factory=True, validated_data={})
            if default is not None:
                return f"{text} DEFAULT {column.constant(default)}"
    return text


def _table_steps(table: Table, existing: ExistingTable | None) -> list[MigrationStep]:
    wanted: dict[str, TableColumn] = {}
    for column in (*table.columns.values(), *table.extras.values()):
        wanted.setdefault(column.column, column)  # an extra may share the column of a field
    if existing is None:
        body = ",\n    ".join(_define(column, table.kind) for column in wanted.values())
        return [create_table(table.installation, table.ident, f"\n    {body}\n")]
    steps = [
        MigrationStep(
            f"add column {table.name}.{column.column}",
            f"ALTER TABLE {table.ident} ADD COLUMN {_define(column, table.kind)}",
        )
        for column in wanted.values()
        if column.column not in existing.columns
    ]
    return steps if table.status.column in existing.columns else steps + _adopt_steps(table)


def _adopt_steps(table: Table) -> list[MigrationStep]:
    """Return the updates of rows older than the tracking, for which no work is left."""
    status, attempts = table.status.ident, table.columns["attempts"]
    steps = []
    for state, where in table.kind.adopt:
        tests = [constant_condition(table, name, cond, "") for name, cond in where]
        tests.append(f"{status} IS NULL")
        sets = f"{status} = {literal(state)}, {attempts.ident} = {attempts.expr('')}"
        sql = f"UPDATE {table.ident} SET {sets} WHERE {' AND '.join(tests)}"
        steps.append(MigrationStep(f"adopt rows of {table.name} as {state}", sql))
    return steps


def _index_steps(table: Table, existing: ExistingTable, nulls: str) -> list[MigrationStep]:
    kind = table.kind
    steps: dict[str, MigrationStep] = {}

    def index(purpose: str, columns: str, where: str = "", unique: str = "") -> None:
        definition = f"({columns}){nulls if unique else ''}{f' WHERE {where}' if where else ''}"
        checksum = hashlib.sha256(definition.encode()).hexdigest()[:8]
        name = f"{table.installation.name(table.name)[:36]}_{purpose[:12]}_{checksum}"
        if name not in existing.indexes:
            sql = f"CREATE {unique}INDEX {quote(name)} ON {table.ident} {definition}"
            steps.setdefault(sql, MigrationStep(f"create index {name}", sql))

    if existing.columns and frozenset({table.id.column}) not in existing.unique:
        index("id", table.id.ident, unique="UNIQUE ")
    if kind.key and (kind.attached or kind.database_id):
        columns = [table.columns[name].column for name in kind.key]
        if frozenset(columns) not in existing.unique:
            index("key", ", ".join(map(quote, columns)), unique="UNIQUE ")
    index("state", _index_terms(table, [Order("status"), Order("updated_at")]))
    for stage in table.stages:
        tests = [constant_condition(table, name, cond, "") for name, cond in stage.where]
        where = " AND ".join([in_states(table, stage.states, ""), *tests])
        index("claim", _index_terms(table, [Order("due_at"), Order("id")]), where)
        if stage.order:
            index("order", _index_terms(table, [*stage.order, Order("id")]), where)
    for names in kind.indexes:
        index("by", _index_terms(table, [Order(n.lstrip("-"), n.startswith("-")) for n in names]))
    return list(steps.values())


def _index_terms(table: Table, order: Sequence[Order]) -> str:
    columns = [table.columns[o.field] for o in order]
    exprs = [c.expr("") if c.default is None else f"({c.expr('')})" for c in columns]
    return ", ".join(e + direction(table, o) for e, o in zip(exprs, order, strict=True))


def _archive_steps(
    table: Table, existing: ExistingTable | None, archived: ExistingTable | None
) -> list[MigrationStep]:
    if not table.kind.archive:
        return []
    name = f"{table.name[:36]}_export"
    index = MigrationStep(
        f"create index {table.installation.archive_schema}.{name}",
        f"CREATE INDEX {quote(name)} ON {table.archive} (export_id, archived_at)",
    )
    if archived is None:
        own = [
            f"{c.ident} {c.sql_type}"
            for c in table.archive_columns.values()
            if c.column not in table.kind.columns.values()
        ]
        like, key = f"LIKE {table.ident} INCLUDING DEFAULTS", f"PRIMARY KEY ({table.id.ident})"
        body = ", ".join([like, *own, key])
        return [create_table(table.installation, table.archive, body), index]
    columns = dict(existing.columns if existing is not None else {})
    declared = (table.columns, table.extras, table.archive_columns)
    for column in (column for group in declared for column in group.values()):
        columns.setdefault(column.column, column.sql_type)
    steps = [
        MigrationStep(
            f"add column {shown(table.archive)}.{column}",
            f"ALTER TABLE {table.archive} ADD COLUMN {quote(column)} {type}",
        )
        for column, type in columns.items()
        if column not in archived.columns
    ]
    return steps if name in archived.indexes else [*steps, index]
