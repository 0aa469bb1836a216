"""The oracle: what a store must do, in plain Python, to compare real stores with.

Time is a pair (units, order): units of 1000 seconds since the start, and the number of the call
that wrote it. A test takes far less than a unit of real time, so pairs are ordered exactly as the
times of the store's clock.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from esclusa.model.budget import Budget, Denied, Granted
from esclusa.model.effects import Add, Create, Move, Wake
from esclusa.model.kind import Kind
from esclusa.model.query import Query, matches
from esclusa.model.record import Record
from esclusa.model.settlement import ClaimRequest, Renewal, Settlement

UNIT = 1000.0
Moment = tuple[float, int]


@dataclass
class Row:
    """One record of the oracle."""

    kind: Kind
    id: str
    status: str
    due: Moment
    updated: Moment
    fields: dict[str, Any]
    attempts: int = 0
    fence: int = 0
    leased_by: str | None = None
    error: Any = None
    history: list[tuple[str, str]] = field(default_factory=list)

    def held(self, fence: int) -> bool:
        """Whether this lease is current. A settled lease is not: settling again is lost."""
        return self.fence == fence and self.leased_by is not None

    def values(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "status": self.status,
            "attempts": self.attempts,
            "leased_by": self.leased_by,
            **self.fields,
        }


@dataclass
class Held:
    """What the oracle answers to a claim, to compare with a Leased."""

    id: str
    taken: str
    fence: int
    attempt: int
    group: int


class Oracle:
    """A store in memory."""

    def __init__(self, start: datetime) -> None:
        self.start = start
        self.units = 0.0
        self.calls = 0
        self.rows: dict[tuple[str, str], Row] = {}
        self.windows: dict[tuple[str, str, datetime], dict[str, Any]] = {}

    # time

    def tick(self) -> Moment:
        self.calls += 1
        return (self.units, self.calls)

    def moment(self, real: datetime) -> Moment:
        """A time given in whole units; it is before everything written in that unit."""
        return (round((real - self.start).total_seconds() / UNIT, 6), 0)

    def real(self) -> datetime:
        return self.start + timedelta(seconds=self.units * UNIT)

    # records

    def of(self, kind: Kind) -> list[Row]:
        return [row for row in self.rows.values() if row.kind == kind]

    def row(self, kind: Kind, id: str) -> Row | None:
        return self.rows.get((kind.table, id))

    def insert(self, drafts: list[Record], now: Moment | None = None) -> list[bool]:
        now = now or self.tick()
        return [self._insert(draft, now) for draft in drafts]

    def _insert(self, draft: Record, now: Moment) -> bool:
        kind = draft.kind
        id = kind.identify(draft, lambda: "?")
        if (kind.table, id) in self.rows:
            return False
        due = now if draft.due_at is None else self.moment(draft.due_at)
        fields = {f.name: getattr(draft, f.name) for f in kind.fields}
        self.rows[kind.table, id] = Row(
            kind,
            id,
            draft.status or kind.initial,
            due,
            now,
            fields,
            draft.attempts,
            0,
            draft.leased_by,
        )
        return True

    def find(self, query: Query) -> list[str]:
        return sorted(row.id for row in self.of(query.kind) if matches(row.values(), query.where))

    def purge(self, query: Query) -> None:
        for id in self.find(query)[: query.limit]:
            del self.rows[query.kind.table, id]

    # claim and settle

    def claim(self, request: ClaimRequest, before: Moment | None = None) -> list[Held]:
        now = self.tick()
        found = sorted(
            (row for row in self.of(request.kind) if self._candidate(row, request, now, before)),
            key=lambda row: (row.due, row.id),
        )
        return [self._hold(row, request, now) for row in found[: request.limit]]

    @staticmethod
    def _candidate(row: Row, request: ClaimRequest, now: Moment, before: Moment | None) -> bool:
        states = request.take if request.hold is None else (*request.take, request.hold)
        if (
            row.status not in states
            or not matches(row.values(), request.where)
            or (request.ids and row.id not in request.ids)
        ):
            return False
        if row.due <= (now if before is None else min(now, before)):
            return True
        return (
            request.eager
            and before is not None
            and row.status in request.take
            and row.leased_by is None
            and row.updated <= before
        )

    @staticmethod
    def _hold(row: Row, request: ClaimRequest, now: Moment) -> Held:
        before, state = row.status, request.hold or row.status
        if state != before or row.leased_by is not None:
            row.history.append((before, state))
        rank = (row.leased_by or "").rpartition("/")[2] if row.leased_by else "new"
        group = {"new": 0, "8": 1, "1": 1}.get(rank, 8)
        row.status = state
        row.leased_by = f"{request.worker}/8" if group == 1 else request.worker
        row.fence += 1
        row.attempts = row.attempts + 1 if rank in ("new", "1") else max(row.attempts, 1)
        row.due, row.updated = (now[0] + request.lease / UNIT, now[1]), now
        taken = request.take[0] if before == request.hold else before
        return Held(row.id, taken, row.fence, row.attempts, group)

    def backlog(self, request: ClaimRequest) -> int:
        now = self.tick()
        return sum(self._candidate(row, request, now, None) for row in self.of(request.kind))

    def renew(self, renewal: Renewal) -> bool:
        now = self.tick()
        row = self.row(renewal.ref.kind, renewal.ref.id)
        if row is None or not row.held(renewal.fence):
            return False
        row.due = (now[0] + renewal.seconds / UNIT, now[1])
        row.leased_by = renewal.holder or row.leased_by
        if renewal.fields:
            row.fields |= renewal.fields
            row.updated = now
        return True

    def settle(self, settlements: list[Settlement]) -> list[str]:
        now = self.tick()
        verdicts = [self._judge(s) for s in settlements]
        done = [s for s, verdict in zip(settlements, verdicts, strict=True) if verdict == "Settled"]
        for settlement in done:
            self._own(settlement, now)
        for settlement in done:
            for effect in settlement.effects:
                self._apply(effect, now)
        return verdicts

    def _judge(self, settlement: Settlement) -> str:
        row = self.row(settlement.ref.kind, settlement.ref.id)
        if row is None or (
            row.status not in settlement.frm
            if settlement.fence is None
            else not row.held(settlement.fence)
        ):
            return "Lost"
        for effect in settlement.effects:
            match effect:
                case Add() if self.row(effect.kind, effect.id) is None:
                    return "Rejected"
                case Move(frm=()):
                    target = self.row(effect.kind, effect.id)
                    if target is None or not effect.kind.lifecycle.allows(target.status, effect.to):
                        return "Rejected"
        return "Settled"

    def _own(self, s: Settlement, now: Moment) -> None:
        row = self.rows[s.ref.kind.table, s.ref.id]
        row.history.append((row.status, s.to))
        row.status, row.leased_by, row.updated = s.to, None, now
        row.fields |= s.fields
        if s.attempts is not None:
            row.attempts = s.attempts
        row.due = self.moment(s.until) if s.until is not None else (now[0] + s.delay / UNIT, now[1])
        if s.error is not None:
            row.error = copy.deepcopy(dict(s.error))
        elif s.clear_error:
            row.error = None
        if s.fence is None:
            row.fence += 1

    def _apply(self, effect: Any, now: Moment) -> None:
        if isinstance(effect, Create):
            self._insert(effect.record, now)
            return
        row = self.row(effect.kind, effect.id)
        if row is None:
            return
        match effect:
            case Add():
                for name, amount in effect.amounts.items():
                    row.fields[name] = (row.fields[name] or 0) + amount
                row.updated = now
            case Wake():
                if row.leased_by is None and row.due > now:
                    row.due = row.updated = now
            case Move():
                if (effect.frm and row.status not in effect.frm) or (
                    effect.unless is not None and self._exists(effect.unless)
                ):
                    return
                row.history.append((row.status, effect.to))
                row.status, row.leased_by, row.attempts, row.due, row.updated = (
                    effect.to,
                    None,
                    0,
                    now,
                    now,
                )
                row.fence += 1
                row.fields |= effect.fields

    def _exists(self, condition: Any) -> bool:
        return any(matches(row.values(), condition.where) for row in self.of(condition.kind))

    # budgets

    def window(self, budget: Budget, index: int) -> dict[str, Any]:
        window = budget.windows[index]
        key = (budget.name, window.per, window.start(self.real()))
        return self.windows.setdefault(key, {"used": 0, "limit": window.limit, "spenders": {}})

    def spend(self, budget: Budget, units: int, spender: str, least: int) -> Granted | Denied:
        uses = [self.window(budget, n) for n in range(len(budget.windows))]
        room = [max(0, use["limit"] - use["used"]) for use in uses]
        grant = min(units, *room)
        if grant < least:
            now = self.real()
            return Denied(
                max(
                    w.reset(now)
                    for w, left in zip(budget.windows, room, strict=True)
                    if left < least
                )
            )
        for use in uses:
            use["used"] += grant
            use["spenders"][spender] = use["spenders"].get(spender, 0) + grant
        return Granted(grant)

    def refund(self, budget: Budget, units: int, spender: str) -> None:
        for n in range(len(budget.windows)):
            use = self.window(budget, n)
            back = min(units, use["spenders"].get(spender, 0))
            use["used"] -= back
            use["spenders"][spender] = use["spenders"].get(spender, 0) - back

    def observe(self, budget: Budget, per: str, used: int | None, limit: int | None) -> None:
        use = self.window(budget, [w.per for w in budget.windows].index(per))
        use["used"] = max(use["used"], used or 0)
        if limit is not None:
            use["limit"] = limit
