"""Paths to values inside a JSON field: ``last_error.type``.

Such a value is compared as text. Texts, whole numbers and booleans have one; lists, objects and
fractions have none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from esclusa.model.columns import ColumnType

# Short names of paths, where a kind has no field of that name.
ALIASES = {"error_type": "last_error.type", "error_message": "last_error.message"}
# One step of a path: a name, so that no store takes it for a position in a list.
_STEP = re.compile(r"[^\W\d]\w*")


def split_path(name: str) -> tuple[str, tuple[str, ...]]:
    """The field and the steps inside it; no steps for a plain field."""
    field, *steps = name.split(".")
    return field, tuple(steps)


def is_path(types: Mapping[str, ColumnType], name: str) -> bool:
    """Whether this names a value inside one of the JSON fields."""
    field, steps = split_path(name)
    return bool(steps) and types.get(field) == "json" and all(map(_STEP.fullmatch, steps))


def value_at(values: Mapping[str, Any], name: str) -> Any:
    """The value of a field, or inside it; None if there is none."""
    field, steps = split_path(name)
    found = values.get(field)
    for step in steps:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def text_at(value: Any) -> str | None:
    """A value inside a JSON field as the text that it is compared with."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None


def ascii_lower(text: str) -> str:
    """The text with A to Z in lower case, which every store does in the same way."""
    return text.translate(_LOWER)


_LOWER = {ord(c): ord(c.lower()) for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
