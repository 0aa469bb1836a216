"""The schema: what each kind needs of its table, besides the system tables.

Everything is additive. A plan is computed from what the file holds, so a second run does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw
from pydantic_core import PydanticUndefined

from esclusa.model.columns import EXTRAS, TRACKING, Field
from esclusa.model.errors import SchemaError, SchemaRefused
from esclusa.model.query import ARCHIVE_COLUMNS
from esclusa.model.record import Kind
from esclusa.model.stage import Stage
from esclusa.stores.sqlite.codec import COLUMN_TYPES, literal, text_literal
from esclusa.stores.sqlite.maintenance import table_columns
from esclusa.stores.sqlite.statements import claim_index, condition, expr, index, quote
from esclusa.stores.sqlite.system_tables import (
    SchemaChange,
    SystemTables,
    mark,
    plan_system,
    refusal,
)

_NULLABLE = ("leased_by", "last_error")
_UNIQUE_INDEXES = """
SELECT lower((SELECT group_concat(i.name) FROM pragma_index_info(l.name) i))
FROM pragma_index_list(?) l WHERE l."unique" AND NOT l.partial"""


def plan(
    connection: apsw.Connection,
    kinds: Sequence[Kind],
    stages: Sequence[Stage],
    lenient: bool = False,
) -> list[SchemaChange]:
    """Return what is missing, in order, without changing anything.

    Raises MigrationError and SchemaError as ``Store.migrate`` does. ``lenient``: do not raise for a
    table that does not fit; return what can be added to it.
    """
    kinds = list(dict.fromkeys([*kinds, *(stage.kind for stage in stages)]))
    system = plan_system(connection, kinds)
    _refuse_others(connection, kinds, system)
    changes = list(system.changes)
    faults: list[str] = []
    for kind in kinds:
        changes += _table_changes(connection, kind, system, faults)
    if faults and not lenient:
        raise SchemaError("the tables do not fit the declared records", faults)
    existing = indexes(connection) - system.dropped
    wanted = {name: sql for kind in kinds for name, sql in _indexes(kind)}
    wanted |= dict(claim_index(stage.kind, stage.states, stage.where) for stage in stages)
    return changes + [
        SchemaChange(f"create index {name}", sql)
        for name, sql in wanted.items()
        if name not in existing
    ]


def apply(connection: apsw.Connection, changes: Sequence[SchemaChange]) -> list[str]:
    """Run the changes inside the caller's transaction; return their summaries."""
    for change in changes:
        try:
            connection.execute(change.statement)
        except apsw.ConstraintError as error:
            raise SchemaError(
                change.summary, [f"the existing rows do not allow it: {error}"]
            ) from None
    return [change.summary for change in changes]


def indexes(connection: apsw.Connection) -> frozenset[str]:
    """Return the names of all indexes."""
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")
    return frozenset(name for (name,) in names)


def _refuse_others(
    connection: apsw.Connection, kinds: Sequence[Kind], system: SystemTables
) -> None:
    """Raise SchemaRefused for tables of other programs, unless the record is attached to them."""
    names = [
        name
        for kind in kinds
        if not kind.attached
        for name in (kind.table, *([f"archive_{kind.table}"] if kind.archive else []))
    ]
    faults = [
        f"{refusal(name)}; to work on another program's table, attach to it with track=track(…)"
        for name in names
        if name.lower() not in system.made and table_columns(connection, name)
    ]
    if faults:
        raise SchemaRefused("these tables cannot be used", faults)


def _table_changes(
    connection: apsw.Connection, kind: Kind, system: SystemTables, faults: list[str]
) -> list[SchemaChange]:
    """Return what a kind's table lacks; add to ``faults`` what no change can repair."""
    existing = table_columns(connection, system.source(kind.table))
    if existing:
        faults += _faults(connection, kind, existing)
        changes = _added_columns(connection, kind, existing)
    else:
        changes = [_new_table(kind)]
    return changes + (_archive_changes(connection, kind, existing) if kind.archive else [])


def _tracking_columns(kind: Kind) -> list[tuple[str, str, bool]]:
    """Return name, type and whether it may be null, of each tracking column."""
    return [
        (column, COLUMN_TYPES[TRACKING[name]], name in _NULLABLE)
        for name, column in kind.track.items()
        if name in TRACKING
    ]


def _extra_columns(kind: Kind) -> list[tuple[str, str]]:
    """Return name and type of the extras that are not the column of a field."""
    fields = {f.column for f in kind.fields}
    return [(c, COLUMN_TYPES[EXTRAS[n]]) for n, c in kind.extras.items() if c not in fields]


def _new_table(kind: Kind) -> SchemaChange:
    id_type = "INTEGER PRIMARY KEY" if kind.database_id else "TEXT PRIMARY KEY NOT NULL"
    columns = [f"{quote(kind.id_column)} {id_type}"]
    columns += [
        f"{quote(column)} {type}" + ("" if kind.attached or nullable else " NOT NULL")
        for column, type, nullable in _tracking_columns(kind)
    ]
    # never NOT NULL: a later version that dropped the field writes rows without it
    columns += [f"{quote(f.column)} {COLUMN_TYPES[f.type]}" for f in kind.fields]
    columns += [f"{quote(column)} {type}" for column, type in _extra_columns(kind)]
    return _create_table(kind.table, columns)


def _create_table(table: str, columns: Sequence[str]) -> SchemaChange:
    body = ",\n    ".join(columns)
    statement = f"CREATE TABLE {quote(table)} (\n    {body}\n);\n{mark(table)}"
    return SchemaChange(f"create table {table}", statement)


def _add_column(table: str, column: str, type: str) -> SchemaChange:
    return SchemaChange(
        f"add column {table}.{column}",
        f"ALTER TABLE {quote(table)} ADD COLUMN {quote(column)} {type}",
    )


def _added_columns(
    connection: apsw.Connection, kind: Kind, existing: dict[str, str]
) -> list[SchemaChange]:
    if kind.attached:
        wanted = [(column, type) for column, type, _ in _tracking_columns(kind)]
    else:
        wanted = [(f.column, COLUMN_TYPES[f.type] + _default(kind, f)) for f in kind.fields]
    changes = [
        _add_column(kind.table, column, type)
        for column, type in wanted + _extra_columns(kind)
        if column.lower() not in existing
    ]
    if kind.id_column.lower() in existing and not _id_is_unique(connection, kind):
        name = f"{kind.table}_id_unique"
        sql = f"CREATE UNIQUE INDEX {quote(name)} ON {quote(kind.table)} ({quote(kind.id_column)})"
        changes.append(SchemaChange(f"create index {name}", sql))
    if kind.track["status"].lower() not in existing:
        changes += _adopt(kind)
    return changes


def _faults(connection: apsw.Connection, kind: Kind, existing: dict[str, str]) -> list[str]:
    """Return why an existing table cannot be used: a view, a missing column, a column's type."""
    views = "SELECT 1 FROM sqlite_schema WHERE type = 'view' AND lower(name) = lower(?)"
    if connection.execute(views, (kind.table,)).fetchall():
        faults = [f"{kind.table} is a view; only a table can have the needed columns and indexes"]
    else:
        faults = _column_faults(connection, kind)
    if kind.id_column.lower() not in existing:
        faults.append(f"table {kind.table} has no column {kind.id_column} for the id")
    if kind.attached:
        faults += [
            f"table {kind.table} has no column {f.column} for the field {f.name}"
            for f in kind.fields
            if f.column.lower() not in existing
        ]
    else:
        faults += [
            f"table {kind.table} exists and has no column {column}; if it is another program's"
            " table, attach to it with track=track(…)"
            for column, _, _ in _tracking_columns(kind)
            if column.lower() not in existing
        ]
    return faults


def _column_faults(connection: apsw.Connection, kind: Kind) -> list[str]:
    set_to_null = {
        column.lower(): name
        for name, column in kind.track.items()
        if name in _NULLABLE or name in EXTRAS
    }
    faults = []
    columns = 'SELECT name, upper(type), "notnull" FROM pragma_table_info(?)'
    for name, type, not_null in connection.execute(columns, (kind.table,)):
        is_id = name.lower() == kind.id_column.lower()
        if kind.attached and is_id and (type == "" or "BLOB" in type):
            faults.append(
                f"column {kind.table}.{name} (for the id) is declared {type or 'without a type'};"
                " declare it INTEGER or TEXT"
            )
        if not_null and name.lower() in set_to_null:
            faults.append(
                f"column {kind.table}.{name} (for {set_to_null[name.lower()]}) is NOT NULL and"
                " must be empty at times; declare it without NOT NULL"
            )
    return faults


def _id_is_unique(connection: apsw.Connection, kind: Kind) -> bool:
    """Whether the table keeps ids unique."""
    id = kind.id_column.lower()
    key = connection.execute(
        "SELECT lower(name) FROM pragma_table_info(?) WHERE pk > 0", (kind.table,)
    )
    unique = connection.execute(_UNIQUE_INDEXES, (kind.table,))
    return key.fetchall() == [(id,)] or (id,) in unique.fetchall()


def _adopt(kind: Kind) -> list[SchemaChange]:
    """Return the updates of rows older than the tracking, for which no work is left."""
    status, attempts = quote(kind.track["status"]), quote(kind.track["attempts"])
    changes = []
    for state, where in kind.adopt:
        tests = [condition(kind, name, cond, None) for name, cond in where]
        tests.append(f"{status} IS NULL")
        sets = f"{status} = {text_literal(state)}, {attempts} = {expr(kind, 'attempts')}"
        sql = f"UPDATE {quote(kind.table)} SET {sets} WHERE {' AND '.join(tests)}"  # noqa: S608 - declared names, quoted
        changes.append(SchemaChange(f"adopt rows of {kind.table} as {state}", sql))
    return changes


def _default(kind: Kind, field: Field) -> str:
    """Return the DEFAULT that existing rows get when a field is added."""
    default = kind.model.model_fields[field.name].get_default(call_default_factory=False)
    none = default is None or default is PydanticUndefined
    return "" if none else f" DEFAULT {literal(field.type, default)}"


def _archive_changes(
    connection: apsw.Connection, kind: Kind, existing: dict[str, str]
) -> list[SchemaChange]:
    """Return what the archive lacks: it has every column of the table, declared or not."""
    archive = f"archive_{kind.table}"
    types = dict(connection.execute("SELECT name, type FROM pragma_table_xinfo(?)", (kind.table,)))
    columns = {name: types[name] for name in existing.values()}
    declared = [(c, TRACKING.get(n) or EXTRAS[n]) for n, c in kind.track.items()]
    declared += [(f.column, f.type) for f in kind.fields]
    columns |= {c: COLUMN_TYPES[t] for c, t in declared if c.lower() not in existing}
    columns = {c: t for c, t in columns.items() if c.lower() != kind.id_column.lower()}
    reserved = [c for c in columns if c.lower() in ARCHIVE_COLUMNS]
    if reserved:
        raise SchemaError(
            f"table {kind.table} cannot have an archive",
            [f"its column {c} is reserved for archives" for c in reserved],
        )
    archived = table_columns(connection, archive)
    if archived:
        return [
            _add_column(archive, column, type)
            for column, type in columns.items()
            if column.lower() not in archived
        ]
    id_type = types.get(kind.id_column) or ("INTEGER" if kind.database_id else "TEXT")
    body = [
        f"{quote(kind.id_column)} {id_type} PRIMARY KEY NOT NULL",
        *(f"{quote(column)} {type}" for column, type in columns.items()),
        "archived_at TEXT NOT NULL",
        "export_id TEXT",
    ]
    return [_create_table(archive, body)]


def _indexes(kind: Kind) -> list[tuple[str, str]]:
    found = [index(kind, "status", [expr(kind, "status"), quote(kind.track["updated_at"])])]
    for fields in kind.indexes:
        names = [name.removeprefix("-") for name in fields]
        columns = [
            expr(kind, name) + (" DESC" if field.startswith("-") else "")
            for name, field in zip(names, fields, strict=True)
        ]
        found.append(index(kind, "_".join(names), columns))
    if kind.key and (kind.attached or kind.database_id):
        columns = [quote(kind.columns[name]) for name in kind.key]
        found.append(index(kind, "key", columns, unique="UNIQUE "))
    if kind.archive:
        archive = f"archive_{kind.table}"
        found.append(index(kind, "archived_at", ["archived_at"], table=archive))
        found.append(index(kind, "export", ["export_id", quote(kind.id_column)], table=archive))
    return found
