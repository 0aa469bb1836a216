"""Which values every store can hold, with one message for each rule."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import PydanticSerializationError, to_jsonable_python

from esclusa.model.errors import BadRecord

if TYPE_CHECKING:
    from esclusa.model.kind import Kind

# How deep lists and objects may be nested; JSON readers fail soon after.
MAX_DEPTH: Final = 200

_NULL = "it contains a null character"
_HALF = "it contains half of a surrogate pair"
_LARGE = "the number is too large"
_NO_NUMBER = "it is not a number"
_UNFIT = re.compile("[\x00\ud800-\udfff]")
_ESCAPED_NULL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def storable_text(text: str) -> str:
    """The text with null characters and halves of surrogate pairs replaced by U+FFFD."""
    return _UNFIT.sub("\ufffd", text)


def fits(text: str) -> bool:
    """Whether every store can hold the text. No record has an id that does not fit."""
    return _fault(text) is None


def fit(text: str) -> str:
    """The text, if every store can hold it. Raises ValueError with the reason."""
    if "\0" in text:
        raise ValueError(_NULL)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(_HALF) from None
    return text


def fit_json(text: str) -> str:
    """The same as ``fit``, for JSON text."""
    if "\\u0000" in text and _ESCAPED_NULL.search(text):
        raise ValueError(_NULL)
    return text


def fit_int(number: int) -> int:
    """The same as ``fit``, for a whole number."""
    if not -(2**63) <= number < 2**63:
        raise ValueError(_LARGE)
    return number


def fit_float(number: float) -> float:
    """The same as ``fit``, for a number."""
    if math.isnan(number):
        raise ValueError(_NO_NUMBER)
    return number


def fit_decimal(number: Any) -> Decimal:
    """The same as ``fit``, for a decimal or a value that can be converted to one."""
    made = number if isinstance(number, Decimal) else Decimal(str(number))
    if not made.is_finite():
        raise ValueError(_NO_NUMBER)
    return made


def storage_fault(value: Any) -> str | None:
    """Why no store can hold this value, nested lists and objects included. None: it fits."""
    level = [value]
    for _ in range(MAX_DEPTH):
        fault = next((fault for each in level if (fault := _fault(each)) is not None), None)
        if fault is not None:
            return fault
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return None
    return f"it is nested more than {MAX_DEPTH} levels deep"


def refused(kind: Kind, name: str, value: Any, error: object = None) -> BadRecord:
    """The error for a field's value: the rule that it breaks, or else the store's ``error``."""
    why = _why(kind.types.get(name), value) or error
    return BadRecord(f"{kind.table}.{name} cannot hold {value!r:.80}: {why}")


def misfit(kind: Kind, values: Mapping[str, Any]) -> BadRecord | None:
    """The error for the first value that no store can hold. None: all of them fit."""
    held = ((name, type) for name, type in kind.types.items() if name in values)
    wrong = next((name for name, type in held if _why(type, values[name]) is not None), None)
    return None if wrong is None else refused(kind, wrong, values[wrong])


def _why(type: Any, value: Any) -> str | None:
    if (type == "float" and isinstance(value, float) and math.isnan(value)) or (
        type == "decimal" and isinstance(value, Decimal) and not value.is_finite()
    ):
        return _NO_NUMBER
    if type == "json":
        try:
            value = to_jsonable_python(value, inf_nan_mode="constants")
        except (PydanticSerializationError, ValueError):
            return None
    return storage_fault(value)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return chain(value.keys(), value.values())
    return value if isinstance(value, list) else ()


def _fault(value: Any) -> str | None:
    try:
        if isinstance(value, str):
            fit(value)
        elif isinstance(value, int):
            fit_int(value)
    except ValueError as error:
        return str(error)
    return None
