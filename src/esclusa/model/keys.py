"""Keys: the id of a record with a key is made of the key's parts.

Ids are meant to be read, copied and pasted. Letters of any language, digits, spaces and ``: - _ .``
stay as they are; every other character is escaped as ``=`` and two hexadecimal digits for each of
its bytes, which no URL and no shell changes. Parts are joined by ``:``, or by ``,`` if a part
contains a ``:`` itself: ``twitter:123``, ``nueva_licitacion:1000-1-LE26,phone-030``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from functools import lru_cache
from unicodedata import category

# Bytes of an id. A longer one is cut, and ends in the hash of the whole.
_LONGEST = 400
_CUT = 300
_NONE = "~"


def key_id(parts: Sequence[object]) -> str:
    """The id of a key: readable, and different for different keys of one kind."""
    id = _joined([_escaped(part) for part in parts])
    if not id.strip("."):
        id = id.replace(".", "=2E")  # '.' and '..' are not valid names
    return id if _is_short(id) else _shortened(id)


def ids_of_keys(columns: Sequence[Sequence[object]]) -> list[str]:
    """The ids of many keys, given as one sequence for each part: what ``key_id`` makes of each."""
    if len(columns) == 1:
        return [
            str(part)
            if type(part) is int
            else part
            if type(part) is str and _IS_ID(part)
            else key_id([part])
            for part in columns[0]
        ]
    names = [
        [str(part) if type(part) is int else _escaped(part) for part in column]
        for column in columns
    ]
    ids, separators = [], len(columns) - 1
    for parts in zip(*names, strict=True):
        id = ":".join(parts)
        if id.count(":") != separators:
            id = ",".join(parts)
        ids.append(id if _is_short(id) else _shortened(id))
    return ids


def key_ids(parts: Sequence[object], place: int, values: Sequence[object]) -> list[str]:
    """The ids of keys that differ only in the part at ``place``, one for each of ``values``."""
    if len(parts) == 1:
        return [key_id([value]) for value in values]
    names = [_escaped(part) for part in parts]
    before, after = names[:place], names[place + 1 :]
    plain = not any(":" in name for name in (*before, *after))
    heads, tails = (
        {s: "".join(f"{n}{s}" for n in before) for s in ":,"},
        {s: "".join(f"{s}{n}" for n in after) for s in ":,"},
    )
    ids = []
    for name in map(_escaped, values):
        s = ":" if plain and ":" not in name else ","
        id = f"{heads[s]}{name}{tails[s]}"
        ids.append(id if _is_short(id) else _shortened(id))
    return ids


def split_id(id: str) -> tuple[str, str] | None:
    """The first part of the key that this id was made of, and the rest of the id, still escaped.

    None if the id has one part.
    """
    head, separator, rest = id.partition("," if "," in id else ":")
    return (_unescaped(head), rest) if separator and rest else None


def join_id(first: str, rest: str, parts: int) -> str:
    """The id of a key of so many parts, from its first part and the rest: undoes ``split_id``."""
    head = _escaped(first)
    by_comma = ":" in head or "," in rest or (":" in rest and parts == 2)
    return f"{head}{',' if by_comma else ':'}{rest}"


def id_of_key_text(text: str, parts: int) -> str:
    """The id for a key as a person types it, with ``:`` between the parts.

    Empty if that is the text itself.
    """
    found = text.rsplit(":", parts - 1) if text.count(":") >= parts - 1 else [text]
    id = key_id(found)
    return "" if id == text else id


def _joined(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    return ("," if any(":" in name for name in names) else ":").join(names)


def _is_short(id: str) -> bool:
    return 0 < len(id) <= _LONGEST and (id.isascii() or len(id.encode()) <= _LONGEST)


def _shortened(id: str) -> str:
    raw = id.encode()
    return f"{raw[:_CUT].decode(errors='ignore')}{_NONE}{hashlib.sha256(raw).hexdigest()}"


def _escaped(part: object) -> str:
    if part is None:
        return _NONE
    if type(part) is int:
        return str(part)
    text = part if type(part) is str else part_text(part)
    return text if _IS_PLAIN(text) else _escape(text)


# Matches most parts that need no escape.
_IS_PLAIN = re.compile(r"[A-Za-z0-9_.:-]*\Z").match

# Matches most parts that are an id of their own.
_IS_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:-]{,99}\Z").match

_ORDINARY = frozenset(" :-_.")


@lru_cache(maxsize=1 << 16)  # many keys share the same few parts
def _escape(text: str) -> str:
    shown = []
    for place, char in enumerate(text):
        # A space at an end, or beside another one, is lost when the id is copied.
        lost = char == " " and (text[place - 1 : place] in ("", " ") or place == len(text) - 1)
        if (char in _ORDINARY or category(char)[0] in "LMN") and not lost:
            shown.append(char)
        else:
            shown += [f"={byte:02X}" for byte in char.encode("utf-8", "surrogatepass")]
    return "".join(shown)


def _unescaped(name: str) -> str:
    def char(found: re.Match[str]) -> str:
        return bytes.fromhex(found[0].replace("=", "")).decode("utf-8", "surrogatepass")

    return re.sub(r"(?:=[0-9A-F]{2})+", char, name) if "=" in name else name


def part_text(part: object) -> str:
    """A part of a key as text."""
    if isinstance(part, datetime):
        return part.isoformat()
    return str(part.value if isinstance(part, Enum) else part)
