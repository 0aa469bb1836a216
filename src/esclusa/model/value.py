"""Values: small typed records of the house that nobody may change, and words that every store can hold."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")

_UNFIT = re.compile("[\x00\ud800-\udfff]")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """A dataclass with slots that is compared and shown by its fields. The type checker holds that nobody changes it; at run time
    nothing does: a frozen dataclass costs several microseconds a record to make, and its methods, written for each class alone,
    a good part of the command's start."""
    made: Any = dataclass(slots=True, repr=False, eq=False)(cls)
    made.compared_ = tuple(f.name for f in fields(made) if f.compare)
    for name, method in (("__repr__", _repr), ("__eq__", _eq), ("__hash__", _hash)):
        if name not in cls.__dict__:
            setattr(made, name, method)
    return cast("type[T]", made)


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in fields(self) if f.repr)})"


def _eq(self: Any, other: Any) -> bool:
    return type(other) is type(self) and all(getattr(self, name) == getattr(other, name) for name in self.compared_)


def _hash(self: Any) -> int:
    return hash(tuple(getattr(self, name) for name in self.compared_))


def words(text: str) -> str:
    """The text as every store can hold it: a null character and half of a surrogate pair become U+FFFD."""
    return _UNFIT.sub("\ufffd", text)
