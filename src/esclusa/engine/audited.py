"""What all operations share: choosing records in pages, writing, and the audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from esclusa.engine.alert_rules import AlertRules
from esclusa.engine.clock import StoreClock
from esclusa.engine.cycle_records import CycleRecords
from esclusa.engine.cycles import CycleRunner
from esclusa.engine.dead_letters import DeadLetters
from esclusa.engine.records import Records
from esclusa.engine.registry import Registry
from esclusa.engine.selection import condition_text
from esclusa.model.effects import Move
from esclusa.model.errors import (
    StoreConflict,
    StoreUnavailable,
)
from esclusa.model.kind import Kind, Ref
from esclusa.model.query import Where, query
from esclusa.model.record import Record
from esclusa.model.settlement import Lost, Settled, Settlement
from esclusa.model.system_records import (
    Audit,
)
from esclusa.model.texts import text
from esclusa.ports.artifacts import Artifacts
from esclusa.ports.store import Store

# Gives values as plain JSON, with secrets masked.
Masked: TypeAlias = Callable[[Mapping[str, Any]], dict[str, Any]]

CHUNK = 500


@dataclass
class Acted:
    """What an operation did, or would do (``dry_run``).

    ``passed`` lists the records that were skipped, and why.
    """

    verb: str
    table: str
    matched: int
    exact: bool
    moved: int = 0
    dry_run: bool = False
    passed: list[dict[str, str]] = field(default_factory=list)
    # For the audit: see ``Audit.changes``.
    changes: dict[str, list[Any]] = field(default_factory=dict)

    def answer(self) -> dict[str, Any]:
        """The result as the API and ``--json`` answer it."""
        return {name: given for name, given in vars(self).items() if name != "changes"}

    def add_changes(self, changes: Mapping[str, Any]) -> None:
        """Note what one record changed."""
        for name, change in changes.items():
            known = self.changes.setdefault(name, list(change))
            if known != list(change):
                self.changes[name] = [change[-1]]


class AuditedOperations:
    """The common parts of the operations of one person or token."""

    def __init__(
        self,
        who: str,
        registry: Registry,
        runner: CycleRunner,
        cycle_records: CycleRecords,
        store: Store,
        clock: StoreClock,
        dead_letters: DeadLetters,
        masked: Masked,
        alert_rules: AlertRules,
        records: Records,
        artifacts: Artifacts,
    ) -> None:
        self.who = who
        self._registry = registry
        self._runner = runner
        self._cycle_records = cycle_records
        self._store = store
        self._clock = clock
        self._dead_letters = dead_letters
        self._masked = masked
        self._alert_rules = alert_rules
        self._records = records
        self._artifacts = artifacts

    async def note(
        self,
        verb: str,
        subject: str,
        affected: int,
        filter: Mapping[str, Any] | None = None,
        reason: str = "",
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        """Write an audit row, for an operation that is not one of the methods above."""
        await self._store.insert(
            [
                Audit(
                    who=self.who,
                    verb=verb,
                    subject=subject,
                    filter=dict(filter or {}),
                    affected=affected,
                    reason=reason,
                    changes=dict(changes or {}),
                    done_at=self._clock.now(),
                )
            ]
        )

    # steps

    def _changes(self, record: Record, fields: Mapping[str, Any]) -> dict[str, Any] | None:
        """The old and the new value of each field that changes, without secrets."""
        before = {name: getattr(record, name) for name in fields}
        changed = {n: fields[n] for n in fields if before[n] != fields[n]}
        if not changed:
            return None
        old, new = self._masked({n: before[n] for n in changed}), self._masked(changed)
        return {name: [old[name], new[name]] for name in changed}

    async def _start(
        self, verb: str, kind: Kind, chosen: Where, *, seen: int | None = None, dry_run: bool
    ) -> Acted:
        count, exact = await self._store.count(query(kind, chosen, now=self._clock.now()))
        return Acted(
            verb, kind.table, count, exact, dry_run=dry_run or (seen is not None and count > seen)
        )

    async def _chunks(self, kind: Kind, chosen: Where, acted: Acted) -> Any:
        """Yield pages of what matches, ordered by id, so that moves do not disturb the paging."""
        after: str | None = None
        while not acted.dry_run:
            page = await self._store.find(
                query(kind, chosen, limit=CHUNK, after=after, now=self._clock.now())
            )
            if page.items:
                yield page.items
            after = page.next
            if after is None:
                return

    async def _settle(
        self, settlements: list[Settlement], acted: Acted, records: Sequence[Record]
    ) -> None:
        """Write the settlements, then close the dead letters of these records that went on."""
        settlements = self._permitted(settlements, acted, records)
        verdicts = await self._store.settle(settlements) if settlements else []
        for settlement, verdict in zip(settlements, verdicts, strict=True):
            if isinstance(verdict, Settled):
                acted.moved += 1
                acted.add_changes(settlement.changes or {})
            else:
                why = text("changed_meanwhile") if isinstance(verdict, Lost) else verdict.why
                acted.passed.append({"id": verdict.ref.id, "why": why})
        with suppress(StoreConflict, StoreUnavailable):  # else the next sweep closes them
            await self._dead_letters.close(records, self.who)

    def _permitted(
        self, settlements: Sequence[Settlement], acted: Acted, records: Sequence[Record]
    ) -> list[Settlement]:
        """Those that leave no state that others decide about; the rest is skipped."""
        others = {
            kind: self._registry.refusals(kind, self.who)
            for kind in {record.kind for record in records}
        }
        if not any(others.values()):
            return list(settlements)
        by_ref = {record.ref: record for record in records}
        permitted = []
        for settlement in settlements:
            # A redrive settles the dead letter, and moves its record as an effect.
            refs = (
                settlement.ref,
                *(Ref(e.kind, e.id) for e in settlement.effects if isinstance(e, Move)),
            )
            record = next(by_ref[ref] for ref in refs if ref in by_ref)
            refusals, state = others[record.kind], record.kind.lifecycle.current(record.status)
            if state in refusals and settlement.to != state:
                acted.passed.append({"id": settlement.ref.id, "why": refusals[state]})
                continue
            # Nor may it have come to such a state meanwhile.
            frm = tuple(s for s in settlement.frm if s not in refusals or s == settlement.to)
            permitted.append(settlement.but(frm=frm) if settlement.ref in by_ref else settlement)
        return permitted

    async def _finish(self, acted: Acted, chosen: Where, reason: str) -> Acted:
        if not acted.dry_run:
            await self.note(
                acted.verb,
                acted.table,
                acted.moved,
                {name: condition_text(given) for name, given in chosen.items()},
                reason,
                acted.changes,
            )
            acted.passed = acted.passed[:100]
        return acted
