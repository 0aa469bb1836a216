"""Claim, renew, backlog. A claim queries candidates and takes each by a write that holds only if nobody wrote it since."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from esclusa.model.errors import StoreConflict
from esclusa.model.query import Cond, Order, Query, at_most, matches, null
from esclusa.model.record import Ref
from esclusa.model.settlement import Backlog, ClaimRequest, Leased, Renewal
from esclusa.model.texts import text
from esclusa.stores.firestore import asking
from esclusa.stores.firestore.asking import Found
from esclusa.stores.firestore.codec import SHARD, SHARDS, Document
from esclusa.stores.firestore.standing import Desk, Standing, stand
from esclusa.stores.firestore.wire import Stale, Wire

_CROWD, _CALMING = 0.1, 0.9
"""A claim that lost more than this share of its candidates to others makes the next ones look in a part of the records;
the memory of it fades by this factor a claim."""
_TRACKING = ("status", "attempts", "due_at", "fence", "leased_by", "updated_at")


class Leases:
    """What this process knows of the records it holds: a settlement by it needs no read. Bounded; forgetting is safe."""

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, str, int], tuple[Any, Any, int]] = OrderedDict()

    def keep(self, standing: Standing, fence: int, at: Any) -> None:
        """The document was written at this moment under this fence."""
        slim = Document()
        for column in [*(standing.codec.column(n) for n in _TRACKING), "_seq", "_steps"]:
            if column in standing.fields:
                slim.fields[column].CopyFrom(standing.fields[column])
        self._known[standing.kind.table, standing.id, fence] = (at, slim, standing.size)
        while len(self._known) > self._most:
            self._known.popitem(last=False)

    def take(self, desk: Desk, ref: Ref, fence: int | None) -> Standing | None:
        """What is known, once: after a write it is no longer so."""
        known = None if fence is None else self._known.pop((ref.kind.table, ref.id, fence), None)
        name = desk.name(ref.kind, ref.id)
        if known is None or name is None:
            return None
        return Standing(
            ref.kind, ref.id, name, desk.codecs(ref.kind), known[0], known[1].fields, size=known[2]
        )


@dataclass(slots=True)
class Claimer:
    """Takes records. One claim at a time per table in a process: its own workers do not race each other."""

    wire: Wire
    leases: Leases
    rng: Random
    locks: dict[str, asyncio.Lock]
    crowded: dict[str, float]
    """By table, the share of candidates that others took from under the last claims."""

    async def claim(self, desk: Desk, ask: ClaimRequest) -> list[Leased]:
        lock = self.locks.setdefault(ask.kind.table, asyncio.Lock())
        async with lock:
            return await self._claim(desk.again(), ask)

    async def _claim(self, desk: Desk, ask: ClaimRequest) -> list[Leased]:
        table, wanted = ask.kind.table, max(1, ask.limit)
        crowd = self.crowded.get(table, 0.0)
        found: list[Found] = []
        if (
            crowd > _CROWD and not ask.ids
        ):  # others are after the same ones: look where they probably do not
            for shard in self.rng.sample(range(SHARDS), 2):
                found = found or await self._candidates(desk, ask, wanted, shard)
        found = found or await self._candidates(desk, ask, wanted)
        leases = await self._take(desk, ask, found)
        lost = 1 - len(leases) / len(found) if found else 0.0
        self.crowded[table] = max(lost, crowd * _CALMING)
        return leases

    async def _take(self, desk: Desk, ask: ClaimRequest, found: Sequence[Found]) -> list[Leased]:
        until = desk.now + timedelta(seconds=ask.lease)
        held = [self._hold(desk, ask, f, until) for f in found]
        writes = [(h, h[0].writes(desk)) for h in held]
        light = [(h, w) for h, w in writes if len(w) == 1]
        results: dict[str, Any] = {}
        for (h, _), result in zip(
            light,
            await self.wire.each([w[0] for _, w in light], "claim") if light else [],
            strict=True,
        ):
            if result is not None:
                results[h[0].name] = result
        for h, unit in writes:
            if len(unit) > 1:
                try:
                    results[h[0].name] = (await self.wire.commit(unit, "claim"))[0]
                except Stale:
                    continue
        out = []
        for standing, taken, over in held:
            done = results.get(standing.name)
            if done is not None:
                fence = standing.get("fence")
                self.leases.keep(standing, fence, done.update_time)
                record, fault = standing.codec.judged(standing.values())
                out.append(Leased(record, taken, until, fault, over))
        return out

    def _hold(
        self, desk: Desk, ask: ClaimRequest, found: Found, until: datetime
    ) -> tuple[Standing, str, bool]:
        standing = stand(desk, Ref(ask.kind, found.id), found.document)
        assert standing is not None
        before, old = standing.status, standing.get("leased_by")
        over = ask.tries is not None and (standing.get("attempts") or 0) >= ask.tries
        attempts = (standing.get("attempts") or 0) + (not over)
        after = ask.hold or before
        if after != before or old is not None:
            reason = None if old is None else text("lease_expired", worker=old).dump()
            standing.step(before, after, desk.now, ask.worker, ask.run, attempts, reason)
        standing.set("status", after)
        standing.set("attempts", attempts)
        standing.set("fence", (standing.get("fence") or 0) + 1)
        standing.set("leased_by", ask.worker)
        standing.set("due_at", until)
        standing.set("updated_at", standing.moment(desk.now))
        if "leased_at" in ask.kind.extras:
            standing.set("leased_at", desk.now)
        if "finished_at" in ask.kind.extras and ask.hold is not None:
            standing.set("finished_at", None)
        return standing, ask.take[0] if before == ask.hold else before, over

    # candidates

    async def _candidates(
        self, desk: Desk, ask: ClaimRequest, limit: int, shard: int | None = None
    ) -> list[Found]:
        codec = desk.codecs(ask.kind)
        if ask.ids:
            return await self._named(desk, ask, limit)
        due = asking.prepare(codec, due_query(ask, desk.now, shard), self.wire.root)
        found = await asking.page(self.wire, codec, due, limit, "claim")
        if ask.eager and ask.before is not None and shard is None:
            early = asking.prepare(codec, eager_query(ask), self.wire.root)
            known = {f.id for f in found}
            found += [
                f
                for f in await asking.page(self.wire, codec, early, limit, "claim")
                if f.id not in known
            ]
            asking.arrange(due, found)
        return found[:limit]

    async def _named(self, desk: Desk, ask: ClaimRequest, limit: int) -> list[Found]:
        codec = desk.codecs(ask.kind)
        states = tuple(dict.fromkeys((*ask.take, ask.hold))) if ask.hold else ask.take
        query = Query(
            ask.kind,
            (("id", Cond("in", ask.ids)), ("status", Cond("in", states)), *ask.where),
            _order(ask),
        )
        prepared = asking.prepare(codec, query, self.wire.root)
        found = await asking.page(self.wire, codec, prepared, len(ask.ids), "claim")
        late = _late(ask, desk.now)
        eager = eager_query(ask).where if ask.eager and ask.before is not None else None
        return [
            f
            for f in found
            if f.values["due_at"] <= late or (eager is not None and matches(f.values, eager))
        ][:limit]

    # renew

    async def renew(self, desk: Desk, renewals: Sequence[Renewal]) -> set[Ref]:
        held: set[Ref] = set()
        sure = [
            (r, s) for r in renewals if (s := self.leases.take(desk, r.ref, r.fence)) is not None
        ]
        known = {(r.ref, r.fence) for r, _ in sure}
        unsure = [r for r in renewals if (r.ref, r.fence) not in known]
        pairs = sure
        for _ in range(5):
            for renewal, done in await self._extend(desk, pairs):
                (held.add(renewal.ref) if done else unsure.append(renewal))
            if not unsure:
                return held
            names = [n for r in unsure if (n := desk.name(r.ref.kind, r.ref.id)) is not None]
            documents = await self.wire.get(names, "renew") if names else {}
            read = [
                (r, stand(desk, r.ref, documents.get(desk.name(r.ref.kind, r.ref.id) or "")))
                for r in unsure
            ]
            pairs = [(r, s) for r, s in read if s is not None and s.there and s.held(r.fence)]
            unsure = []
        raise StoreConflict(
            "Firestore: others wrote the records that were to be renewed, again and again"
        )

    async def _extend(
        self, desk: Desk, pairs: Sequence[tuple[Renewal, Standing]]
    ) -> list[tuple[Renewal, bool]]:
        if not pairs:
            return []
        for renewal, standing in pairs:
            standing.set("due_at", desk.now + timedelta(seconds=renewal.seconds))
            for name, value in renewal.fields.items():
                standing.set(name, value)
            if renewal.fields:
                standing.set("updated_at", standing.moment(desk.now))
        results = await self.wire.each([s.writes(desk)[0] for _, s in pairs], "renew")
        for (renewal, standing), result in zip(pairs, results, strict=True):
            if result is not None:
                self.leases.keep(standing, renewal.fence, result.update_time)
        return [(r, result is not None) for (r, _), result in zip(pairs, results, strict=True)]

    # backlog

    async def backlog(self, desk: Desk, ask: ClaimRequest, cap: int) -> Backlog:
        codec, root = desk.codecs(ask.kind), self.wire.root
        late = _late(ask, desk.now)
        plain = due_query(ask, desk.now)
        by_due = asking.prepare(codec, plain.but(order=(Order("due_at"),)), root)
        counted, first = await asyncio.gather(
            asking.count(self.wire, codec, asking.prepare(codec, plain, root), cap + 1, "backlog"),
            asking.page(self.wire, codec, by_due, 1, "backlog"),
        )
        if ask.eager and ask.before is not None:
            early = eager_query(ask)
            early = early.but(where=(*early.where, ("due_at", Cond("gt", late))))
            counted += await asking.count(
                self.wire, codec, asking.prepare(codec, early, root), cap + 1, "backlog"
            )
        following = None
        if not counted:
            later = tuple((n, Cond("gt", late) if n == "due_at" else c) for n, c in plain.where)
            ahead = asking.prepare(codec, plain.but(where=later, order=(Order("due_at"),)), root)
            found = await asking.page(self.wire, codec, ahead, 1, "backlog")
            following = found[0].values["due_at"] if found else None
        oldest = first[0].values["due_at"] if first else None
        return Backlog(min(counted, cap), counted <= cap, oldest, following)


def _late(ask: ClaimRequest, now: datetime) -> datetime:
    return now if ask.before is None else min(now, ask.before)


def _order(ask: ClaimRequest) -> tuple[Order, ...]:
    return (
        ask.order
        if any(o.field in ("due_at", "id") for o in ask.order)
        else (*ask.order, Order("due_at"))
    )


def due_query(ask: ClaimRequest, now: datetime, shard: int | None = None) -> Query:
    """The records that are due: in the stage's states, passing its filter, the oldest first."""
    some = () if shard is None else ((SHARD, Cond("eq", shard)),)
    states = tuple(dict.fromkeys((*ask.take, ask.hold))) if ask.hold else ask.take
    where = (
        ("status", Cond("in", states)),
        ("due_at", at_most(_late(ask, now))),
        *ask.where,
        *some,
    )
    return Query(ask.kind, where, _order(ask))


def eager_query(ask: ClaimRequest) -> Query:
    """Those that are not due yet, not held, and were last written before the run began."""
    assert ask.before is not None
    where = (
        ("status", Cond("in", ask.take)),
        ("leased_by", null),
        ("updated_at", at_most(ask.before)),
        *ask.where,
    )
    return Query(ask.kind, where, _order(ask))
