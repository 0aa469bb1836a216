"""What every store can hold: one rule for all of them, and one sentence for what breaks it."""

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
    from esclusa.model.record import Kind

DEEPEST: Final = 200
"""So many levels of lists and objects a value may have; what reads and writes JSON ends soon after."""

_NULL = "it has a null character in it"
_HALF = "it has half of a surrogate pair in it"
_LARGE = "the number is too large"
_NO_NUMBER = "it is not a number"
_UNFIT = re.compile("[\x00\ud800-\udfff]")
_ESCAPED_NULL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def words(text: str) -> str:
    """The text as every store can hold it: a null character and half of a surrogate pair become U+FFFD."""
    return _UNFIT.sub("\ufffd", text)


def fits(text: str) -> bool:
    """Whether every store can hold the text. An id that does not fit is nobody's."""
    return _fault(text) is None


def fit(text: str) -> str:
    """The text, if every store can hold it; ValueError says why not."""
    if "\0" in text:
        raise ValueError(_NULL)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(_HALF) from None
    return text


def fit_json(text: str) -> str:
    """The same, for text that is JSON."""
    if "\\u0000" in text and _ESCAPED_NULL.search(text):
        raise ValueError(_NULL)
    return text


def fit_int(number: int) -> int:
    """The same, for a whole number."""
    if not -(2**63) <= number < 2**63:
        raise ValueError(_LARGE)
    return number


def fit_float(number: float) -> float:
    """The same, for a number."""
    if math.isnan(number):
        raise ValueError(_NO_NUMBER)
    return number


def fit_decimal(number: Any) -> Decimal:
    """The same, for a decimal, or what makes one."""
    made = number if isinstance(number, Decimal) else Decimal(str(number))
    if not made.is_finite():
        raise ValueError(_NO_NUMBER)
    return made


def storage_fault(value: Any) -> str | None:
    """Why no store could hold this value, which may be lists and objects in each other; None if it can."""
    level = [value]
    for _ in range(DEEPEST):
        fault = next((fault for each in level if (fault := _fault(each)) is not None), None)
        if fault is not None:
            return fault
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return None
    return f"it is nested more than {DEEPEST} deep"


def refused(kind: Kind, name: str, value: Any, error: object = None) -> BadRecord:
    """A value of a field that was not taken: the rule that it breaks, or else what was said of it."""
    return BadRecord(
        f"{kind.table}.{name} cannot hold {value!r:.80}: {_why(kind.types.get(name), value) or error}"
    )


def misfit(kind: Kind, values: Mapping[str, Any]) -> BadRecord | None:
    """The first of a record's values that no store can hold; None if it must be something else that was not taken."""
    for name, type in kind.types.items():
        if name in values and _why(type, values[name]) is not None:
            return refused(kind, name, values[name])
    return None


def _why(type: Any, value: Any) -> str | None:
    if type == "float" and isinstance(value, float) and math.isnan(value):
        return _NO_NUMBER
    if type == "decimal" and isinstance(value, Decimal) and not value.is_finite():
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
