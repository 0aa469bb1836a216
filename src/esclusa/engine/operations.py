"""What an operator can do, through the command line, the API and the console.

Every operation leaves an audit row.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from esclusa.engine.audited import Acted
from esclusa.engine.pipeline_actions import ActionOperations
from esclusa.engine.saved_filters import FilterOperations
from esclusa.engine.selection import narrowed, selected
from esclusa.model.errors import (
    BadQuery,
    BadRecord,
    NotFound,
    StoreConflict,
    UndeclaredMove,
    UndeclaredState,
    UnknownState,
)
from esclusa.model.kind import Kind, Ref
from esclusa.model.names import no_state
from esclusa.model.outcome import To
from esclusa.model.query import Where, query
from esclusa.model.record import Record
from esclusa.model.settlement import ClaimRequest, Locked, Rejected, Settled, Settlement
from esclusa.model.stage import Stage
from esclusa.model.state_roles import Ways, ways_back
from esclusa.model.system_records import (
    Alert,
    CycleRecord,
    DeadLetter,
    Message,
    StagePause,
)
from esclusa.model.texts import text

# The system records that an operator may move.
MOVABLE = (DeadLetter.kind, Message.kind, Alert.kind)

# Seconds for which a record is held while a signal is written.
WAKE_LEASE = 10.0
# Seconds between two tries to write a signal: of the first two, and at most.
WAKE_PAUSE, MAX_WAKE_PAUSE = 0.05, 0.5


class Operations(ActionOperations, FilterOperations):
    """The operations of one person or token; ``who`` is stored in the history and the audit.

    ``seen`` is how many records matched when the operator decided. If more match now, nothing is
    changed and the result is that of a dry run.
    """

    async def move(
        self,
        table: str,
        to: str,
        *,
        reason: str,
        ids: Sequence[str] | None = None,
        where: Where | None = None,
        fields: Mapping[str, Any] | None = None,
        seen: int | None = None,
        dry_run: bool = False,
    ) -> Acted:
        """Move records to a state, by id or by a filter. Attempts restart at 0 and leases end.

        Raises UndeclaredMove or UndeclaredState, and moves none, if one cannot make that move.
        """
        kind = self._registry.kind(table)
        if kind.system and kind not in MOVABLE:
            raise BadQuery(text("system_table", table=table))
        if to not in kind.lifecycle.states:
            raise UnknownState(table, to, kind.lifecycle.states)
        chosen = selected(kind, ids, where)
        await self._refuse_undeclared(kind, to, chosen)
        return await self._bulk(
            "move", kind, to, chosen, reason, fields or {}, seen=seen, dry_run=dry_run
        )

    async def repair(
        self,
        table: str,
        frm: str,
        to: str,
        *,
        reason: str,
        seen: int | None = None,
        dry_run: bool = False,
    ) -> Acted:
        """Move all records out of a state that the lifecycle does not have.

        Attempts restart at 0 and leases end.
        """
        kind = self._registry.kind(table)
        life = kind.lifecycle
        if to not in life.states:
            raise BadQuery(no_state(table, to, life.states))
        if frm in life.states:
            raise BadQuery(text("repair_declared", table=table, state=frm))
        if frm in life.renamed:
            raise BadQuery(text("repair_renamed", table=table, state=frm, new=life.renamed[frm]))
        if not reason and not dry_run:
            raise BadQuery(text("repair_reason"))
        return await self._bulk(
            "repair", kind, to, {"status": frm}, reason, {}, seen=seen, dry_run=dry_run, repair=frm
        )

    async def retry(
        self,
        table: str,
        *,
        reason: str,
        ids: Sequence[str] | None = None,
        where: Where | None = None,
        seen: int | None = None,
        dry_run: bool = False,
    ) -> Acted:
        """Retry exhausted records: move them back to where their stage takes them."""
        kind = self._registry.kind(table)
        ways = ways_back(kind, self._registry.all_stages)
        flagging = [s for s in self._registry.all_stages if s.kind == kind and s.exhausted_fields]
        if flagging and not ways:
            return await self._unflag(kind, flagging[0], ids, where, reason, seen, dry_run=dry_run)
        if not ways:
            raise NotFound(text("no_retry", table=table))
        chosen = narrowed(selected(kind, ids, where), kind.lifecycle.with_earlier(ways))
        return await self._bulk("retry", kind, ways, chosen, reason, {}, seen=seen, dry_run=dry_run)

    async def wake(
        self,
        table: str,
        id: str,
        *,
        fields: Mapping[str, Any] | None = None,
        reason: str = "",
        wait: float = 0,
    ) -> Record:
        """Make a record due now, with what a signal from outside brought; return it.

        It stays in its state, and its attempts stay. The fields are set and the record is due in
        one transaction. While a worker holds the record, it is tried again for ``wait`` seconds.
        Raises NotFound, and StoreConflict if the record is still held then: nothing is written, and
        the same signal can be sent again.
        """
        kind = self._registry.kind(table)
        if kind.system:
            raise BadQuery(text("system_table", table=table))
        checked = kind.check_fields(fields or {})
        end, pause = time.monotonic() + wait, WAKE_PAUSE
        while not await self._signal(kind, id, checked, reason):
            if time.monotonic() + pause > end:
                raise StoreConflict(text("wake_held", id=id, table=table))
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_WAKE_PAUSE)
        await self.note("wake", f"{table}/{id}", 1, reason=reason)
        [found] = await self._store.get(kind, [id])
        if found is None:
            raise kind.absent(id)
        return found

    async def _signal(self, kind: Kind, id: str, checked: Mapping[str, Any], reason: str) -> bool:
        """Set the fields and make the record due now; False if a worker holds it."""
        [found] = await self._store.get(kind, [id])
        if found is None:
            raise kind.absent(id)
        taken = await self._store.claim(
            ClaimRequest(
                kind,
                "wake",
                (found.status,),
                ids=(id,),
                lease=WAKE_LEASE,
                worker=self.who,
                before=await self._clock.sync(),
                eager=True,
            )
        )
        if not taken:
            return False
        lease = taken[0]
        settlement = Settlement(
            lease.ref,
            found.status,
            (found.status,),
            lease.fence,
            checked,
            lease.attempt if lease.group else lease.attempt - 1,
            who=self.who,
            reason=reason or "wake",
            changes=self._changes(lease.record, checked),
        )
        [verdict] = await self._store.settle([settlement])
        if isinstance(verdict, Rejected):
            raise BadRecord(verdict.why)
        return isinstance(verdict, Settled)

    async def _unflag(
        self,
        kind: Kind,
        stage: Stage,
        ids: Sequence[str] | None,
        where: Where | None,
        reason: str,
        seen: int | None,
        *,
        dry_run: bool,
    ) -> Acted:
        """Retry records that are exhausted by their fields: they stay in their state."""
        chosen = narrowed(selected(kind, ids, where), stage.take) | dict(stage.exhausted_fields)

        async def choose(record: Record) -> To | str:
            return To(record.status, **stage.renewed_fields)

        matched, _ = await self._store.count(query(kind, chosen, now=self._clock.now()))
        refused = seen is not None and matched > seen
        return await self.apply(
            "retry", kind.table, choose, where=chosen, reason=reason, dry_run=dry_run or refused
        )

    async def redrive(
        self,
        *,
        reason: str,
        ids: Sequence[str] | None = None,
        where: Where | None = None,
        fields: Mapping[str, Any] | None = None,
        seen: int | None = None,
        dry_run: bool = False,
    ) -> Acted:
        """Retry the records of dead letters, in one transaction each; ``fields`` are set first.

        A dead letter whose record has left its exhausted state is skipped.
        """
        chosen = narrowed(selected(DeadLetter.kind, ids, where), ["open"])
        acted = await self._start("redrive", DeadLetter.kind, chosen, seen=seen, dry_run=dry_run)
        async for letters in self._chunks(DeadLetter.kind, chosen, acted):
            settlements, records = [], list[Record]()
            for letter in letters:
                try:
                    record = await self._dead_letters.record_of(letter)
                    settlements.append(
                        await self._dead_letters.redriven(
                            letter,
                            record,
                            who=self.who,
                            reason=reason,
                            fields=fields or {},
                            changes=self._changes(record, record.kind.check_fields(fields or {})),
                        )
                    )
                    records.append(record)
                except NotFound as error:
                    acted.passed.append({"id": letter.id, "why": error.text})
            await self._settle(settlements, acted, records)
        return await self._finish(acted, chosen, reason)

    async def discard(
        self,
        *,
        reason: str,
        ids: Sequence[str] | None = None,
        where: Where | None = None,
        seen: int | None = None,
        dry_run: bool = False,
    ) -> Acted:
        """Close dead letters without sending them back."""
        chosen = narrowed(selected(DeadLetter.kind, ids, where), ["open"])
        return await self._bulk(
            "discard", DeadLetter.kind, "discarded", chosen, reason, {}, seen=seen, dry_run=dry_run
        )

    async def pause(self, cycle: str, reason: str = "") -> None:
        """Pause a cycle: no worker starts it or claims for it. Running handlers finish."""
        await self._switch(cycle, ("idle", "running"), "paused", reason)

    async def resume(self, cycle: str, reason: str = "") -> None:
        """Resume a paused cycle, and its stages that pause by themselves."""
        await self._switch(cycle, ("paused",), "idle", reason)
        for stage in self._registry.cycle(cycle).stages:
            pause = Ref(StagePause.kind, StagePause.kind.id_of(stage.name))
            [verdict] = await self._store.settle(
                [Settlement(pause, "over", ("paused",), None, who=self.who, reason=reason)]
            )
            if isinstance(verdict, Settled):
                await self.note("resume", stage.name, 1, reason=reason)
                await self._store.wake(StagePause.kind)

    async def limit(self, budget: str, per: str, limit: int, reason: str = "") -> None:
        """Set the limit of a budget's current window, until the window resets."""
        found = self._registry.budget(budget)
        if per not in [w.per for w in found.windows]:
            raise found.no_window(per)
        await self._store.observe(found, per, limit=limit)
        await self.note("limit", budget, 1, {"per": per, "limit": str(limit)}, reason)

    async def _switch(self, cycle: str, frm: tuple[str, ...], to: str, reason: str) -> None:
        found = self._registry.cycle(cycle)
        record = await self._cycle_records.get(found.name)
        if record is None:
            raise NotFound(text("cycle_never_started", cycle=cycle))
        if record.status == to or record.status not in frm:  # already paused, or not paused
            return
        now, pauses = self._clock.now(), to == "paused"
        until = None if pauses else found.schedule.next_after(now)
        fields = {
            "paused_by": self.who if pauses else None,
            "paused_at": now if pauses else None,
            "paused_reason": reason if pauses else None,
        }
        verdict = await self._store.settle(
            [
                Settlement(
                    record.ref, to, frm, None, fields, until=until, who=self.who, reason=reason
                )
            ]
        )
        if isinstance(verdict[0], Locked):
            raise StoreConflict(verdict[0].why)
        if not isinstance(verdict[0], Settled):
            raise UndeclaredMove(
                f"cycle {cycle}", record.status, to, CycleRecord.lifecycle.targets(record.status)
            )
        await self.note("pause" if to == "paused" else "resume", cycle, 1, reason=reason)
        await self._cycle_records.refresh()

    async def _refuse_undeclared(self, kind: Kind, to: str, chosen: Where) -> None:
        life = kind.lifecycle
        wrong = life.with_earlier(s for s in life.states if s != to and not life.allows(s, to))
        declared = life.with_earlier(life.states)
        strange = [s for s in await self._store.states(kind) if s not in declared]
        undeclared = narrowed(chosen, [*wrong, *strange])
        page = await self._store.find(query(kind, undeclared, limit=1, now=self._clock.now()))
        if page.items:
            ref, state = page.items[0].ref, page.items[0].status
            if state in strange:
                raise UndeclaredState(str(ref), state, kind.table)
            raise UndeclaredMove(str(ref), state, to, life.targets(life.current(state)))

    async def _bulk(
        self,
        verb: str,
        kind: Kind,
        to: str | Ways,
        chosen: Where,
        reason: str,
        fields: Mapping[str, Any],
        *,
        seen: int | None,
        dry_run: bool,
        repair: str | None = None,
    ) -> Acted:
        acted = await self._start(verb, kind, chosen, seen=seen, dry_run=dry_run)
        checked = kind.check_fields(fields)
        async for records in self._chunks(kind, chosen, acted):
            settlements = []
            for record in records:
                state = to if isinstance(to, str) else await self._dead_letters.way_back(record, to)
                if kind.lifecycle.current(record.status) == state:
                    acted.passed.append({"id": record.id, "why": text("same_state", state=state)})
                    continue
                settlements.append(
                    Settlement(
                        record.ref,
                        state,
                        kind.lifecycle.sources(state) if repair is None else (repair,),
                        None,
                        checked,
                        attempts=0,
                        who=self.who,
                        reason=reason or verb,
                        repair=repair is not None,
                        changes=self._changes(record, checked),
                    )
                )
            await self._settle(settlements, acted, records)
        return await self._finish(acted, chosen, reason)
