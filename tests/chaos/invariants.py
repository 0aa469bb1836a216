"""What must be true after the faults, checked from the outside.

The evidence is the database, read with plain SQL, and the log of the outside. No code of Esclusa
has a part in it, except the declared lifecycles.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .cluster import Cluster
from .faults import Fault
from .outside import Call
from .pipeline import BUDGET, LEDGERS, Parcel, Question


@dataclass(frozen=True)
class Episode:
    """One fault that happened, by the clock of the machine."""

    fault: Fault
    begin: float
    end: float


@dataclass(frozen=True)
class Step:
    """A row of the history."""

    frm: str
    to: str
    at: float
    who: str
    attempt: int | None
    reason: str | None

    @property
    def lease_passed(self) -> bool:
        """Whether it is the claim of an orphan."""
        return '"lease_expired"' in (self.reason or "")


@dataclass(frozen=True)
class Violation:
    """An invariant that does not hold, with all that is known about the record."""

    invariant: str
    why: str
    record: tuple[str, str] | None = None


@dataclass
class Evidence:
    """What the database and the outside know when everything has ended."""

    lease: float
    episodes: list[Episode]
    inserted: list[str]
    poison: set[str]
    rows: dict[tuple[str, str], dict[str, Any]]
    steps: dict[tuple[str, str], list[Step]]
    calls: dict[tuple[str, str], list[Call]]
    receipts: Counter[str]
    ledgers: int
    used: int
    dead_letters: Counter[str]

    def describe(self, table: str, id: str) -> str:
        """Everything about one record, in the order of time."""
        start = self.episodes[0].begin if self.episodes else 0.0
        lines = [
            (step.at, f"history  {step.frm} -> {step.to} by {step.who}, {step.reason}")
            for step in self.steps[table, id]
        ]
        lines += [
            (call.at, f"call     {call.number} by {call.worker}, attempt {call.attempt}")
            for call in self.calls[table, id]
        ]
        first, last = min(lines, default=(0, ""))[0], max(lines, default=(0, ""))[0]
        for episode in self.episodes:
            if episode.begin - 2 * self.lease < last and episode.end + 2 * self.lease > first:
                lines.append((episode.begin, f"fault    {episode.fault.name} begins"))
                lines.append((episode.end, f"fault    {episode.fault.name} ends"))
        row = self.rows.get((table, id))
        shown = [f"  {at - start:+9.3f} s  {line}" for at, line in sorted(lines)]
        return "\n".join([f"  {table} {id} now: {row}", *shown])


async def gather(cluster: Cluster, episodes: list[Episode]) -> Evidence:
    """Read the evidence."""
    rows = {
        (table, row["id"]): dict(row)
        for table, prefix in (("parcels", "send_"), ("questions", ""))
        for row in await cluster.fetch(
            f"""SELECT id::text, coalesce({prefix}status, 'ready') AS status, call,
                {prefix}attempts AS attempts, {prefix}fence AS fence,
                {prefix}leased_by AS leased_by, {prefix}last_error::text AS last_error
            FROM {table}"""
        )
    }
    steps: defaultdict[tuple[str, str], list[Step]] = defaultdict(list)
    for row in await cluster.fetch(
        """SELECT table_name, record_id, from_state, to_state, extract(epoch FROM at)::float8,
            who, attempt, reason
        FROM esclusa.history WHERE table_name IN ('parcels', 'questions') ORDER BY seq"""
    ):
        steps[row[0], row[1]].append(Step(*row[2:]))
    calls: defaultdict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in cluster.outside.calls():
        calls["parcels" if call.stage == "send" else "questions", call.record].append(call)
    [ledgers] = await cluster.fetch("SELECT sum(sent), count(*) FROM ledgers")
    assert ledgers[1] == LEDGERS
    used = await cluster.fetch("SELECT sum(used) FROM esclusa.budgets WHERE budget = 'questions'")
    letters = await cluster.fetch(
        "SELECT record_id FROM esclusa.dead_letters WHERE table_name = 'parcels' ORDER BY 1"
    )
    return Evidence(
        lease=cluster.size.lease,
        episodes=episodes,
        inserted=cluster.inserted,
        poison=cluster.poison,
        rows=rows,
        steps=steps,
        calls=calls,
        receipts=Counter(row[0] for row in await cluster.fetch("SELECT name FROM receipts")),
        ledgers=int(ledgers[0]),
        used=int(used[0][0] or 0),
        dead_letters=Counter(row[0] for row in letters),
    )


def violations(seen: Evidence, limit: int = BUDGET) -> list[Violation]:
    """Every invariant that does not hold, once for each record. ``limit`` is the budget."""
    return [
        *_nothing_lost(seen),
        *_history(seen),
        *_settlements(seen),
        *_innocent(seen),
        *_calls(seen),
        *_budget(seen, limit),
    ]


def _nothing_lost(seen: Evidence) -> Iterator[Violation]:
    """Every accepted record exists and has ended, with each effect once."""
    for id in seen.inserted:
        row = seen.rows.get(("parcels", id))
        if row is None:
            yield Violation(
                "nothing lost", "the parcel was accepted and does not exist", ("parcels", id)
            )
            continue
        expected = "damaged" if id in seen.poison else "sent"
        if row["status"] != expected or row["leased_by"] is not None:
            yield Violation("nothing lost", f"it is not {expected}", ("parcels", id))
        effects = seen.receipts[id]
        if effects != (row["status"] == "sent"):
            yield Violation(
                "effects once", f"{effects} receipts of a parcel {row['status']}", ("parcels", id)
            )
    sent = sum(
        row["status"] == "sent" for (table, _), row in seen.rows.items() if table == "parcels"
    )
    if seen.ledgers != sent:
        yield Violation("effects once", f"the ledgers count {seen.ledgers} of {sent} sent parcels")


def _history(seen: Evidence) -> Iterator[Violation]:
    """Each ``from`` equals the ``to`` before it, every move is declared, the last is the state."""
    lifecycles = {"parcels": Parcel.lifecycle, "questions": Question.lifecycle}
    for record, row in seen.rows.items():
        state, life = "ready", lifecycles[record[0]]
        for step in seen.steps[record]:
            if step.frm != state:
                yield Violation("history chain", f"{step.frm} does not follow {state}", record)
            if step.frm != step.to and not life.allows(step.frm, step.to):
                yield Violation("declared moves", f"{step.frm} -> {step.to}", record)
            state = step.to
        if state != row["status"]:
            yield Violation("history chain", f"it ends with {state}, not {row['status']}", record)


def _settlements(seen: Evidence) -> Iterator[Violation]:
    """An outcome is written by the process that claimed last, from a call that it made itself."""
    for record, row in seen.rows.items():
        holder, settled = None, None
        for step in seen.steps[record]:
            if step.to in ("sending", "asking"):
                holder = step.who
            elif step.who != holder:
                yield Violation("no stale settlement", f"{step.who} settled for {holder}", record)
            else:
                settled = step.who
        callers = {call.number: call.worker for call in seen.calls[record]}
        if row["call"] is not None and callers.get(row["call"]) != settled:
            yield Violation(
                "no stale settlement",
                f"{settled} stored call {row['call']} of {callers.get(row['call'])}",
                record,
            )


def _innocent(seen: Evidence) -> Iterator[Violation]:
    """Only poison is exhausted, and each has a dead letter."""
    for record, row in seen.rows.items():
        if row["status"] in ("damaged", "failed") and record[1] not in seen.poison:
            yield Violation("no innocent exhausted", f"its error: {row['last_error']}", record)
    for id in seen.poison:
        if seen.dead_letters[id] != 1:
            yield Violation(
                "dead letters", f"{seen.dead_letters[id]} of a poison parcel", ("parcels", id)
            )


def _calls(seen: Evidence) -> Iterator[Violation]:
    """One call for each record, and one more for each lease that passed, only during faults."""
    for record, steps in seen.steps.items():
        passed = [step for step in steps if step.lease_passed]
        again = [step for step in steps if step.to == "ready"]
        calls, bound = len(seen.calls[record]), 1 + len(again) + len(passed)
        if calls > bound:
            yield Violation("calls bounded", f"{calls} calls, at most {bound}", record)
        for before, step in pairwise(steps):
            begun = any(before.at <= call.at <= step.at for call in seen.calls[record])
            if step.lease_passed and not any(
                _explains(each, begun, step.at, seen.lease) for each in seen.episodes
            ):
                yield Violation("leases renewed", "a lease passed without a reason", record)


def _explains(episode: Episode, begun: bool, at: float, lease: float) -> bool:
    """Whether an orphan may be claimed at this time: a lease after the fault, or a little later.

    If no handler was ``begun``, any fault explains it: the answer to the claim was lost.
    """
    possible = episode.fault.loses or not begun
    return possible and episode.begin <= at <= episode.end + 3 * lease


def _budget(seen: Evidence, limit: int) -> Iterator[Violation]:
    """No more calls than units, no more units than the limit."""
    calls = sum(len(made) for (table, _), made in seen.calls.items() if table == "questions")
    if not calls <= seen.used <= limit:
        yield Violation("budget kept", f"{calls} calls, {seen.used} units used, limit {limit}")
