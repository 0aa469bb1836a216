"""Values: small typed records of the house that nobody may change."""

from __future__ import annotations

import inspect
import threading
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")

_lock = threading.RLock()


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """A dataclass with slots that is compared and shown by its fields. The type checker holds that nobody changes it; at run time
    nothing does: a frozen dataclass costs several microseconds a record to make. It becomes a dataclass when the first one is
    made: there are many, a command needs few of them, and to make them all was a fifth of its start."""
    names = tuple(inspect.get_annotations(cls))
    body = {
        name: kept
        for name, kept in cls.__dict__.items()
        if name not in (*names, "__dict__", "__weakref__")
    }
    body |= {"__slots__": names, "__match_args__": names}
    made: Any = type(cls)(cls.__name__, cls.__bases__, body)  # type: ignore[misc]
    made.__qualname__ = cls.__qualname__
    for name, method in (
        ("__repr__", _repr),
        ("__eq__", _eq),
        ("__hash__", _hash),
        *((name, _Late(name, cls)) for name in _LATE),
    ):
        if name not in cls.__dict__:
            setattr(made, name, method)
    return cast("type[T]", made)


_LATE = ("__init__", "__dataclass_fields__", "compared_")


class _Late:
    """What a value has of a dataclass: made of its plain class, and put in place, once it is asked for."""

    def __init__(self, name: str, plain: Any) -> None:
        self._name = name
        self._plain = plain

    def __get__(self, instance: object, owner: Any) -> Any:
        plain = self._plain
        with _lock:
            if "compared_" not in plain.__dict__:
                dataclass(repr=False, eq=False, init="__init__" not in plain.__dict__)(plain)
                plain.compared_ = tuple(f.name for f in fields(plain) if f.compare)
            setattr(owner, self._name, plain.__dict__[self._name])
        return getattr(owner if instance is None else instance, self._name)


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in fields(self) if f.repr)})"


def _eq(self: Any, other: Any) -> bool:
    return type(other) is type(self) and all(
        getattr(self, name) == getattr(other, name) for name in self.compared_
    )


def _hash(self: Any) -> int:
    return hash(tuple(getattr(self, name) for name in self.compared_))
