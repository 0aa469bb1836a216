"""The schema: versioned migrations for the engine's own tables, and what each declared kind needs of its table.

Everything is additive. A plan is computed from what the file holds, so running it twice does nothing the second time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files

import apsw
from pydantic_core import PydanticUndefined

from esclusa.model.columns import EXTRAS, TRACKING, Field
from esclusa.model.errors import MigrationError, SchemaError
from esclusa.model.query import ARCHIVE_COLUMNS
from esclusa.model.record import Kind
from esclusa.model.stage import Stage
from esclusa.model.value import value
from esclusa.stores.sqlite.codec import COLUMN, literal, quoted
from esclusa.stores.sqlite.records import columns_in
from esclusa.stores.sqlite.statements import claim_index, condition, index, meant, q

_MAY_BE_NULL = ("leased_by", "last_error")
_NOW = "strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')"
_BOOK = "CREATE TABLE esclusa_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at TEXT NOT NULL)"


@value
class Change:
    """One thing to do: what it is called, and its statements."""

    line: str
    statement: str


@value
class Migration:
    """A numbered file of statements that runs once."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations() -> list[Migration]:
    found = [
        Migration(int(entry.name[:4]), entry.name, entry.read_text("utf-8").replace("\r\n", "\n"))
        for entry in files("esclusa.stores.sqlite").joinpath("migrations").iterdir()
        if re.match(r"\d{4}_\w+\.sql\Z", entry.name)
    ]
    return sorted(found, key=lambda m: m.number)


def plan(
    connection: apsw.Connection,
    kinds: Sequence[Kind],
    stages: Sequence[Stage],
    lenient: bool = False,
) -> list[Change]:
    """What is missing, in order. MigrationError and SchemaError as ``Store.migrate`` says; changes nothing.

    ``lenient``: a table that does not fit is no error here, what can be added to it is still told."""
    changes = _engine(connection, migrations())
    faults: list[str] = []
    kinds = list(dict.fromkeys([*kinds, *(stage.kind for stage in stages)]))
    for kind in kinds:
        changes += _table(connection, kind, faults)
    if faults and not lenient:
        raise SchemaError("the tables do not fit the declared records", faults)
    there = indexes(connection)
    wanted = {name: sql for kind in kinds for name, sql in _indexes(kind)}
    wanted |= dict(claim_index(stage.kind, stage.states, stage.where) for stage in stages)
    changes += [
        Change(f"create index {name}", sql) for name, sql in wanted.items() if name not in there
    ]
    return changes


def apply(connection: apsw.Connection, changes: Sequence[Change]) -> list[str]:
    """Run the changes, inside the caller's transaction; return a line for each."""
    for change in changes:
        try:
            connection.execute(change.statement)
        except apsw.ConstraintError as error:
            raise SchemaError(
                change.line, [f"the rows that are there do not allow it: {error}"]
            ) from None
    return [change.line for change in changes]


def indexes(connection: apsw.Connection) -> frozenset[str]:
    return frozenset(
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")
    )


def _engine(connection: apsw.Connection, known: Sequence[Migration]) -> list[Change]:
    changes = []
    applied: dict[int, tuple[str, str]] = {}
    if columns_in(connection, "esclusa_migrations"):
        applied = {
            number: (name, checksum)
            for number, name, checksum in connection.execute(
                "SELECT number, name, checksum FROM esclusa_migrations"
            )
        }
    else:
        changes.append(Change("create table esclusa_migrations", _BOOK))
    newest = max(m.number for m in known)
    for number, (name, _) in applied.items():
        if number > newest:
            raise MigrationError(
                f"the schema is newer than this program: {name} has run and is not known here; use a newer version"
            )
    for migration in known:
        if migration.number not in applied:
            entry = f"{migration.number}, {quoted(migration.name)}, {quoted(migration.checksum)}, {_NOW}"
            text = f"{migration.text.rstrip()}\n\nINSERT INTO esclusa_migrations (number, name, checksum, applied_at) VALUES ({entry});"
            changes.append(Change(f"run migration {migration.name}", text))
        elif applied[migration.number][1] != migration.checksum:
            raise MigrationError(
                f"migration {migration.name} was edited after it ran; restore it and add a new one instead"
            )
    return changes


def _table(connection: apsw.Connection, kind: Kind, faults: list[str]) -> list[Change]:
    there = columns_in(connection, kind.table)
    tracking = [
        (c, COLUMN[TRACKING[n]], n in _MAY_BE_NULL)
        for n, c in kind.track.columns.items()
        if n in TRACKING
    ]
    shared = {f.column for f in kind.fields}
    extras = [(c, COLUMN[EXTRAS[n]]) for n, c in kind.extras.items() if c not in shared]
    changes: list[Change] = []
    if not there:
        id_type = "INTEGER PRIMARY KEY" if kind.database_id else "TEXT PRIMARY KEY NOT NULL"
        columns = [f"{q(kind.id_column)} {id_type}"]
        columns += [
            f"{q(c)} {t}" + ("" if kind.attached or free else " NOT NULL")
            for c, t, free in tracking
        ]
        # never NOT NULL: a later version may have dropped the field, and writes rows without it
        columns += [f"{q(f.column)} {COLUMN[f.type]}" for f in kind.fields]
        columns += [f"{q(c)} {t}" for c, t in extras]
        changes.append(
            Change(
                f"create table {kind.table}",
                f"CREATE TABLE {q(kind.table)} (\n    " + ",\n    ".join(columns) + "\n)",
            )
        )
    else:
        missing = [(c, t, "") for c, t in [*((c, t) for c, t, _ in tracking), *extras]]
        faults += _unfit(connection, kind)
        if kind.id_column.lower() not in there:
            faults.append(f"table {kind.table} has no column {kind.id_column} for the id")
        if kind.attached:
            faults += [
                f"table {kind.table} has no column {f.column} for the field {f.name}"
                for f in kind.fields
                if f.column.lower() not in there
            ]
        else:
            faults += [
                f"table {kind.table} exists and has no column {c}; if it is another program's table, attach to it with track=track(…)"
                for c, _, _ in tracking
                if c.lower() not in there
            ]
            missing = [(c, t, "") for c, t in extras] + [
                (f.column, COLUMN[f.type], _default(kind, f)) for f in kind.fields
            ]
        changes += [
            Change(
                f"add column {kind.table}.{c}",
                f"ALTER TABLE {q(kind.table)} ADD COLUMN {q(c)} {t}{rest}",
            )
            for c, t, rest in missing
            if c.lower() not in there
        ]
        if kind.id_column.lower() in there and not _tells_apart(connection, kind):
            name = f"{kind.table}_id_unique"
            changes.append(
                Change(
                    f"create index {name}",
                    f"CREATE UNIQUE INDEX {q(name)} ON {q(kind.table)} ({q(kind.id_column)})",
                )
            )
        if kind.track["status"].lower() not in there:
            changes += _adopt(kind)
    return changes + (_archive(connection, kind, there) if kind.archive else [])


def _unfit(connection: apsw.Connection, kind: Kind) -> list[str]:
    """What is there and cannot serve: a view, an id that is compared with nothing but itself, tracking that is never null."""
    if list(
        connection.execute(
            "SELECT 1 FROM sqlite_schema WHERE type = 'view' AND lower(name) = lower(?)",
            (kind.table,),
        )
    ):
        return [
            f"{kind.table} is a view; only a table can have the columns and indexes that are needed"
        ]
    emptied = {
        c.lower(): n for n, c in kind.track.columns.items() if n in _MAY_BE_NULL or n in EXTRAS
    }
    faults = []
    for name, type, filled in connection.execute(
        'SELECT name, upper(type), "notnull" FROM pragma_table_info(?)', (kind.table,)
    ):
        if (
            kind.attached
            and name.lower() == kind.id_column.lower()
            and (type == "" or "BLOB" in type)
        ):
            faults.append(
                f"column {kind.table}.{name} (for the id) is declared {type or 'without a type'}; declare it INTEGER or TEXT"
            )
        if filled and name.lower() in emptied:
            what = emptied[name.lower()]
            faults.append(
                f"column {kind.table}.{name} (for {what}) is NOT NULL and must be empty at times; make it without NOT NULL"
            )
    return faults


def _tells_apart(connection: apsw.Connection, kind: Kind) -> bool:
    """Whether no two rows of the table can have the same id."""
    id = kind.id_column.lower()
    primary = [
        name.lower()
        for (name,) in connection.execute(
            "SELECT name FROM pragma_table_info(?) WHERE pk > 0", (kind.table,)
        )
    ]
    whole = """SELECT lower((SELECT group_concat(i.name) FROM pragma_index_info(l.name) i))
        FROM pragma_index_list(?) l WHERE l."unique" AND NOT l.partial"""
    return primary == [id] or any(
        columns == id for (columns,) in connection.execute(whole, (kind.table,))
    )


def _adopt(kind: Kind) -> list[Change]:
    """Rows that were there before the tracking and need no work any more."""
    status, attempts = q(kind.track["status"]), q(kind.track["attempts"])
    return [
        Change(
            f"adopt rows of {kind.table} as {state}",
            f"UPDATE {q(kind.table)} SET {status} = {quoted(state)}, {attempts} = {meant(kind, 'attempts')}"  # noqa: S608 - declared names, quoted
            f" WHERE {' AND '.join(condition(kind, name, cond, None) for name, cond in where)} AND {status} IS NULL",
        )
        for state, where in kind.adopt
    ]


def _default(kind: Kind, field: Field) -> str:
    """For the rows that are there already when a field is added."""
    default = kind.model.model_fields[field.name].get_default(call_default_factory=False)
    return (
        ""
        if default is None or default is PydanticUndefined
        else f" DEFAULT {literal(field.type, default)}"
    )


def _archive(connection: apsw.Connection, kind: Kind, there: dict[str, str]) -> list[Change]:
    """The archive has every column of the table, also those that only outsiders know."""
    table = f"archive_{kind.table}"
    types = dict(connection.execute("SELECT name, type FROM pragma_table_xinfo(?)", (kind.table,)))
    columns = {name: types[name] for name in there.values()}
    ours = [(c, TRACKING.get(n) or EXTRAS[n]) for n, c in kind.track.columns.items()] + [
        (f.column, f.type) for f in kind.fields
    ]
    known = {name.lower() for name in columns}
    columns |= {c: COLUMN[t] for c, t in ours if c.lower() not in known}
    columns = {c: t for c, t in columns.items() if c.lower() != kind.id_column.lower()}
    taken = [c for c in columns if c.lower() in ARCHIVE_COLUMNS]
    if taken:
        raise SchemaError(
            f"table {kind.table} cannot have an archive",
            [f"its column {c} is one that archives keep for themselves" for c in taken],
        )
    kept = columns_in(connection, table)
    if kept:
        return [
            Change(f"add column {table}.{c}", f"ALTER TABLE {q(table)} ADD COLUMN {q(c)} {t}")
            for c, t in columns.items()
            if c.lower() not in kept
        ]
    id_type = types.get(kind.id_column) or ("INTEGER" if kind.database_id else "TEXT")
    body = [
        f"{q(kind.id_column)} {id_type} PRIMARY KEY NOT NULL",
        *(f"{q(c)} {t}" for c, t in columns.items()),
        "archived_at TEXT NOT NULL",
        "export_id TEXT",
    ]
    return [
        Change(
            f"create table {table}",
            f"CREATE TABLE {q(table)} (\n    " + ",\n    ".join(body) + "\n)",
        )
    ]


def _indexes(kind: Kind) -> list[tuple[str, str]]:
    found = [index(kind, "status", [meant(kind, "status"), q(kind.track["updated_at"])])]
    for fields in kind.indexes:
        columns = [
            meant(kind, name.removeprefix("-")) + (" DESC" if name.startswith("-") else "")
            for name in fields
        ]
        found.append(index(kind, "_".join(name.removeprefix("-") for name in fields), columns))
    if kind.key and (kind.attached or kind.database_id):
        found.append(
            index(kind, "key", [q(kind.columns[name]) for name in kind.key], unique="UNIQUE ")
        )
    if kind.archive:
        table = f"archive_{kind.table}"
        found.append(index(kind, "archived_at", ["archived_at"], table=table))
        found.append(index(kind, "export", ["export_id", q(kind.id_column)], table=table))
    return found
