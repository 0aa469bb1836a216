"""Ids that version 0.1.0 made of keys, and the ids that such keys have now.

It escaped everything but ASCII letters, digits and ``- _ .`` with ``%``, and joined parts with
``:`` always. Ids without an escape are the same in both versions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from urllib.parse import quote, unquote

from esclusa.model.keys import join_id, key_id, part_text
from esclusa.model.kind import Kind
from esclusa.model.value import value

_LONGEST = 400
_CUT = 300
_NONE = "~"
_CUT_ID = re.compile(r"~[0-9a-f]{64}\Z").search


@value
class IdChange:
    """What happens to a record of version 0.1.0.

    ``id``: as the store reads it now. ``earlier``: as history and dead letters have it. ``fields``:
    fields that refer to other records, with their new ids.
    """

    id: str
    earlier: str
    new: str
    fields: Mapping[str, str]


def earlier_id(parts: Sequence[object]) -> str:
    """The id that version 0.1.0 made of a key."""
    id = ":".join(map(_escaped, parts))
    if not id.strip("."):
        id = id.replace(".", "%2E")
    if id and len(id) <= _LONGEST:
        return id
    return f"{id[:_CUT]}{_NONE}{hashlib.sha256(id.encode()).hexdigest()}"


def may_be_earlier(id: object) -> bool:
    """Whether this version may give the record with this id another one."""
    return isinstance(id, str) and ("%" in id or _CUT_ID(id) is not None)


def is_made_of_key(kind: Kind) -> bool:
    """Whether the ids of a kind are made of its key."""
    return bool(kind.key) and not kind.database_id and not kind.attached


def readings(kind: Kind, earlier: str) -> tuple[str, ...]:
    """The ids under which a store may find the record that version 0.1.0 gave this id.

    A store with nested documents makes an id of their path, of which it has the parent's id.
    """
    head, colon, rest = earlier.partition(":")
    if kind.parent is None or not colon or not rest:
        return (earlier,)
    return (earlier, join_id(unquote(head), rest, len(kind.key)))


def current_id(kind: Kind, id: str, kinds: Mapping[str, Kind]) -> str:
    """The id that a record has now, by its id of version 0.1.0 alone.

    For records that do not exist any more. An id that is no escaped key, or whose end was cut off,
    stays.
    """
    parts = [None if part == _NONE else unquote(part) for part in id.split(":")]
    made = is_made_of_key(kind) and len(parts) == len(kind.key) and earlier_id(parts) == id
    if not made or not may_be_earlier(id):
        return id
    targets = dict(kind.refs)
    return key_id(
        [
            current_id(target, part, kinds)
            if part is not None and (target := kinds.get(targets.get(name, ""))) is not None
            else part
            for name, part in zip(kind.key, parts, strict=True)
        ]
    )


def _escaped(part: object) -> str:
    return _NONE if part is None else _quoted(part_text(part))


@lru_cache(maxsize=1 << 16)
def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass").replace("~", "%7E")
