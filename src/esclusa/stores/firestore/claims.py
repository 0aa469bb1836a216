"""Claim and backlog.

A claim queries candidates, then takes each with a write that fails if another worker wrote the
document since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from esclusa.model.errors import StoreConflict
from esclusa.model.key_limits import KeyLimit
from esclusa.model.kind import Kind, Ref
from esclusa.model.query import Cond, Order, Query, at_least, at_most, matches, null
from esclusa.model.settlement import Backlog, ClaimRequest, Leased
from esclusa.model.suspects import claimed, group_of, worker_of
from esclusa.model.texts import text
from esclusa.stores.firestore import queries
from esclusa.stores.firestore.client import LOCKED, FirestoreClient
from esclusa.stores.firestore.codec import SHARD, SHARDS
from esclusa.stores.firestore.documents import CallContext, DocumentState, document_state
from esclusa.stores.firestore.errors import PreconditionFailed
from esclusa.stores.firestore.foreign_locks import (
    age_of,
    has_locks_of_others,
    lock_time,
    locked_since,
)
from esclusa.stores.firestore.found import FoundDocument, sort_found
from esclusa.stores.firestore.key_limits import DocumentsByKey, take
from esclusa.stores.firestore.leases import LEFT_OUT, KeptLeases, LeaseCache

# When claims look in one shard of the records instead of all of them.
#
# The first number is the share of candidates that a claim must have lost to other workers; the
# second is the factor by which that share fades with each claim.
_CONTENTION, _DECAY = 0.1, 0.9
# How often a claim that lost its keys to other workers tries again, and the longest pause before.
_ATTEMPTS, _PAUSE = 3, 0.1
# Documents whose locks a backlog looks at.
_LOOKED_AT = 300


@dataclass(slots=True)
class DocumentClaimer:
    """Claims records. Claims on one table run one at a time within a process."""

    client: FirestoreClient
    leases: LeaseCache
    kept: KeptLeases
    rng: Random
    locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    # By table, the share of candidates that recent claims lost to other workers.
    contention: dict[str, float] = field(default_factory=dict)
    # By stage with a limit per key, the key behind which the next claim begins.
    turns: dict[str, Any] = field(default_factory=dict)
    # By name and time of the last write, until when a document that is locked is left out.
    locked: dict[tuple[str, int, int], float] = field(default_factory=dict)

    async def claim(self, context: CallContext, request: ClaimRequest) -> list[Leased]:
        async with self.locks.setdefault(request.kind.table, asyncio.Lock()):
            return await self._claim(context.refreshed(), request)

    async def _claim(self, context: CallContext, request: ClaimRequest) -> list[Leased]:
        if request.per is not None:
            return await self._claim_in_turn(context, request, request.per)
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

    async def _claim_in_turn(
        self, context: CallContext, request: ClaimRequest, per: KeyLimit
    ) -> list[Leased]:
        """Claim what the limit per key allows. What other claims took meanwhile is left out."""

        async def candidates(request: ClaimRequest, limit: int) -> list[FoundDocument]:
            return await self._candidates(context, request, limit)

        codec = context.codec_of(request.kind)
        reader = DocumentsByKey(self.client, codec, request, per, candidates)
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(self.rng.uniform(0, _PAUSE))
            parts = await reader.choose(self.turns.get(request.stage))
            self.turns[request.stage] = reader.turn
            until = context.now + timedelta(seconds=request.lease)
            claims = [[self._hold(context, request, f, until) for f in part] for _, part in parts]
            written = await asyncio.gather(
                *(
                    take(self.client, turns, {c[0].name: c[0].writes(context) for c in held})
                    for (turns, _), held in zip(parts, claims, strict=True)
                )
            )
            results = {name: result for part in written for name, result in part.items()}
            leases = self._leased([each for held in claims for each in held], results, until)
            if leases or not parts:
                return leases
        return []

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
        return self._leased(claims, results, until)

    def _leased(
        self,
        claims: Sequence[tuple[DocumentState, str, bool, int]],
        results: Mapping[str, Any],
        until: datetime,
    ) -> list[Leased]:
        """The leases of the claims that were written."""
        out = []
        for doc, taken_from, over, group in claims:
            result = results.get(doc.name)
            if result is LOCKED:
                left_out = doc.name, *_moment(doc.update_time)
                self.locked[left_out] = self.client.clock.ticks() + LEFT_OUT
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
        self,
        context: CallContext,
        request: ClaimRequest,
        limit: int,
        shard: int | None = None,
        held: frozenset[str] = frozenset(),
    ) -> list[FoundDocument]:
        """What the claim may take. ``held``: ids that were found to be held by others."""
        if request.ids:
            return await self._named(context, request, limit)
        codec = context.codec_of(request.kind)
        if codec.foreign:
            request = replace(request, order=by_due_time(request.order))
        due = queries.prepare(codec, due_query(request, context.now, shard), self.client.root)
        now = self.client.clock.ticks()
        self.locked = {each: until for each, until in self.locked.items() if until > now}
        left_out = {*request.excluded, *held}
        most = limit + len(left_out) + len(self.locked)
        found = await queries.page(self.client, codec, due, most, "claim")
        if request.eager and request.before is not None and shard is None:
            known = {f.id for f in found}
            more = await queries.first(self.client, codec, eager_query(request), most, "claim")
            found += [f for f in more if f.id not in known]
            sort_found(due, found)
        found = [f for f in found if f.id not in left_out and _version(f) not in self.locked]
        claimable = await self._without_kept(context, request, found[:limit])
        claimable = await self._without_foreign(context, request, claimable)
        if found and not claimable:  # all of these are held: look at the next ones
            held |= {f.id for f in found[:limit]}
            return await self._candidates(context, request, limit, shard, held)
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
        until = self.client.clock.ticks() + LEFT_OUT
        self.locked |= {_version(f): until for f in found if f.id in held}
        return [f for f in found if f.id not in held]

    async def _without_foreign(
        self, context: CallContext, request: ClaimRequest, found: Sequence[FoundDocument]
    ) -> list[FoundDocument]:
        """Without those that a worker of another program has.

        What it moved to the hold state becomes due when its time ends. What it locked is left as it
        is.
        """
        codec = context.codec_of(request.kind)
        after = request.abandoned_after
        if not has_locks_of_others(codec, request.hold, after):
            return list(found)
        locks = [(f, locked_since(codec, f, request.hold, context.now, after)) for f in found]
        moved, writes = [], []
        for f, since in locks:
            if since is not None and lock_time(codec, f.document) is None:
                doc = document_state(context, Ref(request.kind, f.id), f.document)
                assert doc is not None
                doc.set("due_at", since + age_of(request.kind, after))
                moved.append(f)
                writes += doc.writes(context)
        results = await self.client.each(writes, "claim", skip_locked=True)
        until = self.client.clock.ticks() + LEFT_OUT
        self.locked |= {
            _version(f): until for f, r in zip(moved, results, strict=True) if r in (None, LOCKED)
        }
        return [f for f, since in locks if since is None]

    async def foreign_locks(
        self,
        context: CallContext,
        kind: Kind,
        ids: Sequence[str],
        holds: Mapping[str, float | None],
    ) -> dict[str, datetime]:
        """Which of these records another program has, and since when. ``holds``: of its stages."""
        codec = context.codec_of(kind)
        expected = [(None, None), *holds.items()]
        if not any(has_locks_of_others(codec, hold, after) for hold, after in expected):
            return {}
        wanted = Query(kind, (("id", Cond("in", tuple(ids))),))
        found = await queries.first(self.client, codec, wanted, len(ids), "why")
        locks = {}
        for each in found:
            hold = each.values["status"] if each.values["status"] in holds else None
            since = locked_since(codec, each, hold, context.now, holds.get(hold or ""))
            if since is not None:
                locks[each.id] = since
        return locks

    # Backlog

    async def backlog(self, context: CallContext, request: ClaimRequest, cap: int) -> Backlog:
        codec, root = context.codec_of(request.kind), self.client.root
        latest = _latest_due(request, context.now)
        due = due_query(request, context.now)
        if request.kind.attached and "leased_at" in request.kind.extras:
            looked = await self._backlog_without_locks(context, request, due, cap)
            if looked is not None:
                return looked
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

    async def _backlog_without_locks(
        self, context: CallContext, request: ClaimRequest, due: Query, cap: int
    ) -> Backlog | None:
        """The backlog without what another program has locked; None if too much is due to look.

        A count cannot compare the time of a lock with the due time.
        """
        codec, by_time = context.codec_of(request.kind), due.but(order=(Order("due_at"),))
        most = min(cap, _LOOKED_AT) + 1
        found = await queries.first(self.client, codec, by_time, most, "backlog")
        if not found or len(found) == most:
            return None
        after = request.abandoned_after
        locks = [locked_since(codec, f, request.hold, context.now, after) for f in found]
        free = [f.values["due_at"] for f, lock in zip(found, locks, strict=True) if lock is None]
        if free:
            return Backlog(len(free), True, free[0], None)
        return Backlog(0, True, None, min(filter(None, locks)) + age_of(request.kind, after))


def _moment(time: Any) -> tuple[int, int]:
    return time.seconds, time.nanos


def _version(found: FoundDocument) -> tuple[str, int, int]:
    return found.document.name, *_moment(found.document.update_time)


def _latest_due(request: ClaimRequest, now: datetime) -> datetime:
    return now if request.before is None else min(now, request.before)


def _states(request: ClaimRequest) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*request.take, request.hold))) if request.hold else request.take


def _order(request: ClaimRequest) -> tuple[Order, ...]:
    complete = any(o.field in ("due_at", "id") for o in request.order)
    return request.order if complete else (*request.order, Order("due_at"))


def by_due_time(order: tuple[Order, ...]) -> tuple[Order, ...]:
    """The order of claims where other programs write documents.

    They may write ``created_at`` as text, which Firestore sorts behind all times. The due time is
    a time, and was made of it.
    """
    found = [Order("due_at", o.descending) if o.field == "created_at" else o for o in order]
    return tuple(found)


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
