"""The history as an event log for process mining: rows for CSV, and OCEL 2.0 as JSON.

Each creation and each move of a record is an event. Rows and bytes are made while records are read,
so memory is bounded for any number of records. Secrets are masked.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import IO, Any, Final, TypeAlias

from pydantic_core import to_json

from esclusa.model.columns import Column
from esclusa.model.kind import Kind
from esclusa.model.record import Record
from esclusa.model.settlement import Step
from esclusa.model.value import value
from esclusa.observability import redact

# What ``read_model.histories`` yields.
Histories: TypeAlias = AsyncIterable[tuple[Record, list[Step]]]

# The activity of a record's creation; that of a move is `from → to`.
CREATED: Final = "created"

COLUMNS: Final[tuple[Column, ...]] = (
    Column("kind"),
    Column("record"),
    Column("activity"),
    Column("at", "time"),
    Column("from_state"),
    Column("to_state"),
    Column("who"),
    Column("run"),
    Column("attempt", "int"),
    Column("reason"),
    Column("error"),
)

# The attributes of events, with their types in OCEL.
_ATTRIBUTES: Final = {
    "who": "string",
    "run": "string",
    "attempt": "integer",
    "reason": "string",
    "error": "string",
}
# The types of fields that become attributes of objects; others are left out.
_TYPES: Final = {
    "text": "string",
    "int": "integer",
    "float": "float",
    "bool": "boolean",
    "time": "time",
    "date": "time",
    "decimal": "float",
}
# Bytes that are collected before they are yielded, and objects that are kept in memory.
_CHUNK, _SPOOL = 1 << 16, 8 << 20


@value
class Event:
    """One creation or move of a record."""

    kind: str
    record: str
    activity: str
    at: datetime
    from_state: str | None
    to_state: str
    who: str | None = None
    run: str | None = None
    attempt: int | None = None
    reason: str | None = None
    error: str | None = None


def events_of(
    record: Record,
    steps: Sequence[Step],
    since: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[Event]:
    """The events of a record, oldest first; its creation if that is within the time."""
    table, id, made = record.kind.table, record.id, record.created_at
    if made is not None and (since is None or made >= since) and (until is None or made < until):
        first = steps[0].frm if steps else record.status
        yield Event(table, id, CREATED, made, None, first)
    for step in steps:
        yield Event(
            table,
            id,
            f"{step.frm} → {step.to}",
            step.at,
            step.frm,
            step.to,
            step.who or None,
            step.run,
            step.attempt,
            redact.text(str(step.reason)) if step.reason else None,
            str(step.error.get("type") or "error") if step.error else None,
        )


async def event_rows(
    histories: Histories, since: datetime | None = None, until: datetime | None = None
) -> AsyncIterator[dict[str, Any]]:
    """A row of ``COLUMNS`` for each event; the events of a record follow each other."""
    async for record, steps in histories:
        for event in events_of(record, steps, since, until):
            yield {column.name: getattr(event, column.name) for column in COLUMNS}


class Ocel:
    """The bytes of an OCEL 2.0 file, made while histories are read. It can be read once.

    An object for each record, with its fields and the states that it had; an event for each
    creation and move, related to the record and to the records that it refers to. ``events``
    counts the events so far.
    """

    media_type = "application/json"

    def __init__(
        self,
        kinds: Sequence[Kind],
        histories: Histories,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> None:
        self._kinds = {kind.table: kind for kind in kinds}
        self._histories = histories
        self._since, self._until = since, until
        self.events = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Events come first; objects wait in a temporary file until they are written."""
        activities: set[str] = set()
        out = bytearray(b'{"objectTypes":' + to_json(self._object_types()) + b',"events":[')
        with tempfile.SpooledTemporaryFile(_SPOOL) as objects:
            async for record, steps in self._histories:
                made = self._add(record, steps, out, activities)
                await asyncio.to_thread(_append, objects, made)
                if len(out) >= _CHUNK:
                    yield bytes(out)
                    out.clear()
            yield bytes(out) + b'],"objects":['
            objects.seek(0)
            while chunk := await asyncio.to_thread(objects.read, _CHUNK):
                yield chunk
        types = [
            {
                "name": name,
                "attributes": [{"name": n, "type": type} for n, type in _ATTRIBUTES.items()],
            }
            for name in sorted(activities)
        ]
        yield b'],"eventTypes":' + to_json(types) + b"}\n"

    def _add(
        self, record: Record, steps: Sequence[Step], out: bytearray, activities: set[str]
    ) -> bytes:
        """Add the events of a record; return its object."""
        id, states = _object_id(record.kind.table, record.id), list[dict[str, Any]]()
        related = list(self._related(record))
        for number, event in enumerate(events_of(record, steps, self._since, self._until)):
            type = f"{event.kind}: {event.activity}"
            activities.add(type)
            values = {name: getattr(event, name) for name in _ATTRIBUTES}
            entry = {
                "id": f"{id}#{number}",
                "type": type,
                "time": _time(event.at),
                "attributes": [{"name": n, "value": v} for n, v in values.items() if v is not None],
                "relationships": [{"objectId": id, "qualifier": "record"}, *related],
            }
            out += (b"," if self.events else b"") + to_json(entry)
            self.events += 1
            states.append({"name": "status", "time": _time(event.at), "value": event.to_state})
        return to_json(
            {
                "id": id,
                "type": record.kind.table,
                "attributes": [*states, *_attributes(record)],
                "relationships": related,
            }
        )

    def _related(self, record: Record) -> Iterator[dict[str, str]]:
        """The records that this one refers to, if their kinds are in the file."""
        for field, table in record.kind.refs:
            if (target := getattr(record, field, None)) and table in self._kinds:
                yield {"objectId": _object_id(table, str(target)), "qualifier": field}

    def _object_types(self) -> list[dict[str, Any]]:
        return [
            {
                "name": kind.table,
                "attributes": [
                    {"name": "status", "type": "string"},
                    *({"name": name, "type": type} for name, type in _fields(kind).items()),
                ],
            }
            for kind in self._kinds.values()
        ]


def _append(file: IO[bytes], made: bytes) -> None:
    file.write(b"," + made if file.tell() else made)


def _object_id(table: str, id: str) -> str:
    return f"{table}/{id}"


def _fields(kind: Kind) -> Mapping[str, str]:
    """The fields that become attributes, with their types in OCEL."""
    return {
        f.name: _TYPES[f.type]
        for f in kind.fields
        if f.type in _TYPES and f.name != "status" and not redact.secret_name(f.name)
    }


def _attributes(record: Record) -> Iterator[dict[str, Any]]:
    """The present values of the fields, as of the last write."""
    at = record.updated_at or record.created_at
    masked = redact.fields({name: getattr(record, name, None) for name in _fields(record.kind)})
    for name in masked:
        found, raw = masked[name], getattr(record, name, None)
        if found is None:
            continue
        if isinstance(raw, date):
            found = _time(raw) if isinstance(raw, datetime) else f"{raw}T00:00:00Z"
        elif isinstance(raw, Decimal):
            found = float(raw)
        yield {
            "name": name,
            "time": "1970-01-01T00:00:00Z" if at is None else _time(at),
            "value": found,
        }


def _time(moment: datetime) -> str:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
