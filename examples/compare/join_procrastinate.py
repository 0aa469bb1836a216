"""examples/compare: orders and parcels with Procrastinate. See docs/comparison.md."""

from __future__ import annotations

import os

import psycopg
from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy

URL = os.environ["COMPARE_URL"]
TRIES = 3

SCHEMA = """
CREATE TABLE orders (
    number text PRIMARY KEY, parcels int NOT NULL, status text NOT NULL DEFAULT 'new'
        CHECK (status IN ('new', 'packing', 'shipped', 'failed'))
);
CREATE TABLE parcels (
    order_id text REFERENCES orders, part int, status text NOT NULL DEFAULT 'new'
        CHECK (status IN ('new', 'packed', 'missing', 'cancelled', 'unpacking', 'unpacked')),
    PRIMARY KEY (order_id, part)
);
"""

app = App(connector=PsycopgConnector(conninfo=URL))
retry = RetryStrategy(max_attempts=TRIES - 1, exponential_wait=2)


async def connect() -> psycopg.AsyncConnection[tuple[object, ...]]:
    return await psycopg.AsyncConnection.connect(URL)


async def box(order_id: str, part: int) -> None:
    """Pack one parcel. A test replaces it."""


async def add(number: str, parcels: int) -> None:
    async with await connect() as db:
        await db.execute("INSERT INTO orders (number, parcels) VALUES (%s, %s)", [number, parcels])
    await split.defer_async(number=number)


@app.task(retry=retry)
async def split(number: str) -> None:
    async with await connect() as db:
        found = await db.execute("SELECT parcels FROM orders WHERE number = %s", [number])
        row = await found.fetchone()
        assert row is not None
        for part in range(int(str(row[0]))):
            await db.execute(
                "INSERT INTO parcels (order_id, part) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                [number, part],
            )
        await db.execute(
            "UPDATE orders SET status = 'packing' WHERE number = %s AND status = 'new'", [number]
        )
    for part in range(int(str(row[0]))):
        await pack.configure(queueing_lock=f"{number}-{part}").defer_async(number=number, part=part)
    await join.defer_async(number=number)


@app.task(pass_context=True, retry=retry)
async def pack(context: JobContext, number: str, part: int) -> None:
    state = "packed"
    try:
        async with await connect() as db:
            found = await db.execute(
                "SELECT 1 FROM parcels WHERE order_id = %s AND part = %s AND status = 'new'",
                [number, part],
            )
            if await found.fetchone() is None:
                return  # cancelled meanwhile, or packed before a crash
        await box(number, part)
    except Exception:
        if context.job.attempts + 1 < TRIES:
            raise
        state = "missing"
    async with await connect() as db:
        await db.execute(
            "UPDATE parcels SET status = %s WHERE order_id = %s AND part = %s AND status = 'new'",
            [state, number, part],
        )
    # Written, but not in the same transaction: a crash here, and the order waits for ever.
    await join.defer_async(number=number)


@app.task(retry=retry)
async def join(number: str) -> None:
    unpacked: list[int] = []
    async with await connect() as db:
        # Two parcels that end together must not both see the other as open.
        await db.execute("SELECT 1 FROM orders WHERE number = %s FOR UPDATE", [number])
        found = await db.execute(
            """SELECT count(*) FILTER (WHERE status = 'new'),
                      count(*) FILTER (WHERE status = 'missing')
               FROM parcels WHERE order_id = %s""",
            [number],
        )
        row = await found.fetchone()
        assert row is not None
        if row[1]:
            await db.execute(
                "UPDATE parcels SET status = 'cancelled' WHERE order_id = %s AND status = 'new'",
                [number],
            )
            undone = await db.execute(
                """UPDATE parcels SET status = 'unpacking'
                   WHERE order_id = %s AND status = 'packed' RETURNING part""",
                [number],
            )
            unpacked = [int(str(part)) for (part,) in await undone.fetchall()]
            await db.execute("UPDATE orders SET status = 'failed' WHERE number = %s", [number])
        elif not row[0]:
            await db.execute(
                "UPDATE orders SET status = 'shipped' WHERE number = %s AND status = 'packing'",
                [number],
            )
    for part in unpacked:
        await unpack.defer_async(number=number, part=part)


@app.task(retry=retry)
async def unpack(number: str, part: int) -> None:
    async with await connect() as db:
        await db.execute(
            "UPDATE parcels SET status = 'unpacked' WHERE order_id = %s AND part = %s",
            [number, part],
        )


@app.periodic(cron="* * * * *")
@app.task(queueing_lock="rescue")
async def rescue(timestamp: int) -> None:
    for job in await app.job_manager.get_stalled_jobs():
        await app.job_manager.retry_job(job)
