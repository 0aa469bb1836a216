"""Python values as Firestore values and back, on the plain protocol messages.

Times keep microseconds and dates are ISO text. A decimal is its exact text, with a companion field
``{column}__order`` that sorts as the number does. JSON is a map or an array if Firestore can hold
it, otherwise text under the key ``_json`` (arrays in arrays, empty or reserved keys, integers
beyond 64 bits, deep nesting).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from copy import copy
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any

from google.cloud.firestore_v1 import types
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic_core import (
    PydanticSerializationError,
    PydanticUndefined,
    from_json,
    to_json,
    to_jsonable_python,
)

from esclusa.model.columns import ColumnType, retyped
from esclusa.model.errors import BadRecord
from esclusa.model.kind import Kind
from esclusa.model.query import ARCHIVE_COLUMNS
from esclusa.model.record import Record
from esclusa.model.storable import fit, fit_decimal, fit_float, fit_int, fit_json, refused

Value: Any = type(types.Value.pb(types.Value()))
Document: Any = type(types.Document.pb(types.Document()))

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MARK = "_json"
# Firestore nests 20 levels; errors and steps wrap JSON in a few of them.
_DEPTH = 14
# Bytes of a message that is always below the 1 MiB of a document.
#
# A number takes at least 4 bytes in a message and 8 in a document.
SURELY_FITS = 400_000
# The number of steps in a record's history, and the steps that no history document holds yet.
SEQ, STEPS = "_seq", "_steps"
# A number that divides the records of a kind evenly, so that workers can avoid each other.
SHARD, SHARDS = "_shard", 16

NULL = Value(null_value=0)  # type: ignore[arg-type, unused-ignore]


def shard_of(id: str) -> int:
    """The shard of a record."""
    return zlib.crc32(id.encode()) % SHARDS


def order_column(column: str) -> str:
    """The companion field by which a decimal column is sorted and compared."""
    return f"{column}__order"


def to_timestamp(moment: datetime) -> Timestamp:
    """A time as a protocol message; without a zone it is taken as UTC."""
    since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH
    return Timestamp(seconds=since.days * 86400 + since.seconds, nanos=since.microseconds * 1000)


def from_timestamp(stamp: Any) -> datetime:
    """A protocol message as a time in UTC, to the microsecond."""
    return _EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


_PYTHON: dict[ColumnType, tuple[type, ...]] = {
    "text": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "time": (datetime,),
    "date": (date,),
    "decimal": (Decimal,),
}


def is_typed(type: ColumnType, value: Any) -> bool:
    """Whether a stored value has the type of its column; other programs may write any."""
    return isinstance(value, _PYTHON.get(type, object))


def encode(type: ColumnType, value: Any) -> Any:
    """A value of a column as a protocol message; BadRecord if Firestore cannot hold it."""
    if value is None:
        return NULL
    try:
        return _ENCODE[type](value)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRecord(f"Firestore cannot hold {value!r:.80} as {type}: {error}") from None


def decode(type: ColumnType, value: Any) -> Any:
    """The Python value. A value that another program wrote as another type is returned as it is."""
    kind = value.WhichOneof("value_type")
    if kind in (None, "null_value"):
        return None
    plain = _plain(value, kind)
    try:
        return _DECODE[type](plain) if type in _DECODE else plain
    except (ValueError, TypeError, InvalidOperation):
        return plain


def encode_json(value: Any) -> Any:
    """A JSON value as a map or an array, or as marked text if Firestore cannot hold it."""
    try:
        plain = to_jsonable_python(value, inf_nan_mode="constants")
    except PydanticSerializationError as error:
        raise BadRecord(f"a value cannot be written as JSON: {error}") from None
    if _fits(plain, 0):
        return _native(plain)
    return Value(
        map_value={"fields": {_MARK: Value(string_value=json.dumps(plain, ensure_ascii=False))}}
    )


def decimal_order(value: Decimal) -> str:
    """Text that sorts as the number does: sign, exponent, digits.

    For a negative number the exponent and the digits are complemented.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise BadRecord(f"Firestore cannot hold {value}: it is not a finite number")
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return "1"
    scale = exponent + len(text) + 5_000_000
    if not 0 <= scale < 10_000_000:
        raise BadRecord(f"Firestore cannot hold a decimal with the exponent {exponent}")
    body = f"{scale:07d}{text.rstrip('0')}"
    if not sign:
        return "2" + body
    return "0" + "".join(chr(ord("9") - ord(c) + ord("0")) for c in body) + "~"


def stored_size(name: str, fields: Any) -> int:
    """The bytes of a document, counted as Firestore counts them."""
    path = sum(len(part.encode()) + 1 for part in name.partition("/documents/")[2].split("/")) + 16
    return (
        path + 32 + sum(len(key.encode()) + 1 + _value_size(value) for key, value in fields.items())
    )


def _value_size(value: Any) -> int:
    match value.WhichOneof("value_type"):
        case "string_value":
            return len(value.string_value.encode()) + 1
        case "bytes_value":
            return len(value.bytes_value)
        case "array_value":
            return sum(map(_value_size, value.array_value.values))
        case "map_value":
            return sum(
                len(key.encode()) + 1 + _value_size(item)
                for key, item in value.map_value.fields.items()
            )
        case None | "null_value" | "boolean_value":
            return 1
    return 8


def _native(plain: Any) -> Any:
    match plain:
        case None:
            return NULL
        case bool():
            return Value(boolean_value=plain)
        case int():
            return Value(integer_value=plain)
        case float():
            return Value(double_value=plain)
        case str():
            return Value(string_value=plain)
        case dict():
            return Value(map_value={"fields": {key: _native(v) for key, v in plain.items()}})
    return Value(array_value={"values": [_native(v) for v in plain]})


def _fits(plain: Any, depth: int) -> bool:
    if isinstance(plain, dict):
        return (
            depth < _DEPTH
            and all(
                k and k != _MARK and not (k.startswith("__") and k.endswith("__")) and len(k) < 300
                for k in plain
            )
            and all(_fits(v, depth + 1) for v in plain.values())
        )
    if isinstance(plain, list):
        return depth < _DEPTH and all(
            not isinstance(v, list) and _fits(v, depth + 1) for v in plain
        )
    return not isinstance(plain, int) or -(2**63) <= plain < 2**63


def _plain(value: Any, kind: str) -> Any:
    if kind == "timestamp_value":
        return from_timestamp(value.timestamp_value)
    if kind == "map_value":
        fields = value.map_value.fields
        if len(fields) == 1 and _MARK in fields:
            return json.loads(fields[_MARK].string_value)
        return {k: _any(v) for k, v in fields.items()}
    if kind == "array_value":
        return [_any(v) for v in value.array_value.values]
    return getattr(value, kind)


def _any(value: Any) -> Any:
    kind = value.WhichOneof("value_type")
    return None if kind in (None, "null_value") else _plain(value, kind)


def plain_fields(fields: Any) -> dict[str, Any]:
    """The fields of a document of another program, as plain values."""
    return {name: _any(value) for name, value in fields.items()}


def _text(value: Any) -> Any:
    if type(value) is not str:
        value = str(value.value if isinstance(value, Enum) else value)
    return Value(string_value=value)


_ENCODE: dict[ColumnType, Callable[[Any], Any]] = {
    "text": _text,
    "int": lambda v: Value(integer_value=int(v.value if isinstance(v, Enum) else v)),
    "float": lambda v: Value(double_value=float(v)),
    "bool": lambda v: Value(boolean_value=bool(v)),
    "time": lambda v: Value(timestamp_value=to_timestamp(v)),
    "date": lambda v: Value(string_value=v.isoformat()),
    "decimal": lambda v: Value(string_value=str(v)),
    "json": encode_json,
    "bytes": lambda v: Value(bytes_value=bytes(v)),
}

_DECODE: dict[ColumnType, Callable[[Any], Any]] = {
    "float": lambda v: float(v) if isinstance(v, int) and not isinstance(v, bool) else v,
    "date": date.fromisoformat,
    "decimal": Decimal,
}


# Conversions that give every store the same values.
_FIT: dict[ColumnType, Callable[[Any], Any]] = {
    "text": lambda v: fit(v) if isinstance(v, str) else v,
    "int": lambda v: fit_int(int(v)),
    "float": lambda v: fit_float(float(v)),
    "decimal": fit_decimal,
    "json": lambda v: from_json(fit_json(to_json(v, inf_nan_mode="null").decode())),
}


class Codec:
    """Records of one kind as documents, and back."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        # A document has all tracking fields, also if a table would have no columns for them.
        self.columns = [
            (n, kind.columns.get(n, n), type) for n, type in kind.types.items() if n != "id"
        ]
        self.types: dict[str, ColumnType] = {**kind.types, **ARCHIVE_COLUMNS, SHARD: "int"}
        # Whether other programs write documents of this kind, too: they are validated.
        self.foreign = kind.attached
        self._typed = retyped(kind)
        self._absent = [n for n in ("created_at", "last_error") if n not in kind.columns]
        self._defaults = {name: self._default(name) for name, _, _ in self.columns}
        self._null_tracking = {"status": kind.initial, "attempts": 0, "fence": 0}

    def _default(self, name: str) -> Any:
        """The default of a field, None if it has none that Firestore can hold."""
        info = self.kind.model.model_fields.get(name)
        value = None if info is None else info.get_default(call_default_factory=False)
        try:
            encode(self.kind.types[name], None if value is PydanticUndefined else value)
        except BadRecord:
            return None
        return None if value is PydanticUndefined else value

    def default(self, name: str) -> Any:
        """What a document without this field means: its default; of tracking, a new record's."""
        return self._null_tracking.get(name) or copy(self._defaults[name])

    def column(self, name: str) -> str:
        """The document's field of a tracking value, business field, extra or archive column."""
        return self.kind.columns.get(name) or self.kind.extras.get(name) or name

    def put(self, fields: Any, name: str, value: Any) -> list[str]:
        """Write a value by its Python name; return the document's fields that were written."""
        column = self.column(name)
        type = self.types.get(name) or ("time" if name.endswith("_at") else "text")
        try:
            fit = value if value is None or type not in _FIT else _FIT[type](value)
            fields[column].CopyFrom(encode(type, fit))
        except (ValueError, TypeError, OverflowError, BadRecord) as error:
            raise refused(self.kind, name, value, error) from None
        if type != "decimal":
            return [column]
        fields[order_column(column)].CopyFrom(
            NULL if value is None else Value(string_value=decimal_order(value))
        )
        return [column, order_column(column)]

    def document(self, id: str, record: Record | None, tracking: Mapping[str, Any]) -> Any:
        """The document of a new record. All fields are written: an index skips missing fields.

        Without a record, ``tracking`` has all values.
        """
        out = Document()
        out.fields[SHARD].integer_value = shard_of(id)
        for name in self.kind.extras:
            self.put(out.fields, name, None)
        for name, _, _ in self.columns:
            self.put(
                out.fields, name, tracking[name] if name in tracking else getattr(record, name)
            )
        return out

    def values(self, fields: Any, id: str, *, archived: bool = False) -> dict[str, Any]:
        """The values of a document by their Python names."""
        out: dict[str, Any] = {"id": id}
        for name, column, type in self.columns:
            out[name] = decode(type, fields[column]) if column in fields else self.default(name)
        for name, value in self._null_tracking.items():
            if out[name] is None:
                out[name] = value
        if archived:
            for name, type in ARCHIVE_COLUMNS.items():
                out[name] = decode(type, fields[name]) if name in fields else None
        return out

    def checked_record(self, values: dict[str, Any]) -> tuple[Record, str | None]:
        """The record, and how its values break its declaration; None if they do not.

        Values that do not fit are kept as they are.
        """
        for name, fn in self._typed:
            values[name] = fn(values[name])
        for name in self._absent:
            values[name] = None
        values.pop("archived_at", None)
        values.pop("export_id", None)
        try:
            if self.foreign:
                return self.kind.build_foreign(values), None
            return self.kind.construct(values), None
        except BadRecord as error:
            return self.kind.model.model_construct(None, **values), str(error)
