"""What records of the classes of an ORM have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

from esclusa.model.columns import Track, track
from esclusa.model.record import Record

# How the names of the tracking columns begin in a table of the host.
PREFIX = "esclusa_"


def union_with_none(kind: Any) -> Any:
    """The type, or None."""
    return kind if kind is Any else Union[kind, None]  # noqa: UP007 - made at run time


def default_track() -> Track:
    """The tracking of a record of the host: columns of its own, and workers that are notified."""
    return track(prefix=PREFIX, notify=True)


def record_options(
    cls: type[Record], described: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The options of a record class: those given, else what the class of the ORM shows.

    A field whose column the tracking uses is removed: a record has it as tracking.
    """
    found = {"track": default_track(), **described, **options}
    found["columns"] = {**described["columns"], **options.get("columns", {})}
    tracked = set(found["track"].values())
    for name in list(cls.model_fields):
        if name not in Record.model_fields and found["columns"].get(name, name) in tracked:
            del cls.model_fields[name]
            found["columns"].pop(name, None)
    return found
