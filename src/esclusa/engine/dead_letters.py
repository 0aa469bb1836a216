"""Dead letters: their records are sent back, and they are closed when their records go on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from esclusa.engine.registry import Registry
from esclusa.model.effects import Move
from esclusa.model.errors import NotFound
from esclusa.model.query import Page, Where, one_of, query
from esclusa.model.record import Kind, Record
from esclusa.model.settlement import Settled, Settlement
from esclusa.model.stage import Ways, ways_back
from esclusa.model.system_records import DeadLetter
from esclusa.model.texts import text
from esclusa.ports.store import Store

# Letters that one query asks for, by the ids of their records.
_PART = 30
_PAGE = 500
# Letters that one run looks at.
_SWEEP = 20_000


class DeadLetters:
    """The dead letters of one store."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._exhausted = {(stage.kind.table, stage.exhausted) for stage in registry.all_stages}
        self._after: str | None = None

    async def redriven(
        self,
        letter: DeadLetter,
        record: Record,
        *,
        who: str,
        reason: str,
        fields: Mapping[str, Any],
        changes: Mapping[str, Any] | None,
    ) -> Settlement:
        """The settlement that sends the letter's record back. Raises NotFound if it cannot."""
        kind = record.kind
        ways = ways_back(kind, self._registry.all_stages)
        state, before = (
            kind.lifecycle.current(each) for each in (record.status, letter.state_before)
        )
        if state not in ways:
            code = "dead_letter_outdated" if ways else "dead_letter_final"
            raise NotFound(text(code, record=str(record.ref), state=state))
        taken = any(before in s.take for s, _ in ways[state])
        taken = taken and kind.lifecycle.allows(state, before)
        back = before if taken else await self.way_back(record, ways)
        reason = reason or "redrive"
        effect = Move(kind, record.id, back, frm=state, reason=reason, changes=changes, **fields)
        return Settlement(
            letter.ref, "redriven", ("open",), None, effects=(effect,), who=who, reason=reason
        )

    async def record_of(self, letter: DeadLetter) -> Record:
        """The record of a letter. Raises NotFound."""
        kind = self._registry.kind(letter.table_name)
        [record] = await self._store.get(kind, [letter.record_id])
        if record is None:
            raise NotFound(text("dead_letter_orphaned", id=letter.record_id, table=kind.table))
        return record

    async def way_back(self, record: Record, ways: Ways) -> str:
        """Where the stage that exhausted the record would take it again.

        If several stages could have exhausted it, the history decides.
        """
        found = ways[record.kind.lifecycle.current(record.status)]
        if len({state for _, state in found}) > 1:
            steps = await self._store.history(record.ref, 10, newest=True)
            came = next((s.frm for s in reversed(steps) if s.to == record.status != s.frm), None)
            found = [way for way in found if came in way[0].states] or found
        return found[0][1]

    async def close(self, records: Iterable[Record], who: str) -> int:
        """Close the open letters of records that were exhausted, as given, and are not any more."""
        by_kind: defaultdict[Kind, list[str]] = defaultdict(list)
        for record in records:
            if self._is_exhausted(record):
                by_kind[record.kind].append(record.id)
        closed = 0
        for kind, ids in by_kind.items():
            for start in range(0, len(ids), _PART):
                asked = {
                    "status": "open",
                    "table_name": kind.table,
                    "record_id": one_of(*ids[start : start + _PART]),
                }
                closed += await self._close((await self._page(asked)).items, who)
        return closed

    async def close_all(self, who: str) -> int:
        """Close every open letter whose record went on, by any program.

        If there are very many, the next call continues where this one ends.
        """
        closed = seen = 0
        while seen < _SWEEP:
            page = await self._page({"status": "open"}, self._after)
            closed += await self._close(page.items, who)
            seen, self._after = seen + len(page.items), page.next
            if self._after is None:
                break
        return closed

    async def _page(self, where: Where, after: str | None = None) -> Page[DeadLetter]:
        found = await self._store.find(query(DeadLetter, where, limit=_PAGE, after=after))
        return cast("Page[DeadLetter]", found)

    async def _close(self, letters: Sequence[DeadLetter], who: str) -> int:
        """Close the letters whose record left its exhausted state, and all but its last one."""
        by_table: defaultdict[str, list[DeadLetter]] = defaultdict(list)
        for letter in letters:
            by_table[letter.table_name].append(letter)
        settlements: list[Settlement] = []
        for table, those in by_table.items():
            kind = next((k for k in self._registry.all_kinds if k.table == table), None)
            if kind is None:  # of a pipeline that is not loaded
                continue
            ids = list(dict.fromkeys(letter.record_id for letter in those))
            records = dict(zip(ids, await self._store.get(kind, ids), strict=True))
            newest = {x.record_id: x.id for x in sorted(those, key=lambda x: (x.created_at, x.id))}
            for letter in those:
                record = records[letter.record_id]
                if record is None:
                    why = text("dead_letter_record_gone")
                elif not self._is_exhausted(record):
                    why = text("dead_letter_record_moved", state=record.status)
                elif newest[letter.record_id] != letter.id:
                    why = text("dead_letter_superseded")
                else:
                    continue
                settlements.append(
                    Settlement(letter.ref, "resolved", ("open",), None, who=who, reason=why.dump())
                )
        verdicts = await self._store.settle(settlements) if settlements else []
        return sum(isinstance(verdict, Settled) for verdict in verdicts)

    def _is_exhausted(self, record: Record) -> bool:
        state = record.kind.lifecycle.current(record.status)
        return (record.kind.table, state) in self._exhausted
