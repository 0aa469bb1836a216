"""Where a file is stored: a pattern with columns of its row."""

from __future__ import annotations

import hashlib
from string import Formatter
from typing import Any

from esclusa import plain_segment, segment

DEFAULT_PATH = "media/{id}-{post_id}{ext}"
# Columns that a pattern can name.
NAMES = ("id", "post_id", "part", "tipo_item", "page_id", "nombre_nora", "ext")
# Characters of a file name, which is limited to 255; a longer post id is hashed.
MAX_NAME = 240


def check(pattern: str) -> None:
    """Raise ValueError unless files of two rows can have different paths under this pattern."""
    try:
        fields = [name for _, name, _, _ in Formatter().parse(pattern) if name is not None]
    except ValueError as error:
        raise ValueError(f"{pattern!r}: {error}") from None
    if unknown := sorted(set(fields) - set(NAMES)):
        raise ValueError(f"{pattern!r} names {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if not {"id", "post_id"} & set(fields):
        raise ValueError(f"{pattern!r} needs {{post_id}} or {{id}}: one file per publication")
    if "ext" not in fields:
        raise ValueError(f"{pattern!r} needs {{ext}}, the extension of the file")


def object_path(row: Any, extension: str, pattern: str = DEFAULT_PATH) -> str:
    """Return the path of the row's file.

    By default no other row has it: the last ``-`` separates the row's id from the post's. Under
    another pattern values stay as they are, as the team's program writes them. Only a ``/`` becomes
    ``_``, with a checksum, so that ``1/2`` and ``1_2`` have different files; so does a further
    picture of a post.
    """
    if pattern == DEFAULT_PATH:
        return _default_path(row, extension)
    values = {name: _cleaned(getattr(row, name, None)) for name in NAMES}
    part = getattr(row, "part", None)
    if part is not None and "{part}" not in pattern and "{id}" not in pattern:
        extension = f"-{_cleaned(part)}{extension}"
    return pattern.format(**(values | {"ext": extension}))


def _default_path(row: Any, extension: str) -> str:
    id = segment(row.id)
    post = segment(row.post_id or "").replace("-", "%2D")
    if len(id) + len(post) > MAX_NAME:
        post = f"%~{hashlib.sha256(post.encode()).hexdigest()[:40]}"
    return f"media/{id}-{post}{extension}"


def _cleaned(value: Any) -> str:
    text = "" if value is None else str(value)
    clean = plain_segment(text.replace("/", "_"))
    if "/" in text or not text:
        clean = f"{clean}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return clean
