"""A kind as PostgreSQL sees it: quoted names, actual column types, and how values cross the border both ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from functools import cached_property
from typing import Any
from uuid import UUID

from pydantic_core import from_json, to_json

from esclusa.model.columns import EXTRAS, TRACKING, ColumnType
from esclusa.model.errors import BadRecord
from esclusa.model.query import ARCHIVE_COLUMNS, Cond
from esclusa.model.record import Kind, Record
from esclusa.model.retyped import retyped
from esclusa.model.stage import Stage
from esclusa.model.storable import fit_decimal, fit_float, fits

WIRE: dict[ColumnType, str] = {
    "text": "text",
    "int": "bigint",
    "float": "double precision",
    "bool": "boolean",
    "time": "timestamp with time zone",
    "date": "date",
    "decimal": "numeric",
    "json": "jsonb",
    "bytes": "bytea",
}
"""The types of our own columns, and of the values that are bound."""

TEXTS = frozenset({"text", "character varying", "name", "citext"})
PADDED = "bpchar"
"""``char(n)``: the blanks behind a value are none of it."""
WHOLE = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
NUMBERS = frozenset({*WHOLE, "numeric", "double precision", "real"})
PLAIN_TIME = "timestamp without time zone"
FLOORS = {"due_at", "updated_at"}
"""On an attached table a null in these is older than everything."""


def quote(name: str) -> str:
    """A declared name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Text as an SQL literal. Only for state names, constants of a stage and defaults, never for data."""
    body = text.replace("'", "''")
    return f"'{body}'" if "\\" not in body else " E'" + body.replace("\\", "\\\\") + "'"


def literals(values: Iterable[str]) -> str:
    return ", ".join(literal(v) for v in values)


@dataclass(frozen=True)
class Column:
    """One column: what the engine calls it and means by it, and what it really is."""

    name: str
    column: str
    type: ColumnType
    sql: str
    fallback: str | None = None
    """What a null means on an attached table, as SQL of the column's type."""

    @property
    def ident(self) -> str:
        return quote(self.column)

    @property
    def wire(self) -> str:
        """The type that a parameter for it is bound as."""
        return "text" if self.type == "json" and self.sql in TEXTS else WIRE[self.type]

    def expr(self, alias: str = "t") -> str:
        """The value to compare and order by, in the column's own type, so that indexes serve."""
        bare = f"{alias}.{self.ident}" if alias else self.ident
        return bare if self.fallback is None else f"COALESCE({bare}, {self.fallback})"

    def read(self, alias: str = "t") -> str:
        """The value as the engine reads it."""
        value = f"{alias}.{self.ident}" if self.name in FLOORS else self.expr(alias)
        if self.type == "time" and self.sql == PLAIN_TIME:
            return f"({value} AT TIME ZONE 'UTC')"
        if self.type == "text" and self.sql not in TEXTS:
            return f"{value}::text"
        if self.type == "int" and self.sql not in WHOLE:
            return f"{value}::bigint"
        if self.type == "json" and self.sql not in TEXTS and self.sql not in ("json", "jsonb"):
            return f"to_jsonb({value})"
        return value

    def write(self, source: str) -> str:
        """A bound value (of type ``wire``) as the column's own type."""
        if self.sql == self.wire:
            return source
        if self.type == "time" and self.sql == PLAIN_TIME:
            return f"(({source}) AT TIME ZONE 'UTC')"
        if self.type == "json" and self.sql.endswith("[]"):
            return f"CASE WHEN {source} IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text({source}))::{self.sql} END"
        return f"{source}::{self.sql}"

    def compare(self, source: str) -> str:
        """A bound value to compare the column with. Whole numbers stay wide: a comparison must not overflow."""
        return source if self.type == "int" and self.sql in WHOLE else self.write(source)

    def constant(self, value: Any) -> str:
        """A value as a literal of the column's type."""
        if value is None:
            return "NULL"
        if isinstance(value, bool):
            return "true" if value else "false"
        if self.type == "int":
            return str(int(value))
        text = literal(as_text(self.encode([value])[0]))
        return (
            text
            if self.type == "text" and self.sql == "text"
            else self.write(f"{text}::{self.wire}")
        )

    def encode(self, values: list[Any]) -> list[Any]:
        """Values as asyncpg wants them for a parameter of type ``wire``."""
        encoder = _ENCODERS.get(self.type)
        return values if encoder is None else [None if v is None else encoder(v) for v in values]


def as_text(value: Any) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return str(value)


def json_text(value: Any) -> str:
    return to_json(value, inf_nan_mode="null").decode()


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    return str(value.value if isinstance(value, Enum) else value)


def _time(value: datetime) -> datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


_ENCODERS: dict[str, Callable[[Any], Any]] = {
    "text": _text,
    "time": _time,
    "json": json_text,
    "float": lambda v: fit_float(float(v)),
    "decimal": fit_decimal,
}


class Table:
    """A kind, compiled: what statements are made of. ``actual`` gives the columns' types where the table exists."""

    def __init__(
        self,
        kind: Kind,
        stages: Sequence[Stage] = (),
        actual: Mapping[str, str] | None = None,
        returns_old: bool = False,
        makes_ids: bool | None = None,
    ) -> None:
        self.kind = kind
        self.makes_ids = kind.database_id if makes_ids is None else makes_ids
        self.returns_old = (
            returns_old  # PostgreSQL 18 and later answer an update with the row as it was
        )
        self.name = kind.table
        self.ident = quote(kind.table)
        self.archive = f'"archive".{quote(kind.table)}'
        self.stages = tuple(stages)
        actual = actual or {}
        self.columns = {
            name: self._column(name, column, kind.types[name], actual)
            for name, column in kind.columns.items()
        }
        self.extras = {
            name: self._column(name, column, EXTRAS[name], actual)
            for name, column in kind.extras.items()
        }
        self.archived = {
            name: Column(name, name, type, WIRE[type]) for name, type in ARCHIVE_COLUMNS.items()
        }
        self.id = self.columns["id"]
        self.status = self.columns["status"]
        self.names = tuple(self.columns)
        self.taken = frozenset(state for stage in self.stages for state in stage.states)
        self.constants = frozenset(pair for stage in self.stages for pair in stage.where)
        self._json = tuple(
            (i, name) for i, name in enumerate(self.names) if self.columns[name].type == "json"
        )
        self._statements: dict[Any, str] = {}
        self._typed = [] if kind.attached else retyped(kind)

    def _column(
        self, name: str, column: str, type: ColumnType, actual: Mapping[str, str]
    ) -> Column:
        sql = actual.get(column) or (
            "bigint" if name == "id" and self.kind.database_id else WIRE[type]
        )
        fallback = None
        if self.kind.attached and name in TRACKING:
            if name == "status":
                fallback = literal(self.kind.initial) + ("" if sql in TEXTS else f"::{sql}")
            elif name in ("attempts", "fence"):
                fallback = "0"
            elif name in FLOORS:
                fallback = f"'-infinity'::{sql}"
        return Column(name, column, type, sql, fallback)

    def statement(self, key: Any, make: Callable[[], str]) -> str:
        """A statement by its shape, composed once."""
        found = self._statements.get(key)
        if found is None:
            if len(self._statements) > 2000:
                self._statements.clear()
            found = self._statements[key] = make()
        return found

    @cached_property
    def selection(self) -> str:
        """The columns of a record, as it is read, from the table aliased ``t``."""
        return ", ".join(column.read() for column in self.columns.values())

    @property
    def ended(self) -> tuple[str, ...]:
        """The states that no stage takes or holds."""
        return tuple(s for s in self.kind.lifecycle.states if s not in self.taken)

    def wakes(self, state: str) -> bool:
        """Whether a record that is due in this state is something for a listener."""
        return state in self.taken if self.taken else state not in self.kind.lifecycle.terminal

    def asked(self, name: str) -> Column:
        """The column of a condition; queries of the archive may ask for what it holds besides the record."""
        return self.columns.get(name) or self.archived[name]

    def constant(self, name: str, cond: Cond) -> bool:
        """Whether a condition is part of a stage's declaration, and so of its index."""
        try:
            return (name, cond) in self.constants
        except TypeError:
            return False

    def ids(self, ids: Sequence[str]) -> list[str]:
        """Those that can be ids of this table at all; the others are simply not there."""
        return [i for i in ids if self.possible(i)]

    @cached_property
    def possible(self) -> Callable[[str], bool]:
        """Whether an id can be one of this table at all."""
        if self.id.sql in WHOLE:
            end = WHOLE[self.id.sql]
            return lambda text: (
                re.fullmatch(r"-?(0|[1-9]\d{0,18})", text) is not None and -end <= int(text) < end
            )
        return _uuid if self.id.sql == "uuid" else fits

    def values(self, row: Sequence[Any]) -> dict[str, Any]:
        """A row of ``selection`` as plain values by name."""
        values = dict(zip(self.names, row))  # noqa: B905 - rows may carry more behind the record; saying so costs as much again
        for i, name in self._json:
            if row[i] is not None:
                values[name] = _loads(row[i], name)
        return values

    def build(self, row: Sequence[Any]) -> tuple[Record, str | None]:
        """The record of a row, and what is wrong with it if it does not fit its declaration."""
        values = self.values(row)
        for name, fn in self._typed:
            values[name] = fn(values[name])
        try:
            return self.kind.build(values), None
        except BadRecord as error:
            return self.kind.model.model_construct(None, **values), str(error)


def _uuid(id: str) -> bool:
    try:
        return str(UUID(id)) == id
    except ValueError:
        return False


def _loads(text: Any, name: str) -> Any:
    if not isinstance(text, str | bytes):
        return text
    try:
        value = from_json(text)
    except ValueError:  # an outsider's text in a column that is read as JSON
        value = text
    return (
        {"message": str(value)} if name == "last_error" and not isinstance(value, dict) else value
    )
