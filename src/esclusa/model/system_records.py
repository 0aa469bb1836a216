"""System records: Esclusa's own tables. Stores, API and console treat them like any record.

Their names begin with ``esclusa_``. On PostgreSQL they are in a schema of their own, without it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from esclusa.model.effects import Create
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.record import Record


class DeadLetter(
    Record,
    table="esclusa_dead_letters",
    system=True,
    index=[("table_name", "record_id"), ("status", "error_type")],
):
    """A record that went to its exhausted state, with what is needed to redrive it.

    It is ``resolved`` if the record left that state in another way than by a redrive.
    """

    table_name: str
    record_id: str
    state_before: str
    error_type: str
    error_message: str = ""
    reason: str = ""
    payload: dict[str, Any] = {}

    lifecycle = Lifecycle(
        """
        open -> redriven | discarded | resolved
        redriven -> open
        """,
        failed=["open"],
        finished=["redriven"],
    )


class Message(Record, table="esclusa_outbox", system=True):
    """A message to publish: written in the settlement, sent at least once afterwards."""

    topic: str
    data: dict[str, Any] = {}
    attributes: dict[str, str] = {}

    lifecycle = Lifecycle(
        """
        waiting -> published
        waiting -> failed
        failed -> waiting
        """,
        failed=["failed"],
    )


class Run(
    Record,
    table="esclusa_runs",
    system=True,
    key=("cycle", "slot"),
    history=False,
    index=[("cycle", "-started_at"), ("-started_at",)],
):
    """One run of a cycle, leased by its worker: if the worker dies, the run ends as an error.

    ``moves``: what its stages did with records, and the newest of them (engine/run_moves.py).
    """

    cycle: str
    slot: str
    worker: str
    started_at: datetime
    finished_at: datetime | None = None
    duration_ms: int | None = None
    counters: dict[str, int] = {}
    moves: list[dict[str, Any]] = []
    message: str | None = None
    # The artifacts that it wrote.
    files: list[str] = []

    lifecycle = Lifecycle("running -> ok | blocked | partial | error", failed=["blocked", "error"])


class CycleRecord(Record, table="esclusa_cycles", system=True, key="cycle", history=False):
    """One cycle, due at its next slot. A singleton cycle claims it as its lock.

    ``paused_by``, ``paused_at`` and ``paused_reason``: who paused it last, when and why; null if it
    is not paused.
    """

    cycle: str
    schedule: str
    paused_by: str | None = None
    paused_at: datetime | None = None
    paused_reason: str | None = None

    lifecycle = Lifecycle(
        """
        idle -> running -> idle
        idle | running -> paused
        paused -> idle
        """,
        endless=True,
    )


class StagePause(Record, table="esclusa_stage_pauses", system=True, key="stage", history=False):
    """The pause of a whole stage, in all workers; due when it ends, or when a record is tried.

    ``cause``: ``wait`` (a handler asked for it) or ``breaker`` (errors in a row). After a pause of
    the breaker, one worker tries one record at a time. ``number`` counts the pauses until then.
    """

    stage: str
    cause: str
    reason: str
    begun_at: datetime
    number: int = 1

    lifecycle = Lifecycle(
        """
        paused -> trying -> paused | over
        paused -> over
        over -> paused
        """,
        endless=True,
    )


class WorkerRecord(Record, table="esclusa_workers", system=True, history=False):
    """One worker process, leased by itself: if it is past due, the worker is dead.

    ``clock_offset``: how many seconds its clock is shifted; older versions did not write it.
    """

    host: str
    pid: int
    version: str
    clock_offset: float | None = None
    cycles: list[str] = []
    stages: list[str] = []
    started_at: datetime

    lifecycle = Lifecycle("running -> stopped | lost\nlost -> running", failed=["lost"])


class RateRecord(
    Record,
    table="esclusa_rates",
    system=True,
    key=("stage", "minute", "worker"),
    history=False,
    index=[("minute",), ("stage", "minute")],
):
    """What one worker did for one stage in one minute."""

    stage: str
    minute: datetime
    worker: str
    moved: int = 0
    retried: int = 0
    waited: int = 0
    exhausted: int = 0
    lost: int = 0
    seconds: float = 0.0
    histogram: list[int] = []

    lifecycle = Lifecycle("kept")


class StageSample(
    Record,
    table="esclusa_samples",
    system=True,
    key=("span", "start"),
    history=False,
    index=[("start",), ("span", "start")],
):
    """What every stage had to do and did in one span of time, for charts (engine/samples.py).

    ``span``: its length in seconds. 60: only the backlogs at that minute. Longer spans also have
    the rates. ``stages``: by name, as ``Tally.dump`` writes them.
    """

    span: int
    start: datetime
    stages: dict[str, Any] = {}

    lifecycle = Lifecycle("kept")


class Alert(
    Record,
    table="esclusa_alerts",
    system=True,
    key=("name", "subject", "number"),
    columns={"begun_at": "raised_at"},
    history=False,
    index=[("-begun_at",), ("name", "subject", "-number")],
):
    """Something that a person should look at: it begins, and it ends.

    ``number`` counts how often the alert of this name and subject has begun. ``confirmed_at`` and
    ``confirmed_by``: when it was last found to be true, and by which process. ``held_back``: it was
    muted when it began, and has not been posted yet.
    """

    name: str
    subject: str
    number: int = 1
    message: str
    begun_at: datetime
    ended_at: datetime | None = None
    confirmed_at: datetime | None = None
    confirmed_by: str | None = None
    held_back: bool | None = None
    details: dict[str, Any] = {}

    lifecycle = Lifecycle(
        """
        raised -> seen | ended
        seen -> ended
        """
    )

    @property
    def key(self) -> str:
        """What the alert is about; at most one alert of this key is open."""
        return f"{self.name}:{self.subject}"


class AlertRule(
    Record, table="esclusa_alert_rules", system=True, key=("rule", "subject"), history=False
):
    """What operators changed about an alert, or about all alerts of a rule (``subject``: ``*``).

    ``changed_at``: the ``threshold`` replaces the declared one; null in it means no alert.
    ``muted_until``: its alerts are not posted before.
    """

    rule: str
    subject: str
    threshold: float | None = None
    changed_at: datetime | None = None
    changed_by: str | None = None
    change_reason: str | None = None
    muted_until: datetime | None = None
    muted_at: datetime | None = None
    muted_by: str | None = None
    mute_note: str | None = None

    lifecycle = Lifecycle("kept")


class Audit(Record, table="esclusa_audit", system=True, history=False, index=[("-done_at",)]):
    """What an operator did: who, what, on how many, why.

    ``changes``: each field that it changed, with the value before and after; only the value after,
    if it was different in several records.
    """

    who: str
    verb: str
    subject: str
    filter: dict[str, Any] = {}
    affected: int = 0
    reason: str = ""
    changes: dict[str, Any] = {}
    done_at: datetime

    lifecycle = Lifecycle("kept")


class LifecycleRecord(
    Record, table="esclusa_lifecycles", system=True, key="table_name", history=False
):
    """The lifecycle of a table as ``migrate`` last stored it.

    ``earlier``: states that versions before declared. ``stages``: the states that each stage takes
    and holds. ``starts``: the time from which on a stage takes records, if it does not take all.
    """

    table_name: str
    states: list[str] = []
    earlier: list[str] = []
    stages: dict[str, list[str]] = {}
    starts: dict[str, str] = {}

    lifecycle = Lifecycle("kept")


class Export(
    Record, table="esclusa_exports", system=True, key=("table_name", "month", "part"), history=False
):
    """A Parquet file of archived rows.

    While it is ``filling``, archived rows are assigned to it. Then it is written. The rows may be
    dropped only after it is verified. A restore puts them back.
    """

    table_name: str
    month: str
    part: int
    path: str
    row_count: int
    byte_count: int = 0
    checksum: str
    verified_at: datetime | None = None
    drop_eligible_at: datetime | None = None
    dropped_at: datetime | None = None

    lifecycle = Lifecycle(
        "filling -> written -> verified -> dropped -> verified",
        finished=["verified", "dropped"],
        endless=True,
    )


class IdempotentCall(
    Record,
    table="esclusa_calls",
    system=True,
    key=("who", "key"),
    history=False,
    index=[("called_at",)],
):
    """A call with an idempotency key: the same key gets the same answer.

    Without ``code`` the first call has not answered yet.
    """

    who: str
    key: str
    fingerprint: str
    called_at: datetime
    code: int | None = None
    body: str = ""
    media_type: str = ""

    lifecycle = Lifecycle("kept")


class EndedSession(
    Record,
    table="esclusa_ended_sessions",
    system=True,
    key="session",
    history=False,
    index=[("ended_at",)],
):
    """A console session whose visitor signed out: no process accepts its cookie any more."""

    session: str
    ended_at: datetime

    lifecycle = Lifecycle("kept")


class RecordSpan(
    Record,
    table="esclusa_record_spans",
    system=True,
    key=("table_name", "record_id"),
    history=False,
    index=[("created_at",)],
):
    """The span in which a record was added, as a ``traceparent``: its first attempt links to it."""

    table_name: str
    record_id: str
    span: str

    lifecycle = Lifecycle("kept")


class SavedFilter(
    Record,
    table="esclusa_saved_filters",
    system=True,
    key=("table_name", "name"),
    history=False,
):
    """A list of records that users share by name: its filters, its order and its columns.

    ``filters`` are written as people type them (``status=failed``). ``begins``: how the ids begin.
    """

    table_name: str
    name: str
    filters: list[str] = []
    begins: str = ""
    order: str = ""
    columns: list[str] = []
    saved_by: str
    saved_at: datetime

    lifecycle = Lifecycle("kept")


SYSTEM_RECORDS: tuple[type[Record], ...] = (
    DeadLetter,
    Message,
    Run,
    CycleRecord,
    StagePause,
    WorkerRecord,
    RateRecord,
    StageSample,
    Alert,
    AlertRule,
    Audit,
    LifecycleRecord,
    Export,
    IdempotentCall,
    EndedSession,
    RecordSpan,
    SavedFilter,
)


def publish(topic: str, data: dict[str, Any], **attributes: str) -> Create:
    """An effect: publish a message after the settlement, at least once (an outbox)."""
    return Create(Message(topic=topic, data=data, attributes=attributes))
