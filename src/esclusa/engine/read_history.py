"""The read model of histories: every move of many records, and how long records stay in states."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from math import ceil
from statistics import median
from typing import Any, Final

from esclusa.engine.read_records import RecordReader
from esclusa.model.kind import Kind, Ref
from esclusa.model.query import query
from esclusa.model.record import Record
from esclusa.model.settlement import Step
from esclusa.model.texts import load
from esclusa.model.value import value

# Records whose histories are read at a time, and the moves that are read of each at first.
PAGE: Final = 500
MOVES: Final = 1000
# The records of a kind from which times in states are taken, the fewest of a state, and the moves
# of each.
SAMPLE: Final = 600
LEAST: Final = 40
LATEST: Final = 40
# The slowest records of a state that are named.
SLOWEST: Final = 10


@value
class Stay:
    """A record's time in a state; ``until`` is None if it is there still."""

    id: str
    state: str
    since: datetime
    until: datetime | None

    def seconds(self, now: datetime) -> float:
        return max(0.0, ((self.until or now) - self.since).total_seconds())


class HistoryReader(RecordReader):
    """What the histories of many records say."""

    async def histories(
        self,
        tables: Sequence[str] = (),
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[tuple[Record, list[Step]]]:
        """Each record that moved in this time, or was created in it, with these moves.

        ``tables``: by default, all kinds of the pipelines that keep a history. Archived records are
        included. Memory is bounded by a page of records and the history of one. Raises NotFound.
        """
        kinds = [self.lookup(t) for t in tables] or [k for k in self.declared() if k.history]
        for kind in kinds:
            for archived in (False, True) if kind.archive else (False,):
                async for found in self._histories(kind, archived, since, until):
                    yield found

    async def _histories(
        self, kind: Kind, archived: bool, since: datetime | None, until: datetime | None
    ) -> AsyncIterator[tuple[Record, list[Step]]]:
        after: str | None = None
        while True:
            page = await self._store.find(query(kind, limit=PAGE, after=after, archived=archived))
            records = [r for r in page.items if not _is_older(r, since)]
            moves = await self._store.histories(kind, [r.id for r in records], MOVES)
            for record, steps in zip(records, moves, strict=True):
                whole = steps
                if len(steps) >= MOVES:
                    whole = await self._store.history(Ref(kind, record.id), 10_000_000)
                wanted = [_readable(step) for step in whole if _within(step.at, since, until)]
                if wanted or _within(record.created_at, since, until):
                    yield record, wanted
            after = page.next
            if after is None:
                return

    async def time_in_state(self, table: str) -> dict[str, Any]:
        """How long records stay in each state: median, 95th percentile, and the slowest records.

        Taken from the histories of the records of each state that were updated last, and of those
        that are due for longest. ``exact``: that is every record and every move.
        """
        kind = self.lookup(table)
        now = await self._clock.sync()
        records, exact = await self._sample(kind)
        histories = await self._store.histories(kind, list(records), LATEST)
        stays: list[Stay] = []
        for record, steps in zip(records.values(), histories, strict=True):
            whole = len(steps) < LATEST
            exact = exact and whole
            stays += stays_of(record, steps, whole=whole)
        life = kind.lifecycle
        shapes = [_state_shape(s, [x for x in stays if x.state == s], now) for s in life.states]
        for shape in shapes:
            if shape["state"] in life.terminal:  # records stay there for ever
                shape["slowest"] = []
        return {"table": table, "records": len(records), "exact": exact, "states": shapes}

    async def _sample(self, kind: Kind) -> tuple[dict[str, Record], bool]:
        """Some records of each state by id, and whether these are all."""
        states = kind.lifecycle.states
        limit = max(LEAST, SAMPLE // len(states))
        taken = {s for stage in self.registry.all_stages if stage.kind == kind for s in stage.take}
        found: dict[str, Record] = {}
        exact = True
        for state in states:
            where = {"status": state}
            latest = await self._store.find(query(kind, where, order="-updated_at", limit=limit))
            found |= {record.id: record for record in latest.items}
            if latest.next is not None:
                exact = False
                if state in taken:  # claims have an index for this order
                    oldest = query(kind, where, order="due_at", limit=SLOWEST)
                    found |= {r.id: r for r in (await self._store.find(oldest)).items}
        return found, exact


def stays_of(record: Record, steps: Sequence[Step], *, whole: bool) -> list[Stay]:
    """The stays of a record, the present one included; ``whole``: no move before was left out.

    A move to the same state, such as a wait, does not end a stay.
    """
    moves = [step for step in steps if step.frm != step.to]
    entered = [(step.to, step.at) for step in moves]
    if whole and record.created_at is not None:
        first = moves[0].frm if moves else record.status
        if not moves or record.created_at <= moves[0].at:
            entered.insert(0, (first, record.created_at))
    stays = [Stay(record.id, state, at, left) for (state, at), (_, left) in pairwise(entered)]
    if entered and entered[-1][0] == record.status:
        stays.append(Stay(record.id, *entered[-1], None))
    return stays


def _state_shape(state: str, stays: Sequence[Stay], now: datetime) -> dict[str, Any]:
    """The times of the stays that ended, and the longest of all."""
    ended = sorted(stay.seconds(now) for stay in stays if stay.until is not None)
    longest: dict[str, Stay] = {}
    for stay in sorted(stays, key=lambda stay: stay.seconds(now)):
        longest[stay.id] = stay  # of each record its longest stay
    slowest = sorted(longest.values(), key=lambda stay: -stay.seconds(now))[:SLOWEST]
    return {
        "state": state,
        "ended": len(ended),
        "median": round(median(ended), 3) if ended else None,
        "p95": round(ended[ceil(len(ended) * 0.95) - 1], 3) if ended else None,
        "present": sum(stay.until is None for stay in stays),
        "slowest": [
            {
                "id": stay.id,
                "since": stay.since,
                "until": stay.until,
                "seconds": round(stay.seconds(now), 3),
            }
            for stay in slowest
        ],
    }


def _within(at: datetime | None, since: datetime | None, until: datetime | None) -> bool:
    if at is None:
        return since is None and until is None
    return (since is None or at >= since) and (until is None or at < until)


def _is_older(record: Record, since: datetime | None) -> bool:
    """Whether nothing of the record is as new as that. Other programs may not write the time."""
    return (
        since is not None
        and not record.kind.attached
        and record.updated_at is not None
        and record.updated_at < since
    )


def _readable(step: Step) -> Step:
    return replace(step, reason=load(step.reason)) if step.reason else step
