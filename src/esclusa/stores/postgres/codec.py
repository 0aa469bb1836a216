"""Conversion between Python values and PostgreSQL values, and the actual columns of a kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any
from uuid import UUID

from pydantic_core import from_json, to_json

from esclusa.model.columns import EXTRAS, ColumnType, retyped
from esclusa.model.errors import BadRecord
from esclusa.model.kind import Kind
from esclusa.model.query import ARCHIVE_COLUMNS, Cond
from esclusa.model.record import Record
from esclusa.model.stage import Stage
from esclusa.model.storable import fit_decimal, fit_float, fits
from esclusa.stores.postgres.names import Installation, quote

# The types of bound values, and of the columns that Esclusa creates.
PARAMETER_TYPES: dict[ColumnType, str] = {
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

TEXT_TYPES = frozenset({"text", "character varying", "name", "citext"})
# `char(n)`: blanks at the end are not part of the value.
CHAR_TYPE = "bpchar"
INTEGER_LIMITS = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
NUMBER_TYPES = frozenset({*INTEGER_LIMITS, "numeric", "double precision", "real"})
TIME_WITHOUT_ZONE = "timestamp without time zone"
# A time as text: ISO 8601.
_ISO = 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'
# On an attached table, null in these is older than every time (due_at: the time of creation).
OLDEST_IF_NULL = {"due_at", "updated_at"}


def literal(text: str) -> str:
    """Return text as an SQL literal: for states, constants of a stage and defaults, never data."""
    body = text.replace("'", "''")
    return f"'{body}'" if "\\" not in body else " E'" + body.replace("\\", "\\\\") + "'"


def literals(values: Iterable[str]) -> str:
    """Return texts as SQL literals, separated by commas."""
    return ", ".join(literal(v) for v in values)


@dataclass(frozen=True)
class TableColumn:
    """One column: its field name and declared type, its name and actual type in the database."""

    name: str
    column: str
    type: ColumnType
    sql_type: str
    # What null means on an attached table, as SQL of the column's type.
    default: str | None = None
    # The column whose value counts instead of null, if it has one; and how it becomes this type.
    else_column: str | None = None
    else_form: str = "{}"
    # The function that reads a time from a column of text.
    reader: str | None = None
    # The value of a column that the table lacks, as SQL: it is neither read nor written.
    instead: str | None = None

    @property
    def ident(self) -> str:
        return quote(self.column)

    @property
    def parameter_type(self) -> str:
        """The type that a value for this column is bound as."""
        as_text = self.type == "json" and self.sql_type in TEXT_TYPES
        return "text" if as_text else PARAMETER_TYPES[self.type]

    def expr(self, alias: str = "t") -> str:
        """Return the value to compare and sort by, in the column's own type, for its index."""
        if self.instead is not None:
            return self.instead
        place = f"{alias}." if alias else ""
        bare = place + self.ident
        if self.reader is not None:
            return f"{self.reader}({bare})"
        if self.default is None:
            return bare
        if self.else_column is None:
            return f"COALESCE({bare}, {self.default})"
        other = self.else_form.format(place + quote(self.else_column))
        return f"COALESCE({bare}, {other}, {self.default})"

    def read(self, alias: str = "t") -> str:
        """Return the value as a record has it."""
        if self.instead is not None:
            return self.instead
        value = f"{alias}.{self.ident}" if self.name in OLDEST_IF_NULL else self.expr(alias)
        if self.type == "time" and self.sql_type == TIME_WITHOUT_ZONE:
            return f"({value} AT TIME ZONE 'UTC')"
        if self.type == "text" and self.sql_type not in TEXT_TYPES:
            return f"{value}::text"
        if self.type == "int" and self.sql_type not in INTEGER_LIMITS:
            return f"{value}::bigint"
        if self.type == "json" and self.sql_type not in (*TEXT_TYPES, "json", "jsonb"):
            return f"to_jsonb({value})"
        return value

    def write(self, source: str) -> str:
        """Return a bound value, of type ``parameter_type``, as the column's own type."""
        if self.sql_type == self.parameter_type:
            return source
        if self.reader is not None:
            return self.write_time(source)
        if self.type == "time" and self.sql_type == TIME_WITHOUT_ZONE:
            return f"(({source}) AT TIME ZONE 'UTC')"
        if self.type == "json" and self.sql_type.endswith("[]"):
            items = f"ARRAY(SELECT jsonb_array_elements_text({source}))::{self.sql_type}"
            return f"CASE WHEN {source} IS NOT NULL THEN {items} END"
        return f"{source}::{self.sql_type}"

    def write_time(self, source: str) -> str:
        """Return a time with zone as the column's own type."""
        if self.reader is not None:
            return f"to_char(({source}) AT TIME ZONE 'UTC', {literal(_ISO)})"
        return f"(({source}) AT TIME ZONE 'UTC')" if self.sql_type == TIME_WITHOUT_ZONE else source

    def compare(self, source: str) -> str:
        """Return a bound value to compare the column with.

        Integers stay wide, so that a comparison does not overflow. Text is read as a time.
        """
        stays_wide = self.type == "int" and self.sql_type in INTEGER_LIMITS
        return source if stays_wide or self.reader is not None else self.write(source)

    def constant(self, value: Any) -> str:
        """Return a value as a literal of the column's type."""
        if value is None:
            return "NULL"
        if isinstance(value, bool):
            return "true" if value else "false"
        if self.type == "int":
            return str(int(value))
        text = literal(_as_text(self.encode([value])[0]))
        is_text = self.type == self.sql_type == "text"
        return text if is_text else self.compare(f"{text}::{self.parameter_type}")

    def encode(self, values: list[Any]) -> list[Any]:
        """Return values as asyncpg takes them for a parameter of type ``parameter_type``."""
        encoder = _ENCODERS.get(self.type)
        if self.type == "text" and set(map(type, values)) <= _TEXT_AS_IT_IS:
            return values
        return values if encoder is None else [None if v is None else encoder(v) for v in values]


def _as_text(value: Any) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat()
    return "\\x" + value.hex() if isinstance(value, bytes) else str(value)


def json_text(value: Any) -> str:
    """Return JSON text; numbers that JSON lacks become null."""
    return to_json(value, inf_nan_mode="null").decode()


def _encode_text(value: Any) -> str:
    if type(value) is str:
        return value
    return str(value.value if isinstance(value, Enum) else value)


_TEXT_AS_IT_IS = {str, type(None)}
_ENCODERS: dict[str, Callable[[Any], Any]] = {
    "text": _encode_text,
    "time": lambda v: v if v.tzinfo is not None else v.replace(tzinfo=UTC),
    "json": json_text,
    "float": lambda v: fit_float(float(v)),
    "decimal": fit_decimal,
}


class Table:
    """A kind's table: its columns with their actual types, and the statements composed for it.

    ``actual``: the types of the columns of an existing table. ``returns_old``: PostgreSQL 18 and
    later return the row as it was before an update. ``makes_ids``: the table fills its id column.
    ``schema``: the schema of a business table; otherwise the search path finds it. ``fills``: what
    a new row gets in a column that cannot be null, if its field is None.
    """

    def __init__(
        self,
        kind: Kind,
        stages: Sequence[Stage] = (),
        actual: Mapping[str, str] | None = None,
        returns_old: bool = False,
        makes_ids: bool | None = None,
        *,
        installation: Installation,
        schema: str | None = None,
        fills: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self.fills = fills or {}
        self.installation = installation
        self.makes_ids = kind.database_id if makes_ids is None else makes_ids
        self.returns_old = returns_old
        self.name = kind.table
        self.ident = installation.table(kind, schema)
        # The schema that it is in or will be in; None if the search path decides.
        self.schema = installation.schema if kind.system else schema
        self.archive = installation.archive(kind.table)
        self.stages = tuple(stages)
        self._actual = actual = actual or {}
        self.columns = {
            name: self._column(name, kind.columns[name], kind.types[name], actual)
            if name in kind.columns
            else self._instead(name)
            for name in kind.types
        }
        self.extras = {
            name: self._column(name, column, EXTRAS[name], actual)
            for name, column in kind.extras.items()
        }
        self.archive_columns = {
            name: TableColumn(name, name, type, PARAMETER_TYPES[type])
            for name, type in ARCHIVE_COLUMNS.items()
        }
        self.id = self.columns["id"]
        self.status = self.columns["status"]
        self.names = tuple(self.columns)
        self.stage_states = frozenset(state for stage in self.stages for state in stage.states)
        self._stage_conditions = frozenset(pair for stage in self.stages for pair in stage.where)
        self._json = tuple(
            (i, name) for i, name in enumerate(self.names) if self.columns[name].type == "json"
        )
        # By field: table and id column of the record that a foreign key names.
        self.targets: dict[str, tuple[str, str]] = {}
        self._statements: dict[Any, str] = {}
        self._retyped = [] if kind.attached else retyped(kind)
        self._build = kind.build if kind.attached else kind.construct

    def _column(
        self, name: str, column: str, type: ColumnType, actual: Mapping[str, str]
    ) -> TableColumn:
        sql_type = actual.get(column) or self._made_type(name, column, type)
        cast = "" if sql_type in TEXT_TYPES else f"::{sql_type}"
        oldest = f"'-infinity'::{sql_type}"
        defaults = {"status": literal(self.kind.initial) + cast, "attempts": "0", "fence": "0"}
        defaults |= dict.fromkeys(OLDEST_IF_NULL, oldest)
        default = defaults.get(name) if self.kind.attached else None
        if name in self.kind.added and not self.kind.by_name[name].nullable:
            bare = TableColumn(name, column, type, sql_type)
            default = bare.constant(self.kind.default_of(name))  # in rows older than the column
        if name == "created_at" and sql_type in TEXT_TYPES:
            reader = self.installation.system("text_time")
            return TableColumn(name, column, type, sql_type, reader=reader)
        created = self.kind.track.get("created_at")
        if default is None or name != "due_at" or created is None:
            return TableColumn(name, column, type, sql_type, default)
        form = self._time_form(actual.get(created, sql_type), sql_type)
        return TableColumn(name, column, type, sql_type, default, created, form)

    def _time_form(self, given: str, wanted: str) -> str:
        """Return how a time of one type becomes the other, as a format of the value."""
        form = "{}"
        if given in TEXT_TYPES:
            given, form = PARAMETER_TYPES["time"], self.installation.system("text_time") + "({})"
        if (given == TIME_WITHOUT_ZONE) != (wanted == TIME_WITHOUT_ZONE):
            form = f"({form} AT TIME ZONE 'UTC')"
        return form

    def _made_type(self, name: str, column: str, type: ColumnType) -> str:
        """Return the type of a column that Esclusa creates."""
        declared = dict(self.kind.sql_types).get(column)
        if declared is not None:
            return declared.partition("(")[0]
        return "bigint" if name == "id" and self.kind.database_id else PARAMETER_TYPES[type]

    def _instead(self, name: str) -> TableColumn:
        """Return the column of a value that the table has no column for."""
        type, constant = self.kind.types[name], self.kind.constants[name]
        column = TableColumn(name, name, type, PARAMETER_TYPES[type])
        value = f"({column.constant(constant)})::{column.sql_type}"
        return TableColumn(name, name, type, column.sql_type, instead=value)

    @property
    def only_ids_are_unique(self) -> bool:
        """Whether a new record can conflict with another one only by its id."""
        kind = self.kind
        return not (kind.attached or kind.unique or kind.known_by_key or self.installation.portable)

    @cached_property
    def filled(self) -> dict[str, str]:
        """What the settings let a new row have in columns that are no fields, as SQL."""
        return {
            column: literal(str(value)) + f"::{self._actual.get(column, 'text')}"
            for column, value in self.kind.fill
        }

    @cached_property
    def stored(self) -> dict[str, TableColumn]:
        """The columns that the table has, by the name of their value."""
        return {name: c for name, c in self.columns.items() if c.instead is None}

    def source(self, archived: bool) -> str:
        return self.archive if archived else self.ident

    def statement(self, key: Any, compose: Callable[[], str]) -> str:
        """Return the statement of this key; it is composed once."""
        found = self._statements.get(key)
        if found is None:
            if len(self._statements) > 2000:
                self._statements.clear()
            found = self._statements[key] = compose()
        return found

    @cached_property
    def selection(self) -> str:
        """The columns of a record, as it is read, from the table aliased ``t``."""
        return ", ".join(column.read() for column in self.columns.values())

    def wakes(self, state: str) -> bool:
        """Whether listeners are notified of a record that is due in this state."""
        waiting = state not in self.kind.lifecycle.terminal
        return state in self.stage_states if self.stage_states else waiting

    def queried(self, name: str) -> TableColumn:
        """Return the column of a condition: a field's, or one that only the archive has."""
        return self.columns.get(name) or self.archive_columns[name]

    def is_stage_condition(self, name: str, cond: Cond) -> bool:
        """Whether a condition is declared by a stage, and so is part of its index."""
        try:
            return (name, cond) in self._stage_conditions
        except TypeError:
            return False

    def possible_ids(self, ids: Iterable[str]) -> list[str]:
        """Return the ids that this table can have; no record has the others."""
        ids = list(ids)
        if self.is_possible_id is fits and fits("".join(ids)):
            return ids  # one check instead of one for each, on the way of every record
        return [i for i in ids if self.is_possible_id(i)]

    @cached_property
    def is_possible_id(self) -> Callable[[str], bool]:
        """Whether the id column can hold an id."""
        if self.id.sql_type in INTEGER_LIMITS:
            end = INTEGER_LIMITS[self.id.sql_type]
            return lambda text: (
                re.fullmatch(r"-?(0|[1-9]\d{0,18})", text) is not None and -end <= int(text) < end
            )
        return _is_uuid if self.id.sql_type == "uuid" else fits

    def id_array(self, source: str) -> str:
        """Return an array of ids as the id column's type; the column is not cast, for its index."""
        return source if self.id.sql_type == "text" else f"{source}::{self.id.sql_type}[]"

    def values(self, row: Sequence[Any]) -> dict[str, Any]:
        """Return a row of ``selection`` as plain values by field name."""
        values = dict(zip(self.names, row))  # noqa: B905 - a row may have more; strict= costs as much again
        for i, name in self._json:
            if row[i] is not None:
                values[name] = _decode_json(row[i], name)
        return values

    def build(self, row: Sequence[Any]) -> tuple[Record, str | None]:
        """Return the record, and why its row does not fit its declaration (None if it does)."""
        values = self.values(row)
        for name, convert in self._retyped:
            values[name] = convert(values[name])
        try:
            return self._build(values), None
        except BadRecord as error:
            return self.kind.model.model_construct(None, **values), str(error)


def _is_uuid(id: str) -> bool:
    try:
        return str(UUID(id)) == id
    except ValueError:
        return False


def _decode_json(text: Any, name: str) -> Any:
    if not isinstance(text, str | bytes):
        return text
    try:
        value = from_json(text)
    except ValueError:  # another program's text in a column that is read as JSON
        value = text
    is_message = name == "last_error" and not isinstance(value, dict)
    return {"message": str(value)} if is_message else value


# times


_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_LAST, _FIRST = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
_INFINITY = 2**63 - 1


async def use_time_codec(connection: Any) -> None:
    """Let a connection read and write times with zone by the functions below.

    The rows of a batch share most of their times. Caching them saves much of a claim's cost.
    """
    await connection.set_type_codec(
        "timestamptz",
        schema="pg_catalog",
        encoder=_encode_ticks,
        decoder=_decode_ticks,
        format="binary",
    )


@lru_cache(maxsize=4096)
def _decode_ticks(data: bytes) -> datetime:
    """Return a time; PostgreSQL's infinities are Python's first and last time."""
    ticks = int.from_bytes(data, "big", signed=True)
    if abs(ticks) >= _INFINITY:
        return _LAST if ticks > 0 else _FIRST
    return _EPOCH + timedelta(microseconds=ticks)


def _encode_ticks(time: datetime) -> bytes:
    return ((time.astimezone(UTC) - _EPOCH) // _TICK).to_bytes(8, "big", signed=True)
