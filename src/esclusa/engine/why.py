"""Why is this record not moving? One pure function that names the reasons and the next time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from esclusa.engine.deadlines import deadline_of
from esclusa.model import duration
from esclusa.model.budget import WindowUse
from esclusa.model.query import Cond, matches
from esclusa.model.record import Record
from esclusa.model.schedule import Always, Manual
from esclusa.model.settlement import Step
from esclusa.model.stage import Cycle, Stage
from esclusa.model.suspects import worker_of
from esclusa.model.system_records import CycleRecord, StagePause
from esclusa.model.texts import Text, load, text
from esclusa.model.value import value


@value
class Reason:
    """One thing that keeps the record where it is.

    ``until`` is when that ends by itself, None if somebody must act. ``code`` names the reason for
    programs; one code may have several texts.
    """

    code: str
    text: Text
    until: datetime | None = None


@value
class Why:
    """All reasons, and when the record can move next (None: not by itself)."""

    state: str
    reasons: tuple[Reason, ...]
    next: datetime | None = None

    @property
    def text(self) -> str:
        return "; ".join(reason.text for reason in self.reasons)

    def answer(self) -> dict[str, Any]:
        reasons = [{"code": r.code, "text": str(r.text), "until": r.until} for r in self.reasons]
        return {"state": self.state, "answer": self.text, "reasons": reasons, "next": self.next}


def why(
    record: Record,
    stages: Sequence[Stage],
    cycles: Mapping[str, Cycle | None],
    cycle_records: Mapping[str, CycleRecord],
    budgets: Mapping[str, Sequence[WindowUse]],
    *,
    pauses: Mapping[str, StagePause] = {},
    now: datetime,
    workers_alive: bool,
    last: Step | None = None,
    earlier: Collection[str] = (),
    starts: Mapping[str, datetime] = {},
    locked_since: datetime | None = None,
    entered: datetime | None = None,
    held: Mapping[str, int] = {},
    decisions: Mapping[str, Text] = {},
) -> Why:
    """Name what keeps the record where it is.

    ``stages`` are those of its kind, ``cycles`` their cycles, ``pauses`` their pauses.
    ``last``: the move that brought it into its state, if one did. ``earlier``: states that earlier
    versions declared. ``starts``: the times from which on stages take records. ``locked_since``:
    since when a worker of another program has it. ``entered``: when it entered a state that has a
    deadline. ``held``: by stage with a limit per key, how many records with its key are held.
    ``decisions``: the states out of which only certain people may move it, and who.
    """
    life, state = record.kind.lifecycle, record.status
    if state not in life.states:
        until = now if state in life.renamed and workers_alive else None
        return Why(state, (_undeclared(record, last, earlier, until),), until)
    if state in life.terminal:
        return Why(state, (Reason("finished", text("why_finished", state=state)),))
    taking = [stage for stage in stages if state in stage.states and stage.deadline is None]
    if not taking:
        left = (_not_taken(record, stages), *_decision(state, decisions))
        return Why(state, (*left, *_deadline(record, stages, entered)))
    values = record.model_dump(warnings=False)  # other programs write any type
    passing = [stage for stage in taking if matches(values, stage.where)]
    if not passing:
        return Why(state, (*_left_out(record, taking), *_decision(state, decisions)))
    begun = [s for s in passing if not _before_start(record, s, starts)]
    if not begun:
        return Why(state, tuple(_not_begun(record, stage, starts) for stage in passing))
    stage = begun[0]
    cycle = cycles.get(stage.name)
    if locked_since is not None:
        reasons = [_locked(locked_since, record.kind.track.abandoned_after)]
    else:
        reasons = _schedule_reasons(record, stage, now, None if last is None else last.reason)
        reasons = reasons or _key_reasons(values, stage, held.get(stage.name, 0))
    if cycle is not None:
        reasons += _cycle_reasons(cycle, cycle_records.get(cycle.name), now)
    if (pause := pauses.get(stage.name)) is not None:
        reasons.append(_pause_reason(pause))
    if stage.budget is not None:
        reasons += _budget_reasons(budgets.get(stage.budget.name, ()), stage.cost)
    if not workers_alive:
        reasons.append(Reason("no_worker", text("why_no_worker")))
    if not reasons:
        reasons = [Reason("due", text("why_due", due=record.due_at or now, stage=stage.name), now)]
    ends = [reason.until for reason in reasons if reason.until is not None]
    return Why(state, tuple(reasons), max(ends) if len(ends) == len(reasons) else None)


def _undeclared(
    record: Record, last: Step | None, earlier: Collection[str], until: datetime | None
) -> Reason:
    life, values = record.kind.lifecycle, {"state": record.status, "table": record.kind.table}
    if record.status in life.renamed:
        new = life.renamed[record.status]
        return Reason("renamed", text("why_renamed", state=record.status, new=new), until)
    if record.status in life.foreign:
        return Reason("foreign_state", text("why_foreign_state", state=record.status))
    if last is not None:
        moved = text("why_undeclared_moved", **values, who=last.who, at=last.at)
        return Reason("unknown_state", moved)
    code = "why_undeclared_earlier" if record.status in earlier else "why_undeclared"
    return Reason("unknown_state", text(code, **values))


def _before_start(record: Record, stage: Stage, starts: Mapping[str, datetime]) -> bool:
    due, since = record.due_at or record.created_at, starts.get(stage.name)
    return since is not None and (due is None or due < since)


def _not_begun(record: Record, stage: Stage, starts: Mapping[str, datetime]) -> Reason:
    due = record.due_at or record.created_at
    values = {"stage": stage.name, "since": starts[stage.name], "due": due}
    return Reason("before_start", text("why_before_start", **values))


def _not_taken(record: Record, stages: Sequence[Stage]) -> Reason:
    state = record.status
    targets = ", ".join(record.kind.lifecycle.targets(state))
    if not any(stage.exhausted == state for stage in stages):
        return Reason("no_stage", text("why_no_stage", state=state, targets=targets))
    return _exhausted(record, record.kind.lifecycle.targets(state))


def _decision(state: str, decisions: Mapping[str, Text]) -> tuple[Reason, ...]:
    return (Reason("decision", decisions[state]),) if state in decisions else ()


def _deadline(
    record: Record, stages: Sequence[Stage], entered: datetime | None
) -> tuple[Reason, ...]:
    stage = deadline_of(record, stages)
    if stage is None or stage.deadline is None or entered is None:
        return ()
    deadline = stage.deadline
    due = entered + timedelta(seconds=deadline.seconds)
    values = {"limit": duration.words(deadline.seconds), "state": record.status, "to": deadline.to}
    return (Reason("deadline", text("why_deadline", due=due, **values), due),)


def _exhausted(record: Record, states: Sequence[str]) -> Reason:
    error = record.last_error
    values = {"attempt": record.attempts, "targets": ", ".join(states)}
    if not error:
        return Reason("exhausted", text("why_exhausted", **values))
    cause = {"type": error["type"], "message": error["message"]}
    return Reason("exhausted", text("why_exhausted_by", **values, **cause))


def _left_out(record: Record, taking: Sequence[Stage]) -> tuple[Reason, ...]:
    """Why no stage takes a record by its fields: it is exhausted, or filtered."""
    if any(stage.exhausted_fields and stage.is_exhausted(record) for stage in taking):
        return (_exhausted(record, record.kind.lifecycle.targets(record.status)),)
    return tuple(_filtered(record, stage) for stage in taking)


def _filtered(record: Record, stage: Stage) -> Reason:
    values = {name: getattr(record, name) for name, _ in stage.where}
    failed = [
        _condition(name, cond, values[name])
        for name, cond in stage.where
        if not matches(values, ((name, cond),))
    ]
    conditions = failed[0]
    for other in failed[1:]:
        conditions = text("why_filtered_and", first=conditions, second=other)
    return Reason("filtered", text("why_filtered", stage=stage.name, conditions=conditions))


def _condition(field: str, cond: Cond, value: Any) -> Text:
    """A condition of a stage that a record does not meet, with the record's value."""
    if cond.op == "not_null":
        return text("why_filtered_not_null", field=field)
    if cond.op == "gt" and cond.value == "":
        return text("why_filtered_not_empty", field=field)
    wanted = ", ".join(map(str, cond.value)) if cond.op == "in" else cond.value
    shown = text("no_value") if value is None else f"{value!r:.60}"
    return text(f"why_filtered_{cond.op}", field=field, wanted=wanted, value=shown)


def _key_reasons(values: Mapping[str, Any], stage: Stage, held: int) -> list[Reason]:
    """Why a record that is due cannot be claimed: enough others with its key are held."""
    if stage.at_once is None or held < stage.at_once:
        return []
    value = values.get(stage.per or "")
    shown = text("no_value") if value is None else f"{value!r:.60}"
    limited = text(
        "why_key_limit", stage=stage.name, field=stage.per, value=shown, count=stage.at_once
    )
    return [Reason("key_limit", limited)]


def _locked(since: datetime, age: float) -> Reason:
    until = since + timedelta(seconds=age)
    return Reason("locked", text("why_locked", since=since, until=until), until)


def _left_by_another(record: Record, stage: Stage, now: datetime) -> list[Reason]:
    """Why a record is not claimed that another program put into the hold state lately."""
    age, since = stage.abandoned_after, record.updated_at
    if record.status != stage.hold or age is None or since is None:
        return []
    return [_locked(since, age)] if since + timedelta(seconds=age) > now else []


def _schedule_reasons(
    record: Record, stage: Stage, now: datetime, last_reason: str | None
) -> list[Reason]:
    """Why the record itself cannot be claimed now: it is held, or not due."""
    due, worker, tries = record.due_at or now, worker_of(record.leased_by), stage.retry.tries
    if worker is not None and due <= now:
        return [Reason("orphan", text("why_orphan", worker=worker, due=due), now)]
    if worker is not None:
        values = {"worker": worker, "due": due, "attempt": record.attempts}
        return [Reason("held", _counted("why_held", tries, **values), due)]
    if due <= now:
        return _left_by_another(record, stage, now)
    error = record.last_error
    # With no attempt left, the record waits for its exhaustion: the last reason says why.
    if error and record.attempts and not stage.retry.spent(record.attempts):
        cause = {"type": error["type"], "message": error["message"]}
        failed = _counted("why_failed", tries, due=due, attempt=record.attempts, **cause)
        return [Reason("not_due", failed, due)]
    if last_reason:
        return [Reason("not_due", text("why_waits", due=due, reason=last_reason), due)]
    return [Reason("not_due", text("why_not_due", due=due), due)]


def _counted(code: str, tries: int | None, **values: Any) -> Text:
    """The text of the code, or of ``code_of`` if attempts have a limit."""
    return text(code, **values) if tries is None else text(f"{code}_of", tries=tries, **values)


def _budget_reasons(windows: Sequence[WindowUse], cost: int) -> list[Reason]:
    reasons = [
        Reason("budget", window.denial(window.budget, cost, until), until)
        for window in windows
        if (until := window.reset if window.left < cost else window.free_at) is not None
    ]
    barred = next((window for window in windows if window.barred is not None), None)
    if barred is not None:
        blocked = text("why_budget_blocked", budget=barred.budget, until=barred.barred)
        reasons.append(Reason("budget", blocked, barred.barred))
    return reasons


def _pause_reason(pause: StagePause) -> Reason:
    code = "why_stage_trying" if pause.status == "trying" else "why_stage_paused"
    values = {"stage": pause.stage, "until": pause.due_at, "why": load(pause.reason)}
    return Reason("stage_paused", text(code, **values), pause.due_at)


def _paused(record: CycleRecord) -> Text:
    """Who paused the cycle, when and why, as far as that is known."""
    if record.paused_by is None:
        return text("why_paused", cycle=record.cycle)
    values = {"cycle": record.cycle, "who": record.paused_by, "at": record.paused_at}
    if not record.paused_reason:
        return text("why_paused_by", **values)
    return text("why_paused_because", **values, why=record.paused_reason)


def _cycle_reasons(cycle: Cycle, record: CycleRecord | None, now: datetime) -> list[Reason]:
    if record is not None and record.status == "paused":
        return [Reason("paused", _paused(record))]
    if isinstance(cycle.schedule, Always):
        return []
    if isinstance(cycle.schedule, Manual):
        return [Reason("manual", text("why_manual", cycle=cycle.name))]
    slot = cycle.schedule.next_after(now)
    if slot is None:
        return []
    scheduled = text("why_schedule", cycle=cycle.name, schedule=str(cycle.schedule), slot=slot)
    return [Reason("schedule", scheduled, slot)]
