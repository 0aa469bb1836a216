"""A record's document as it is stored, with the changes that a call will write to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from esclusa.model.errors import BadRecord
from esclusa.model.kind import Kind, Ref
from esclusa.model.record import Record
from esclusa.model.settlement import Settlement, Step
from esclusa.stores.firestore import names
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
from esclusa.stores.firestore.writes import put_document

_MAX_DOCUMENT = 1_048_576
# History that a record's own document holds.
#
# A write of its own for each move would raise the cost by half.
_INLINE_STEPS, _INLINE_BYTES = 20, 10_000
_SKEW = timedelta(seconds=1)
_STEP: dict[str, Any] = {
    "from_state": "text",
    "to_state": "text",
    "at": "time",
    "who": "text",
    "run": "text",
    "attempt": "int",
    "reason": "text",
    "error": "json",
    "changes": "json",
    "log": "json",
}


@dataclass(slots=True)
class CallContext:
    """What one call to the store works with: its time, and the codecs of the kinds."""

    root: str
    codec_of: Callable[[Kind], Codec]
    now: datetime
    new_id: Callable[[], str]
    # By table, the states that some stage takes or holds.
    staged_states: Mapping[str, frozenset[str]]
    clock: Callable[[], datetime]

    def refreshed(self) -> CallContext:
        """The same context at the current time, for use after a wait or a lost race."""
        return replace(self, now=max(self.now, self.clock()))

    def document_name(self, kind: Kind, id: str) -> str | None:
        """The full name of a record's document; None if no record can have that id."""
        path = names.path(kind, id)
        return None if path is None else f"{self.root}/{path}"


@dataclass(slots=True)
class DocumentState:
    """A document, read or known from its claim, with the changes to make."""

    kind: Kind
    id: str
    name: str
    codec: Codec
    # When it was last written; None if it does not exist yet.
    update_time: Any
    # The fields as they will be. Of a claimed document that was not read again, only tracking.
    fields: Any
    changed: dict[str, None] = field(default_factory=dict)
    added: dict[str, int] = field(default_factory=dict)
    steps: list[Any] = field(default_factory=list)
    # Whether this call creates it.
    is_new: bool = False
    # Roughly how many bytes it takes in the store.
    size: int = 0

    def get(self, name: str) -> Any:
        column = self.codec.column(name)
        return (
            decode(self.codec.types[name], self.fields[column]) if column in self.fields else None
        )

    def set(self, name: str, value: Any) -> None:
        """Change a field. A name that the kind does not have is ignored."""
        if name in self.kind.track or name in self.kind.by_name:
            for column in self.codec.put(self.fields, name, value):
                self.changed[column] = None
                self.added.pop(column, None)

    def add(self, name: str, amount: int) -> None:
        """Add to a number.

        It is written as an increment, which conflicts with no other write, unless the same call
        sets the field.
        """
        column = self.codec.column(name)
        if self.is_new or column in self.changed:
            self.set(name, (self.get(name) or 0) + amount)
        else:
            self.fields[column].integer_value = (self.get(name) or 0) + amount
            self.added[column] = self.added.get(column, 0) + amount

    @property
    def status(self) -> str:
        status = self.get("status")
        return self.kind.initial if status is None else str(status)

    @property
    def exists(self) -> bool:
        """Whether the record exists, or will exist after this call."""
        return self.is_new or self.update_time is not None

    def held_under(self, fence: int) -> bool:
        """Whether a worker holds the record under this fence."""
        return self.get("fence") == fence and self.get("leased_by") is not None

    def values(self) -> dict[str, Any]:
        return self.codec.values(self.fields, self.id)

    def change_time(self, now: datetime) -> datetime:
        """Now, or the record's last change if that is slightly later.

        The clocks of two workers differ by milliseconds; `updated_at` must not go back.
        """
        last = self.get("updated_at")
        return last if isinstance(last, datetime) and now < last < now + _SKEW else now

    def add_step(
        self,
        frm: str,
        to: str,
        now: datetime,
        who: str,
        run: str | None,
        attempt: int | None,
        reason: str | None,
        error: Any = None,
        changes: Any = None,
        log: Any = None,
    ) -> None:
        """Add a row to the history, if the kind keeps one."""
        if self.kind.history:
            values = {
                "from_state": frm,
                "to_state": to,
                "at": self.change_time(now),
                "who": who,
                "run": run,
                "attempt": attempt,
                "reason": reason,
                "error": None if error is None else dict(error),
            }
            values |= {
                name: dict(value)
                for name, value in (("changes", changes), ("log", log))
                if value is not None
            }
            fields = {name: encode(_STEP[name], value) for name, value in values.items()}
            self.steps.append(Value(map_value={"fields": fields}))

    def end_lease(self, context: CallContext, before: str, to: str) -> None:
        """Clear the lease, and set the extra columns that show leases and ends."""
        self.set("leased_by", None)
        if "leased_at" in self.kind.extras:
            self.set("leased_at", None)
        if "finished_at" in self.kind.extras and before != to:
            staged = to in context.staged_states.get(self.kind.table, ())
            self.set("finished_at", None if staged else context.now)

    def give_up(self, context: CallContext, s: Settlement) -> None:
        """End the lease of a record that another program has moved; change nothing else."""
        self.add_step(s.frm[0], self.status, context.now, "", s.run, None, s.transition.overtaken)
        self.end_lease(context, self.status, self.status)

    # Writing

    def writes(self, context: CallContext, *, unconditional: bool = False) -> list[Any]:
        """The writes of this record and its history, the record's own first; empty if unchanged.

        ``unconditional`` leaves the precondition out: inside a transaction, Firestore itself guards
        what the transaction has read.
        """
        out = []
        if self.steps:
            inline = list(self.fields[STEPS].array_value.values) if STEPS in self.fields else []
            steps, self.steps = [*inline, *self.steps], []
            total = self._count_steps(len(steps) - len(inline))
            if not self._fit_inline(steps):
                out.append(self._history(context, total - len(steps) + 1, steps))
                steps = []
            self.fields[STEPS].CopyFrom(Value(array_value={"values": steps}))
            self.changed[STEPS] = None
        if self.is_new or self.changed or self.added:
            out.insert(0, self._own_write(unconditional=unconditional))
        return out

    def _fit_inline(self, steps: Sequence[Any]) -> bool:
        weight = sum(step.ByteSize() for step in steps)
        return (
            len(steps) <= _INLINE_STEPS
            and weight <= _INLINE_BYTES
            and self.size + weight < _MAX_DOCUMENT // 2
        )

    def _history(self, context: CallContext, first: int, steps: Sequence[Any]) -> Any:
        """The write of a history document with these steps, the first of which has this number."""
        row = Document(
            fields={
                "table_name": Value(string_value=self.kind.table),
                "record_id": Value(string_value=self.id),
                "first": Value(integer_value=first),
                "at": steps[-1].map_value.fields["at"],
                "steps": Value(array_value={"values": steps}),
            }
        )
        return put_document(f"{context.root}/{names.history_path(self.kind, self.id, first)}", row)

    def _own_write(self, *, unconditional: bool) -> Any:
        mask = list(self.changed)
        document = Document(
            fields=self.fields if self.is_new else {c: self.fields[c] for c in mask}
        )
        if self.size + document.ByteSize() > SURELY_FITS:
            check_size(self.kind, self.id, self.name, self.fields)
        if self.is_new:
            return put_document(self.name, document, exists=False)
        only_adds = bool(self.added) and mask == [self.codec.column("updated_at")]
        expected = None if unconditional or only_adds else self.update_time
        write = put_document(self.name, document, mask=mask, update_time=expected, exists=True)
        for column, amount in self.added.items():
            write.update_transforms.add(field_path=column).increment.integer_value = amount
        return write

    def _count_steps(self, more: int) -> int:
        total = (self.fields[SEQ].integer_value if SEQ in self.fields else 0) + more
        self.fields[SEQ].integer_value = total
        self.changed[SEQ] = None
        return int(total)


def check_size(kind: Kind, id: str, name: str, fields: Any) -> None:
    """Raise BadRecord if a document with these fields is too large."""
    if (size := stored_size(name, fields)) > _MAX_DOCUMENT:
        raise BadRecord(
            f"{kind.table} {id}: the record would take {size:,} bytes;"
            f" a Firestore document holds {_MAX_DOCUMENT:,}"
        )


def steps_of(values: Sequence[Any]) -> list[Step]:
    """Decode the steps in an array of a document."""
    out = []
    for value in values:
        fields = value.map_value.fields
        step = {name: decode(type, fields[name]) for name, type in _STEP.items() if name in fields}
        out.append(Step(step.pop("from_state"), step.pop("to_state"), **step))
    return out


def document_state(context: CallContext, ref: Ref, document: Any | None) -> DocumentState | None:
    """The state of a record from its document; None if no record can have that id."""
    name = context.document_name(ref.kind, ref.id)
    if name is None:
        return None
    codec, own = context.codec_of(ref.kind), Document()
    if document is None:
        return DocumentState(ref.kind, ref.id, name, codec, None, own.fields)
    own.CopyFrom(document)
    return DocumentState(
        ref.kind, ref.id, name, codec, document.update_time, own.fields, size=document.ByteSize()
    )


def new_document(context: CallContext, record: Record) -> DocumentState:
    """The state of a new record; BadRecord if Firestore cannot hold it."""
    kind = record.kind
    id, path = names.identify(kind, record, context.new_id)
    if record.status and record.status not in kind.lifecycle.states:
        raise BadRecord(
            f"{kind.table}: {record.status!r} is not a state ({', '.join(kind.lifecycle.states)})"
        )
    tracking = {
        "status": record.status or kind.initial,
        "attempts": record.attempts,
        "due_at": record.due_at or context.now,
        "fence": record.fence,
        "leased_by": record.leased_by,
        "last_error": record.last_error,
        "created_at": record.created_at or context.now,
        "updated_at": context.now,
    }
    codec = context.codec_of(kind)
    fields = codec.document(id, record, tracking).fields
    return DocumentState(kind, id, f"{context.root}/{path}", codec, None, fields, is_new=True)
