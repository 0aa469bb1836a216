"""The shapes in which the read model answers: plain data, ready for JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, TypeVar

from esclusa.engine.cycle_records import NEVER
from esclusa.engine.forecast import Conditions, drain
from esclusa.engine.rates import merge
from esclusa.model.budget import WindowUse
from esclusa.model.kind import Kind
from esclusa.model.plan import View
from esclusa.model.query import Page
from esclusa.model.record import Record
from esclusa.model.results import FAILED, LEFT, PROCESSED, RATED
from esclusa.model.schedule import Always
from esclusa.model.settlement import Backlog, StateCount
from esclusa.model.stage import Cycle, Stage
from esclusa.model.suspects import worker_of
from esclusa.model.system_records import (
    Alert,
    CycleRecord,
    DeadLetter,
    Export,
    RateRecord,
    Run,
    StagePause,
    WorkerRecord,
)
from esclusa.model.texts import load

R = TypeVar("R", bound=Record)

# The time over which the rates of a stage are taken.
STAGE_RATES = timedelta(minutes=5)

# The field of a system record that holds a sentence as a code with values.
_TEXT_FIELDS = {
    Run.kind.table: "message",
    DeadLetter.kind.table: "reason",
    Alert.kind.table: "message",
}


def readable(record: R) -> R:
    """The record with its stored sentence as a text."""
    field = _TEXT_FIELDS.get(record.kind.table)
    stored = getattr(record, field) if field else None
    return record.but(**{field: load(stored)}) if field and stored else record


class Titles:
    """Short forms of records with a title.

    ``hidden``: fields that are never a title; ``masked``: a title without secrets.
    """

    def __init__(
        self,
        hidden: Callable[[str], bool] = lambda name: False,
        masked: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._hidden = hidden
        self._masked = masked

    def relation(self, way: str, field: str, table: str, page: Page[Record]) -> dict[str, Any]:
        return {
            "way": way,
            "field": field,
            "table": table,
            "items": [self.item(record) for record in page.items],
            "more": page.next is not None,
        }

    def item(self, record: Record) -> dict[str, Any]:
        return {
            "id": record.id,
            "status": record.status,
            "title": self._title(record),
            "created_at": record.created_at,
        }

    def _title(self, record: Record) -> str:
        """What a person recognises the record by: its first short text that is not in its id."""
        references = {field for field, _ in record.kind.refs}
        for field in record.kind.fields:
            value = getattr(record, field.name, None)
            if field.type != "text" or field.name in references or self._hidden(field.name):
                continue
            if isinstance(value, str) and value and value not in record.id:
                return self._masked(value)[:80]
        return ""


def kind_shape(
    kind: Kind, pipeline: str, roles: Mapping[str, str], counts: Sequence[StateCount]
) -> dict[str, Any]:
    """A kind with its fields, its lifecycle, the roles of its states and these counts."""
    life = kind.lifecycle
    order = life.states.index
    return {
        "table": kind.table,
        "kind": kind.name,
        "pipeline": pipeline,
        "key": list(kind.key),
        "fields": {n: type for n, type in kind.types.items() if n not in ("fence", "leased_by")},
        "lifecycle": {
            "initial": life.initial,
            "states": list(life.states),
            "terminal": sorted(life.terminal),
            "roles": roles,
            "moves": [
                list(m) for m in sorted(life.moves, key=lambda m: (order(m[0]), order(m[1])))
            ],
        },
        "counts": [asdict(count) for count in counts],
    }


def view_shape(view: View, count: int | None = None, exact: bool = True) -> dict[str, Any]:
    """A view, with its number of records if it is about records."""
    return {
        "view": view.name,
        "title": dict(view.title),
        "table": view.kind.table if view.kind is not None else None,
        "count": count,
        "exact": exact,
    }


def stage_shape(
    stage: Stage,
    backlog: Backlog,
    rate: dict[str, float],
    under: Conditions,
    now: datetime,
) -> dict[str, Any]:
    """A stage with its backlog, its rates of the last ``STAGE_RATES``, its forecast and pause."""
    processed, share = _error_share(rate)
    seconds = STAGE_RATES.total_seconds()
    oldest = backlog.oldest
    left = sum(rate.get(name, 0) for name in LEFT)
    forecast = drain(backlog.due, left / seconds, under, now)
    return {
        "stage": stage.name,
        "table": stage.kind.table,
        "take": list(stage.take),
        "hold": stage.hold,
        "due": backlog.due,
        "due_exact": backlog.exact,
        "oldest_due_at": oldest,
        "next_due_at": backlog.next,
        "oldest_due_seconds": max(0.0, (now - oldest).total_seconds()) if oldest else None,
        "per_minute": round(processed / (seconds / 60), 2),
        "error_share": share,
        "p50": rate.get("p50"),
        "p99": rate.get("p99"),
        "drain_seconds": forecast.seconds,
        "drain_note": forecast.note,
        "pause": None if under.pause is None else _pause_shape(under.pause),
    }


def _pause_shape(pause: StagePause) -> dict[str, Any]:
    """The pause of a stage; ``trying``: one record at a time is tried now."""
    return {
        "cause": pause.cause,
        "reason": load(pause.reason),
        "since": pause.begun_at,
        "until": pause.due_at,
        "trying": pause.status == "trying",
    }


def rate_series(
    stage: str, rows: list[RateRecord], first: datetime, minutes: int
) -> dict[str, Any]:
    """What a stage did, minute by minute from ``first``, and in total."""
    series: dict[str, list[int]] = {name: [0] * minutes for name in RATED}
    for row in rows:
        minute = int((row.minute - first).total_seconds() // 60)
        if 0 <= minute < minutes:
            for name in RATED:
                series[name][minute] += getattr(row, name)
    total: dict[str, Any] = merge(rows).get(stage, {})
    return {
        "stage": stage,
        "first": first,
        "minutes": minutes,
        **series,
        "total": {name: int(total.get(name, 0)) for name in RATED},
        "error_share": _error_share(total)[1],
        "p50": total.get("p50"),
        "p90": total.get("p90"),
        "p99": total.get("p99"),
    }


def _error_share(rate: dict[str, float]) -> tuple[float, float | None]:
    """How many attempts were processed, and the share of them that failed."""
    processed = sum(rate.get(name, 0) for name in PROCESSED)
    failed = sum(rate.get(name, 0) for name in FAILED)
    return processed, round(failed / processed, 4) if processed else None


def lease_shape(stage: Stage, record: Record, now: datetime) -> dict[str, Any]:
    """A record that is held; ``orphan``: its lease has expired and nobody took it over."""
    return {
        "stage": stage.name,
        "table": stage.kind.table,
        "id": record.id,
        "status": record.status,
        "worker": worker_of(record.leased_by),
        "attempt": record.attempts,
        "until": record.due_at,
        "orphan": record.due_at is not None and record.due_at < now,
    }


def cycle_shape(
    cycle: Cycle, record: CycleRecord | None, last: Run | None, now: datetime
) -> dict[str, Any]:
    """A cycle: its state, its last run, and when it runs next."""
    paused = record is not None and record.status == "paused"
    running = last is not None and last.status == "running"
    return {
        "cycle": cycle.name,
        "schedule": str(cycle.schedule),
        "singleton": cycle.singleton,
        "state": "paused" if paused else "running" if running else "idle",
        "pause": _cycle_pause(record) if paused and record is not None else None,
        "next": next_slot(cycle, record, now),
        "last": last.kind.as_json(readable(last)) if last else None,
    }


def _cycle_pause(record: CycleRecord) -> dict[str, Any]:
    """Who paused the cycle, when and why; null values if an earlier version did."""
    return {
        "by": record.paused_by,
        "since": record.paused_at,
        "reason": record.paused_reason or "",
    }


def next_slot(cycle: Cycle, record: CycleRecord | None, now: datetime) -> datetime | None:
    """When the cycle runs next; now if it always runs, None if only by hand."""
    if isinstance(cycle.schedule, Always):
        return now
    due = record.due_at if record is not None and cycle.singleton else None
    if due is not None and due > now:
        return due if due < now + NEVER / 2 else None
    return cycle.schedule.next_after(now)


def worker_shape(worker: WorkerRecord, now: datetime) -> dict[str, Any]:
    """A worker process; alive while its own lease lasts."""
    leased = worker.due_at is not None and worker.due_at > now
    return worker.kind.as_json(worker) | {"alive": leased and worker.status == "running"}


def window_shape(window: WindowUse, now: datetime, *, waits: bool) -> dict[str, Any]:
    """A budget's window with what is left and its forecast.

    ``waits``: whether something will need the budget; otherwise no more of it is used.
    """
    out = window.runs_out_at(now)
    return asdict(window) | {
        "left": window.left,
        "waits": waits,
        "projected": window.projected(now) if waits else window.used,
        "runs_out_at": out if waits or window.left == 0 else None,
    }


def dead_letter_groups(letters: Sequence[DeadLetter]) -> list[dict[str, Any]]:
    """Dead letters, newest first, by table and error; the largest group first."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for letter in letters:
        newest = {
            "table": letter.table_name,
            "error_type": letter.error_type,
            "count": 0,
            "message": letter.error_message,
            "newest": letter.created_at,
            "oldest": letter.created_at,
            "example": letter.record_id,
        }
        group = groups.setdefault((letter.table_name, letter.error_type), newest)
        group["count"] += 1
        group["oldest"] = letter.created_at
    return sorted(groups.values(), key=lambda group: -group["count"])


def archive_shape(
    kind: Kind,
    rows: tuple[int, bool],
    waiting: Sequence[tuple[int, bool]],
    exports: Sequence[Export],
) -> dict[str, Any]:
    """An archive: its rows, those in no verified file (``waiting``), and its exports."""
    return {
        "table": kind.table,
        "rows": rows[0],
        "exact": rows[1],
        "not_exported": sum(count for count, _ in waiting),
        "not_exported_exact": all(exact for _, exact in waiting),
        "exports": len(exports),
        "exported_rows": sum(e.row_count for e in exports),
        "bytes": sum(e.byte_count for e in exports),
        "unverified": sum(e.status == "written" for e in exports),
        "dropped": sum(e.status == "dropped" for e in exports),
    }
