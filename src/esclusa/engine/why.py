"""Why is this record not moving? One pure function, answered in words, with the next time it can move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from esclusa.model.budget import WindowUse
from esclusa.model.query import Cond, matches
from esclusa.model.record import Record
from esclusa.model.schedule import Always, Manual
from esclusa.model.stage import Cycle, Stage
from esclusa.model.system_records import CycleRecord
from esclusa.model.value import value


@value
class Reason:
    """One thing that keeps it where it is; ``until`` when that ends by itself, None when somebody must act.

    ``said`` is the sentence with names in place of its values, so that it can be told in another language."""

    code: str
    text: str
    until: datetime | None
    said: str
    values: dict[str, Any]

    def __init__(self, code: str, said: str, until: datetime | None = None, **values: Any) -> None:
        put = object.__setattr__
        put(self, "code", code)
        put(self, "said", said)
        put(self, "values", values)
        put(
            self,
            "text",
            said.format(
                **{name: _at(v) if isinstance(v, datetime) else v for name, v in values.items()}
            ),
        )
        put(self, "until", until)


@value
class Why:
    """The answer: what holds it, and when it can move next (None: not by itself)."""

    state: str
    reasons: tuple[Reason, ...]
    next: datetime | None

    @property
    def text(self) -> str:
        return "; ".join(r.text for r in self.reasons)

    def answer(self) -> dict[str, Any]:
        reasons = [{"code": r.code, "text": r.text, "until": r.until} for r in self.reasons]
        return {"state": self.state, "answer": self.text, "reasons": reasons, "next": self.next}


def why(
    record: Record,
    stages: Sequence[Stage],
    cycles: Mapping[str, Cycle | None],
    cards: Mapping[str, CycleRecord],
    budgets: Mapping[str, Sequence[WindowUse]],
    *,
    now: datetime,
    workers_alive: bool,
    said: str | None = None,
) -> Why:
    """What a person should know. ``stages`` are those of the record's kind; ``said`` is the reason of its last step."""
    life, state = record.kind.lifecycle, record.status
    if state not in life.states:
        return _stuck(
            state,
            "unknown_state",
            "{state!r} is not a state of {table}; something else wrote it",
            state=state,
            table=record.kind.table,
        )
    if state in life.terminal:
        return _stuck(state, "finished", "it is finished: {state} is a terminal state", state=state)
    taking = [s for s in stages if state in s.states]
    if not taking:
        return _resting(record, stages)
    passing = [s for s in taking if matches(record.model_dump(), s.where)]
    if not passing:
        return Why(state, tuple(_filtered(record, s) for s in taking), None)
    return _waiting(
        record,
        passing[0],
        cycles.get(passing[0].name),
        cards,
        budgets,
        now,
        workers_alive=workers_alive,
        said=said,
    )


def _stuck(_now: str, code: str, said: str, **values: Any) -> Why:
    return Why(_now, (Reason(code, said, None, **values),), None)


def _resting(record: Record, stages: Sequence[Stage]) -> Why:
    state = record.status
    ways = ", ".join(record.kind.lifecycle.targets(state))
    error = record.last_error or {}
    if any(s.exhausted == state for s in stages):
        cause = f": {error['type']}: {error['message']}" if error else ""
        said = "its tries are used up after attempt {attempt}{cause}; an operator can move it to {ways}"
        return _stuck(state, "exhausted", said, attempt=record.attempts, cause=cause, ways=ways)
    said = "no stage takes {state}; an operator or another record can move it to {ways}"
    return _stuck(state, "no_stage", said, state=state, ways=ways)


def _filtered(record: Record, stage: Stage) -> Reason:
    faults = [
        f"{name} {_words(cond)}, and it is {getattr(record, name)!r:.60}"
        for name, cond in stage.where
        if not matches({name: getattr(record, name)}, ((name, cond),))
    ]
    return Reason(
        "filtered",
        "{stage} takes only records whose {faults}",
        stage=stage.name,
        faults=" and whose ".join(faults),
    )


def _waiting(
    record: Record,
    stage: Stage,
    cycle: Cycle | None,
    cards: Mapping[str, CycleRecord],
    budgets: Mapping[str, Sequence[WindowUse]],
    now: datetime,
    *,
    workers_alive: bool,
    said: str | None,
) -> Why:
    reasons: list[Reason] = []
    due = record.due_at or now
    tries = f" of {stage.retry.tries}" if stage.retry.tries is not None else ""
    if record.leased_by is not None and due > now:
        text = "it is held by {worker} until {due}, attempt {attempt}{tries}"
        reasons.append(
            Reason(
                "held",
                text,
                due,
                worker=record.leased_by,
                due=due,
                attempt=record.attempts,
                tries=tries,
            )
        )
    elif record.leased_by is not None:
        text = "the lease of {worker} ran out at {due}; the next claim takes it over"
        reasons.append(Reason("orphan", text, now, worker=record.leased_by, due=due))
    elif due > now:
        reasons.append(_not_due(record, stage, due, tries, said))
    if cycle is not None:
        reasons += _cycle_reasons(cycle, cards.get(cycle.name), now)
    if stage.budget is not None:
        reasons += _budget_reasons(budgets.get(stage.budget.name, ()), stage.cost)
    if not workers_alive:
        reasons.append(Reason("no_worker", "no worker is running; start one with 'esclusa worker'"))
    if not reasons:
        reasons.append(
            Reason(
                "due",
                "it is due since {due} and will be claimed in its turn by {stage}",
                now,
                due=due,
                stage=stage.name,
            )
        )
    waits = [r.until for r in reasons]
    return Why(
        record.status,
        tuple(reasons),
        None if None in waits else max(w for w in waits if w is not None),
    )


def _not_due(record: Record, stage: Stage, due: datetime, tries: str, said: str | None) -> Reason:
    error = record.last_error or {}
    ended = stage.retry.spent(record.attempts)  # no attempt is left, so it is its end that waits
    if error and record.attempts and not ended:
        text, cause = (
            "it is not due until {due} after attempt {attempt}{tries} failed ({cause})",
            f"{error['type']}: {error['message']}",
        )
        return Reason(
            "not_due", text, due, due=due, attempt=record.attempts, tries=tries, cause=cause
        )
    if said:
        return Reason("not_due", "it is not due until {due}: {told}", due, due=due, told=said)
    return Reason("not_due", "it is not due until {due}", due, due=due)


def _budget_reasons(windows: Sequence[WindowUse], cost: int) -> list[Reason]:
    reasons = []
    for window in windows:
        if window.left < cost:
            text = "budget {budget} is empty until {reset} ({used} of {limit} per {per})"
            use = {
                "budget": window.budget,
                "reset": window.reset,
                "used": window.used,
                "limit": window.limit,
                "per": window.per,
            }
            reasons.append(Reason("budget", text, window.reset, **use))
    barred = next((w for w in windows if w.barred is not None), None)
    if barred is not None:
        text = "the provider of budget {budget} gives nothing before {barred}"
        reasons.append(
            Reason("budget", text, barred.barred, budget=barred.budget, barred=barred.barred)
        )
    return reasons


def _cycle_reasons(cycle: Cycle, card: CycleRecord | None, now: datetime) -> list[Reason]:
    if card is not None and card.status == "paused":
        return [
            Reason(
                "paused",
                "cycle {cycle} is paused; resume it with 'esclusa resume {cycle}'",
                cycle=cycle.name,
            )
        ]
    if isinstance(cycle.schedule, Always):
        return []
    if isinstance(cycle.schedule, Manual):
        return [Reason("on_call", "cycle {cycle} runs only when it is called", cycle=cycle.name)]
    slot = cycle.schedule.next_after(now)
    if slot is None:
        return []
    return [
        Reason(
            "schedule",
            "cycle {cycle} runs {schedule}, next at {slot}",
            slot,
            cycle=cycle.name,
            schedule=cycle.schedule,
            slot=slot,
        )
    ]


def _words(cond: Cond) -> str:
    match cond.op:
        case "null":
            return "is null"
        case "not_null":
            return "is not null"
        case "in":
            return f"is one of {', '.join(map(str, cond.value))}"
        case "eq":
            return f"is {cond.value}"
    return {"lt": "is below", "le": "is at most", "gt": "is above", "ge": "is at least"}[
        cond.op
    ] + f" {cond.value}"


def _at(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds")
