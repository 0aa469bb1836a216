"""The system tables: their versioned migrations, and which tables Esclusa made.

Version 0.1.0 did not write down which tables it made, and gave three system tables other names.
Its tables are known by their first columns, are renamed, and are written down.
"""

# ruff: noqa: S608 - names are declared and quoted

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files

import apsw

from esclusa.model.columns import TRACKING
from esclusa.model.errors import MigrationError, SchemaRefused
from esclusa.model.kind import Kind
from esclusa.model.migration import MigrationStep
from esclusa.model.value import value
from esclusa.stores.sqlite.codec import text_literal
from esclusa.stores.sqlite.maintenance import table_columns
from esclusa.stores.sqlite.statements import quote

# The migration that begins to write down which tables Esclusa made.
_MARKS = 2
# The migration that begins to write down whose ids version 0.1.0 made.
_EARLIER_IDS = 4
# System tables that had other names before that.
_RENAMED = {
    "dead_letters": "esclusa_dead_letters",
    "worker_runs": "esclusa_runs",
    "archive_exports": "esclusa_exports",
}
_NOW = "strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')"
_MIGRATIONS = """CREATE TABLE esclusa_migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at TEXT NOT NULL
)"""
# Tables that begin with an id and the tracking, in the order in which Esclusa creates them.
_MADE_BEFORE = """SELECT s.name FROM sqlite_schema s
WHERE s.type = 'table' AND ? = (
    SELECT group_concat(name) FROM (
        SELECT name FROM pragma_table_info(s.name) WHERE cid BETWEEN 1 AND ? ORDER BY cid
    )
)"""


@value
class SystemTables:
    """What the system tables lack, and which tables Esclusa made."""

    changes: list[MigrationStep]
    # In lower case.
    made: frozenset[str]
    # The names that tables still have, by those that they get.
    renamed: dict[str, str]
    # Indexes that are dropped.
    dropped: frozenset[str]
    # Tables whose ids version 0.1.0 made, in lower case.
    earlier_ids: frozenset[str]

    def source(self, table: str) -> str:
        """Return the name under which a table is found now."""
        return self.renamed.get(table, table)


def migrations() -> list[tuple[int, str, str]]:
    """Return the migrations of the system tables, in order: number, name, text."""
    return sorted(
        (int(f.name[:4]), f.name, f.read_text("utf-8").replace("\r\n", "\n"))
        for f in files("esclusa.stores.sqlite").joinpath("migrations").iterdir()
        if re.match(r"\d{4}_\w+\.sql\Z", f.name)
    )


def mark(table: str, *, earlier_ids: bool = False) -> str:
    """Return the statement that writes down that Esclusa made a table.

    ``earlier_ids``: version 0.1.0 made its ids, which are not changed yet.
    """
    columns, values = "name", text_literal(table)
    if earlier_ids:
        columns, values = "name, earlier_ids", f"{values}, 1"
    return f"INSERT OR IGNORE INTO esclusa_tables ({columns}) VALUES ({values})"


def refusal(table: str) -> str:
    """Say that another program made a table."""
    return f"table {table} exists, and Esclusa did not make it"


def plan_system(connection: apsw.Connection, kinds: Sequence[Kind]) -> SystemTables:
    """Return what the system tables lack.

    Raises MigrationError as ``Store.migrate`` does, and SchemaRefused if another program made one
    of them.
    """
    known = migrations()
    applied = _applied(connection)
    _check(applied, known)
    changes = []
    if not applied:
        changes.append(MigrationStep("create table esclusa_migrations", _MIGRATIONS))
    for number, name, text in known:
        if number not in applied:
            row = f"{number}, {text_literal(name)}, {text_literal(_checksum(text))}, {_NOW}"
            statement = (
                f"{text.rstrip()}\n\nINSERT INTO esclusa_migrations"
                f" (number, name, checksum, applied_at) VALUES ({row});"
            )
            changes.append(MigrationStep(f"run migration {name}", statement))
    created = [t for number, _, text in known for t in _created(text) if number in applied]
    plan = SystemTables(changes, frozenset(), {}, frozenset(), frozenset())
    if _MARKS in applied:
        made = _marked(connection, "SELECT name FROM esclusa_tables")
        earlier = frozenset[str]()
        if _EARLIER_IDS in applied:
            earlier = _marked(connection, "SELECT name FROM esclusa_tables WHERE earlier_ids")
        plan = SystemTables(changes, made, {}, frozenset(), earlier)
    elif applied:
        plan = _carried_over(connection, changes, created)
    needed = {t for _, _, text in known for t in _created(text)}
    needed |= {kind.table for kind in kinds if kind.system}
    faults = [
        f"{refusal(table)}; rename it"
        for table in sorted(needed)
        if table_columns(connection, table) and table not in plan.made
    ]
    if faults:
        raise SchemaRefused("the names of system tables are not free", faults)
    return plan


def _marked(connection: apsw.Connection, statement: str) -> frozenset[str]:
    return frozenset(name.lower() for (name,) in connection.execute(statement))


def _applied(connection: apsw.Connection) -> dict[int, tuple[str, str]]:
    columns = table_columns(connection, "esclusa_migrations")
    if not columns:
        return {}
    if not {"number", "name", "checksum"} <= set(columns):
        raise SchemaRefused("the schema", [f"{refusal('esclusa_migrations')}; rename it"])
    rows = connection.execute("SELECT number, name, checksum FROM esclusa_migrations")
    return {number: (name, checksum) for number, name, checksum in rows}


def _check(applied: dict[int, tuple[str, str]], known: Sequence[tuple[int, str, str]]) -> None:
    for number, (name, _) in applied.items():
        if number > known[-1][0]:
            raise MigrationError(
                f"the schema is newer than this program: it has migration {name}, which this"
                " version does not know; use a newer version"
            )
    for number, name, text in known:
        if number in applied and applied[number][1] != _checksum(text):
            raise MigrationError(
                f"migration {name} was edited after it ran; restore it and add a new one instead"
            )


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _created(text: str) -> list[str]:
    """Return the tables that a migration creates."""
    return re.findall(r"CREATE TABLE (\w+)", text)


def _carried_over(
    connection: apsw.Connection, changes: list[MigrationStep], created: Sequence[str]
) -> SystemTables:
    """Return the plan for a file of version 0.1.0."""
    columns = (",".join(TRACKING), len(TRACKING))
    before = [name for (name,) in connection.execute(_MADE_BEFORE, columns)]
    renamed = {new: old for old, new in _RENAMED.items() if old in before}
    statements, dropped = [], set[str]()
    for new, old in renamed.items():
        statements.append(f"ALTER TABLE {quote(old)} RENAME TO {quote(new)}")
        indexes = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? AND name GLOB ?",
            (old, "esclusa_*"),
        )
        names = [name for (name,) in indexes]
        statements += [f"DROP INDEX {quote(name)}" for name in names]
        dropped |= set(names)
        statements += [
            f"UPDATE OR REPLACE {table} SET table_name = {text_literal(new)}"
            f" WHERE table_name = {text_literal(old)}"
            for table in ("esclusa_history", "esclusa_wakes")
        ]
    made = [next((new for new, old in renamed.items() if old == t), t) for t in before]
    statements += [mark(table, earlier_ids=True) for table in made]
    change = MigrationStep("rename system tables", ";\n".join(statements) + ";")
    return SystemTables(
        [*changes, change],
        frozenset(t.lower() for t in (*made, *created, "esclusa_migrations")),
        renamed,
        frozenset(dropped),
        frozenset(t.lower() for t in made),
    )
