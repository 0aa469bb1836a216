"""Columns: their types, the tracking columns, and their names in an existing table."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from esclusa.model.errors import DeclarationError
from esclusa.model.value import value

if TYPE_CHECKING:
    from esclusa.model.kind import Kind

ColumnType: TypeAlias = Literal[
    "text", "int", "float", "bool", "time", "date", "decimal", "json", "bytes"
]

# How the names of Esclusa's own tables begin, and no others.
SYSTEM_PREFIX = "esclusa_"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")

# The tracking columns of every record. The engine can do without created_at and last_error.
TRACKING: dict[str, ColumnType] = {
    "status": "text",
    "attempts": "int",
    "due_at": "time",
    "fence": "int",
    "leased_by": "text",
    "last_error": "json",
    "created_at": "time",
    "updated_at": "time",
}

# Columns for readers of the table; written only if `track` names them.
#
# A business field with the same column reads the value.
EXTRAS: dict[str, ColumnType] = {
    "leased_at": "time",
    "finished_at": "time",
    "error_type": "text",
    "error_message": "text",
}

# The tracking that a stage needs.
NEEDED = frozenset(TRACKING) - {"created_at", "last_error"}
# The type of a column in a table that Esclusa creates, as PostgreSQL writes it.
SQL_TYPE = re.compile(r"[a-z][a-z ]*[a-z](\(\d+(, ?\d+)?\))?\Z")
# A call of a function with whole numbers.
PARTITION_CALL = re.compile(r"([a-z_][a-z0-9_]*)\((\d+(?:, ?\d+)*)?\)\Z")

# How long the lock of another program's worker is respected, unless `track` says otherwise.
ABANDONED_AFTER = 900.0


class Track(dict[str, str]):
    """The column of each tracking value.

    ``notify``: the database notifies workers of what other programs write.
    ``abandoned_after``: the age in seconds from which on the lock of another program is ignored.
    """

    notify: bool = False
    abandoned_after: float = ABANDONED_AFTER

    @property
    def complete(self) -> bool:
        """Whether a stage can take records with these columns."""
        return self.keys() >= NEEDED


def untracked(**names: str) -> Track:
    """The tracking columns of a table whose records no stage takes: only those named.

    ``untracked(created_at="created_at", updated_at="updated_at")``. Without ``status`` every record
    is in the one state of its lifecycle.
    """
    faults = _name_faults(names)
    faults += [
        f"{name} is for records that a stage takes; use track(…)"
        for name in names
        if name in EXTRAS
    ]
    if faults:
        raise DeclarationError("untracked", faults)
    return Track(names)


def track(
    prefix: str = "",
    *,
    notify: bool = False,
    abandoned_after: float = ABANDONED_AFTER,
    **names: str | None,
) -> Track:
    """The tracking columns of an existing table: under a prefix, or mapped name by name.

    ``track(prefix="media_")`` stands for ``media_status``, ``media_attempts`` and so on.
    ``track(attempts="attempt_count")`` renames one column; ``created_at=None`` leaves it out.
    ``leased_at``, ``finished_at``, ``error_type`` and ``error_message`` are written only if named.
    ``notify`` installs a trigger on PostgreSQL: workers wake when another program commits a row.
    ``abandoned_after``: a row whose ``leased_at`` another program has set is taken after so many
    seconds, and not before.
    """
    faults = [] if abandoned_after >= 0 else ["abandoned_after is a number of seconds, 0 or more"]
    faults += [
        f"{name} needs a column: the engine cannot work without it"
        for name in names
        if names[name] is None and name in NEEDED
    ]
    given = {n: prefix + n for n in TRACKING if not (prefix and n == "created_at")} | names
    columns = {name: column for name, column in given.items() if column is not None}
    faults += _name_faults(columns)
    faults += [
        f"{name} is not a tracking value; it cannot be left out"
        for name in names.keys() - columns.keys() - TRACKING.keys() - EXTRAS.keys()
    ]
    if faults:
        raise DeclarationError("track", faults)
    tracked = Track(columns)
    tracked.notify, tracked.abandoned_after = notify, abandoned_after
    return tracked


def _name_faults(columns: Mapping[str, str]) -> list[str]:
    faults = [
        f"{name} is not a tracking value; they are {', '.join([*TRACKING, *EXTRAS])}"
        for name in columns
        if name not in TRACKING and name not in EXTRAS
    ]
    faults += [
        f"{column!r} (for {name}) is not a column name"
        for name, column in columns.items()
        if not NAME.match(column)
    ]
    twice = sorted({c for c in columns.values() if list(columns.values()).count(c) > 1})
    return faults + [f"column {column} is named for two tracking values" for column in twice]


@value
class Column:
    """A column of a file: its name, and the type of its values."""

    name: str
    type: ColumnType = "text"


@value
class Field:
    """A business field of a kind: its name in Python, its column and the column's type."""

    name: str
    column: str
    type: ColumnType
    nullable: bool


_SIMPLE: dict[type, ColumnType] = {  # a subclass comes before its base: bool, datetime
    bool: "bool",
    int: "int",
    float: "float",
    Decimal: "decimal",
    datetime: "time",
    date: "date",
    str: "text",
    UUID: "text",
    bytes: "bytes",
    dict: "json",
    list: "json",
    tuple: "json",
    set: "json",
    BaseModel: "json",
}


def column_type(info: FieldInfo) -> tuple[ColumnType | None, bool]:
    """The column type of a field (None: no column can hold it), and whether it may be null."""
    annotation = info.annotation
    options = (
        [a for a in typing.get_args(annotation) if a is not type(None)]
        if typing.get_origin(annotation) in (typing.Union, types.UnionType)
        else [annotation]
    )
    nullable = annotation is not None and type(None) in typing.get_args(annotation)
    kinds = {_column_type(option) for option in options}
    if len(kinds) == 1:
        return kinds.pop(), nullable
    return "json" if kinds <= {"json", "text", "int", "float", "bool"} else None, nullable


def _column_type(annotation: Any) -> ColumnType | None:
    origin = typing.get_origin(annotation)
    if origin is Literal:
        values = {type(v) for v in typing.get_args(annotation)}
        return _column_type(values.pop()) if len(values) == 1 else None
    if origin is typing.Annotated:
        return _column_type(typing.get_args(annotation)[0])
    base = origin or annotation
    if base is Any:
        return "json"
    if isinstance(base, type):
        if issubclass(base, Enum):
            return "int" if issubclass(base, int) else "text"
        return next((column for known, column in _SIMPLE.items() if issubclass(base, known)), None)
    return None


_SCALARS = (str, int, float, bool, type(None), Any)
_PLAIN = (*_SCALARS, bytes, datetime, date, Decimal, dict, list)


def retyped(kind: Kind) -> list[tuple[str, Callable[[Any], Any]]]:
    """The fields whose declared type a store does not read directly, each with its conversion.

    A value that cannot be converted is left as it is.
    """
    models = kind.model.model_fields
    return [
        (f.name, _converter(models[f.name].annotation))
        for f in kind.fields
        if not _is_plain(models[f.name].annotation)
    ]


def _converter(annotation: Any) -> Callable[[Any], Any]:
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)

    def convert(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except ValidationError:
            return value

    return convert


def _is_plain(annotation: Any) -> bool:
    if annotation in _PLAIN:
        return True
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return all(type(value) in (str, int, bool) for value in args)
    if origin is typing.Annotated:
        return _is_plain(args[0])
    if origin in (dict, list):
        inner = all(
            a in _SCALARS or (typing.get_origin(a) in (dict, list) and _is_plain(a)) for a in args
        )
        return inner and (origin is list or args[0] in (str, Any))
    return origin is not None and type(None) in args and all(_is_plain(a) for a in args)
