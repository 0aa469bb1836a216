"""A record as it stands in the store, and what is about to be written to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from esclusa.model.errors import BadRecord
from esclusa.model.record import Kind, Record, Ref
from esclusa.model.settlement import Step
from esclusa.stores.firestore import names, wire
from esclusa.stores.firestore.codec import (
    SEQ,
    STEPS,
    SURELY_FITS,
    Codec,
    Document,
    Value,
    decode,
    encode,
    stored_size,
)

_LARGEST = 1_048_576
_CARRIED_STEPS, _CARRIED_BYTES = 20, 10_000
"""So much of its history a record carries itself: a write of its own for each move would cost half as much again."""
_SKEW = timedelta(seconds=1)


@dataclass(slots=True)
class Desk:
    """What a call works with: the moment, and what is known of the kinds."""

    root: str
    codecs: Callable[[Kind], Codec]
    now: datetime
    new_id: Callable[[], str]
    worked: Mapping[str, frozenset[str]]
    """The states of each table that some stage takes or holds."""
    clock: Callable[[], datetime]

    def again(self) -> Desk:
        """The same desk, later: after a wait or a lost race the moment is another one."""
        return replace(self, now=max(self.now, self.clock()))

    def name(self, kind: Kind, id: str) -> str | None:
        where = names.path(kind, id)
        return None if where is None else f"{self.root}/{where}"


@dataclass(slots=True)
class Standing:
    """A document, read or known from its claim, with the changes that are to be made to it."""

    kind: Kind
    id: str
    name: str
    codec: Codec
    at: Any
    """Its update time, None if it is not there yet."""
    fields: Any
    """The fields of the document as they are to be; of a claimed one that was not read again, only the tracking."""
    changed: dict[str, None] = field(default_factory=dict)
    added: dict[str, int] = field(default_factory=dict)
    steps: list[Any] = field(default_factory=list)
    fresh: bool = False
    """It is created by this call."""
    size: int = 0
    """About how many bytes it takes in the store."""

    def get(self, name: str) -> Any:
        column = self.codec.column(name)
        return (
            decode(self.codec.types[name], self.fields[column]) if column in self.fields else None
        )

    def set(self, name: str, value: Any) -> None:
        if name in self.kind.track.columns or name in self.kind.by_name:
            for column in self.codec.put(self.fields, name, value):
                self.changed[column] = None
                self.added.pop(column, None)

    def add(self, name: str, amount: int) -> None:
        """Add to a number. Written as an increment where nothing else writes the field: increments do not conflict."""
        column = self.codec.column(name)
        if self.fresh or column in self.changed:
            self.set(name, (self.get(name) or 0) + amount)
        else:
            self.fields[column].integer_value = (self.get(name) or 0) + amount
            self.added[column] = self.added.get(column, 0) + amount

    @property
    def status(self) -> str:
        return str(self.get("status"))

    @property
    def there(self) -> bool:
        return self.fresh or self.at is not None

    def held(self, fence: int) -> bool:
        """Whether somebody holds it under this fence."""
        return self.get("fence") == fence and self.get("leased_by") is not None

    def values(self) -> dict[str, Any]:
        return self.codec.values(self.fields, self.id)

    def moment(self, now: datetime) -> datetime:
        """Now, but not before the record's last change: the clocks of two workers differ by milliseconds."""
        last = self.get("updated_at")
        return last if isinstance(last, datetime) and now < last < now + _SKEW else now

    def step(self, frm: str, to: str, now: datetime, who: str, run: str | None, attempt: int | None, reason: str | None,
             error: Any = None) -> None:  # fmt: skip
        if self.kind.history:
            said = {"from_state": frm, "to_state": to, "at": self.moment(now), "who": who, "run": run, "attempt": attempt,
                    "reason": reason, "error": None if error is None else dict(error)}  # fmt: skip
            out = Value()
            for name, value in said.items():
                out.map_value.fields[name].CopyFrom(encode(_STEP[name], value))
            self.steps.append(out)

    def end_lease(self, desk: Desk, before: str, to: str) -> None:
        """What the end of a lease and a move write for readers of the collection."""
        self.set("leased_by", None)
        if "leased_at" in self.kind.extras:
            self.set("leased_at", None)
        if "finished_at" in self.kind.extras and before != to:
            self.set(
                "finished_at", None if to in desk.worked.get(self.kind.table, ()) else desk.now
            )

    # writing

    def writes(self, desk: Desk, *, blind: bool = False) -> list[Any]:
        """The writes of this record and its history: none if nothing changed. ``blind``: inside a transaction, which
        guards what it has read by itself."""
        out = []
        if self.steps:
            kept = list(self.fields[STEPS].array_value.values) if STEPS in self.fields else []
            steps, self.steps = [*kept, *self.steps], []
            total = self._count(len(steps) - len(kept))
            if not self._carries(steps):
                out.append(self._history(desk, total - len(steps) + 1, steps))
                steps = []
            del self.fields[STEPS].array_value.values[:]
            self.fields[STEPS].array_value.values.extend(steps)
            self.fields[STEPS].array_value.SetInParent()
            self.changed[STEPS] = None
        if self.fresh or self.changed or self.added:
            out.insert(0, self._own(blind=blind))
        return out

    def _carries(self, steps: Sequence[Any]) -> bool:
        weight = sum(step.ByteSize() for step in steps)
        return (
            len(steps) <= _CARRIED_STEPS
            and weight <= _CARRIED_BYTES
            and self.size + weight < _LARGEST // 2
        )

    def _history(self, desk: Desk, first: int, steps: Sequence[Any]) -> Any:
        """The document that holds these steps from now on."""
        row = Document()
        row.fields["table_name"].string_value = self.kind.table
        row.fields["record_id"].string_value = self.id
        row.fields["first"].integer_value = first
        row.fields["steps"].array_value.values.extend(steps)
        return wire.put(f"{desk.root}/{names.history_path(self.kind, self.id, first)}", row)

    def _own(self, *, blind: bool) -> Any:
        mask = list(self.changed)
        document = Document(fields=self.fields if self.fresh else {c: self.fields[c] for c in mask})
        if (
            self.size + document.ByteSize() > SURELY_FITS
            and (size := stored_size(self.name, self.fields)) > _LARGEST
        ):
            raise BadRecord(
                f"{self.kind.table} {self.id}: it would take {size:,} bytes; a Firestore document holds {_LARGEST:,}"
            )
        if self.fresh:
            return wire.put(self.name, document, exists=False)
        only_adds = bool(self.added) and mask == [self.codec.column("updated_at")]
        write = wire.put(
            self.name, document, mask=mask, at=None if blind or only_adds else self.at, exists=True
        )
        for column, amount in self.added.items():
            write.update_transforms.add(field_path=column).increment.integer_value = amount
        return write

    def _count(self, more: int) -> int:
        total = (self.fields[SEQ].integer_value if SEQ in self.fields else 0) + more
        self.fields[SEQ].integer_value = total
        self.changed[SEQ] = None
        return int(total)


_STEP: dict[str, Any] = {
    "from_state": "text", "to_state": "text", "at": "time", "who": "text", "run": "text", "attempt": "int", "reason": "text",
    "error": "json",
}  # fmt: skip


def steps_of(values: Sequence[Any]) -> list[Step]:
    """The steps that an array of a document holds."""
    out = []
    for value in values:
        said = {name: decode(type, value.map_value.fields[name]) for name, type in _STEP.items()}
        out.append(Step(said.pop("from_state"), said.pop("to_state"), **said))
    return out


def stand(desk: Desk, ref: Ref, document: Any | None) -> Standing | None:
    """A record that was looked for, None if no record of this kind can have that id."""
    name = desk.name(ref.kind, ref.id)
    if name is None:
        return None
    fields = Document()
    if document is None:
        return Standing(ref.kind, ref.id, name, desk.codecs(ref.kind), None, fields.fields)
    fields.CopyFrom(document)
    return Standing(
        ref.kind,
        ref.id,
        name,
        desk.codecs(ref.kind),
        document.update_time,
        fields.fields,
        size=document.ByteSize(),
    )


def draft(desk: Desk, record: Record) -> Standing:
    """A new record; BadRecord if Firestore cannot hold it."""
    kind = record.kind
    id, where = names.identify(kind, record, desk.new_id)
    now = desk.now
    if record.status and record.status not in kind.lifecycle.states:
        raise BadRecord(
            f"{kind.table}: {record.status!r} is not a state ({', '.join(kind.lifecycle.states)})"
        )
    tracking = {
        "status": record.status or kind.initial, "attempts": record.attempts, "due_at": record.due_at or now, "fence": record.fence,
        "leased_by": record.leased_by, "last_error": record.last_error, "created_at": record.created_at or now, "updated_at": now,
    }  # fmt: skip
    codec = desk.codecs(kind)
    return Standing(
        kind,
        id,
        f"{desk.root}/{where}",
        codec,
        None,
        codec.document(id, record, tracking).fields,
        fresh=True,
    )
