"""Insert records on a host's connection to the SQLite file; workers are woken when it commits."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from esclusa.model.columns import TRACKING
from esclusa.model.kind import Kind
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted
from esclusa.stores.host_inserts import (
    Answer,
    HostStatement,
    Insertions,
    Placeholder,
    by_table,
    given_values,
    new_id,
    unexpected_duplicate,
)
from esclusa.stores.sqlite.codec import encode, encode_field
from esclusa.stores.sqlite.statements import quote


def insertions(records: Sequence[Record], placeholder: Placeholder) -> Insertions:
    """Insert each record unless its key exists; then wake the workers."""
    answers: dict[int, Answer] = {}
    for place, record in by_table(records):
        answers[place] = yield from _insert(record, placeholder)
    inserted = [records[n].kind for n, answer in answers.items() if isinstance(answer, Inserted)]
    for table in sorted({kind.table for kind in inserted}):
        sql = (
            f"INSERT INTO esclusa_wakes (table_name, count) VALUES ({placeholder(1)}, 1)"
            " ON CONFLICT DO UPDATE SET count = count + 1 RETURNING 1"
        )
        yield HostStatement(sql, (table,))
    return [answers[n] for n in range(len(records))]


def _insert(
    record: Record, placeholder: Placeholder
) -> Generator[HostStatement, Sequence[Sequence[Any]], Answer]:
    kind = record.kind
    given = _tracking(kind) | given_values(record)
    values = {
        kind.columns[n]: encode(TRACKING[n], v) if n in kind.track else encode_field(kind, n, v)
        for n, v in given.items()
    }
    values |= dict(kind.fill)
    id = new_id(record)
    if id is not None:
        values[kind.id_column] = id
    if kind.known_by_key and (found := (yield _find(kind, values, placeholder))):
        return Duplicate(found[0][0])
    rows = yield _insert_statement(kind, values, placeholder)
    if rows:
        return Inserted(rows[0][0])
    if id is None:
        raise unexpected_duplicate(kind)
    return Duplicate(id)


def _tracking(kind: Kind) -> dict[str, Any]:
    """The tracking of a new record, of the columns that the table has."""
    now = datetime.now(UTC)
    new = {"status": kind.initial, "attempts": 0, "fence": 0}
    new |= dict.fromkeys(("due_at", "created_at", "updated_at"), now)
    return {name: value for name, value in new.items() if name in kind.track}


def _insert_statement(
    kind: Kind, values: Mapping[str, Any], placeholder: Placeholder
) -> HostStatement:
    names = ", ".join(map(quote, values))
    bound = ", ".join(placeholder(n) for n in range(1, len(values) + 1))
    sql = (
        f"INSERT INTO {quote(kind.table)} ({names}) VALUES ({bound})"
        f" ON CONFLICT DO NOTHING RETURNING CAST({quote(kind.id_column)} AS TEXT)"
    )
    return HostStatement(sql, tuple(values.values()))


def _find(kind: Kind, values: Mapping[str, Any], placeholder: Placeholder) -> HostStatement:
    """The id of the record with the key that these values have."""
    columns = [kind.columns[name] for name in kind.key]
    same = " AND ".join(f"{quote(c)} IS {placeholder(n)}" for n, c in enumerate(columns, 1))
    sql = f"SELECT CAST({quote(kind.id_column)} AS TEXT) FROM {quote(kind.table)} WHERE {same}"
    return HostStatement(f"{sql} LIMIT 1", tuple(values.get(c) for c in columns))
