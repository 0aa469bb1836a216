"""Write messages of the Firestore protocol, and their division into commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from google.cloud.firestore_v1 import types

Write: Any = type(types.Write.pb(types.Write()))

# Limits of one commit. Firestore takes 10 MiB in a call, its emulator 4 MB.
MAX_WRITES = 500
MAX_BYTES = 4_000_000


def put_document(
    name: str,
    document: Any,
    *,
    mask: Sequence[str] | None = None,
    update_time: Any = None,
    exists: bool | None = None,
) -> Any:
    """Write a document: all of its fields, or only the fields in ``mask``.

    The write fails unless the document was last written at ``update_time``, or, without one, unless
    its existence equals ``exists``.
    """
    write = Write()
    write.update.CopyFrom(document)
    write.update.name = name
    if mask is not None:
        write.update_mask.field_paths.extend(_field_path(column) for column in mask)
        write.update_mask.SetInParent()
    if update_time is not None:
        write.current_document.update_time.CopyFrom(update_time)
    elif exists is not None:
        write.current_document.exists = exists
    return write


def delete_document(name: str, *, update_time: Any = None) -> Any:
    """Delete a document. With ``update_time``, fail if it was written since."""
    write = Write(delete=name)
    if update_time is not None:
        write.current_document.update_time.CopyFrom(update_time)
    return write


def verify_unchanged(name: str, update_time: Any) -> Any:
    """Change nothing, and fail if the document was written since: an update of no field."""
    write = Write()
    write.update.name = name
    write.update_mask.SetInParent()
    write.current_document.update_time.CopyFrom(update_time)
    return write


def in_commits(units: Iterable[list[Any]], max_writes: int = MAX_WRITES) -> list[list[list[Any]]]:
    """Group units of writes so that each group fits one commit. A unit is never divided."""
    chunks: list[list[list[Any]]] = []
    count = size = 0
    for unit in units:
        weight = sum(w.ByteSize() for w in unit)
        if not chunks or count + len(unit) > max_writes or size + weight > MAX_BYTES:
            chunks.append([])
            count = size = 0
        chunks[-1].append(unit)
        count, size = count + len(unit), size + weight
    return chunks


def _field_path(column: str) -> str:
    plain = column.replace("_", "a").isalnum() and column.isascii() and not column[0].isdigit()
    return column if plain else f"`{column}`"
