"""The system pipeline: what Esclusa does with its own records, as a pipeline like any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta

from esclusa.engine.alerts import AlertLog
from esclusa.engine.attempt import Attempt
from esclusa.engine.options import Options
from esclusa.engine.registry import SYSTEM
from esclusa.engine.runs import RunContext
from esclusa.model.outcome import Outcome, Retry, To
from esclusa.model.pipeline import App
from esclusa.model.query import below, one_of
from esclusa.model.record import Record
from esclusa.model.retry import Backoff
from esclusa.model.system_records import (
    Alert,
    Audit,
    DeadLetter,
    EndedSession,
    IdempotentCall,
    Message,
    RateRecord,
    RecordSpan,
    Run,
    StageSample,
    WorkerRecord,
)
from esclusa.model.texts import text
from esclusa.ports.publisher import Publisher

# How long system records are kept, by the age of a field.
KEEP: tuple[tuple[type[Record], str, timedelta], ...] = (
    (RateRecord, "minute", timedelta(days=14)),
    (StageSample, "start", timedelta(days=14)),
    (Alert, "begun_at", timedelta(days=90)),
    (Run, "started_at", timedelta(days=90)),
    (WorkerRecord, "started_at", timedelta(days=14)),
    (IdempotentCall, "called_at", timedelta(days=2)),
    (EndedSession, "ended_at", timedelta(days=1)),  # longer than a session lasts
    (RecordSpan, "created_at", timedelta(days=14)),
    (Message, "created_at", timedelta(days=30)),
)

# The states in which they are not kept, if these are not the terminal states of the lifecycle.
PRUNED: Mapping[type[Record], tuple[str, ...]] = {
    Alert: ("raised", "seen", "ended"),  # an alert that is still true begins again
    WorkerRecord: ("stopped", "lost"),
    DeadLetter: ("redriven", "discarded", "resolved"),
}


# Moves that one call deletes, and that one run deletes.
_PART, _MOST = 5_000, 1_000_000


def system_pipeline(
    publisher: Publisher | None,
    alerts: AlertLog,
    options: Options,
    *,
    close_dead_letters: Callable[[], Awaitable[int]],
    prune_history: Callable[[datetime, int], Awaitable[int]],
) -> App:
    """The pipeline ``esclusa``: ends dead runs and workers, publishes messages, prunes records."""
    app = App("esclusa")
    forever = Backoff(tries=None, base=1, cap=300)

    @app.stage(Run, take="running", retry=forever, every="10s", alert_rate=None)
    async def end_dead_runs(run: Run, at: Attempt) -> Outcome:
        why = text("run_abandoned", worker=run.worker)
        if not run.cycle.startswith(SYSTEM):
            message = text("cycle_failed", cycle=run.cycle, why=why)
            await alerts.begin("cycle_failed", run.cycle, message, run=run.id)
        return To("error", message=why.dump())

    @app.stage(WorkerRecord, take="running", retry=forever, every="10s", alert_rate=None)
    async def end_dead_workers(worker: WorkerRecord, at: Attempt) -> Outcome:
        return To("lost")

    if publisher is not None:

        @app.stage(
            Message,
            take="waiting",
            exhausted="failed",
            retry=Backoff(tries=20, base=1, cap=300),
            batch=100,
            concurrency=4,
        )
        async def publish(messages: list[Message], at: Attempt) -> list[Outcome]:
            answers = await publisher.publish(messages)
            return [To("published") if failure is None else Retry(failure) for failure in answers]

    @app.cycle(every="5m", singleton=True)
    async def close_letters(run: RunContext) -> None:
        """Close the dead letters of records that another program, or a handler, sent on."""
        if closed := await close_dead_letters():
            run.count(DeadLetter.kind.table, closed)

    @app.cycle(every="1h", singleton=True)
    async def prune(run: RunContext) -> None:
        await _prune_records(run, options)
        if options.keep_history:
            await _prune_history(run, timedelta(days=options.keep_history), prune_history)

    app.records += [Message]
    return app


async def _prune_records(run: RunContext, options: Options) -> None:
    kept = (
        (DeadLetter, "updated_at", options.keep_dead_letters),
        (Audit, "done_at", options.keep_audit),
    )
    aged = [(kind, field, timedelta(days=days)) for kind, field, days in kept if days]
    for kind, field, age in (*KEEP, *aged):
        where = {field: below(run.started - age)}
        life = kind.kind.lifecycle
        if life.terminal and len(life.states) > 1:
            where["status"] = one_of(*sorted(PRUNED.get(kind, life.terminal)))
        if removed := await run.records.purge(kind, where):
            run.count(kind.kind.table, removed)


async def _prune_history(
    run: RunContext, age: timedelta, prune: Callable[[datetime, int], Awaitable[int]]
) -> None:
    removed, total = -1, 0
    while removed and total < _MOST:
        removed = await prune(run.started - age, _PART)
        total += removed
    if total:
        run.count("esclusa_history", total)
