"""Records in renamed and undeclared states, and with ids of version 0.1.0."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import apsw

from esclusa.model.earlier_ids import IdChange
from esclusa.model.kind import Kind
from esclusa.model.texts import text
from esclusa.stores.sqlite.client import fetch_json
from esclusa.stores.sqlite.maintenance import table_columns
from esclusa.stores.sqlite.statements import (
    count_by_state,
    expr,
    json_expr,
    locator,
    locator_array,
    quote,
    select_json,
    table_of,
    text_array,
    time_expr,
)
from esclusa.stores.sqlite.transaction import Transaction


def states(connection: apsw.Connection, kind: Kind) -> list[str]:
    """Return the states that occur; none if the table has no states yet."""
    if kind.columns.get("status", "").lower() not in table_columns(connection, kind.table):
        return []
    return [str(state) for state, _ in fetch_json(connection, *count_by_state(kind, 0))]


def rename_states(
    transaction: Transaction,
    kind: Kind,
    limit: int,
    who: str,
    refused: Collection[str],
    only: Sequence[str] | None = None,
) -> int:
    """Give records in renamed states their present state; return how many.

    Attempts and times of a record stay. One that is held is left until its lease has ended.
    ``refused``: ids to leave out. ``only``: these ids.
    """
    moved = 0
    for old, new in kind.lifecycle.renamed.items() if "status" in kind.columns else ():
        rows = _in_state(
            transaction.connection, kind, old, limit - moved, refused, only, transaction.stamp
        )
        if rows:
            _rename(transaction, kind, old, new, rows, who)
            moved += len(rows)
    if moved:
        transaction.woken.add(kind.table)
    return moved


def renamed_ids(
    connection: apsw.Connection, kind: Kind, limit: int, refused: Collection[str]
) -> list[str]:
    """Return the ids that ``rename_states`` would pick."""
    ids: list[str] = []
    for old in kind.lifecycle.renamed:
        ids += [id for _, id in _in_state(connection, kind, old, limit - len(ids), refused, None)]
    return ids


def _in_state(
    connection: apsw.Connection,
    kind: Kind,
    state: str,
    limit: int,
    refused: Collection[str],
    only: Sequence[str] | None,
    now: str | None = None,
) -> list[list[Any]]:
    """Return locator and id of records in a state; with ``now``, of those that nobody holds."""
    columns = f"{locator(kind)} AS l, {json_expr(kind, 'id')} AS i"
    tests, values = [f"{expr(kind, 'status')} = ?"], [state]
    for ids, word in ((only, "IN"), (list(refused) or None, "NOT IN")):
        if ids is not None:
            tests.append(f"{quote(kind.id_column)} {word} (SELECT value FROM carray(?))")
            values.append(text_array(ids))
    if now is not None and kind.track.complete:
        tests.append(
            f"({quote(kind.track['leased_by'])} IS NULL OR {time_expr(kind, 'due_at')} <= ?)"
        )
        values.append(now)
    found = f"SELECT {columns} FROM {table_of(kind)} WHERE {' AND '.join(tests)} LIMIT ?"
    return fetch_json(connection, select_json("l, i", f"({found})"), (*values, limit))


def _rename(
    transaction: Transaction, kind: Kind, old: str, new: str, rows: list[list[Any]], who: str
) -> None:
    transaction.connection.execute(
        f"""UPDATE {table_of(kind)} SET {quote(kind.track["status"])} = ?
        WHERE {locator(kind)} IN (SELECT value FROM carray(?))""",
        (new, locator_array(located for located, _ in rows)),
    )
    if kind.history:
        reason = text("state_renamed", old=old, new=new).dump()
        move = (old, new, transaction.stamp, who, None, None, reason, None)
        transaction.add_history({(kind.table, *move): [id for _, id in rows]})


def change_ids(
    connection: apsw.Connection, kind: Kind, changes: Sequence[IdChange], archived: bool
) -> int:
    """Give records other ids; their history follows. Return how many were changed."""
    table, id, changed = table_of(kind, archived), quote(kind.id_column), 0
    for change in changes:
        taken = f"SELECT 1 FROM {table} WHERE {id} = ?"
        if change.id != change.new and connection.execute(taken, (change.new,)).fetchall():
            continue
        columns = [id, *(quote(kind.columns[name]) for name in change.fields)]
        sets = ", ".join(f"{column} = ?" for column in columns)
        values = (change.new, *change.fields.values(), change.id)
        connection.execute(f"UPDATE {table} SET {sets} WHERE {id} = ?", values)
        changed += connection.changes()
        if change.id != change.new:
            connection.execute(
                "UPDATE esclusa_history SET record_id = ? WHERE table_name = ? AND record_id = ?",
                (change.new, kind.table, change.id),
            )
    return changed


def ids_changed(connection: apsw.Connection, kind: Kind) -> None:
    """Write down that no record of the kind has an id of version 0.1.0."""
    connection.execute("UPDATE esclusa_tables SET earlier_ids = 0 WHERE name = ?", (kind.table,))
