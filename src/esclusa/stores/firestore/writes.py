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
    write = Write(update=document)
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
    unchanged = None if update_time is None else {"update_time": update_time}
    return Write(delete=name, current_document=unchanged)


def verify_unchanged(name: str, update_time: Any) -> Any:
    """Change nothing, and fail if the document was written since: an update of no field."""
    return put_document(name, Write().update, mask=(), update_time=update_time)


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


def merged(units: list[list[Any]]) -> list[Any] | None:
    """The writes of one commit, with additions to the same document as one write.

    None if a document has two writes that cannot be combined.
    """
    out: dict[str, Any] = {}
    for write in (w for unit in units for w in unit):
        first = out.setdefault(write.update.name, write)
        if first is write:
            continue
        if not (first.update_transforms and write.update_transforms):
            return None
        sums = {t.field_path: t for t in first.update_transforms}
        for more in write.update_transforms:
            if more.field_path in sums:
                sums[more.field_path].increment.integer_value += more.increment.integer_value
            else:
                first.update_transforms.add().CopyFrom(more)
    return list(out.values())


def _field_path(column: str) -> str:
    plain = column.replace("_", "a").isalnum() and column.isascii() and not column[0].isdigit()
    return column if plain else f"`{column}`"
