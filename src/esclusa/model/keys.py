"""Keys: the id of a record with a key is made of its parts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from functools import lru_cache
from urllib.parse import quote


def key_id(parts: Sequence[object]) -> str:
    """The id of a key: readable, different for different keys, safe in URLs and document names."""
    text = ":".join(map(_named, parts))
    if not text.strip("."):
        text = text.replace(".", "%2E")  # '.' and '..' are not valid names
    if text and len(text) <= 400:
        return text
    return f"{text[:300]}~{hashlib.sha256(text.encode()).hexdigest()}"


def key_ids(parts: Sequence[object], place: int, values: Sequence[object]) -> list[str]:
    """The ids of keys that differ only in the part at ``place``, one for each of ``values``."""
    if len(parts) == 1:
        return [key_id([value]) for value in values]
    names = [_named(part) for part in parts]
    head, tail = (
        "".join(f"{n}:" for n in names[:place]),
        "".join(f":{n}" for n in names[place + 1 :]),
    )
    ids = [f"{head}{_named(value)}{tail}" for value in values]
    if max(map(len, ids), default=0) <= 400:
        return ids
    return [
        id if len(id) <= 400 else key_id([*parts[:place], v, *parts[place + 1 :]])
        for id, v in zip(ids, values, strict=True)
    ]


def id_of_key_text(text: str, parts: int) -> str:
    """The id for a key as a person types it. Empty if the text looks like an id."""
    found = text.rsplit(":", parts - 1) if text.count(":") >= parts - 1 else [text]
    return "" if _LIKE_AN_ID(text) else key_id(found)


def _named(part: object) -> str:
    if part is None:
        return "~"
    if type(part) is int:
        return str(part)
    text = part if type(part) is str else _plain(part)
    return text if _SAFE(text) else _quoted(text)


@lru_cache(maxsize=1 << 16)  # many keys share the same few parts
def _quoted(text: str) -> str:
    return quote(text, safe="").replace("~", "%7E")


# Matches a text that quoting would not change.
_SAFE = re.compile(r"[A-Za-z0-9_.-]*\Z").match

_LIKE_AN_ID = re.compile(r"[A-Za-z0-9_.%:~-]*\Z").match


def _plain(part: object) -> str:
    if isinstance(part, datetime):
        return part.isoformat()
    return str(part.value if isinstance(part, Enum) else part)
