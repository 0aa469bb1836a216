"""Records that a worker of another program has: its lock, and the states that it sets.

A program that notes its locks in a field (``leased_at`` of the map) has a record from then on, as
on SQL stores. A program that only moves a document to the hold state of a stage has it from its
last write on. Both end after ``abandoned_after`` seconds of the kind.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from esclusa.model.kind import Kind
from esclusa.stores.firestore.codec import STEPS, Codec, decode, from_timestamp
from esclusa.stores.firestore.found import FoundDocument


def age_of(kind: Kind, abandoned_after: float | None = None) -> timedelta:
    """How long a record is left to another program: as the stage says, or the kind."""
    given = kind.track.abandoned_after if abandoned_after is None else abandoned_after
    return timedelta(seconds=given)


def moved_at(codec: Codec, document: Any, abandoned_after: float | None = None) -> datetime:
    """When another program moved a document: its last write.

    If the stage has an ``abandoned_after``, its ``updated_at``, if that is a time.
    """
    last = from_timestamp(document.update_time)
    if abandoned_after is None:
        return last
    return time_in(document.fields, codec.column("updated_at")) or last


def time_in(fields: Any, column: str) -> datetime | None:
    """A time that another program wrote, as a timestamp or as ISO text; without a zone in UTC."""
    value = decode("time", fields[column]) if column in fields else None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def lock_time(codec: Codec, document: Any) -> datetime | None:
    """When a worker of another program locked a document, by the field of its map."""
    if not codec.kind.attached or "leased_at" not in codec.kind.extras:
        return None
    return time_in(document.fields, codec.column("leased_at"))


def has_locks_of_others(
    codec: Codec, hold: str | None, abandoned_after: float | None = None
) -> bool:
    """Whether a claim with this hold state may find records that another program has.

    A stage with an ``abandoned_after`` expects them, even if no document of others was found yet.
    """
    mapped = codec.kind.attached and "leased_at" in codec.kind.extras
    shared = codec.foreign or abandoned_after is not None
    return mapped or (shared and hold is not None)


def locked_since(
    codec: Codec,
    found: FoundDocument,
    hold: str | None,
    now: datetime,
    abandoned_after: float | None = None,
) -> datetime | None:
    """Since when another program has a record; None if none has it, or for too long.

    A worker of another program locks what is due, and leaves ``due_at`` as it is. Our own leases
    end after they began.
    """
    document, due = found.document, found.values["due_at"]
    age = age_of(codec.kind, abandoned_after)
    since = lock_time(codec, document)
    if since is not None:
        if isinstance(due, datetime) and due > since:
            return None
        return since if since + age > now else None
    shared = codec.foreign or abandoned_after is not None
    if not (shared and hold is not None and found.values["status"] == hold):
        return None
    if not _moved_by_others(found):
        return None
    since = moved_at(codec, document, abandoned_after)
    until = since + age
    if since == from_timestamp(document.update_time) and isinstance(due, datetime) and since < due:
        # The last write is ours: it set the due time to the end of the other program's time.
        until = due
    return since if until > now else None


def _moved_by_others(found: FoundDocument) -> bool:
    """Whether another program moved a record to its state: no lease, and no step of the history."""
    if found.values["leased_by"] is not None:
        return False
    fields = found.document.fields
    steps = fields[STEPS].array_value.values if STEPS in fields else ()
    if not steps:
        return True
    last = steps[-1].map_value.fields["to_state"].string_value
    return bool(last != found.values["status"])
