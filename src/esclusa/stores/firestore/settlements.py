"""Settle: each settlement is written whole, with its history and effects, or not at all.

There are two ways. *Unread*: this process claimed the record, so it knows when the document was
last written. One commit with that precondition settles many records without a read. *Read*: read
the records and the targets of their effects, compute the result here, and commit it with
preconditions on everything that was read and mattered. After a lost race, read again.

A guard that is true is proved by one document that must not change. A guard that is false cannot be
proved by documents. The settlement is then repeated inside a transaction, where Firestore itself
keeps the answers of queries from changing.
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
from esclusa.model.record import Ref
from esclusa.model.settlement import Lost, Rejected, Settled, Settlement, Verdict
from esclusa.stores.firestore import queries
from esclusa.stores.firestore.claims import LeaseCache
from esclusa.stores.firestore.client import FirestoreClient, PreconditionFailed
from esclusa.stores.firestore.documents import (
    CallContext,
    DocumentState,
    document_state,
    new_document,
)
from esclusa.stores.firestore.notifications import Notify
from esclusa.stores.firestore.queries import FoundDocument
from esclusa.stores.firestore.writes import in_commits, merged, verify_unchanged
from esclusa.stores.isolate import settle_isolated

# Settlements that are read and committed together.
_GROUP = 100
# Commits at once.
_PARALLEL = 4
_MAX_CONFLICT_SECONDS = 25.0


class _EffectRefused(Exception):
    """An effect cannot be applied as declared."""


class _TransactionRequired(Exception):
    """A record moves because a guard is false, and only a transaction keeps it false."""


@dataclass(slots=True)
class DocumentSettler:
    """Settles records."""

    client: FirestoreClient
    leases: LeaseCache
    rng: Random
    notify: Notify
    # Settlements with effects run one call at a time, so that a process does not race itself.
    effects_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def settle(
        self, context: CallContext, settlements: Sequence[Settlement]
    ) -> list[Verdict]:
        """Settle, and wake the tables in which a record became due."""
        verdicts: dict[int, Verdict] = {}
        distinct = len({s.ref for s in settlements}) == len(settlements)
        if distinct:
            cached = [
                (i, doc)
                for i, s in enumerate(settlements)
                if all(isinstance(e, Create | Add) for e in s.effects)
                and (doc := self.leases.pop(context, s.ref, s.fence))
            ]
            verdicts |= await self._settle_unread(context, settlements, cached)
        left = [i for i in range(len(settlements)) if i not in verdicts]
        if distinct:
            plain = [i for i in left if not settlements[i].effects]
            groups = [plain[k : k + _GROUP] for k in range(0, len(plain), _GROUP)]
            for k in range(0, len(groups), _PARALLEL):
                parts = (
                    self._settle_read(context, settlements, group)
                    for group in groups[k : k + _PARALLEL]
                )
                for answers in await asyncio.gather(*parts):
                    verdicts |= answers
            left = [i for i in left if settlements[i].effects]
        if left:
            async with self.effects_lock:
                for k in range(0, len(left), _GROUP):
                    verdicts |= await self._settle_read(context, settlements, left[k : k + _GROUP])
        settled = [s for i, s in enumerate(settlements) if isinstance(verdicts[i], Settled)]
        self.notify({table for s in settled for table in _woken_tables(context, s)})
        return [verdicts[i] for i in range(len(settlements))]

    # Without a read

    async def _settle_unread(
        self,
        context: CallContext,
        settlements: Sequence[Settlement],
        cached: list[tuple[int, DocumentState]],
    ) -> dict[int, Verdict]:
        """Settle without reading; return the verdicts of those that were written."""
        units: list[list[Any]] = []
        members: list[int] = []
        for i, doc in cached:
            try:
                unit = self._unread_writes(context, settlements[i], doc)
            except Exception:  # noqa: BLE001, S112 - the other way isolates and reports it
                continue
            if unit:
                units.append(unit)
                members.append(i)
        settled: dict[int, Verdict] = {}
        indices = iter(members)
        chunks = [([next(indices) for _ in chunk], chunk) for chunk in in_commits(units)]
        for k in range(0, len(chunks), _PARALLEL):
            batch = chunks[k : k + _PARALLEL]
            results = await asyncio.gather(*(self._commit(merged(chunk)) for _, chunk in batch))
            for (numbers, _), committed in zip(batch, results, strict=True):
                if committed:
                    settled |= {i: Settled(settlements[i].ref) for i in numbers}
        return settled

    def _unread_writes(self, context: CallContext, s: Settlement, doc: DocumentState) -> list[Any]:
        """All writes of a settlement; empty if its effects need a read."""
        _apply_own_move(context, s, doc)
        unit, targets = doc.writes(context), dict[str, DocumentState]()
        for effect in s.effects:
            match effect:
                case Create():
                    unit += new_document(context, effect.record).writes(context)
                case Add() if (
                    target := document_state(context, Ref(effect.kind, effect.id), None)
                ) is not None:
                    target = targets.setdefault(target.name, target)
                    for name, amount in effect.amounts.items():
                        target.add(name, amount)
                    target.set("updated_at", context.now)
                case _:
                    return []
        if doc.name in targets:
            return []
        return [*unit, *(t.writes(context, unconditional=True)[0] for t in targets.values())]

    async def _commit(self, writes: list[Any] | None) -> bool:
        if writes is None:
            return False
        try:
            await self.client.commit(writes, "settle")
        except (PreconditionFailed, StoreConflict, BadRecord):
            return False
        return True

    # With a read

    async def _settle_read(
        self, context: CallContext, settlements: Sequence[Settlement], indices: Sequence[int]
    ) -> dict[int, Verdict]:
        write = partial(self._write, context)
        verdicts = await settle_isolated([settlements[i] for i in indices], write)
        return dict(zip(indices, verdicts, strict=True))

    async def _write(self, context: CallContext, batch: Sequence[Settlement]) -> list[Verdict]:
        """Settle a batch in one commit, repeated while other writers change what it read."""
        loop = asyncio.get_running_loop()
        end, conflicts, in_transaction = loop.time() + _MAX_CONFLICT_SECONDS, 0, False
        while True:
            commit = SettlementCommit(self.client, context.refreshed(), self.rng, batch)
            try:
                return await commit.run(in_transaction=in_transaction)
            except _TransactionRequired:
                in_transaction = True
            except (PreconditionFailed, StoreConflict) as error:
                conflicts += 1
                if loop.time() > end:
                    raise StoreConflict(f"Firestore: {error}") from error
                if conflicts == 4 and len(batch) > 1:  # only the contended record must wait
                    write = partial(self._write, context)
                    return [v for s in batch for v in await settle_isolated([s], write)]
                await asyncio.sleep(self.rng.uniform(0, min(1.0, 0.02 * 2**conflicts)))


@dataclass(slots=True)
class SettlementCommit:
    """One commit of several settlements: the documents that were read, and what to write."""

    client: FirestoreClient
    context: CallContext
    rng: Random
    settlements: Sequence[Settlement]
    transaction: bytes | None = None
    documents: dict[str, Any] = field(default_factory=dict)
    docs: dict[str, DocumentState] = field(default_factory=dict)
    guards: dict[Exists, list[FoundDocument]] = field(default_factory=dict)
    # Update times, by name, of documents that were read and must stay unchanged.
    proofs: dict[str, Any] = field(default_factory=dict)

    async def run(self, *, in_transaction: bool) -> list[Verdict]:
        """Read, compute and commit; return the verdict of each settlement."""
        if in_transaction:
            self.transaction = await self.client.begin()
        try:
            return await self._run()
        except BaseException:
            if self.transaction is not None:
                await self.client.rollback(self.transaction)
            raise

    async def _run(self) -> list[Verdict]:
        wanted = {
            name
            for s in self.settlements
            for ref in _touched(s)
            if (name := self.context.document_name(ref.kind, ref.id)) is not None
        }
        self.documents = await self.client.get(sorted(wanted), "settle", self.transaction)
        rejected: dict[int, str] = {}
        while True:
            self.docs, self.proofs = {}, {}
            verdicts, refused = await self._compute(rejected)
            if not refused:
                break
            # A settlement that failed on the move of another refused settlement may succeed without
            # it. Reject the others first, then compute again.
            refs = {s.ref for i, s in enumerate(self.settlements) if i in refused}
            independent = {
                i: refused[i]
                for i, s in enumerate(self.settlements)
                if i in refused
                and not any(isinstance(e, Move) and Ref(e.kind, e.id) in refs for e in s.effects)
            }
            rejected |= independent or dict(list(refused.items())[:1])
        writes = [
            w
            for doc in self.docs.values()
            for w in doc.writes(self.context, unconditional=self.transaction is not None)
        ]
        if self.transaction is None:
            written = {w.update.name for w in writes}
            writes += [
                verify_unchanged(name, update_time)
                for name, update_time in self.proofs.items()
                if name not in written
            ]
        if writes:
            await self.client.commit(writes, "settle", self.transaction)
        elif self.transaction is not None:
            await self.client.rollback(self.transaction)
        return verdicts

    async def _compute(self, rejected: dict[int, str]) -> tuple[list[Verdict], dict[int, str]]:
        """Apply all settlements to the documents; return verdicts, and refusals with the reason."""
        verdicts: list[Verdict] = []
        refused: dict[int, str] = {}
        for i, s in enumerate(self.settlements):
            doc = self._doc(s.ref)
            if doc is None or not doc.exists or not _may_settle(doc, s):
                verdicts.append(Lost(s.ref))
            elif i in rejected:
                verdicts.append(Rejected(s.ref, rejected[i]))
            else:
                verdicts.append(Settled(s.ref))
                try:
                    _apply_own_move(self.context, s, doc)
                except BadRecord as error:
                    refused[i] = str(error)
        for i, s in enumerate(self.settlements):
            if isinstance(verdicts[i], Settled):
                try:
                    for effect in s.effects:
                        await self._apply(s, effect)
                except (_EffectRefused, UndeclaredMove, BadRecord) as error:
                    refused[i] = str(error)
        return verdicts, refused

    def _doc(self, ref: Ref) -> DocumentState | None:
        name = self.context.document_name(ref.kind, ref.id)
        if name is None:
            return None
        if name not in self.docs:
            doc = document_state(self.context, ref, self.documents.get(name))
            assert doc is not None
            self.docs[name] = doc
        return self.docs[name]

    async def _apply(self, s: Settlement, effect: Effect) -> None:
        match effect:
            case Create():
                new = new_document(self.context, effect.record)
                known = self.docs.get(new.name)
                if not (known is not None and known.exists) and new.name not in self.documents:
                    self.docs[new.name] = new
            case Move():
                await self._move(s, effect)
            case Wake():
                target = self._doc(Ref(effect.kind, effect.id))
                if (
                    target is not None
                    and target.exists
                    and target.get("leased_by") is None
                    and target.get("due_at") > self.context.now
                ):
                    target.set("due_at", self.context.now)
                    target.set("updated_at", target.change_time(self.context.now))
            case Add():
                target = self._doc(Ref(effect.kind, effect.id))
                if target is None or not target.exists:
                    raise _EffectRefused(f"effect Add: there is no {effect.kind.table} {effect.id}")
                for name, amount in effect.amounts.items():
                    target.add(name, amount)
                if not target.changed and not target.is_new:
                    target.set("updated_at", self.context.now)

    async def _move(self, s: Settlement, move: Move) -> None:
        target = self._doc(Ref(move.kind, move.id))
        exists = target is not None and target.exists
        if move.frm and (target is None or not exists or target.status not in move.frm):
            if target is not None and target.update_time is not None:
                self.proofs[target.name] = target.update_time
            return
        if move.unless is not None and await self._holds(move.unless):
            return
        if target is None or not exists:
            raise _EffectRefused(f"effect Move: there is no {move.kind.table} {move.id}")
        if not move.frm:
            move.kind.lifecycle.check(
                target.status, move.to, f"effect Move on {move.kind.table} {move.id}"
            )
        if move.unless is not None and self.transaction is None:
            raise _TransactionRequired
        before = target.status
        target.add_step(before, move.to, self.context.now, s.who, s.run, None, move.reason)
        for name, value in move.fields.items():
            target.set(name, value)
        target.set("status", move.to)
        target.set("attempts", 0)
        target.set("due_at", self.context.now)
        target.set("fence", (target.get("fence") or 0) + 1)
        target.end_lease(self.context, before, move.to)
        target.set("updated_at", target.change_time(self.context.now))

    async def _holds(self, guard: Exists) -> bool:
        """Whether the guard is true of the stored records with the changes of this commit."""
        mine = {n: doc for n, doc in self.docs.items() if doc.kind == guard.kind}
        for name, doc in mine.items():
            if doc.exists and matches(doc.values(), guard.where):
                if doc.update_time is not None:
                    self.proofs[name] = doc.update_time  # used only if nothing is written to it
                return True
        if guard not in self.guards:
            codec = self.context.codec_of(guard.kind)
            self.guards[guard] = await queries.page(
                self.client,
                codec,
                queries.prepare(codec, Query(guard.kind, guard.where), self.client.root),
                sum(n.split("/")[-2] == guard.kind.table for n in {*mine, *self.documents}) + 2,
                "guard",
                transaction=self.transaction,
            )
        others = [f for f in self.guards[guard] if f.document.name not in mine]
        if others:
            witness = self.rng.choice(others).document
            self.proofs[witness.name] = witness.update_time
        return bool(others)


def _woken_tables(context: CallContext, s: Settlement) -> set[str]:
    """The tables in which a settlement made a record due."""
    due = s.until <= context.now if s.until is not None else not s.delay
    return ({s.ref.kind.table} if due else set()) | {
        e.record.kind.table if isinstance(e, Create) else e.kind.table
        for e in s.effects
        if not isinstance(e, Add)
    }


def _touched(s: Settlement) -> list[Ref]:
    """The records that a settlement reads: its own, its effects' targets, those it may create."""
    out = [s.ref]
    for effect in s.effects:
        if isinstance(effect, Create):
            kind = effect.record.kind
            if effect.record.id or kind.key:
                out.append(Ref(kind, kind.identify(effect.record, str)))
        else:
            out.append(Ref(effect.kind, effect.id))
    return out


def _may_settle(doc: DocumentState, s: Settlement) -> bool:
    return doc.status in s.frm if s.fence is None else doc.held_under(s.fence)


def _apply_own_move(context: CallContext, s: Settlement, doc: DocumentState) -> None:
    """Move the settled record itself: state, fields, tracking, history."""
    before = doc.status
    doc.add_step(before, s.to, context.now, s.who, s.run, s.attempt, s.reason, s.error)
    for name, value in s.fields.items():
        doc.set(name, value)
    doc.set("status", s.to)
    if s.attempts is not None:
        doc.set("attempts", s.attempts)
    doc.set("due_at", context.now + timedelta(seconds=s.delay) if s.until is None else s.until)
    if s.fence is None:
        doc.set("fence", (doc.get("fence") or 0) + 1)
    if s.error is not None or s.clear_error:
        doc.set("last_error", s.error)
        for extra, key in (("error_type", "type"), ("error_message", "message")):
            if extra in doc.kind.extras:
                doc.set(extra, (s.error or {}).get(key))
    doc.end_lease(context, before, s.to)
    doc.set("updated_at", doc.change_time(context.now))
