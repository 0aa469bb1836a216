"""The house keeps its own books with its own means: a pipeline like any other."""

from __future__ import annotations

from datetime import timedelta

from esclusa.engine.attempt import Attempt
from esclusa.engine.runs import RunContext
from esclusa.model.outcome import Outcome, Retry, To
from esclusa.model.pipeline import App
from esclusa.model.query import below, one_of, query
from esclusa.model.record import Record
from esclusa.model.retry import Backoff
from esclusa.model.system_records import Alert, IdempotentCall, Message, Rate, Run, WorkerRecord
from esclusa.ports.publisher import Publisher

KEEP: tuple[tuple[type[Record], str, timedelta], ...] = (
    (Rate, "minute", timedelta(days=14)),
    (Alert, "raised_at", timedelta(days=90)),
    (Run, "started_at", timedelta(days=90)),
    (WorkerRecord, "started_at", timedelta(days=14)),
    (IdempotentCall, "called_at", timedelta(days=2)),
    (Message, "created_at", timedelta(days=30)),
)
"""How long the house keeps its own books."""


def system_pipeline(publisher: Publisher | None) -> App:
    """The pipeline ``esclusa``: ends runs and workers that died, publishes the outbox, forgets old books."""
    app = App("esclusa")
    forever = Backoff(tries=None, base=1, cap=300)

    @app.stage(Run, take="running", retry=forever, every="10s", alert_rate=None)
    async def end_dead_runs(run: Run, at: Attempt) -> Outcome:
        return To("error", message=f"its worker {run.worker} stopped without finishing it")

    @app.stage(WorkerRecord, take="running", retry=forever, every="10s", alert_rate=None)
    async def end_dead_workers(card: WorkerRecord, at: Attempt) -> Outcome:
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

    @app.cycle(every="1h", singleton=True)
    async def forget(run: RunContext) -> None:
        for kind, field, age in KEEP:
            where = {field: below(run.started - age)}
            if kind.kind.lifecycle.terminal and len(kind.kind.lifecycle.states) > 1:
                where["status"] = one_of(
                    *sorted(kind.kind.lifecycle.terminal | ({"raised"} if kind is Alert else set()))
                )
            while removed := await run.engine.store.purge(query(kind, where, limit=1000)):
                run.count(kind.kind.table, removed)

    app.records += [Message]
    return app
