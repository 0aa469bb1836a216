"""Dead letters: their records are sent back, and they are closed when their records go on."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from esclusa.engine.registry import Registry
from esclusa.model.effects import Move
from esclusa.model.errors import NotFound, StoreConflict, StoreUnavailable
from esclusa.model.kind import Kind, Ref
from esclusa.model.query import Page, Where, one_of, query
from esclusa.model.record import Record
from esclusa.model.settlement import Settled, Settlement
from esclusa.model.stage import Stage
from esclusa.model.state_roles import Ways, ways_back
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
        self._after: str | None = None
        self._exhausted_by_kind: dict[Kind, set[str]] = {}

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
        if flagged := self.flagging(record):
            return Settlement(
                record.ref,
                record.status,
                (record.status,),
                None,
                flagged.renewed_fields | kind.check_fields(fields),
                attempts=0,
                effects=(Move(DeadLetter, letter.id, "redriven", frm="open", reason=reason),),
                who=who,
                reason=reason or "redrive",
                changes=changes,
            )
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

    def flagging(self, record: Record) -> Stage | None:
        """The stage whose ``exhausted_fields`` the record has; None if there is none."""
        return next(
            (
                stage
                for stage in self._registry.all_stages
                if stage.kind == record.kind
                and stage.exhausted_fields
                and stage.is_exhausted(record)
            ),
            None,
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
        return await self.close_of([r.ref for r in records if self._is_exhausted(r)], who)

    async def close_of(self, refs: Iterable[Ref], who: str) -> int:
        """Close the open letters of these records, if they are not exhausted any more."""
        by_kind: defaultdict[Kind, list[str]] = defaultdict(list)
        for ref in refs:
            by_kind[ref.kind].append(ref.id)
        closed = 0
        for kind, ids in by_kind.items():
            opened = query(DeadLetter, {"status": "open", "table_name": kind.table}, limit=1)
            if not (await self._store.find(opened)).items:
                continue
            for start in range(0, len(ids), _PART):
                asked = {
                    "status": "open",
                    "table_name": kind.table,
                    "record_id": one_of(*ids[start : start + _PART]),
                }
                closed += await self._close((await self._page(asked)).items, who)
        return closed

    def may_leave(self, kind: Kind, states: Iterable[str]) -> bool:
        """Whether a record of the kind that leaves one of these states may have a letter."""
        return not self._exhausted_states(kind).isdisjoint(states)

    def _exhausted_states(self, kind: Kind) -> set[str]:
        """The states in which a record of the kind may have a letter. Asked for every effect."""
        found = self._exhausted_by_kind.get(kind)
        if found is None:
            found = self._exhausted_by_kind[kind] = set()
            for stage in self._registry.all_stages:
                if stage.kind == kind and stage.exhausted_fields:
                    found.update(stage.states)
                elif stage.kind == kind and stage.exhausted is not None:
                    found.add(stage.exhausted)
        return found

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
        return any(
            stage.is_exhausted(record)
            for stage in self._registry.all_stages
            if stage.kind == record.kind
        )


class DeadLetterCloser:
    """Closes the letters of records that settlements of this process moved, right afterwards.

    What fails is left to the sweep, which also finds what other programs moved.
    """

    def __init__(self, letters: DeadLetters, who: str) -> None:
        self._letters = letters
        self._who = who
        self._waiting: dict[Ref, None] = {}
        self._task: asyncio.Task[None] | None = None

    def watches(self, stage: Stage) -> bool:
        """Whether the stage takes records that another one has exhausted."""
        return self._letters.may_leave(stage.kind, stage.take)

    def settled(self, settlements: Sequence[Settlement], *, own: bool) -> None:
        """Look at what these moved: by their effects, and with ``own`` their own records."""
        for settlement in settlements:
            if own:
                self._waiting[settlement.ref] = None
            for effect in settlement.effects:
                if isinstance(effect, Move):
                    kind = effect.kind
                    left = effect.frm or kind.lifecycle.sources(effect.to)
                    if self._letters.may_leave(kind, left):
                        self._waiting[Ref(kind, effect.id)] = None
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._run(), name="closing dead letters")

    async def close(self, refs: Sequence[Ref]) -> None:
        """Close the letters of these records, as far as the store answers."""
        refs = [r for r in refs if self._letters.may_leave(r.kind, r.kind.lifecycle.states)]
        with suppress(StoreConflict, StoreUnavailable):
            await self._letters.close_of(refs, self._who)

    async def stop(self) -> None:
        """Wait for what is under way."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._waiting:
                refs, self._waiting = list(self._waiting), {}
                await self.close(refs)
        finally:
            self._task = None
