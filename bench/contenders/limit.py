"""The limit on PostgreSQL: a bare asyncpg loop with only the necessary statements.

It claims 500 records at a time on one connection while another settles the previous batch. The
table has what a record's table has: tracking columns, a primary key, a unique key and one partial
index. Each settlement checks the fence and writes one history row.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import asyncpg

from bench.contenders.common import URL, Send, chunks, handle, main

BATCH = 500

TABLES = """
CREATE TABLE bare (
    id text COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL UNIQUE,
    payload text NOT NULL,
    status text NOT NULL,
    attempts bigint NOT NULL,
    due_at timestamptz NOT NULL,
    fence bigint NOT NULL,
    leased_by text,
    last_error jsonb,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX bare_due ON bare (due_at, id) WHERE status IN ('ready', 'working');
CREATE TABLE bare_history (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    record_id text NOT NULL,
    from_state text NOT NULL,
    to_state text NOT NULL,
    at timestamptz NOT NULL,
    who text NOT NULL,
    attempt bigint NOT NULL
);
"""

INSERT = """
INSERT INTO bare (id, number, payload, status, attempts, due_at, fence, created_at, updated_at)
SELECT number::text, number, payload, 'ready', 0, now(), 0, now(), now()
FROM unnest($1::bigint[], $2::text[]) AS new (number, payload)
ON CONFLICT DO NOTHING
"""

CLAIM = """
UPDATE bare
SET status = 'working', fence = fence + 1, attempts = attempts + 1, leased_by = 'w',
    due_at = now() + interval '60 s', updated_at = now()
WHERE id = ANY (ARRAY(
    SELECT id FROM bare WHERE status IN ('ready', 'working') AND due_at <= now()
    ORDER BY due_at, id LIMIT $1 FOR UPDATE SKIP LOCKED
))
RETURNING id, fence, number, payload, attempts
"""

SETTLE = """
WITH settled AS (
    UPDATE bare SET status = 'done', leased_by = NULL, due_at = now(), updated_at = now()
    FROM unnest($1::text[], $2::bigint[]) AS given (id, fence)
    WHERE bare.id = given.id AND bare.fence = given.fence
    RETURNING bare.id, bare.attempts
)
INSERT INTO bare_history (record_id, from_state, to_state, at, who, attempt)
SELECT id, 'working', 'done', clock_timestamp(), 'w', attempts FROM settled
"""


class Limit:
    async def setup(self) -> None:
        await (await asyncpg.connect(URL)).execute(TABLES)

    async def fill(self, work: str, count: int) -> float:
        connection = await asyncpg.connect(URL)
        start = perf_counter()
        for part in chunks(count, 5000):
            await connection.execute(
                INSERT, list(part), [f"payload of {number}" for number in part]
            )
        return perf_counter() - start

    async def work(self, work: str, concurrency: int) -> None:
        claims, settles = await asyncpg.connect(URL), await asyncpg.connect(URL)
        while True:
            rows = await claims.fetch(CLAIM, BATCH)
            while rows:
                for row in rows:
                    await handle(work, row["number"])
                settling = asyncio.create_task(_settle(settles, rows))
                rows = await claims.fetch(CLAIM, BATCH)
                await settling
            await asyncio.sleep(0.05)

    @asynccontextmanager
    async def sender(self, work: str) -> AsyncIterator[Send]:
        connection = await asyncpg.connect(URL)
        yield lambda number: connection.execute(INSERT, [number], ["one"])


async def _settle(connection: Any, rows: list[Any]) -> None:
    await connection.execute(SETTLE, [row["id"] for row in rows], [row["fence"] for row in rows])


if __name__ == "__main__":
    main(Limit())
