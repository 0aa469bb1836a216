"""Settle: each settlement whole or not at all, with its history and its effects.

Two ways. *Quick*: the process claimed the record itself and knows when it was last written, so one commit with that
precondition settles many records without a read. *Sure*: read the records and the targets of the effects, work it
all out here, and commit under preconditions on everything that was read and mattered; whoever lost a race reads again.
A guard that is true is proved by a witness that must not have changed; a guard that is false cannot be proved by
documents, so then everything is done again inside a transaction, whose queries Firestore itself keeps from changing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from esclusa.model.effects import Add, Create, Effect, Exists, Move, Wake
from esclusa.model.errors import BadRecord, StoreConflict, UndeclaredMove
from esclusa.model.query import Query, matches
from esclusa.model.record import Kind, Ref
from esclusa.model.settlement import Lost, Rejected, Settled, Settlement, Verdict
from esclusa.stores.firestore import asking, names, wire
from esclusa.stores.firestore.asking import Found
from esclusa.stores.firestore.claims import Leases
from esclusa.stores.firestore.standing import Desk, Standing, draft, stand
from esclusa.stores.firestore.wire import Stale, Wire, chunked
from esclusa.stores.isolate import settle_isolated

_TOGETHER = 100
"""Settlements that are read and committed together on the sure way."""
_ABREAST = 4
_PATIENCE = 25.0
"""Seconds of losing races before the call gives up."""


class _Refused(Exception):
    """An effect cannot be applied as declared."""


@dataclass(slots=True)
class Settler:
    wire: Wire
    leases: Leases
    rng: Random
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Settlements whose effects read other records go one call at a time in a process: it does not race itself."""

    async def settle(
        self, desk: Desk, settlements: Sequence[Settlement], woken: set[str]
    ) -> list[Verdict]:
        """Settle; ``woken`` gets the tables of which something became due."""
        verdicts: dict[int, Verdict] = {}
        refs = [s.ref for s in settlements]
        quick: list[tuple[int, Standing]] = []
        if len(set(refs)) == len(refs):
            for i, s in enumerate(settlements):
                if all(isinstance(e, Create | Add) for e in s.effects) and (
                    known := self.leases.take(desk, s.ref, s.fence)
                ):
                    quick.append((i, known))
            verdicts |= await self._quick(desk, settlements, quick)
        left = [i for i in range(len(settlements)) if i not in verdicts]
        plain = [i for i in left if not settlements[i].effects]
        if len(set(refs)) == len(refs):
            chunks = [plain[k : k + _TOGETHER] for k in range(0, len(plain), _TOGETHER)]
            for k in range(0, len(chunks), _ABREAST):
                parts = (self._sure(desk, settlements, chunk) for chunk in chunks[k : k + _ABREAST])
                for answers in await asyncio.gather(*parts):
                    verdicts |= answers
            left = [i for i in left if settlements[i].effects]
        if left:
            async with self.turns:
                for k in range(0, len(left), _TOGETHER):
                    verdicts |= await self._sure(desk, settlements, left[k : k + _TOGETHER])
        for i, s in enumerate(settlements):
            if isinstance(verdicts[i], Settled):
                woken |= _woken(desk, s)
        return [verdicts[i] for i in range(len(settlements))]

    # the quick way

    async def _quick(
        self, desk: Desk, settlements: Sequence[Settlement], known: list[tuple[int, Standing]]
    ) -> dict[int, Verdict]:
        """Those that went through; whoever is not in the answer must be read."""
        units: list[list[Any]] = []
        members: list[int] = []
        for i, standing in known:
            try:
                unit = self._unit(desk, settlements[i], standing)
            except Exception:  # noqa: BLE001, S112 - the sure way isolates and reports it
                continue
            if unit:
                units.append(unit)
                members.append(i)
        done: dict[int, Verdict] = {}
        place = 0
        chunks = []
        for chunk in chunked(units):
            chunks.append((members[place : place + len(chunk)], chunk))
            place += len(chunk)
        for k in range(0, len(chunks), _ABREAST):
            results = await asyncio.gather(
                *(self._try(merged(chunk)) for _, chunk in chunks[k : k + _ABREAST])
            )
            for (those, _), went in zip(chunks[k : k + _ABREAST], results, strict=True):
                if went:
                    done |= {i: Settled(settlements[i].ref) for i in those}
        return done

    def _unit(self, desk: Desk, s: Settlement, standing: Standing) -> list[Any]:
        """All writes of a settlement, none if it is not one for the quick way."""
        own(desk, s, standing)
        unit, added = standing.writes(desk), dict[str, Standing]()
        for effect in s.effects:
            match effect:
                case Create():
                    unit += draft(desk, effect.record).writes(desk)
                case Add() if (
                    target := stand(desk, Ref(effect.kind, effect.id), None)
                ) is not None:
                    self._blind(desk, added.setdefault(target.name, target), effect)
                case _:
                    return []
        return (
            []
            if standing.name in added
            else [*unit, *(a.writes(desk, blind=True)[0] for a in added.values())]
        )

    async def _try(self, writes: list[Any] | None) -> bool:
        if writes is None:
            return False
        try:
            await self.wire.commit(writes, "settle")
        except (Stale, StoreConflict, BadRecord):
            return False
        return True

    def _blind(self, desk: Desk, target: Standing, effect: Add) -> None:
        for name, amount in effect.amounts.items():
            target.add(name, amount)
        target.set("updated_at", desk.now)

    # the sure way

    async def _sure(
        self, desk: Desk, settlements: Sequence[Settlement], which: Sequence[int]
    ) -> dict[int, Verdict]:
        write = partial(self._write, desk)
        verdicts = await settle_isolated([settlements[i] for i in which], write)
        return dict(zip(which, verdicts, strict=True))

    async def _write(self, desk: Desk, batch: Sequence[Settlement]) -> list[Verdict]:
        """Settle a batch in one commit, made again while other writers change what it read."""
        loop = asyncio.get_running_loop()
        end, tries, locked = loop.time() + _PATIENCE, 0, False
        while True:
            round = Round(self.wire, desk.again(), self.rng, list(enumerate(batch)))
            try:
                verdicts = await round.run(locked=locked)
            except NeedsLock:
                locked = True
            except (Stale, StoreConflict) as error:
                tries += 1
                if loop.time() > end:
                    raise StoreConflict(f"Firestore: {error}") from error
                if tries == 4 and len(batch) > 1:  # write the others without the contended one
                    write = partial(self._write, desk)
                    return [v for s in batch for v in await settle_isolated([s], write)]
                await asyncio.sleep(self.rng.uniform(0, min(1.0, 0.02 * 2**tries)))
            else:
                return [verdicts[i] for i in range(len(batch))]


class NeedsLock(Exception):
    """A guard is false and a record is to move because of it: only a transaction can know that it stays so."""


@dataclass(slots=True)
class Round:
    """One attempt: what was read, what is to be written."""

    wire: Wire
    desk: Desk
    rng: Random
    settlements: list[tuple[int, Settlement]]
    transaction: bytes | None = None
    documents: dict[str, Any] = field(default_factory=dict)
    standings: dict[str, Standing] = field(default_factory=dict)
    guards: dict[Exists, list[Found]] = field(default_factory=dict)
    proofs: dict[str, Any] = field(default_factory=dict)
    """Documents that were read, not written, and must not change: their update times by name."""

    async def run(self, *, locked: bool) -> dict[int, Verdict]:
        if locked:
            self.transaction = await self.wire.begin()
        try:
            return await self._run()
        except BaseException:
            if self.transaction is not None:
                await self.wire.rollback(self.transaction)
            raise

    async def _run(self) -> dict[int, Verdict]:
        wanted = {
            n
            for _, s in self.settlements
            for ref in _touched(s)
            if (n := self.desk.name(ref.kind, ref.id)) is not None
        }
        self.documents = await self.wire.get(sorted(wanted), "settle", self.transaction)
        rejected: dict[int, str] = {}
        while True:
            self.standings, self.proofs = {}, {}
            verdicts, refused = await self._work_out(rejected)
            if not refused:
                break
            # one that met the own move of another refused one may go through without it
            gone = {s.ref for i, s in self.settlements if i in refused}
            firm = {
                i: refused[i]
                for i, s in self.settlements
                if i in refused
                and not any(isinstance(e, Move) and Ref(e.kind, e.id) in gone for e in s.effects)
            }
            rejected |= firm or dict(list(refused.items())[:1])
        writes = [
            w
            for s in self.standings.values()
            for w in s.writes(self.desk, blind=self.transaction is not None)
        ]
        if self.transaction is None:
            written = {w.update.name for w in writes}
            writes += [
                wire.verify(name, at) for name, at in self.proofs.items() if name not in written
            ]
        if writes:
            await self.wire.commit(writes, "settle", self.transaction)
        elif self.transaction is not None:
            await self.wire.rollback(self.transaction)
        return verdicts

    async def _work_out(
        self, rejected: dict[int, str]
    ) -> tuple[dict[int, Verdict], dict[int, str]]:
        verdicts: dict[int, Verdict] = {}
        refused: dict[int, str] = {}
        for i, s in self.settlements:
            standing = self._stand(s.ref)
            if standing is None or not standing.there or not _ours(standing, s):
                verdicts[i] = Lost(s.ref)
            elif i in rejected:
                verdicts[i] = Rejected(s.ref, rejected[i])
            else:
                verdicts[i] = Settled(s.ref)
                try:
                    own(self.desk, s, standing)
                except BadRecord as error:
                    refused[i] = str(error)
        for i, s in self.settlements:
            if isinstance(verdicts[i], Settled):
                try:
                    for effect in s.effects:
                        await self._apply(s, effect)
                except (_Refused, BadRecord) as error:
                    refused[i] = str(error)
        return verdicts, refused

    def _stand(self, ref: Ref) -> Standing | None:
        name = self.desk.name(ref.kind, ref.id)
        if name is None:
            return None
        if name not in self.standings:
            standing = stand(self.desk, ref, self.documents.get(name))
            assert standing is not None
            self.standings[name] = standing
        return self.standings[name]

    async def _apply(self, s: Settlement, effect: Effect) -> None:
        match effect:
            case Create():
                new = draft(self.desk, effect.record)
                there = self.standings.get(new.name)
                if not (there is not None and there.there) and new.name not in self.documents:
                    self.standings[new.name] = new
            case Move():
                await self._move(s, effect)
            case Wake():
                target = self._stand(Ref(effect.kind, effect.id))
                if (
                    target is not None
                    and target.there
                    and target.get("leased_by") is None
                    and target.get("due_at") > self.desk.now
                ):
                    target.set("due_at", self.desk.now)
                    target.set("updated_at", target.moment(self.desk.now))
            case Add():
                target = self._stand(Ref(effect.kind, effect.id))
                if target is None or not target.there:
                    raise _Refused(f"effect Add: there is no {effect.kind.table} {effect.id}")
                for name, amount in effect.amounts.items():
                    target.add(name, amount)
                if not target.changed and not target.fresh:
                    target.set("updated_at", self.desk.now)

    async def _move(self, s: Settlement, move: Move) -> None:
        target = self._stand(Ref(move.kind, move.id))
        there = target is not None and target.there
        if move.frm and (target is None or not there or target.status not in move.frm):
            if target is not None and target.at is not None:
                self.proofs[target.name] = target.at
            return
        if move.unless is not None and await self._exists(move.unless):
            return
        if target is None or not there:
            raise _Refused(f"effect Move: there is no {move.kind.table} {move.id}")
        if not move.frm:
            try:
                move.kind.lifecycle.check(
                    target.status, move.to, f"effect Move on {move.kind.table} {move.id}"
                )
            except UndeclaredMove as error:
                raise _Refused(str(error)) from None
        if move.unless is not None and self.transaction is None:
            raise NeedsLock
        before = target.status
        target.step(before, move.to, self.desk.now, s.who, s.run, None, move.reason)
        for name, value in move.fields.items():
            target.set(name, value)
        target.set("status", move.to)
        target.set("attempts", 0)
        target.set("due_at", self.desk.now)
        target.set("fence", (target.get("fence") or 0) + 1)
        target.end_lease(self.desk, before, move.to)
        target.set("updated_at", target.moment(self.desk.now))

    async def _exists(self, guard: Exists) -> bool:
        """The guard's truth on what is stored and on what this round has changed."""
        mine = {n: t for n, t in self.standings.items() if t.kind == guard.kind}
        for name, standing in mine.items():
            if standing.there and matches(standing.values(), guard.where):
                if standing.at is not None:
                    self.proofs[name] = standing.at  # needed only if nothing is written to it
                return True
        if guard not in self.guards:
            codec = self.desk.codecs(guard.kind)
            prepared = asking.prepare(codec, Query(guard.kind, guard.where), self.wire.root)
            limit = len([n for n in {*mine, *self.documents} if _kind_of(n, guard.kind)]) + 2
            self.guards[guard] = await asking.page(
                self.wire, codec, prepared, limit, "guard", transaction=self.transaction
            )
        others = [f for f in self.guards[guard] if f.document.name not in mine]
        if others:
            witness = self.rng.choice(others).document
            self.proofs[witness.name] = witness.update_time
        return bool(others)


def _kind_of(name: str, kind: Kind) -> bool:
    return name.split("/")[-2] == names.collection(kind)


def _woken(desk: Desk, s: Settlement) -> set[str]:
    """The tables of which a settlement made something due."""
    due = s.until <= desk.now if s.until is not None else not s.delay
    out = {s.ref.kind.table} if due else set()
    return out | {
        e.record.kind.table if isinstance(e, Create) else e.kind.table
        for e in s.effects
        if not isinstance(e, Add)
    }


def _touched(s: Settlement) -> list[Ref]:
    """The records that a settlement reads: its own, its effects' targets, what it might create."""
    out = [s.ref]
    for effect in s.effects:
        if isinstance(effect, Create):
            kind = effect.record.kind
            if effect.record.id or kind.key:
                out.append(Ref(kind, kind.identify(effect.record, str)))
        else:
            out.append(Ref(effect.kind, effect.id))
    return out


def _ours(standing: Standing, s: Settlement) -> bool:
    return standing.status in s.frm if s.fence is None else standing.held(s.fence)


def own(desk: Desk, s: Settlement, standing: Standing) -> None:
    """A settlement's own move, on the record as it stands."""
    before = standing.status
    standing.step(before, s.to, desk.now, s.who, s.run, s.attempt, s.reason, s.error)
    for name, value in s.fields.items():
        standing.set(name, value)
    standing.set("status", s.to)
    if s.attempts is not None:
        standing.set("attempts", s.attempts)
    standing.set(
        "due_at", s.until if s.until is not None else desk.now + timedelta(seconds=s.delay)
    )
    if s.fence is None:
        standing.set("fence", (standing.get("fence") or 0) + 1)
    if s.error is not None or s.clear_error:
        error = s.error or {}
        standing.set("last_error", s.error)
        for extra, key in (("error_type", "type"), ("error_message", "message")):
            if extra in standing.kind.extras:
                standing.set(extra, error.get(key))
    standing.end_lease(desk, before, s.to)
    standing.set("updated_at", standing.moment(desk.now))


def merged(units: list[list[Any]]) -> list[Any] | None:
    """The writes of one commit. Additions to the same record become one; None if two writes cannot be one."""
    out: dict[str, Any] = {}
    for write in (w for unit in units for w in unit):
        name = write.update.name
        first = out.get(name)
        if first is None:
            out[name] = write
            continue
        if not (first.update_transforms and write.update_transforms):
            return None
        sums = {t.field_path: t for t in first.update_transforms}
        for more in write.update_transforms:
            if more.field_path in sums:
                sums[more.field_path].increment.integer_value += more.increment.integer_value
            else:
                first.update_transforms.add().CopyFrom(more)
    return list(out.values())
