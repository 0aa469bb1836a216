"""The members of a JSON document one by one, so that a large file is never whole in memory.

Only the text is: its values are parsed when they are asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeAlias

Member: TypeAlias = tuple[str | None, Any]
# Yields members and returns the place in the text after them.
Place: TypeAlias = Generator[Member, None, int]

_BLANK = re.compile(r"[ \t\n\r]*").match
_DECODE = json.JSONDecoder().raw_decode


def members(text: str) -> Iterator[Member]:
    """Yield the members of an object by name; the items of an array, or of ``data``, without.

    Raises ValueError at the first character that is not JSON.
    """
    at = _skip(text, 1 if text.startswith("\ufeff") else 0)
    if text[at : at + 1] == "[":
        at = yield from _items(text, at)
    elif text[at : at + 1] == "{":
        at = yield from _object(text, at)
    else:
        raise ValueError("it is neither an array nor an object")
    if _skip(text, at) != len(text):
        raise ValueError("there is something after its end")


def _object(text: str, at: int) -> Place:
    def member(at: int) -> Place:
        name, at = _DECODE(text, at)
        at = _skip(text, at)
        if not isinstance(name, str) or text[at : at + 1] != ":":
            raise ValueError(f"a member is expected at character {at}")
        at = _skip(text, at + 1)
        if name == "data" and text[at : at + 1] == "[":
            return (yield from _items(text, at))
        value, at = _DECODE(text, at)
        yield name, value
        return at

    return (yield from _sequence(text, at, "}", member))


def _items(text: str, at: int) -> Place:
    def item(at: int) -> Place:
        value, at = _DECODE(text, at)
        yield None, value
        return at

    return (yield from _sequence(text, at, "]", item))


def _sequence(text: str, at: int, end: str, read: Callable[[int], Place]) -> Place:
    """Read what stands between brackets, separated by commas; return the place after it."""
    at = _skip(text, at + 1)
    if text[at : at + 1] == end:
        return at + 1
    while True:
        at = _skip(text, (yield from read(at)))
        sign = text[at : at + 1]
        if sign == end:
            return at + 1
        if sign != ",":
            raise ValueError(f"a comma is expected at character {at}")
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _BLANK(text, at)
    assert found is not None  # it matches the empty text
    return found.end()
