"""Values: small typed records of the model that are made by the thousand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")

_UNFIT = re.compile("[\x00\ud800-\udfff]")


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """A dataclass with slots that nobody may change. The type checker holds that; at run time nothing does, for the check
    costs several microseconds a record (frozen dataclasses set each field through ``object.__setattr__``)."""
    return dataclass(slots=True)(cls)


def words(text: str) -> str:
    """The text as every store can hold it: a null character and half of a surrogate pair become U+FFFD."""
    return _UNFIT.sub("\ufffd", text)
