"""Esclusa: an ordinary pipeline, served by the scheduler as ``esclusa worker`` does it.

The stages ``noop`` and ``sleep`` have no hold state, so a record gets one history row. ``held`` has
a hold state, so a record gets two. ``notified`` works on a table that another program created and
into which it inserts. Metrics are on. The log level is warning, the peers' default.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic, perf_counter
from typing import Any

import asyncpg

from bench.contenders.common import URL, Send, handle, main
from esclusa import App, Lifecycle, Outcome, Record, To, track
from esclusa.artifacts import open_artifacts
from esclusa.engine.attempt import Attempt
from esclusa.engine.engine import Engine
from esclusa.engine.process_tuning import tune_process
from esclusa.model.plan import NoSettings
from esclusa.observability import log
from esclusa.observability.telemetry import Observer
from esclusa.ports.store import Store

# Handlers at a time unless a measure sets the number; as many as PgQueuer gets.
DEFAULT_CONCURRENCY = 500


class Plain(Record, table="plain", key="number"):
    number: int
    payload: str

    lifecycle = Lifecycle("ready -> done | failed")


class Held(Record, table="held", key="number"):
    number: int
    payload: str

    lifecycle = Lifecycle("""
        ready -> working -> done | failed
        working -> ready
    """)


class Notified(Record, table="notified", id="nr", track=track(prefix="esclusa_", notify=True)):
    number: int
    payload: str

    lifecycle = Lifecycle("ready -> done | failed")


FOREIGN_TABLE = """CREATE TABLE notified
    (nr bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number bigint, payload text)"""
FOREIGN_INSERT = "INSERT INTO notified (number, payload) VALUES ($1, 'one')"


def record_type(work: str) -> type[Any]:
    return {"held": Held, "notified": Notified}.get(work, Plain)


def pipeline(work: str, concurrency: int) -> App:
    app = App("bench")
    hold = "working" if work == "held" else None

    @app.stage(
        record_type(work),
        take="ready",
        hold=hold,
        exhausted="failed",
        concurrency=concurrency or DEFAULT_CONCURRENCY,
        name="stage",
    )
    async def stage(record: Any, at: Attempt) -> Outcome:
        await handle(work, record.number)
        return To("done")

    return app


def new_store() -> Store:
    if URL.startswith("postgresql://"):
        from esclusa.stores.postgres.store import PostgresStore

        return PostgresStore(URL, portable=bool(os.environ.get("BENCH_PORTABLE")))
    from esclusa.stores.sqlite.store import SqliteStore

    return SqliteStore(URL)


@asynccontextmanager
async def open_engine(work: str, concurrency: int = 0) -> AsyncIterator[Engine]:
    artifacts = open_artifacts(f"file://{os.environ['BENCH_FOLDER']}/artifacts")
    store = new_store()
    log.configure("json", os.environ.get("BENCH_LOG", "warning"))
    engine = Engine(
        store, [pipeline(work, concurrency).bind(NoSettings())], artifacts, telemetry=Observer()
    )
    await store.open()
    try:
        await store.migrate(engine.all_kinds, engine.all_stages, foreign=True)
        await store.use(engine.all_kinds, engine.all_stages)
        yield engine
    finally:
        await store.close()


@asynccontextmanager
async def other_program() -> AsyncIterator[Any]:
    """A connection of another program."""
    connection: Any = await asyncpg.connect(URL)
    try:
        yield connection
    finally:
        await connection.close()


class Ours:
    async def setup(self) -> None:
        works = ["noop", "held"]
        if URL.startswith("postgresql://"):
            async with other_program() as connection:
                await connection.execute(FOREIGN_TABLE)
            works.append("notified")
        for work in works:
            async with open_engine(work):
                pass

    async def fill(self, work: str, count: int) -> float:
        kind = record_type(work)
        async with open_engine(work) as engine:
            tune_process()
            start = perf_counter()
            async for _ in engine.records.load(
                kind(number=number, payload=f"payload of {number}") for number in range(count)
            ):
                pass
            return perf_counter() - start

    async def work(self, work: str, concurrency: int) -> None:
        async with open_engine(work, concurrency) as engine, engine.running(register=True):
            tune_process()
            scheduler = engine.scheduler()
            scheduler.stop_on_signals()
            await scheduler.serve()

    @asynccontextmanager
    async def sender(self, work: str) -> AsyncIterator[Send]:
        if work == "notified":
            async with other_program() as connection:

                async def insert(number: int) -> float:
                    """The time of the commit, which may wait for the disk."""
                    await connection.execute(FOREIGN_INSERT, number)
                    return monotonic()

                yield insert
            return
        kind = record_type(work)
        async with open_engine(work) as engine:
            yield lambda number: engine.records.insert([kind(number=number, payload="one")])


if __name__ == "__main__":
    main(Ours())
