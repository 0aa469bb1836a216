"""The schema: what the declared kinds need of the database, and the steps that add it.

Nothing of another program is dropped or changed. How the steps are run is in ``migrate``.
"""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asyncpg import exceptions as pg

from esclusa.model.columns import TRACKING
from esclusa.model.errors import SchemaError, SchemaRefused
from esclusa.model.kind import Kind
from esclusa.model.migration import MigrationStep, targets_first
from esclusa.model.stage import Stage
from esclusa.stores.earlier_ids import id_steps
from esclusa.stores.postgres import checks
from esclusa.stores.postgres.archive_schema import archive_steps
from esclusa.stores.postgres.carry_over import EarlierTables, as_moved
from esclusa.stores.postgres.codec import Table, TableColumn, literal
from esclusa.stores.postgres.indexes import Index, IndexPlan, wanted_indexes
from esclusa.stores.postgres.introspection import (
    ExistingTable,
    business_schemas,
    introspect,
    is_foreign,
    made_elsewhere,
)
from esclusa.stores.postgres.names import Installation, quote
from esclusa.stores.postgres.renames import default_steps
from esclusa.stores.postgres.statements import constant_condition
from esclusa.stores.postgres.steps import create_table
from esclusa.stores.postgres.system_tables import plan_system
from esclusa.stores.postgres.triggers import trigger_steps

# The comment on a status column as long as rows are being adopted.
_ADOPTING = "Esclusa is adopting the rows of this table"
# How many rows a transaction of an adoption looks at.
_ADOPT_BATCH = 5000
_TRACKING_DEFAULTS = {
    "status": " NOT NULL DEFAULT {initial}",
    "attempts": " NOT NULL DEFAULT 0",
    "due_at": " NOT NULL DEFAULT now()",
    "fence": " NOT NULL DEFAULT 0",
    "created_at": " NOT NULL DEFAULT now()",
    "updated_at": " NOT NULL DEFAULT now()",
}
# Every record is updated two or three times, so the default, a fifth of the table, comes late on a
# large one; and at full speed the default limit of its cost holds it up while the table grows.
# No space is left for HOT updates: each move changes columns that are indexed.
_VACUUM = """ WITH (
    autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_limit = 2000,
    autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0.05
)"""
# Null in a table that other programs may write, too: a row that they insert is a new one.
_NULL_IF_ATTACHED = ("due_at", "fence")
# Whether the indexes of a table's partitions are valid.
_PARTITION_INDEXES = """SELECT s.nspname, c.relname, i.indisvalid
FROM pg_partition_tree(to_regclass($1)) t JOIN pg_index i ON i.indrelid = t.relid
JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace s ON s.oid = c.relnamespace"""


# The roles of Supabase's public API.
_API_ROLES = ["anon", "authenticated"]


@dataclass(frozen=True)
class SchemaPlan:
    """What is missing, and the tables as they will be.

    ``obsolete``: the steps that drop Esclusa's own indexes that nothing needs any more.
    ``notes``: what an operator should know of the tables.
    """

    steps: list[MigrationStep]
    tables: dict[str, Table]
    obsolete: list[MigrationStep] = field(default_factory=list)
    # Kinds whose ids version 0.1.0 made.
    earlier_ids: list[Kind] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_behind(self) -> bool:
        return bool(self.earlier_ids) or any(step.summary for step in self.steps)

    @property
    def all_steps(self) -> list[MigrationStep]:
        """The steps, and those that are no statement."""
        return [*self.steps, *id_steps(self.earlier_ids)]


async def plan(
    connection: Any,
    installation: Installation,
    kinds: Sequence[Kind],
    stages: Sequence[Stage],
    *,
    rows: bool = True,
) -> SchemaPlan:
    """Return what is missing; SchemaError names every fault that adding cannot repair.

    Without ``rows`` the existing rows are not searched for duplicates.
    """
    own = [kind.table for kind in kinds if kind.system]
    has_archive = any(kind.archive for kind in kinds)
    system = await plan_system(connection, installation, own, archives=has_archive)
    found = SchemaPlan(system.steps, {})
    schemas = await business_schemas(connection, installation, kinds)
    idents = {kind: installation.table(kind, schemas.get(kind)) for kind in kinds}
    archives = [installation.archive(kind.table) for kind in kinds if kind.archive]
    names = [*idents.values(), *archives]
    tables = await _existing(connection, installation, names, system.earlier)
    version = connection.get_server_version().major
    refused: list[str] = []
    faults: list[str] = []
    for kind in targets_first(kinds):
        existing = tables.get(idents[kind])
        _note_absent(kind, existing)
        archived = tables.get(installation.archive(kind.table)) if kind.archive else None
        makes_ids = kind.database_id and (existing is None or kind.id_column in existing.defaults)
        table = found.tables[kind.table] = Table(
            kind,
            [s for s in stages if s.kind == kind],
            None if existing is None else existing.columns,
            version >= 18,
            makes_ids,
            installation=installation,
            schema=schemas.get(kind),
            fills=None if existing is None else existing.fills,
        )
        table.targets = _targets(kind, idents)
        refusals = _refusals(installation, kind, idents[kind], existing, archived)
        refused += refusals
        if refusals:
            continue
        if existing is not None and existing.earlier_ids:
            found.earlier_ids.append(kind)
        wanted = wanted_indexes(table, existing or ExistingTable(), version)
        if existing is not None:
            findings = await checks.check(connection, table, existing)
            found.notes.extend(findings.notes)
            faults += findings.faults
            if findings.faults:
                continue
            for index in _missing_unique(table, existing, wanted) if rows else ():
                faults += await checks.duplicates(connection, table, index, version < 15)
        indexes = await _index_plan(connection, table, existing, wanted)
        found.steps.extend(_table_steps(table, existing, indexes, wanted))
        if existing is None and not kind.system:
            found.steps.extend(await _closing_steps(connection, table))
        found.steps.extend(await default_steps(connection, table))
        found.steps.extend(archive_steps(table, existing, archived))
        found.obsolete.extend(indexes.obsolete(wanted))
        created, unwanted = await trigger_steps(connection, table, is_foreign(existing))
        found.steps.extend(created)
        found.obsolete.extend(unwanted)
    missing = [k.table for k in kinds if not k.system and idents[k] not in tables]
    refused += [
        f"table {name} belongs to this installation, and the search path does not have it;"
        " a second installation needs its own ESCLUSA_POSTGRES_SCHEMA"
        for name in await made_elsewhere(connection, installation, missing)
    ]
    if refused:
        raise SchemaRefused("these tables cannot be used", refused)
    if faults:
        raise SchemaError("the tables do not fit the declared records", faults)
    return found


def _note_absent(kind: Kind, existing: ExistingTable | None) -> None:
    """Note which optional fields of a kind a table of another program lacks."""
    columns = existing.columns if existing is not None else {}
    missing = [f.name for f in kind.fields if f.column not in columns]
    foreign = is_foreign(existing)
    kind.found_without(kind.optional.intersection(missing) if foreign else frozenset())


def _targets(kind: Kind, idents: Mapping[Kind, str]) -> dict[str, tuple[str, str]]:
    """Return table and id column of the records that the foreign keys of a kind name, by field."""
    kinds = {target.table: target for target in idents}
    return {
        name: (idents[kinds[table]], quote(kinds[table].id_column))
        for name, table in kind.refs
        if name in kind.foreign_keys and table in kinds
    }


def _missing_unique(table: Table, existing: ExistingTable, wanted: Sequence[Index]) -> list[Index]:
    return [
        index
        for index in wanted
        if index.columns
        and set(index.columns) <= set(existing.columns)
        and index.name(table) not in existing.indexes
    ]


async def _index_plan(
    connection: Any, table: Table, existing: ExistingTable | None, wanted: Sequence[Index]
) -> IndexPlan:
    """Return how the indexes are built; the database is asked only if one is missing."""
    found = existing or ExistingTable()
    is_missing = any(index.name(table) not in found.indexes for index in wanted)
    has_rows, partition_indexes = False, dict[tuple[str, str], bool]()
    if existing is not None and is_missing:
        has_rows = await _has_rows(connection, table)
        if existing.relkind == "p":
            rows = await connection.fetch(_PARTITION_INDEXES, table.ident)
            partition_indexes = {(schema, name): valid for schema, name, valid in rows}
    return IndexPlan(table, found, is_foreign(existing), has_rows, partition_indexes)


async def _has_rows(connection: Any, table: Table) -> bool:
    try:
        return bool(await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {table.ident})"))
    except pg.InsufficientPrivilegeError:
        return True


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
        table.made_by, table.earlier_ids = installation.schema, True
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
    own = [] if existing is None else kind.refusals(existing.columns)
    return [f"{fault}; {help}" for fault in faults if fault] + own


def _define(column: TableColumn, kind: Kind, *, new: bool = False) -> str:
    """Return a column's definition, of a ``new`` table or to add it.

    Text compares by code point, as on every store.
    """
    text = f"{column.ident} {dict(kind.sql_types).get(column.column, column.sql_type)}"
    if column.sql_type == "text":
        text += ' COLLATE "C"'
    if column.name == "id":
        identity = " GENERATED BY DEFAULT AS IDENTITY" if kind.database_id else ""
        return f"{text}{identity} PRIMARY KEY"
    if kind.attached and not (new and column.name not in _NULL_IF_ATTACHED):
        return text
    if column.name in TRACKING:
        return text + _TRACKING_DEFAULTS.get(column.name, "").format(initial=literal(kind.initial))
    default = kind.default_of(column.name) if column.name in kind.by_name else None
    return text if default is None else f"{text} DEFAULT {column.constant(default)}"


def _table_steps(
    table: Table,
    existing: ExistingTable | None,
    indexes: IndexPlan,
    wanted: Sequence[Index],
) -> list[MigrationStep]:
    """Return the steps for a table and its indexes, in an order that may end after any of them."""
    columns: dict[str, TableColumn] = {}
    for column in (*table.stored.values(), *table.extras.values()):
        columns.setdefault(column.column, column)  # an extra may share the column of a field
    if existing is None:
        body = ",\n    ".join(
            _define(column, table.kind, new=True) + _reference(table, column.name)
            for column in columns.values()
        )
        create = create_table(
            table.installation, table.ident, f"\n    {body}\n", table.name, _VACUUM
        )
        return [create, *indexes.steps(wanted)]
    adoption = _adopt_steps(table, existing, indexes.foreign)
    # an adoption reads the rows in the order of their ids
    first = [index for index in wanted if index.purpose == "id"] if adoption else []
    return [
        *_add_columns(table, existing, list(columns.values()), indexes.foreign),
        *indexes.steps(first),
        *adoption,
        *indexes.steps([index for index in wanted if index not in first]),
    ]


def _reference(table: Table, field: str) -> str:
    if field not in table.targets:
        return ""
    target, id = table.targets[field]
    return f" REFERENCES {target} ({id}) ON DELETE CASCADE ON UPDATE CASCADE"


async def _closing_steps(connection: Any, table: Table) -> list[MigrationStep]:
    """Return the step that closes a new table to the roles of Supabase's public API.

    Its default privileges open every new table of ``public`` to them.
    """
    rows = await connection.fetch(
        "SELECT quote_ident(rolname) FROM pg_roles WHERE rolname = ANY($1::name[]) ORDER BY 1",
        _API_ROLES,
    )
    if not rows:
        return []
    roles = ", ".join(row[0] for row in rows)
    sql = f"REVOKE ALL ON TABLE {table.ident} FROM {roles}"
    return [MigrationStep(f"close {table.name} to {roles}", sql, table.name)]


def _add_columns(
    table: Table, existing: ExistingTable, columns: Sequence[TableColumn], foreign: bool
) -> list[MigrationStep]:
    """Return one statement for all missing columns, so that the table is locked once.

    No column has a volatile default, so that no row is rewritten.
    """
    missing = [column for column in columns if column.column not in existing.columns]
    if not missing:
        return []
    added = ",\n    ".join(f"ADD COLUMN {_define(column, table.kind)}" for column in missing)
    names = ", ".join(f"{table.name}.{column.column}" for column in missing)
    summary = f"add column{'s' if len(missing) > 1 else ''} {names}"
    sql = f"ALTER TABLE {table.ident}\n    {added}"
    steps = [MigrationStep(summary, sql, table.name, foreign)]
    if table.kind.adopt and table.status in missing:
        comment = f"COMMENT ON COLUMN {table.ident}.{table.status.ident} IS {literal(_ADOPTING)}"
        steps.append(MigrationStep("", comment, table.name, foreign))
    return steps


def _adopt_steps(table: Table, existing: ExistingTable, foreign: bool) -> list[MigrationStep]:
    """Return the updates of rows older than the tracking, for which no work is left.

    The column's comment says that they are not finished, so that the next migration continues.
    """
    is_new = table.status.column not in existing.columns
    is_unfinished = existing.comments.get(table.status.column) == _ADOPTING
    if not table.kind.adopt or not (is_new or is_unfinished):
        return []
    steps = [
        MigrationStep(
            f"adopt rows of {table.name} as {state}",
            _adopt_statement(table, state, where),
            table.name,
            foreign,
            outside=True,
        )
        for state, where in table.kind.adoptions
    ]
    done = f"COMMENT ON COLUMN {table.ident}.{table.status.ident} IS NULL"
    return [*steps, MigrationStep("", done, table.name, foreign)]


def _adopt_statement(table: Table, state: str, where: Sequence[Any]) -> str:
    """Return a block that updates the rows in transactions of bounded size, by their ids."""
    id, status, attempts = table.id.ident, table.status.ident, table.columns["attempts"]
    tests = [constant_condition(table, name, cond, "") for name, cond in where]
    return f"""DO $esclusa$
DECLARE
    esclusa_first {table.ident}.{id}%TYPE;
    esclusa_last {table.ident}.{id}%TYPE;
BEGIN
    esclusa_first := (SELECT {id} FROM {table.ident} WHERE {id} IS NOT NULL ORDER BY {id} LIMIT 1);
    WHILE esclusa_first IS NOT NULL LOOP
        esclusa_last := COALESCE(
            (SELECT {id} FROM {table.ident} WHERE {id} >= esclusa_first
                ORDER BY {id} OFFSET {_ADOPT_BATCH - 1} LIMIT 1),
            (SELECT {id} FROM {table.ident} WHERE {id} >= esclusa_first
                ORDER BY {id} DESC LIMIT 1));
        UPDATE {table.ident} SET {status} = {literal(state)}, {attempts.ident} = {attempts.expr("")}
            WHERE {id} >= esclusa_first AND {id} <= esclusa_last
                AND {" AND ".join(tests)} AND {status} IS NULL;
        COMMIT;
        esclusa_first := (SELECT {id} FROM {table.ident} WHERE {id} > esclusa_last
            ORDER BY {id} LIMIT 1);
    END LOOP;
END $esclusa$"""
