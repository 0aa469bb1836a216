"""Conversion between Python values and SQLite values.

A time is text in UTC, ``YYYY-MM-DD HH:MM:SS.ffffff+00:00``: it sorts by time, also beside what
``CURRENT_TIMESTAMP`` writes. Decimals, dates and JSON are text; booleans are 0 and 1. Reading is
lenient, because other programs write these tables too: a value that cannot be read as its type is
returned as it is, and the record's validation reports it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import lru_cache
from typing import Any

from pydantic_core import to_json

from esclusa.model.columns import ColumnType, retyped
from esclusa.model.errors import BadRecord
from esclusa.model.kind import Kind
from esclusa.model.record import Record
from esclusa.model.storable import fit, fit_decimal, fit_float, fit_int, fit_json, refused

# Raised by `encode` for a value of another type, or one that no store can hold.
ENCODING_ERRORS = (ValueError, TypeError, AttributeError, OverflowError)

# The declared type of a column.
COLUMN_TYPES: dict[ColumnType, str] = {
    "text": "TEXT",
    "int": "INTEGER",
    "float": "REAL",
    "bool": "INTEGER",
    "time": "TEXT",
    "date": "TEXT",
    "decimal": "TEXT",
    "json": "TEXT",
    "bytes": "BLOB",
}

# Compares decimals. Never part of the schema: other programs must be able to open the file.
DECIMAL_COLLATION = "esclusa_decimal"


def encode_time(value: datetime) -> str:
    """Return the stored text of a time; without a zone it is UTC."""
    utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return utc.isoformat(" ", "microseconds")


@lru_cache(maxsize=8192)  # the rows of a batch share most of their times
def decode_time(value: Any) -> Any:
    """Return the time of a stored value: UTC if it has no zone; a number is seconds since 1970."""
    try:
        moment = (
            datetime.fromisoformat(value)
            if isinstance(value, str)
            else datetime.fromtimestamp(value, UTC)
        )
    except (ValueError, TypeError, OverflowError, OSError):
        return value
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _encode_json(value: Any) -> str:
    return fit_json(to_json(value, inf_nan_mode="null").decode())


def encode_json(value: Any) -> str:
    """Return JSON text; BadRecord if the value cannot be written as JSON."""
    try:
        return _encode_json(value)
    except ValueError as error:
        raise BadRecord(f"a value cannot be written as JSON: {error}") from None


def _lenient(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a conversion that returns a value as it is if it cannot be converted."""

    def decode(value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, TypeError, InvalidOperation):
            return value

    return decode


# The value of JSON text; other text is returned as it is.
decode_json = _lenient(json.loads)
_decode_decimal = _lenient(lambda value: Decimal(str(value)))


def decode_error(value: Any) -> Any:
    """Return a last error. Anything but an object, from another program, becomes the message."""
    found = decode_json(value)
    return found if isinstance(found, dict) else {"message": str(found)}


def _encode_text(value: Any) -> str:
    if type(value) is not str:
        value = str(value.value if isinstance(value, Enum) else value)
    return fit(value)


def _encode_int(value: Any) -> int:
    return fit_int(int(value.value if isinstance(value, Enum) else value))


ENCODE: dict[ColumnType, Callable[[Any], Any]] = {
    "text": _encode_text,
    "int": _encode_int,
    "float": lambda v: fit_float(float(v)),
    "bool": int,
    "time": encode_time,
    "date": lambda v: v.isoformat(),
    "decimal": lambda v: str(fit_decimal(v)),
    "json": _encode_json,
    "bytes": bytes,
}

DECODE: dict[ColumnType, Callable[[Any], Any] | None] = {
    "text": None,
    "int": None,
    "float": lambda v: float(v) if isinstance(v, int) else v,
    "bool": lambda v: v != 0 if isinstance(v, int) else v,
    "time": decode_time,
    "date": _lenient(lambda v: date.fromisoformat(v[:10])),
    "decimal": _decode_decimal,
    "json": decode_json,
    "bytes": _lenient(bytes.fromhex),  # hexadecimal, as `statements.json_expr` selects them
}


def encode(type: ColumnType, value: Any) -> Any:
    """Return a value as its column stores it; raises one of ENCODING_ERRORS."""
    return None if value is None else ENCODE[type](value)


def encode_field(kind: Kind, name: str, value: Any) -> Any:
    """Return a business field's value as its column stores it; BadRecord names the field."""
    try:
        return encode(kind.types[name], value)
    except ENCODING_ERRORS as error:
        raise refused(kind, name, value, error) from None


def literal(type: ColumnType, value: Any) -> str:
    """Return the value as SQL text, where no value can be bound: index predicates, defaults."""
    stored = encode(type, value)
    if stored is None:
        return "NULL"
    if isinstance(stored, bytes):
        return f"x'{stored.hex()}'"
    if isinstance(stored, str):
        return text_literal(stored)
    if stored in (float("inf"), float("-inf")):
        return "9e999" if stored > 0 else "-9e999"
    return repr(stored)


def text_literal(text: str) -> str:
    """Return text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def compare_decimals(left: str, right: str) -> int:
    """Order decimals stored as text by their value; text that is not a number comes last."""
    a, b = _decode_decimal(left), _decode_decimal(right)
    if isinstance(a, Decimal) and isinstance(b, Decimal) and not (a.is_nan() or b.is_nan()):
        return (a > b) - (a < b)
    x, y = (not isinstance(a, Decimal), left), (not isinstance(b, Decimal), right)
    return (x > y) - (x < y)


Row = list[Any]


def row_decoder(kind: Kind) -> Callable[[Row], dict[str, Any]]:
    """Return the function that turns a row of this kind into plain values by field name.

    It is compiled from field names, which are Python names, and positions, because every claimed
    record passes here: a row of 13 fields takes 0.7 µs, and 1.4 µs in a loop over its columns.
    """
    decoders = {name: DECODE[kind.types[name]] for name in kind.columns}
    decoders["last_error"] = decode_error
    items = ", ".join(
        f"{name!r}: row[{i}]"
        if decoders[name] is None
        else f"{name!r}: None if row[{i}] is None else decode_{name}(row[{i}])"
        for i, name in enumerate(kind.columns)
    )
    if kind.constants:
        is_shared = not any(isinstance(value, dict | list) for value in kind.constants.values())
        items = f"**{'constants' if is_shared else 'deepcopy(constants)'}, {items}"
    functions: dict[str, Any] = {f"decode_{name}": decode for name, decode in decoders.items()}
    functions |= {"constants": kind.constants, "deepcopy": deepcopy}
    decode_row: Callable[[Row], dict[str, Any]] = eval(f"lambda row: {{{items}}}", functions)  # noqa: S307
    return decode_row


class Decoder:
    """Turns the rows of a kind, in the order of ``kind.columns``, into plain values and records."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.names = tuple(kind.columns)
        self.position = {name: position for position, name in enumerate(self.names)}
        self.values = row_decoder(kind)
        self._retyped = [] if kind.attached else retyped(kind)
        self._build = kind.build if kind.attached else kind.construct

    def checked_record(
        self, row: Row, known: Mapping[str, Any] | None = None
    ) -> tuple[Record, str | None]:
        """Return the record, and why its row does not fit its declaration (None if it does).

        ``known``: values that replace those of the row.
        """
        values = self.values(row)
        if known is not None:
            values.update(known)
        for name, convert in self._retyped:
            values[name] = convert(values[name])
        try:
            return self._build(values), None
        except BadRecord as error:
            return self.kind.model.model_construct(None, **values), str(error)
