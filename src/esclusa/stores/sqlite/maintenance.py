"""History, what deletes, archives or restores records, and quick_check."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import apsw

from esclusa.model.errors import BadQuery, SchemaError
from esclusa.model.kind import Kind, Ref
from esclusa.model.query import ARCHIVE_COLUMNS, Query, null
from esclusa.model.settlement import Step
from esclusa.model.storable import fits
from esclusa.model.system_records import Export
from esclusa.model.texts import text
from esclusa.stores.sqlite.client import fetch_json
from esclusa.stores.sqlite.codec import ENCODE, decode_json, decode_time, encode_time
from esclusa.stores.sqlite.statements import (
    batches,
    locate,
    locator,
    locator_array,
    placeholders,
    quote,
    select_json,
    table_of,
    text_array,
)
from esclusa.stores.sqlite.transaction import Transaction

# The columns of a move.
_STEP = "from_state, to_state, at, who, run, attempt, reason, error, changes, log"
# The most faults of a damaged file that are reported.
_MOST_FAULTS = 3
# How often a check of the file looks at the time, in SQLite's steps.
_STEPS = 10_000


def quick_check(connection: apsw.Connection, seconds: float) -> tuple[list[str], bool]:
    """Return what ``PRAGMA quick_check`` finds, and whether it came to its end in time."""
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    try:
        rows = connection.execute(f"PRAGMA quick_check({_MOST_FAULTS})").fetchall()
    except apsw.InterruptError:
        return [], False
    return [str(fault) for (fault,) in rows if fault != "ok"], True


def history(connection: apsw.Connection, ref: Ref, limit: int, newest: bool) -> list[Step]:
    """Return the moves of a record, oldest first; with ``newest``, the last ones."""
    if not fits(ref.id):
        return []
    columns = _STEP
    moves = (
        f"SELECT {columns} FROM esclusa_history WHERE table_name = ? AND record_id = ?"
        f" ORDER BY seq {'DESC' if newest else 'ASC'} LIMIT ?"
    )
    rows = fetch_json(
        connection, select_json(columns, f"({moves})"), (ref.kind.table, ref.id, limit)
    )
    steps = [_step(row) for row in rows]
    return steps[::-1] if newest else steps


def histories(
    connection: apsw.Connection, kind: Kind, ids: Sequence[str], each: int
) -> list[list[Step]]:
    """Return the last moves of each record, oldest first."""
    if not ids:
        return []
    columns = ", ".join(f"h.{name}" for name in ("record_id", *_STEP.split(", ")))
    first = (
        "SELECT seq FROM esclusa_history WHERE table_name = ?1 AND record_id = value"
        " ORDER BY seq DESC LIMIT 1 OFFSET ?3"
    )
    moves = (
        f"SELECT {columns} FROM (SELECT value AS id, ({first}) AS first FROM carray(?2)) i"
        " CROSS JOIN esclusa_history h ON h.table_name = ?1 AND h.record_id = i.id"
        " AND h.seq >= COALESCE(i.first, 0) ORDER BY h.record_id, h.seq"
    )
    rows = fetch_json(
        connection,
        select_json(f"record_id, {_STEP}", f"({moves})"),
        (kind.table, text_array(set(ids)), each - 1),
    )
    found: dict[str, list[Step]] = {}
    for id, *row in rows:
        found.setdefault(id, []).append(_step(row))
    return [found.get(id, []) for id in ids]


def _step(row: Sequence[Any]) -> Step:
    """Decode a row of ``_STEP``."""
    frm, to, at, who, run, attempt, reason, error, changes, log = row
    return Step(
        *(frm, to, decode_time(at), who, run, attempt, reason),
        error and decode_json(error),
        changes and decode_json(changes),
        log and decode_json(log),
    )


def prune_history(connection: apsw.Connection, before: datetime, limit: int) -> int:
    """Delete moves older than that, up to ``limit``; return how many.

    Their numbers rise with time, so the oldest are the first.
    """
    connection.execute(
        """DELETE FROM esclusa_history WHERE at < ?
        AND seq IN (SELECT seq FROM esclusa_history ORDER BY seq LIMIT ?)""",
        (encode_time(before), limit),
    )
    return connection.changes()


def purge(connection: apsw.Connection, query: Query) -> int:
    """Delete the rows of a query, up to its limit, with their history."""
    rows = fetch_json(connection, *locate(query))
    if rows:
        _erase(connection, query.kind, rows, archived=query.archived)
    return len(rows)


def remove(transaction: Transaction, refs: Sequence[Ref]) -> list[bool]:
    """Delete records with their history; return whether each existed."""
    rows = transaction.row_states(refs)
    for kind in {ref.kind for ref in refs}:
        if existing := rows[kind.table]:
            located = [(row.locator, id) for id, row in existing.items()]
            _erase(transaction.connection, kind, located)
    return [ref.id in rows[ref.kind.table] for ref in refs]


def _erase(
    connection: apsw.Connection,
    kind: Kind,
    rows: Sequence[Sequence[Any]],
    *,
    archived: bool = False,
) -> None:
    """Delete rows, given as locator and id, with their history; at least one."""
    _delete(connection, kind, [located for located, _ in rows], archived=archived)
    connection.execute(
        """DELETE FROM esclusa_history
        WHERE table_name = ? AND record_id IN (SELECT value FROM carray(?))""",
        (kind.table, text_array(id for _, id in rows)),
    )


def _delete(
    connection: apsw.Connection, kind: Kind, locators: Sequence[Any], *, archived: bool = False
) -> None:
    connection.execute(
        f"""DELETE FROM {table_of(kind, archived)}
        WHERE {locator(kind)} IN (SELECT value FROM carray(?))""",
        (locator_array(locators),),
    )


def archive(connection: apsw.Connection, query: Query, now: str, export: str | None) -> int:
    """Move the rows of a query to the archive; none if the export is not filling."""
    kind = query.kind
    if not kind.archive:
        raise BadQuery(text("no_archive", table=kind.table))
    columns = table_columns(connection, kind.table)
    archived = table_columns(connection, f"archive_{kind.table}")
    missing = [column for column in columns if column not in archived]
    if missing:  # another program added a column: its values must not be lost
        raise SchemaError(
            f"table archive_{kind.table}",
            [f"it lacks the column {column}; run: esclusa migrate" for column in missing],
        )
    filling = f"SELECT 1 FROM {table_of(Export.kind)} WHERE id = ? AND status = 'filling'"
    if export is not None and not connection.execute(filling, (export,)).fetchall():
        return 0
    rows = fetch_json(connection, *locate(query))
    if rows:
        names = ", ".join(quote(column) for column in columns.values())
        locators = [located for located, _ in rows]
        connection.execute(
            f"""INSERT OR REPLACE INTO {table_of(kind, archived=True)}
                ({names}, archived_at, export_id)
            SELECT {names}, ?, ? FROM {table_of(kind)}
            WHERE {locator(kind)} IN (SELECT value FROM carray(?))""",
            (now, export, locator_array(locators)),
        )
        _delete(connection, kind, locators)
    return len(rows)


def assign(connection: apsw.Connection, query: Query, export: str) -> int:
    """Assign archived rows without an export to this one."""
    kind = query.kind
    unassigned = query.but(where=(*query.where, ("export_id", null)), archived=True)
    rows = fetch_json(connection, *locate(unassigned))
    if rows:
        connection.execute(
            f"""UPDATE {table_of(kind, archived=True)} SET export_id = ?
            WHERE {locator(kind)} IN (SELECT value FROM carray(?))""",
            (export, locator_array(located for located, _ in rows)),
        )
    return len(rows)


def restore(
    connection: apsw.Connection,
    kind: Kind,
    rows: Sequence[Mapping[str, Any]],
    now: str,
    export: str,
) -> int:
    """Insert rows into the archive, unless they are in it; return how many are new."""
    columns = {name: column for name, column in kind.columns.items() if name != kind.id_field}
    table, id = table_of(kind, archived=True), quote(kind.id_column)
    known = {
        str(found)
        for (found,) in connection.execute(
            f"SELECT {id} FROM {table} WHERE {id} IN (SELECT value FROM carray(?))",
            (text_array(str(row["id"]) for row in rows),),
        )
    }
    new = {str(row["id"]): row for row in rows if str(row["id"]) not in known}
    names = ", ".join(map(quote, [*columns.values(), "archived_at", "export_id"]))
    before = connection.total_changes()
    stored = [
        [*(_stored(kind, name, row[name]) for name in columns), now, export] for row in new.values()
    ]
    for count, values in batches(stored):
        connection.execute(
            f"INSERT OR IGNORE INTO {table} ({names})"
            f" VALUES {placeholders(len(columns) + 2, count)}",
            values,
        )
    return connection.total_changes() - before


def _stored(kind: Kind, name: str, value: Any) -> Any:
    return None if value is None else ENCODE[kind.types[name]](value)


def undeclared(connection: apsw.Connection, kind: Kind) -> list[str]:
    """Return the archive's columns that are neither a field of the kind nor the archive's own."""
    declared = {column.lower() for column in (*kind.columns.values(), *ARCHIVE_COLUMNS)}
    return [
        name
        for lower, name in table_columns(connection, f"archive_{kind.table}").items()
        if lower not in declared
    ]


def table_columns(connection: apsw.Connection, table: str) -> dict[str, str]:
    """Return a table's columns by their name in lower case; empty if there is no such table."""
    columns = "SELECT name FROM pragma_table_xinfo(?) WHERE hidden <> 1"
    return {name.lower(): name for (name,) in connection.execute(columns, (table,))}
