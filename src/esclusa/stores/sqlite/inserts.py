"""Insert records, called inside one write transaction."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from esclusa.model.errors import BadRecord
from esclusa.model.kind import Kind
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, FanOut, Inserted, RecordWithChildren, drafts_of
from esclusa.model.storable import refused
from esclusa.stores.sqlite.client import fetch_json
from esclusa.stores.sqlite.codec import ENCODING_ERRORS, text_literal
from esclusa.stores.sqlite.statements import (
    batches,
    json_expr,
    placeholders,
    quote,
    select_json,
    table_of,
    text_array,
)
from esclusa.stores.sqlite.transaction import CompiledKind, Transaction

_TABLE_MAKES_IDS = """
SELECT dflt_value IS NOT NULL OR (
    upper(type) = 'INTEGER' AND pk = 1
    AND (SELECT COUNT(*) FROM pragma_table_info(?1) WHERE pk > 0) = 1
) FROM pragma_table_info(?1) WHERE lower(name) = lower(?2)"""

# Table and column that a foreign key names; without a column, the primary key.
_TARGET = """SELECT f."table", coalesce(f."to", (
    SELECT name FROM pragma_table_info(f."table") WHERE pk = 1
)) FROM pragma_foreign_key_list(?) f WHERE lower(f."from") = ?"""

# The defaults of the columns that cannot be null.
_FILLS = """SELECT lower(name), dflt_value FROM pragma_table_info(?)
WHERE "notnull" AND dflt_value IS NOT NULL"""


def insert(transaction: Transaction, drafts: Sequence[Record]) -> list[Inserted | Duplicate]:
    """Insert drafts, answers in order; tables with new records are woken."""
    answers: dict[int, Inserted | Duplicate] = {}
    by_kind: dict[Kind, list[int]] = {}
    for i, draft in enumerate(drafts):
        by_kind.setdefault(draft.kind, []).append(i)
    for kind, indexes in by_kind.items():
        group = _insert(transaction, transaction.kinds[kind], [drafts[i] for i in indexes])
        answers |= zip(indexes, group, strict=True)
        if any(isinstance(answer, Inserted) for answer in group):
            transaction.woken.add(kind.table)
    return [answers[i] for i in range(len(drafts))]


def insert_if_new(
    transaction: Transaction, groups: Sequence[RecordWithChildren]
) -> list[int | None]:
    """Insert each first record and, if it is new, its children; return how many of them are new."""
    firsts = insert(transaction, [group.first for group in groups])
    drafts: list[list[Record]] = []
    parents: list[list[RecordWithChildren]] = []
    for group, first in zip(groups, firsts, strict=True):
        children = group.children(first.id) if isinstance(first, Inserted) else []
        children = [_with_targets(transaction, child) for child in children]
        parents.append([c for c in children if isinstance(c, RecordWithChildren)])
        drafts.append(list(drafts_of(c for c in children if not isinstance(c, RecordWithChildren))))
    answers = iter(insert(transaction, [draft for each in drafts for draft in each]))
    counts: list[int | None] = []
    for first, own, nested in zip(firsts, drafts, parents, strict=True):
        new = sum(isinstance(next(answers), Inserted) for _ in own)
        new += sum(1 + n for n in insert_if_new(transaction, nested) if n is not None)
        counts.append(new if isinstance(first, Inserted) else None)
    return counts


def _with_targets(
    transaction: Transaction, child: Record | FanOut | RecordWithChildren
) -> Record | FanOut | RecordWithChildren:
    """Return a fan-out without the values of a foreign key that name no record.

    A record that was removed meanwhile does not stop the others.
    """
    if not isinstance(child, FanOut) or child.field not in child.record.kind.foreign_keys:
        return child
    kind = child.record.kind
    column = kind.columns[child.field].lower()
    for names in transaction.connection.execute(_TARGET, (kind.table, column)).fetchall():
        table, key = map(str, names)
        found = fetch_json(
            transaction.connection,
            f"SELECT json_group_array({quote(key)}) FROM {quote(table)}"
            f" WHERE {quote(key)} IN (SELECT value FROM carray(?))",
            (text_array(map(str, child.values)),),
        )
        known = set(map(str, found))
        return FanOut(child.record, child.field, [v for v in child.values if str(v) in known])
    return child


def _insert(
    transaction: Transaction, compiled: CompiledKind, drafts: Sequence[Record]
) -> list[Inserted | Duplicate]:
    ids: Sequence[str | None]
    if compiled.kind.database_id:
        ids = [draft.id or None for draft in drafts]
    else:
        ids = compiled.kind.identify_all(drafts, transaction.new_id)
    rows = [_row(transaction, compiled, *each) for each in zip(drafts, ids, strict=True)]
    existing = _existing(transaction, compiled, rows)
    answers: dict[int, Inserted | Duplicate] = {}
    new: list[int] = []
    first: dict[Any, int] = {}
    repeated: list[tuple[int, int]] = []
    for i, row in enumerate(rows):
        identities = _identities(compiled, row)
        known = next((existing[x] for x in identities if x in existing), None)
        earlier = next((first[x] for x in identities if x in first), None)
        if earlier is not None:
            repeated.append((i, earlier))
        elif known is not None:
            answers[i] = Duplicate(known)
        else:
            first.update(dict.fromkeys(identities, i))
            new.append(i)
    ids = _write(transaction, compiled.kind, [rows[i] for i in new])
    answers |= {i: Inserted(id) for i, id in zip(new, ids, strict=True)}
    answers |= {i: Duplicate(answers[earlier].id) for i, earlier in repeated}
    return [answers[i] for i in range(len(drafts))]


def _row(
    transaction: Transaction, compiled: CompiledKind, draft: Record, id: str | None
) -> list[Any]:
    """Return a draft's stored values by column; the id is None if the table makes it."""
    kind, values = compiled.kind, draft.__dict__
    row = []
    try:
        for name, encode, is_text in compiled.encoders:
            value = values[name]
            stored_as_is = value is None or (
                is_text and type(value) is str and value.isascii() and "\0" not in value
            )
            row.append(value if stored_as_is else encode(value))
    except ENCODING_ERRORS as error:
        raise refused(kind, name, value, error) from None
    at = compiled.decoder.position
    row[0] = id
    status = draft.status or kind.initial
    if "status" in at:
        row[at["status"]] = status
    if status not in kind.lifecycle.states:
        raise BadRecord(
            f"{kind.table}: {status!r} is not a state ({', '.join(kind.lifecycle.states)})"
        )
    for name in ("due_at", "created_at"):
        if name in at and row[at[name]] is None:
            row[at[name]] = transaction.stamp
    if "updated_at" in at:
        row[at["updated_at"]] = transaction.stamp
    return row


def _identities(compiled: CompiledKind, row: list[Any]) -> list[Any]:
    """Return what makes a row the same record as another: its id, its key."""
    kind, at = compiled.kind, compiled.decoder.position
    identities: list[Any] = [] if row[0] is None else [row[0]]
    if kind.known_by_key:
        identities.append(tuple(row[at[name]] for name in kind.key))
    return identities


def _existing(
    transaction: Transaction, compiled: CompiledKind, rows: Sequence[list[Any]]
) -> dict[Any, str]:
    """Return the ids of the records that exist already, by id and by key."""
    kind, at, connection = compiled.kind, compiled.decoder.position, transaction.connection
    ids = [row[0] for row in rows if row[0] is not None]
    existing: dict[Any, str] = {}
    if ids:
        states = fetch_json(connection, compiled.select_states, (text_array(ids),))
        existing |= {row[1]: row[1] for row in states}
    if kind.known_by_key:
        keys = [[i, *(row[at[name]] for name in kind.key)] for i, row in enumerate(rows)]
        names = ", ".join(f"k{i}" for i in range(len(kind.key)))
        same = " AND ".join(
            f"{quote(kind.columns[name])} IS k{i}" for i, name in enumerate(kind.key)
        )
        found = select_json(
            f"esclusa_number, {json_expr(kind, 'id')}",
            f"esclusa_wanted CROSS JOIN {table_of(kind)} ON {same}",
        )
        for count, values in batches(keys):
            wanted = f"AS (VALUES {placeholders(len(kind.key) + 1, count)})"
            statement = f"WITH esclusa_wanted(esclusa_number, {names}) {wanted} {found}"
            numbered = fetch_json(connection, statement, values)
            existing |= {tuple(keys[i][1:]): id for i, id in numbered}
    return existing


def _write(transaction: Transaction, kind: Kind, rows: Sequence[list[Any]]) -> list[str]:
    """Insert new rows and return their ids."""
    connection = transaction.connection
    fills = dict(connection.execute(_FILLS, (kind.table,))) if kind.attached else {}
    if kind.id_field is not None:  # its column is written once
        again = list(kind.columns).index(kind.id_field)
        rows = [[*row[:again], *row[again + 1 :]] for row in rows]
    if not kind.database_id:
        for count, values in batches(rows):
            connection.execute(_insert_statement(kind, count, fills), values)
        return [row[0] for row in rows]
    ids: list[str] = []
    if not kind.attached and all(row[0] is None for row in rows):
        for count, values in batches([row[1:] for row in rows]):
            connection.execute(_insert_statement(kind, count, fills, with_id=False), values)
            # no other writer is active, so the rows of one statement have consecutive ids
            first = connection.last_insert_rowid() - count + 1
            ids += [str(first + i) for i in range(count)]
        return ids
    table_makes_ids = any(
        yes for (yes,) in connection.execute(_TABLE_MAKES_IDS, (kind.table, kind.id_column))
    )
    for row in rows:
        if row[0] is None and not table_makes_ids:
            row[0] = transaction.new_id()
        with_id = row[0] is not None
        statement = _insert_statement(kind, 1, fills, with_id=with_id)
        returned = connection.execute(
            f"{statement} RETURNING {json_expr(kind, 'id')}", row if with_id else row[1:]
        )
        ids += [id for (id,) in returned]
    return ids


def _insert_statement(
    kind: Kind, count: int, fills: Mapping[str, str], *, with_id: bool = True
) -> str:
    """``fills``: what a row gets in a column that cannot be null, if its value is."""
    columns = [c for name, c in kind.columns.items() if name != kind.id_field]
    columns = columns[0 if with_id else 1 :]
    values = placeholders(len(columns), count)
    if fills or kind.fill:
        exprs = [fills.get(column.lower()) for column in columns]
        parts = ["?" if expr is None else f"ifnull(?, ({expr}))" for expr in exprs]
        parts += [_constant(value) for _, value in kind.fill]
        values = ", ".join([f"({', '.join(parts)})"] * count)
    names = ", ".join(map(quote, [*columns, *(column for column, _ in kind.fill)]))
    return f"INSERT INTO {table_of(kind)} ({names}) VALUES {values}"


def _constant(value: str | int | float | bool) -> str:
    return text_literal(value) if isinstance(value, str) else repr(value + 0)
