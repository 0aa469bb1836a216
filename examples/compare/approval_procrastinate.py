"""examples/compare: approval by a person with Procrastinate. See docs/comparison.md."""

from __future__ import annotations

import os

import psycopg
from procrastinate import App, PsycopgConnector, RetryStrategy

URL = os.environ["COMPARE_URL"]

SCHEMA = """
CREATE TABLE claims (
    number text PRIMARY KEY, amount int NOT NULL, note text,
    decided_by text, reason text, status text NOT NULL DEFAULT 'new'
        CHECK (status IN ('new', 'review', 'escalated', 'approved', 'rejected', 'paid'))
);
"""
# Procrastinate knows no states: the moves are checked here, or nowhere.
MOVES = {
    "review": ("approved", "rejected", "escalated"),
    "escalated": ("approved", "rejected"),
}

app = App(connector=PsycopgConnector(conninfo=URL))
retry = RetryStrategy(exponential_wait=2)


async def connect() -> psycopg.AsyncConnection[tuple[object, ...]]:
    return await psycopg.AsyncConnection.connect(URL)


async def notify(number: str, why: str) -> None:
    """Call the people who decide. A test replaces it."""


async def add(number: str, amount: int) -> None:
    async with await connect() as db:
        await db.execute("INSERT INTO claims (number, amount) VALUES (%s, %s)", [number, amount])
    await sort.defer_async(number=number)


@app.task(retry=retry)
async def sort(number: str) -> None:
    async with await connect() as db:
        found = await db.execute("SELECT amount FROM claims WHERE number = %s", [number])
        row = await found.fetchone()
        assert row is not None
        small = int(str(row[0])) < 100
        await db.execute(
            "UPDATE claims SET status = %s WHERE number = %s AND status = 'new'",
            ["approved" if small else "review", number],
        )
    if small:
        await pay.defer_async(number=number)
    else:
        await notify(number, "review")
        await escalate.configure(schedule_in={"days": 2}).defer_async(number=number)


@app.task(retry=retry)
async def escalate(number: str) -> None:
    async with await connect() as db:
        moved = await db.execute(
            "UPDATE claims SET status = 'escalated' WHERE number = %s AND status = 'review'",
            [number],
        )
    if moved.rowcount:
        await notify(number, "nobody decided for two days")


async def decide(number: str, to: str, who: str, reason: str) -> None:
    """What a form of one's own has to call: there is no console to decide in."""
    sources = [state for state, targets in MOVES.items() if to in targets]
    async with await connect() as db:
        moved = await db.execute(
            """UPDATE claims SET status = %s, decided_by = %s, reason = %s
               WHERE number = %s AND status = ANY(%s)""",
            [to, who, reason, number, sources],
        )
        if not moved.rowcount:
            raise ValueError(f"claim {number} cannot be {to} now")
    if to == "approved":
        await pay.configure(queueing_lock=f"pay-{number}").defer_async(number=number)


@app.task(retry=retry)
async def pay(number: str) -> None:
    async with await connect() as db:
        await db.execute(
            "UPDATE claims SET status = 'paid' WHERE number = %s AND status = 'approved'", [number]
        )


@app.periodic(cron="* * * * *")
@app.task(queueing_lock="rescue")
async def rescue(timestamp: int) -> None:
    for job in await app.job_manager.get_stalled_jobs():
        await app.job_manager.retry_job(job)
