"""examples/compare: the quota pipeline with Procrastinate. See docs/comparison.md."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import psycopg
from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy
from procrastinate.exceptions import AlreadyEnqueued

URL = os.environ["COMPARE_URL"]
LIMIT = 20
TRIES = 5

# What the engine does not keep: the state of each city, and the use of the quota.
SCHEMA = """
CREATE TABLE readings (
    city text PRIMARY KEY, celsius float, error text,
    status text NOT NULL DEFAULT 'waiting'
        CHECK (status IN ('waiting', 'asking', 'done', 'failed'))
);
CREATE TABLE quota (minute timestamptz PRIMARY KEY, used int NOT NULL);
"""

app = App(connector=PsycopgConnector(conninfo=URL))


class Busy(Exception):
    """The service failed; another attempt may succeed."""


class UnknownCity(Exception):
    """The service does not know the city."""


async def temperature(city: str) -> float:
    """The service. A test replaces it."""
    raise NotImplementedError


async def collect(cities: list[str]) -> None:
    async with await psycopg.AsyncConnection.connect(URL) as db:
        for city in cities:
            await db.execute(
                "INSERT INTO readings (city) VALUES (%s) ON CONFLICT DO NOTHING", [city]
            )
    # A crash here leaves rows without a job. Collecting again repairs it, and only then.
    for city in cities:
        await enqueue(city)


async def enqueue(city: str, at: datetime | None = None) -> None:
    with suppress(AlreadyEnqueued):
        await ask.configure(queueing_lock=city, schedule_at=at).defer_async(city=city)


async def spend(db: psycopg.AsyncConnection[tuple[object, ...]], now: datetime) -> bool:
    minute = now.replace(second=0, microsecond=0)
    spent = await db.execute(
        """INSERT INTO quota VALUES (%s, 1)
           ON CONFLICT (minute) DO UPDATE SET used = quota.used + 1 WHERE quota.used < %s
           RETURNING used""",
        [minute, LIMIT],
    )
    return await spent.fetchone() is not None


@app.task(
    pass_context=True,
    retry=RetryStrategy(max_attempts=TRIES - 1, exponential_wait=2, retry_exceptions={Busy}),
)
async def ask(context: JobContext, city: str) -> None:
    now = datetime.now(UTC)
    async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as db:
        found = await db.execute("SELECT status FROM readings WHERE city = %s", [city])
        row = await found.fetchone()
        if row is None or row[0] in ("done", "failed"):
            return
        if not await spend(db, now):
            # A new job: waiting for the quota forgets the attempts so far.
            await enqueue(city, now.replace(second=0, microsecond=0) + timedelta(minutes=1))
            return
        await db.execute("UPDATE readings SET status = 'asking' WHERE city = %s", [city])
        try:
            celsius = await temperature(city)
        except Busy as error:
            last = context.job.attempts + 1 >= TRIES
            await db.execute(
                "UPDATE readings SET status = %s, error = %s WHERE city = %s",
                ["failed" if last else "waiting", str(error), city],
            )
            raise
        except UnknownCity as error:
            await db.execute(
                "UPDATE readings SET status = 'failed', error = %s WHERE city = %s",
                [str(error), city],
            )
            raise
        # The row and the job are written in two transactions: a crash between them runs it again.
        await db.execute(
            "UPDATE readings SET status = 'done', celsius = %s, error = NULL WHERE city = %s",
            [celsius, city],
        )


@app.periodic(cron="* * * * *")
@app.task(queueing_lock="rescue", pass_context=True)
async def rescue(context: JobContext, timestamp: int) -> None:
    """Jobs of workers that died go on: this is left to the user."""
    for job in await app.job_manager.get_stalled_jobs():
        await app.job_manager.retry_job(job)


async def send_back(city: str) -> None:
    """What an operator does: by hand, without a record of who and why."""
    async with await psycopg.AsyncConnection.connect(URL) as db:
        await db.execute("UPDATE readings SET status = 'waiting' WHERE city = %s", [city])
    await enqueue(city)
