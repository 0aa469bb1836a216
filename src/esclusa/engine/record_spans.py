"""Links between spans: of an attempt to the one before, or to the caller that added the record."""

from __future__ import annotations

from collections.abc import Sequence

from esclusa.model.errors import EsclusaError
from esclusa.model.kind import Ref
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted
from esclusa.model.system_records import RecordSpan
from esclusa.ports.store import Store
from esclusa.ports.telemetry import SpanLink, Telemetry

# The most records of one call for which the caller's span is noted.
MOST_RECORDS = 100


class RecordSpans:
    """Notes the span in which records were added, and finds it for their first attempt.

    ``tables``: those that a stage takes records from. Nothing is read or written unless this
    process makes spans.
    """

    def __init__(self, store: Store, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry
        self.tables: frozenset[str] = frozenset()

    async def insert(self, records: Sequence[Record]) -> list[Inserted | Duplicate]:
        """Add records in one transaction, with a note for each that is new."""
        span = self._telemetry.caller_span() if self._telemetry.spans else None
        if span is None:
            return await self._store.insert(records)
        noted = [record for record in records if record.kind.table in self.tables]
        if not 0 < len(noted) <= MOST_RECORDS:
            return await self._store.insert(records)
        # The id of a note is made of the record's, which the database may have yet to give.
        known = [record for record in noted if _known_id(record)]
        notes = [_note(record, _known_id(record), span) for record in known]
        answers = await self._store.insert([*records, *notes])
        of_record = dict(zip(map(id, records), answers, strict=False))
        of_note = dict(zip(map(id, known), answers[len(records) :], strict=True))
        new = {key for key, answer in of_record.items() if isinstance(answer, Inserted)}
        wrong = [
            Ref(RecordSpan.kind, answer.id)
            for key, answer in of_note.items()
            if isinstance(answer, Inserted) != (key in new)
        ]
        if wrong:  # notes of a record that was there, or of an earlier one with the same id
            await self._store.remove(wrong)
        late = [
            _note(record, of_record[id(record)].id, span)
            for record in noted
            if id(record) in new and not isinstance(of_note.get(id(record)), Inserted)
        ]
        if late:
            await self._store.insert(late)
        return answers[: len(records)]

    async def links(self, records: Sequence[Record]) -> list[SpanLink]:
        """What the span of a handler's call is linked to."""
        found: list[SpanLink] = []
        first: list[str] = []
        for record in records:
            if before := (record.last_error or {}).get("trace"):
                found.append(SpanLink(before, "previous attempt"))
            elif record.attempts == 1:
                first.append(RecordSpan.kind.id_of(record.kind.table, record.id))
        try:
            notes = await self._store.get(RecordSpan.kind, first) if first else []
        except EsclusaError:  # the handler does not need it
            notes = []
        created = {note.span for note in notes if isinstance(note, RecordSpan)}
        return [*found, *(SpanLink(span, "created by") for span in sorted(created))]


def _known_id(record: Record) -> str:
    """The id that the record will have; empty if the store makes it."""
    return record.kind.identify(record, str)


def _note(record: Record, id: str, span: str) -> RecordSpan:
    return RecordSpan(table_name=record.kind.table, record_id=id, span=span)
