"""The schema: what each kind needs of its table, besides the system tables.

Nothing of another program is dropped or changed. A plan is computed from what the file holds, so a
second run does nothing, and a migration that ended early is continued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw

from esclusa.model.columns import EXTRAS, TRACKING, Field
from esclusa.model.errors import SchemaError, SchemaRefused
from esclusa.model.kind import Kind
from esclusa.model.migration import MigrationStep, summaries, targets_first
from esclusa.model.query import ARCHIVE_COLUMNS
from esclusa.model.stage import Stage
from esclusa.model.value import value
from esclusa.stores.earlier_ids import id_steps
from esclusa.stores.sqlite import checks
from esclusa.stores.sqlite.claim_statements import claim_index
from esclusa.stores.sqlite.codec import COLUMN_TYPES, literal, text_literal
from esclusa.stores.sqlite.key_limits import key_indexes
from esclusa.stores.sqlite.maintenance import table_columns
from esclusa.stores.sqlite.statements import comparable, condition, expr, index, is_own_index, quote
from esclusa.stores.sqlite.system_tables import SystemTables, mark, plan_system, refusal

_NULLABLE = ("leased_by", "last_error")
_UNIQUE_INDEXES = """
SELECT l.name, lower((SELECT group_concat(i.name, char(0)) FROM pragma_index_info(l.name) i))
FROM pragma_index_list(?) l WHERE l."unique" AND NOT l.partial"""


@value
class SchemaChanges:
    """What is missing, in order; own indexes that nothing needs; what one should know.

    ``earlier_ids``: kinds whose ids version 0.1.0 made.
    """

    steps: list[MigrationStep]
    obsolete: list[MigrationStep]
    notes: list[str]
    earlier_ids: list[Kind]

    @property
    def all_steps(self) -> list[MigrationStep]:
        """The steps, and those that are no statement."""
        return [*self.steps, *id_steps(self.earlier_ids)]


def is_foreign(table: str, existing: Mapping[str, str], system: SystemTables) -> bool:
    """Whether another program made this table."""
    return bool(existing) and table.lower() not in system.made


def plan(
    connection: apsw.Connection,
    kinds: Sequence[Kind],
    stages: Sequence[Stage],
    *,
    rows: bool = True,
) -> SchemaChanges:
    """Return what is missing, without changing anything.

    Raises MigrationError and SchemaError as ``Store.migrate`` does. Without ``rows`` the existing
    rows are not searched for duplicates.
    """
    kinds = targets_first(dict.fromkeys([*kinds, *(stage.kind for stage in stages)]))
    system = plan_system(connection, kinds)
    _refuse_others(connection, kinds, system)
    earlier = [kind for kind in kinds if kind.table.lower() in system.earlier_ids]
    found = SchemaChanges(list(system.changes), [], [], earlier)
    faults: list[str] = []
    known = indexes(connection) - system.dropped
    for kind in kinds:
        own_stages = [stage for stage in stages if stage.kind == kind]
        source = system.source(kind.table)
        existing = table_columns(connection, source)
        foreign = is_foreign(kind.table, existing, system)
        missing = [f.name for f in kind.fields if f.column.lower() not in existing]
        kind.found_without(kind.optional.intersection(missing) if foreign else frozenset())
        if existing and source == kind.table:
            findings = checks.check(connection, kind, own_stages, foreign=foreign)
            found.notes.extend(findings.notes)
            faults += findings.faults
            if findings.faults:
                continue
        if existing:
            found.steps.extend(_added_columns(kind, existing, foreign))
        else:
            found.steps.append(_new_table(kind, {each.table: each for each in kinds}))
        if kind.archive:
            found.steps.extend(_archive_steps(connection, kind, existing))
        unique = _unique_indexes(connection, kind, existing, source, foreign=foreign)
        for name, columns in unique.items() if rows and existing and source == kind.table else ():
            if name not in known and {c.lower() for c in columns} <= set(existing):
                faults += checks.duplicates(connection, kind, columns)
        wanted = {**_create_unique(kind, unique), **dict(_indexes(kind))}
        wanted |= dict(claim_index(kind, stage.states, stage.where) for stage in own_stages)
        for stage in own_stages:
            wanted |= key_indexes(stage)
        beside = existing and _has_rows(connection, source)
        found.steps.extend(
            MigrationStep(f"create index {name}", sql, kind.table, foreign, bool(beside))
            for name, sql in wanted.items()
            if name not in known
        )
        found.obsolete.extend(_obsolete(connection, kind, set(wanted), foreign))
    if faults:
        raise SchemaError("the tables do not fit the declared records", faults)
    return found


def _has_rows(connection: apsw.Connection, table: str) -> bool:
    return bool(list(connection.execute(f"SELECT 1 FROM {quote(table)} LIMIT 1")))  # noqa: S608


def apply(connection: apsw.Connection, steps: Sequence[MigrationStep]) -> list[str]:
    """Run the first of these steps inside the caller's transaction; return their summaries.

    Those that take long, because a table has rows, each have a transaction of their own: a file has
    one writer at a time.
    """
    quick = [step for step in steps if not step.outside]
    now = quick or steps[:1]
    for step in now:
        try:
            connection.execute(step.sql)
        except apsw.ConstraintError as error:
            raise SchemaError(
                step.summary, [f"the existing rows do not allow it: {error}"]
            ) from None
    return summaries(now)


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
    faults += [
        fault
        for kind in kinds
        if (columns := table_columns(connection, system.source(kind.table)))
        for fault in kind.refusals(columns)
    ]
    if faults:
        raise SchemaRefused("these tables cannot be used", faults)


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


def _new_table(kind: Kind, kinds: Mapping[str, Kind]) -> MigrationStep:
    id_type = "INTEGER PRIMARY KEY" if kind.database_id else "TEXT PRIMARY KEY NOT NULL"
    columns = [f"{quote(kind.id_column)} {id_type}"]
    columns += [
        f"{quote(column)} {type}"
        + (_attached_default(kind, column) if kind.attached else "" if nullable else " NOT NULL")
        for column, type, nullable in _tracking_columns(kind)
    ]
    # never NOT NULL: a later version that dropped the field writes rows without it
    columns += [
        f"{quote(f.column)} {_field_type(kind, f)}{_reference(kind, f, kinds)}"
        for f in kind.fields
        if f.name != kind.id_field
    ]
    columns += [f"{quote(column)} {type}" for column, type in _extra_columns(kind)]
    return _create_table(kind.table, columns)


def _attached_default(kind: Kind, column: str) -> str:
    """Return the default of a tracking column: other programs insert rows without it."""
    defaults = {"status": text_literal(kind.initial), "attempts": "0"}
    defaults |= dict.fromkeys(("created_at", "updated_at"), "CURRENT_TIMESTAMP")
    name = next(n for n, c in kind.track.items() if c == column)
    return f" DEFAULT {defaults[name]}" if name in defaults else ""


def _field_type(kind: Kind, field: Field) -> str:
    """Return the type of a new column; in a table that other programs share, with its default."""
    declared = dict(kind.sql_types).get(field.column, "")
    integer = declared in ("integer", "bigint", "smallint")
    type = "INTEGER" if integer else COLUMN_TYPES[field.type]
    return type + (_default(kind, field) if kind.attached else "")


def _reference(kind: Kind, field: Field, kinds: Mapping[str, Kind]) -> str:
    target = kinds.get(dict(kind.refs).get(field.name, ""))
    if field.name not in kind.foreign_keys or target is None:
        return ""
    return (
        f" REFERENCES {quote(target.table)} ({quote(target.id_column)})"
        " ON DELETE CASCADE ON UPDATE CASCADE"
    )


def _create_table(table: str, columns: Sequence[str]) -> MigrationStep:
    body = ",\n    ".join(columns)
    sql = f"CREATE TABLE {quote(table)} (\n    {body}\n);\n{mark(table)}"
    return MigrationStep(f"create table {table}", sql, table)


def _add_column(table: str, column: str, type: str, foreign: bool = False) -> MigrationStep:
    return MigrationStep(
        f"add column {table}.{column}",
        f"ALTER TABLE {quote(table)} ADD COLUMN {quote(column)} {type}",
        table,
        foreign,
    )


def _added_columns(kind: Kind, existing: dict[str, str], foreign: bool) -> list[MigrationStep]:
    fields = [
        (f.column, COLUMN_TYPES[f.type] + ("" if kind.attached else _default(kind, f)))
        for f in kind.fields
        if f.name in kind.columns
    ]
    tracking = [(column, type) for column, type, _ in _tracking_columns(kind)]
    wanted = [*tracking, *fields] if kind.attached else fields
    steps = [
        _add_column(kind.table, column, type, foreign)
        for column, type in wanted + _extra_columns(kind)
        if column.lower() not in existing
    ]
    has_status = kind.columns.get("status", kind.id_column).lower() in existing
    return steps if has_status else steps + _adopt(kind, foreign)


def _adopt(kind: Kind, foreign: bool) -> list[MigrationStep]:
    """Return the updates of rows older than the tracking, for which no work is left.

    They run in the transaction that adds the columns, so that none is left out.
    """
    status, attempts = quote(kind.track["status"]), quote(kind.track["attempts"])
    steps = []
    for state, where in kind.adoptions:
        tests = [condition(kind, name, cond, None) for name, cond in where]
        tests.append(f"{status} IS NULL")
        sets = f"{status} = {text_literal(state)}, {attempts} = {expr(kind, 'attempts')}"
        sql = f"UPDATE {quote(kind.table)} SET {sets} WHERE {' AND '.join(tests)}"  # noqa: S608 - declared names, quoted
        summary = f"adopt rows of {kind.table} as {state}"
        steps.append(MigrationStep(summary, sql, kind.table, foreign))
    return steps


def _default(kind: Kind, field: Field) -> str:
    """Return the DEFAULT that existing rows get when a field is added."""
    default = kind.default_of(field.name)
    return "" if default is None else f" DEFAULT {literal(field.type, default)}"


def _archive_steps(
    connection: apsw.Connection, kind: Kind, existing: dict[str, str]
) -> list[MigrationStep]:
    """Return what the archive lacks: it has every column of the table, declared or not."""
    archive = f"archive_{kind.table}"
    types = dict(connection.execute("SELECT name, type FROM pragma_table_xinfo(?)", (kind.table,)))
    columns = {name: types[name] for name in existing.values()}
    declared = [(c, TRACKING.get(n) or EXTRAS[n]) for n, c in kind.track.items()]
    declared += [(f.column, f.type) for f in kind.fields if f.name in kind.columns]
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
    found = []
    if "status" in kind.columns:
        updated = [comparable(kind, "updated_at")] if "updated_at" in kind.track else []
        found.append(index(kind, "status", [expr(kind, "status"), *updated]))
    for fields in kind.indexes:
        names = [name.removeprefix("-") for name in fields]
        if not set(names) <= kind.columns.keys():
            continue
        columns = [
            comparable(kind, name) + (" DESC" if field.startswith("-") else "")
            for name, field in zip(names, fields, strict=True)
        ]
        found.append(index(kind, "_".join(names), columns))
    if kind.archive:
        archive = f"archive_{kind.table}"
        found.append(index(kind, "archived_at", ["archived_at"], table=archive))
        found.append(index(kind, "export", ["export_id", quote(kind.id_column)], table=archive))
    return found


def _unique_indexes(
    connection: apsw.Connection,
    kind: Kind,
    existing: Mapping[str, str],
    source: str,
    *,
    foreign: bool,
) -> dict[str, list[str]]:
    """Return the unique indexes that the table needs: name and columns.

    A unique index of another program on the same columns serves as well.
    """
    wanted: dict[str, list[str]] = {}
    if existing:
        wanted[index(kind, "id", [quote(kind.id_column)], unique="UNIQUE ")[0]] = [kind.id_column]
    if kind.unique_key:
        columns = [kind.columns[name] for name in kind.key]
        wanted[index(kind, "key", [quote(c) for c in columns], unique="UNIQUE ")[0]] = columns
    for names in () if foreign else kind.unique:
        columns = [kind.columns[name] for name in names]
        wanted[index(kind, "key", [quote(c) for c in columns], unique="UNIQUE ")[0]] = columns
    others = _unique_columns(connection, source, set(wanted)) if existing else []
    return {
        name: columns
        for name, columns in wanted.items()
        if frozenset(c.lower() for c in columns) not in others
    }


def _create_unique(kind: Kind, wanted: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {
        name: f"CREATE UNIQUE INDEX {quote(name)} ON {quote(kind.table)}"
        f" ({', '.join(map(quote, columns))})"
        for name, columns in wanted.items()
    }


def _unique_columns(connection: apsw.Connection, table: str, but: set[str]) -> list[frozenset[str]]:
    """Return the columns of each unique key that covers the whole table, without those named."""
    key = connection.execute("SELECT lower(name) FROM pragma_table_info(?) WHERE pk > 0", (table,))
    keys = [frozenset(name for (name,) in key)]
    for name, columns in connection.execute(_UNIQUE_INDEXES, (table,)):
        if name not in but:
            keys.append(frozenset(columns.split("\0")))
    return keys


def _obsolete(
    connection: apsw.Connection, kind: Kind, wanted: set[str], foreign: bool
) -> list[MigrationStep]:
    """Return the steps that drop Esclusa's own indexes that are not wanted any more.

    Their names end in the checksum of their own definition.
    """
    found = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?", (kind.table,)
    )
    return [
        MigrationStep(
            f"drop index {name}, which nothing needs any more",
            f"DROP INDEX {quote(name)}",
            kind.table,
            foreign,
            outside=True,
            optional=True,
        )
        for name, sql in found
        if name not in wanted and is_own_index(name, sql)
    ]
