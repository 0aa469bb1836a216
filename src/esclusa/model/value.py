"""Values: small typed objects that are never changed after they are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """A dataclass with slots, compared and hashed by its fields.

    The type checker treats it as frozen. At run time it is not: a frozen dataclass takes several
    microseconds longer to make, and stores make one for every record.
    """
    return dataclass(slots=True, unsafe_hash="__hash__" not in cls.__dict__)(cls)


def set_fields(made: object, **fields: Any) -> None:
    """Set the fields of a value in its own ``__init__``."""
    for name, given in fields.items():
        object.__setattr__(made, name, given)
