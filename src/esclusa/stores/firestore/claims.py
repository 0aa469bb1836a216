"""Claim, renew and backlog.

A claim queries candidates, then takes each with a write that fails if another worker wrote the
document since.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from esclusa.model.errors import StoreConflict
from esclusa.model.query import Cond, Order, Query, at_least, at_most, matches, null
from esclusa.model.record import Ref
from esclusa.model.settlement import Backlog, ClaimRequest, Leased, Renewal
from esclusa.model.suspects import claimed, group_of, worker_of
from esclusa.model.texts import text
from esclusa.stores.firestore import queries
from esclusa.stores.firestore.client import LOCKED, FirestoreClient, PreconditionFailed
from esclusa.stores.firestore.codec import SEQ, SHARD, SHARDS, STEPS, Document, from_timestamp
from esclusa.stores.firestore.documents import (
    GRACE,
    CallContext,
    DocumentState,
    document_state,
)
from esclusa.stores.firestore.leases import KeptLeases
from esclusa.stores.firestore.queries import FoundDocument

# When claims look in one shard of the records instead of all of them.
#
# The first number is the share of candidates that a claim must have lost to other workers; the
# second is the factor by which that share fades with each claim.
_CONTENTION, _DECAY = 0.1, 0.9
# Seconds that a document which another client has locked is left out of claims.
_LEFT_OUT = 10.0
# Seconds after which nothing is known of a locked document whose lease was not renewed again.
_FORGOTTEN = 60.0
_TRACKING = ("status", "attempts", "due_at", "fence", "leased_by", "updated_at")


class LeaseCache:
    """The documents that this process holds, as it last wrote them.

    A settlement of a cached record needs no read. The cache is bounded; a missing entry costs a
    read.
    """

    def __init__(self, max_entries: int = 20_000) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[tuple[str, str, int], tuple[Any, Any, int]] = OrderedDict()

    def remember(self, doc: DocumentState, fence: int, update_time: Any) -> None:
        """Store the document as it was written under this fence."""
        columns = [*(doc.codec.column(n) for n in _TRACKING), SEQ, STEPS]
        tracking = Document(fields={c: doc.fields[c] for c in columns if c in doc.fields})
        self._entries[doc.kind.table, doc.id, fence] = (update_time, tracking, doc.size)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    def pop(self, context: CallContext, ref: Ref, fence: int | None) -> DocumentState | None:
        """Return an entry once: the write that follows makes it outdated."""
        entry = None if fence is None else self._entries.pop((ref.kind.table, ref.id, fence), None)
        name = context.document_name(ref.kind, ref.id)
        if entry is None or name is None:
            return None
        update_time, tracking, size = entry
        codec = context.codec_of(ref.kind)
        return DocumentState(ref.kind, ref.id, name, codec, update_time, tracking.fields, size=size)


@dataclass(slots=True)
class DocumentClaimer:
    """Claims and renews records. Claims on one table run one at a time within a process."""

    client: FirestoreClient
    leases: LeaseCache
    kept: KeptLeases
    rng: Random
    locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    # By table, the share of candidates that recent claims lost to other workers.
    contention: dict[str, float] = field(default_factory=dict)
    # By name and time of the last write, until when a document that is locked is left out.
    locked: dict[tuple[str, int, int], float] = field(default_factory=dict)
    # By record whose document is locked, when a renewal tries to write it again.
    unwritable: dict[Ref, float] = field(default_factory=dict)

    async def claim(self, context: CallContext, request: ClaimRequest) -> list[Leased]:
        async with self.locks.setdefault(request.kind.table, asyncio.Lock()):
            return await self._claim(context.refreshed(), request)

    async def _claim(self, context: CallContext, request: ClaimRequest) -> list[Leased]:
        table, wanted = request.kind.table, max(1, request.limit)
        contention = self.contention.get(table, 0.0)
        found: list[FoundDocument] = []
        if contention > _CONTENTION and not request.ids:
            for shard in self.rng.sample(range(SHARDS), 2):
                found = found or await self._candidates(context, request, wanted, shard)
        found = found or await self._candidates(context, request, wanted)
        leases = await self._take(context, request, found)
        lost = 1 - len(leases) / len(found) if found else 0.0
        self.contention[table] = max(lost, contention * _DECAY)
        return leases

    async def candidate_ids(self, context: CallContext, request: ClaimRequest) -> list[str]:
        """The ids of the records that a claim would take, in its order."""
        found = await self._candidates(context.refreshed(), request, request.limit)
        return [f.id for f in found]

    async def _take(
        self, context: CallContext, request: ClaimRequest, found: Sequence[FoundDocument]
    ) -> list[Leased]:
        until = context.now + timedelta(seconds=request.lease)
        claims = [self._hold(context, request, f, until) for f in found]
        writes = [(doc, doc.writes(context)) for doc, *_ in claims]
        # A claim with a history document needs a commit of its own; all others share commits.
        single = [(doc, unit[0]) for doc, unit in writes if len(unit) == 1]
        written = await self.client.each([w for _, w in single], "claim", skip_locked=True)
        results = {doc.name: result for (doc, _), result in zip(single, written, strict=True)}
        for doc, unit in writes:
            if len(unit) > 1:
                try:
                    [results[doc.name], *_] = await self.client.commit(unit, "claim", bounded=True)
                except PreconditionFailed:
                    continue
                except StoreConflict:
                    results[doc.name] = LOCKED
        out = []
        for doc, taken_from, over, group in claims:
            result = results.get(doc.name)
            if result is LOCKED:
                left_out = doc.name, *_moment(doc.update_time)
                self.locked[left_out] = self.client.clock.ticks() + _LEFT_OUT
            elif result is not None:
                self.leases.remember(doc, doc.get("fence"), result.update_time)
                record, fault = doc.codec.checked_record(doc.values())
                out.append(Leased(record, taken_from, until, fault, over, group))
        return out

    def _hold(
        self, context: CallContext, request: ClaimRequest, found: FoundDocument, until: datetime
    ) -> tuple[DocumentState, str, bool, int]:
        """The claimed document, the state it came from, whether it is over, and its group."""
        doc = document_state(context, Ref(request.kind, found.id), found.document)
        assert doc is not None
        before, holder = doc.status, doc.get("leased_by")
        attempts, over, new_holder = claimed(
            holder, doc.get("attempts") or 0, request.tries, request.worker
        )
        after = request.hold or before
        if after != before or holder is not None:
            reason = (
                None if holder is None else text("lease_expired", worker=worker_of(holder)).dump()
            )
            doc.add_step(before, after, context.now, request.worker, request.run, attempts, reason)
        doc.set("status", after)
        doc.set("attempts", attempts)
        doc.set("fence", (doc.get("fence") or 0) + 1)
        doc.set("leased_by", new_holder)
        doc.set("due_at", until)
        doc.set("updated_at", doc.change_time(context.now))
        if "leased_at" in request.kind.extras:
            doc.set("leased_at", context.now)
        if "finished_at" in request.kind.extras and request.hold is not None:
            doc.set("finished_at", None)
        taken_from = request.take[0] if before == request.hold else before
        return doc, taken_from, over, group_of(holder)

    # Candidates

    async def _candidates(
        self, context: CallContext, request: ClaimRequest, limit: int, shard: int | None = None
    ) -> list[FoundDocument]:
        if request.ids:
            return await self._named(context, request, limit)
        codec = context.codec_of(request.kind)
        due = queries.prepare(codec, due_query(request, context.now, shard), self.client.root)
        now = self.client.clock.ticks()
        self.locked = {each: until for each, until in self.locked.items() if until > now}
        most = limit + len(request.excluded) + len(self.locked)
        found = await queries.page(self.client, codec, due, most, "claim")
        if request.eager and request.before is not None and shard is None:
            known = {f.id for f in found}
            more = await queries.first(self.client, codec, eager_query(request), most, "claim")
            found += [f for f in more if f.id not in known]
            queries.sort_found(due, found)
        found = [
            f for f in found if f.id not in request.excluded and _version(f) not in self.locked
        ]
        claimable = await self._without_kept(context, request, found[:limit])
        claimable = await self._without_foreign(context, request, claimable)
        if found and not claimable:  # all of these are held: look at the next ones
            return await self._candidates(context, request, limit, shard)
        return claimable

    async def _named(
        self, context: CallContext, request: ClaimRequest, limit: int
    ) -> list[FoundDocument]:
        conditions = (("id", Cond("in", request.ids)), ("status", Cond("in", _states(request))))
        where = (*conditions, *_since(request), *request.where)
        query = Query(request.kind, where, _order(request))
        codec = context.codec_of(request.kind)
        found = await queries.first(self.client, codec, query, len(request.ids), "claim")
        latest = _latest_due(request, context.now)
        early = eager_query(request).where if request.eager and request.before is not None else None
        due = [
            f
            for f in found
            if matches(f.values, (("due_at", at_most(latest)),))
            or (early is not None and matches(f.values, early))
        ]
        claimable = await self._without_kept(context, request, due[:limit])
        return await self._without_foreign(context, request, claimable)

    async def _without_kept(
        self, context: CallContext, request: ClaimRequest, found: Sequence[FoundDocument]
    ) -> list[FoundDocument]:
        """Without the orphans whose lease is kept apart from their document."""
        states = (document_state(context, Ref(request.kind, f.id), f.document) for f in found)
        orphans = [doc for doc in states if doc is not None and doc.get("leased_by") is not None]
        held = await self.kept.held(context, orphans)
        until = self.client.clock.ticks() + _LEFT_OUT
        self.locked |= {_version(f): until for f in found if f.id in held}
        return [f for f in found if f.id not in held]

    async def _without_foreign(
        self, context: CallContext, request: ClaimRequest, found: Sequence[FoundDocument]
    ) -> list[FoundDocument]:
        """Without those that another program moved to the hold state within the grace.

        They become due when it ends.
        """
        codec = context.codec_of(request.kind)
        if not codec.foreign or request.hold is None:
            return list(found)
        held = [
            f
            for f in found
            if f.values["status"] == request.hold
            and _held_by_others(f)
            and from_timestamp(f.document.update_time) + GRACE > context.now
        ]
        writes = []
        for f in held:
            doc = document_state(context, Ref(request.kind, f.id), f.document)
            assert doc is not None
            doc.set("due_at", from_timestamp(f.document.update_time) + GRACE)
            writes += doc.writes(context)
        results = await self.client.each(writes, "claim", skip_locked=True)
        until = self.client.clock.ticks() + _LEFT_OUT
        self.locked |= {
            _version(f): until for f, r in zip(held, results, strict=True) if r in (None, LOCKED)
        }
        return [f for f in found if f not in held]

    # Renewal

    async def renew(self, context: CallContext, renewals: Sequence[Renewal]) -> set[Ref]:
        now = self.client.clock.ticks()
        known = [r for r in renewals if not r.fields and r.ref in self.unwritable]
        kept = await self._keep(context, known)  # first: to try to write them takes long
        left_out = {r.ref for r in known if self.unwritable[r.ref] > now}
        return kept | await self._renew(context, [r for r in renewals if r.ref not in left_out])

    async def _renew(self, context: CallContext, renewals: Sequence[Renewal]) -> set[Ref]:
        held: set[Ref] = set()
        pairs = [
            (r, doc)
            for r in renewals
            if (doc := self.leases.pop(context, r.ref, r.fence)) is not None
        ]
        cached = {(r.ref, r.fence) for r, _ in pairs}
        unread = [r for r in renewals if (r.ref, r.fence) not in cached]
        locked: list[Renewal] = []
        for _ in range(5):
            for renewal, result in await self._extend(context.refreshed(), pairs):
                if result is LOCKED:
                    locked.append(renewal)
                elif result is not None:
                    held.add(renewal.ref)
                else:
                    unread.append(renewal)
            pairs, unread = await self._read_held(context, unread), []
            if not pairs:
                break
        # what is left is still held, but other clients change it all the time
        locked += [renewal for renewal, _ in pairs]
        self._mark_unwritable(held, locked)
        return held | await self._keep(context, locked)

    def _mark_unwritable(self, written: set[Ref], locked: Sequence[Renewal]) -> None:
        if not self.unwritable and not locked:
            return
        now = self.client.clock.ticks()
        self.unwritable = {
            ref: again
            for ref, again in self.unwritable.items()
            if ref not in written and now - again < _FORGOTTEN
        }
        self.unwritable |= {renewal.ref: now + _LEFT_OUT for renewal in locked}

    async def _read_held(
        self, context: CallContext, renewals: Sequence[Renewal]
    ) -> list[tuple[Renewal, DocumentState]]:
        """Read the documents of these leases; return those that are still held."""
        if not renewals:
            return []
        names = {r.ref: context.document_name(r.ref.kind, r.ref.id) for r in renewals}
        documents = await self.client.get([n for n in names.values() if n is not None], "renew")
        read = (
            (r, document_state(context, r.ref, documents.get(names[r.ref] or ""))) for r in renewals
        )
        return [
            (r, doc)
            for r, doc in read
            if doc is not None and doc.exists and doc.held_under(r.fence)
        ]

    async def _extend(
        self, context: CallContext, pairs: Sequence[tuple[Renewal, DocumentState]]
    ) -> list[tuple[Renewal, Any | None]]:
        for renewal, doc in pairs:
            doc.set("due_at", context.now + timedelta(seconds=renewal.seconds))
            if renewal.holder is not None:
                doc.set("leased_by", renewal.holder)
            for name, value in renewal.fields.items():
                doc.set(name, value)
            if renewal.fields:
                doc.set("updated_at", doc.change_time(context.now))
        results = await self.client.each(
            [doc.writes(context)[0] for _, doc in pairs], "renew", skip_locked=True
        )
        for (renewal, doc), result in zip(pairs, results, strict=True):
            if result is not None and result is not LOCKED:
                self.leases.remember(doc, renewal.fence, result.update_time)
        return [(renewal, result) for (renewal, _), result in zip(pairs, results, strict=True)]

    async def _keep(self, context: CallContext, locked: Sequence[Renewal]) -> set[Ref]:
        """Keep the leases of locked documents apart from them; return those still held."""
        if not locked:
            return set()
        if any(renewal.fields for renewal in locked):
            raise StoreConflict("Firestore: another client has locked the record")
        held = [renewal for renewal, _ in await self._read_held(context, locked)]
        await self.kept.keep(context.refreshed(), held)
        return {renewal.ref for renewal in held}

    # Backlog

    async def backlog(self, context: CallContext, request: ClaimRequest, cap: int) -> Backlog:
        codec, root = context.codec_of(request.kind), self.client.root
        latest = _latest_due(request, context.now)
        due = due_query(request, context.now)
        counted, first = await asyncio.gather(
            queries.count(
                self.client, codec, queries.prepare(codec, due, root), cap + 1, "backlog"
            ),
            queries.first(self.client, codec, due.but(order=(Order("due_at"),)), 1, "backlog"),
        )
        if request.eager and request.before is not None:
            early = eager_query(request)
            early = early.but(where=(*early.where, ("due_at", Cond("gt", latest))))
            prepared = queries.prepare(codec, early, root)
            counted += await queries.count(self.client, codec, prepared, cap + 1, "backlog")
        following = None
        if not counted:
            later = tuple((n, Cond("gt", latest) if n == "due_at" else c) for n, c in due.where)
            ahead = due.but(where=later, order=(Order("due_at"),))
            found = await queries.first(self.client, codec, ahead, 1, "backlog")
            following = found[0].values["due_at"] if found else None
        oldest = first[0].values["due_at"] if first else None
        return Backlog(min(counted, cap), counted <= cap, oldest, following)


def _moment(time: Any) -> tuple[int, int]:
    return time.seconds, time.nanos


def _version(found: FoundDocument) -> tuple[str, int, int]:
    return found.document.name, *_moment(found.document.update_time)


def _held_by_others(found: FoundDocument) -> bool:
    """Whether another program moved a record to its state: no lease, and no step of the history."""
    if found.values["leased_by"] is not None:
        return False
    fields = found.document.fields
    steps = fields[STEPS].array_value.values if STEPS in fields else ()
    if not steps:
        return True
    last = steps[-1].map_value.fields["to_state"].string_value
    return bool(last != found.values["status"])


def _latest_due(request: ClaimRequest, now: datetime) -> datetime:
    return now if request.before is None else min(now, request.before)


def _states(request: ClaimRequest) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*request.take, request.hold))) if request.hold else request.take


def _order(request: ClaimRequest) -> tuple[Order, ...]:
    complete = any(o.field in ("due_at", "id") for o in request.order)
    return request.order if complete else (*request.order, Order("due_at"))


def due_query(request: ClaimRequest, now: datetime, shard: int | None = None) -> Query:
    """The records that are due: in the stage's states, passing its filter, the oldest first."""
    where = (
        ("status", Cond("in", _states(request))),
        ("due_at", at_most(_latest_due(request, now))),
        *_since(request),
        *request.where,
        *(() if shard is None else ((SHARD, Cond("eq", shard)),)),
    )
    return Query(request.kind, where, _order(request))


def _since(request: ClaimRequest) -> tuple[tuple[str, Cond], ...]:
    return () if request.since is None else (("due_at", at_least(request.since)),)


def eager_query(request: ClaimRequest) -> Query:
    """Unheld records that were last written before the run began.

    An eager run takes them even if they are not due yet.
    """
    assert request.before is not None
    where = (
        ("status", Cond("in", request.take)),
        ("leased_by", null),
        ("updated_at", at_most(request.before)),
        *_since(request),
        *request.where,
    )
    return Query(request.kind, where, _order(request))
