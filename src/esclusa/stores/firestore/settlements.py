"""Settle: each settlement is written whole, with its history and effects, or not at all.

There are two ways. *Unread*: this process claimed the record, so it knows when the document was
last written. One commit with that precondition settles many records without a read. *Read*: read
the records and the targets of their effects, compute the result here, and commit it with
preconditions on everything that was read and mattered. After a lost race, read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from esclusa.model.effects import Add, Create
from esclusa.model.errors import BadRecord, StoreConflict, StoreUnavailable
from esclusa.model.kind import Ref
from esclusa.model.settlement import Locked, Settled, Settlement, Verdict
from esclusa.model.texts import text
from esclusa.stores.firestore.client import LOCK_SECONDS, FirestoreClient
from esclusa.stores.firestore.commits import (
    SettlementCommit,
    TransactionRequired,
    apply_own_move,
    touched,
)
from esclusa.stores.firestore.documents import (
    CallContext,
    DocumentState,
    document_state,
    new_document,
)
from esclusa.stores.firestore.errors import PreconditionFailed
from esclusa.stores.firestore.keys import looked_up
from esclusa.stores.firestore.leases import LeaseCache
from esclusa.stores.firestore.notifications import Notify
from esclusa.stores.firestore.writes import in_commits, merged
from esclusa.stores.isolate import LockTimeout, settle_isolated

# Settlements that are read and committed together.
_GROUP = 100
# Commits at once.
_PARALLEL = 4
# Commits at once of settlements that may have to wait for other clients.
_PARALLEL_ALONE = 25
# How long that is remembered, in seconds.
_CONTENDED_SECONDS = 10.0
_MAX_CONFLICT_SECONDS = 25.0


@dataclass(slots=True)
class DocumentSettler:
    """Settles records."""

    client: FirestoreClient
    leases: LeaseCache
    rng: Random
    notify: Notify
    # Settlements with effects run one call at a time, so that a process does not race itself.
    effects_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # By name, until when a document may be locked by another client.
    contended: dict[str, float] = field(default_factory=dict)

    async def settle(
        self, context: CallContext, settlements: Sequence[Settlement]
    ) -> list[Verdict]:
        """Settle, and wake the tables in which a record became due."""
        verdicts: dict[int, Verdict] = {}
        try:
            await self._settle(context, settlements, verdicts)
        except (StoreUnavailable, StoreConflict) as error:
            if not verdicts:
                raise
            # What is written must not be sent again; the rest must.
            for i, s in enumerate(settlements):
                verdicts.setdefault(i, Locked(s.ref, str(error)))
        settled = [s for i, s in enumerate(settlements) if isinstance(verdicts[i], Settled)]
        self.notify({table for s in settled for table in _woken_tables(context, s)})
        return [verdicts[i] for i in range(len(settlements))]

    async def _settle(
        self,
        context: CallContext,
        settlements: Sequence[Settlement],
        verdicts: dict[int, Verdict],
    ) -> None:
        async def read(indices: list[int]) -> None:
            verdicts.update(await self._settle_read(context, settlements, indices))

        distinct = len({s.ref for s in settlements}) == len(settlements)
        if distinct:
            cached = [
                (i, doc)
                for i, s in enumerate(settlements)
                if all(isinstance(e, Create | Add) for e in s.effects)
                and (doc := self.leases.pop(context, s.ref, s.fence))
            ]
            await self._settle_unread(context, settlements, cached, verdicts)
            verdicts |= await self._settle_contended(context, settlements, verdicts)
        left = [i for i in range(len(settlements)) if i not in verdicts]
        if distinct:
            plain = [i for i in left if not settlements[i].effects]
            groups = [plain[k : k + _GROUP] for k in range(0, len(plain), _GROUP)]
            for k in range(0, len(groups), _PARALLEL):
                await _finish(read(group) for group in groups[k : k + _PARALLEL])
            left = [i for i in left if settlements[i].effects]
        if left:
            async with self.effects_lock:
                for k in range(0, len(left), _GROUP):
                    await read(left[k : k + _GROUP])

    # Without a read

    async def _settle_unread(
        self,
        context: CallContext,
        settlements: Sequence[Settlement],
        cached: list[tuple[int, DocumentState]],
        verdicts: dict[int, Verdict],
    ) -> None:
        """Settle without reading; add the verdicts of those that were written."""
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
        indices = iter(members)
        chunks = [([next(indices) for _ in chunk], chunk) for chunk in in_commits(units)]

        async def commit(numbers: list[int], chunk: list[list[Any]]) -> None:
            if await self._commit(merged(chunk)):
                verdicts.update((i, Settled(settlements[i].ref)) for i in numbers)

        for k in range(0, len(chunks), _PARALLEL):
            await _finish(commit(*chunk) for chunk in chunks[k : k + _PARALLEL])

    def _unread_writes(self, context: CallContext, s: Settlement, doc: DocumentState) -> list[Any]:
        """All writes of a settlement; empty if its effects need a read."""
        apply_own_move(context, s, doc)
        unit, targets = doc.writes(context), dict[str, DocumentState]()
        for effect in s.effects:
            match effect:
                case Create() if not looked_up(context, effect.record.kind):
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
            await self.client.commit(writes, "settle", bounded=True)
        except LockTimeout:
            self._contend(write.update.name for write in writes)
            return False
        except (PreconditionFailed, StoreConflict, BadRecord):
            return False
        return True

    # Documents that other clients lock

    def _contend(self, names: Iterable[str]) -> None:
        """Settle what changes these documents alone, for some time: one of them is locked."""
        now = self.client.clock.ticks()
        self.contended = {name: until for name, until in self.contended.items() if until > now}
        self.contended |= dict.fromkeys(names, now + _CONTENDED_SECONDS)

    async def _settle_contended(
        self, context: CallContext, settlements: Sequence[Settlement], settled: Container[int]
    ) -> dict[int, Verdict]:
        """Settle alone what may have to wait for another client, so that nothing waits with it."""
        if not self.contended:
            return {}
        now = self.client.clock.ticks()
        names = {name for name, until in self.contended.items() if until > now}
        alone = [
            i
            for i, s in enumerate(settlements)
            if i not in settled
            and any(context.document_name(ref.kind, ref.id) in names for ref in touched(s))
        ]
        verdicts = await self._write_alone(context, [settlements[i] for i in alone])
        return dict(zip(alone, verdicts, strict=True))

    async def _write_alone(
        self, context: CallContext, batch: Sequence[Settlement]
    ) -> list[Verdict]:
        """Write each settlement in a commit of its own; those of one record in their order.

        When the store fails, what is not written is Locked: what is written must not be sent again.
        """
        distinct = len({s.ref for s in batch}) == len(batch)
        places = asyncio.Semaphore(_PARALLEL_ALONE if distinct else 1)

        async def write(s: Settlement) -> Verdict | StoreUnavailable | StoreConflict:
            async with places:
                try:
                    [verdict] = await settle_isolated([s], partial(self._write, context))
                except (StoreUnavailable, StoreConflict) as error:
                    return error
                return verdict

        results = await asyncio.gather(*map(write, batch))
        errors = [r for r in results if isinstance(r, StoreUnavailable | StoreConflict)]
        if errors and len(errors) == len(batch):
            raise errors[0]
        return [
            Locked(s.ref, str(r)) if isinstance(r, StoreUnavailable | StoreConflict) else r
            for s, r in zip(batch, results, strict=True)
        ]

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
        began, conflicts, in_transaction = loop.time(), 0, False
        while True:
            commit = SettlementCommit(self.client, context.refreshed(), self.rng, batch)
            try:
                return await commit.run(in_transaction=in_transaction)
            except TransactionRequired:
                in_transaction = True
            except (PreconditionFailed, StoreConflict) as error:
                conflicts += 1
                locked = isinstance(error, StoreConflict)
                if len(batch) > 1 and (conflicts == 4 or isinstance(error, LockTimeout)):
                    return await self._write_alone(context, batch)  # only one must wait
                most = LOCK_SECONDS if locked else _MAX_CONFLICT_SECONDS
                late = isinstance(error, LockTimeout) or loop.time() - began > most
                if len(batch) == 1 and late:
                    return [self._locked(context, batch[0])]
                await asyncio.sleep(self.rng.uniform(0, min(1.0, 0.02 * 2**conflicts)))

    def _locked(self, context: CallContext, s: Settlement) -> Locked:
        names = (context.document_name(ref.kind, ref.id) for ref in touched(s))
        self._contend(name for name in names if name is not None)
        return Locked(s.ref, text("document_locked", table=s.ref.kind.table, id=s.ref.id))


async def _finish(calls: Iterable[Awaitable[None]]) -> None:
    """Wait for all calls, then raise the first error."""
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _woken_tables(context: CallContext, s: Settlement) -> set[str]:
    """The tables in which a settlement made a record due."""
    due = s.until <= context.now if s.until is not None else not s.delay
    return ({s.ref.kind.table} if due else set()) | {
        e.record.kind.table if isinstance(e, Create) else e.kind.table
        for e in s.effects
        if not isinstance(e, Add)
    }
