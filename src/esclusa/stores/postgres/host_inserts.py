"""Insert records on a host's connection to PostgreSQL; listeners are notified when it commits.

Each statement binds one JSON text, and PostgreSQL itself converts it to the types of the table, so
that nothing needs to be known of the table or of the driver's conversions.
"""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pydantic_core import to_json, to_jsonable_python

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
from esclusa.stores.postgres.names import SCHEMA, Installation, quote


def insertions(
    records: Sequence[Record], placeholder: Placeholder, schema: str = SCHEMA
) -> Insertions:
    """Insert each record unless its key exists; then notify the workers of the installation."""
    answers: dict[int, Answer] = {}
    for place, record in by_table(records):
        answers[place] = yield from _insert(record, placeholder)
    inserted = [records[n].kind for n, answer in answers.items() if isinstance(answer, Inserted)]
    for table in sorted({kind.table for kind in inserted}):
        yield HostStatement(
            f"SELECT 1 FROM (SELECT pg_notify({_text(placeholder, 1)}, {_text(placeholder, 2)})) n",
            (Installation(schema).channel, table),
        )
    return [answers[n] for n in range(len(records))]


def _insert(
    record: Record, placeholder: Placeholder
) -> Generator[HostStatement, Sequence[Sequence[Any]], Answer]:
    kind = record.kind
    given = given_values(record)
    values = {kind.columns[n]: _json_value(kind, n, v) for n, v in given.items()}
    values |= dict(kind.fill)
    id = new_id(record)
    if id is not None:
        values[kind.id_column] = id
    if (
        kind.shared_key
        and kind.known_by_key
        and (found := (yield _find(kind, values, placeholder)))
    ):
        return Duplicate(found[0][0])  # no index keeps the key unique
    rows = yield _insert_statement(kind, values, placeholder)
    if rows:
        return Inserted(rows[0][0])
    if kind.known_by_key and (found := (yield _find(kind, values, placeholder))):
        return Duplicate(found[0][0])
    if id is None:
        raise unexpected_duplicate(kind)
    return Duplicate(id)


def _insert_statement(
    kind: Kind, values: Mapping[str, Any], placeholder: Placeholder
) -> HostStatement:
    table, names = quote(kind.table), ", ".join(map(quote, values))
    row = f"jsonb_populate_record(NULL::{table}, CAST({_text(placeholder, 1)} AS jsonb))"
    sql = (
        f"INSERT INTO {table} ({names}) SELECT {names} FROM {row}"
        f" ON CONFLICT DO NOTHING RETURNING CAST({quote(kind.id_column)} AS text)"
    )
    if not values:  # a record of defaults only
        sql = f"INSERT INTO {table} DEFAULT VALUES RETURNING CAST({quote(kind.id_column)} AS text)"
        return HostStatement(sql, ())
    return HostStatement(sql, (to_json(values).decode(),))


def _find(kind: Kind, values: Mapping[str, Any], placeholder: Placeholder) -> HostStatement:
    """The id of the record with the key that these values have."""
    table, columns = quote(kind.table), [kind.columns[name] for name in kind.key]
    same = " AND ".join(f"t.{quote(c)} IS NOT DISTINCT FROM k.{quote(c)}" for c in columns)
    row = f"jsonb_populate_record(NULL::{table}, CAST({_text(placeholder, 1)} AS jsonb))"
    sql = (
        f"SELECT CAST(t.{quote(kind.id_column)} AS text) FROM {table} t, {row} k"
        f" WHERE {same} LIMIT 1"
    )
    return HostStatement(sql, (to_json({c: values.get(c) for c in columns}).decode(),))


def _text(placeholder: Placeholder, number: int) -> str:
    """A parameter that every driver sends as text."""
    return f"CAST({placeholder(number)} AS text)"


def _json_value(kind: Kind, name: str, value: Any) -> Any:
    """The value as JSON that PostgreSQL reads as the column's type."""
    match kind.types[name]:
        case "bytes":
            return "\\x" + bytes(value).hex()
        case "time":
            return _utc(value).isoformat()
        case "decimal":
            return str(Decimal(str(value)))
        case "float":
            return value if abs(value) != float("inf") else str(value)
        case _:
            return to_jsonable_python(value, inf_nan_mode="null")


def _utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
