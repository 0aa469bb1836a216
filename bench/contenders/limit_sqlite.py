"""The limit on SQLite: a bare apsw loop in one thread, 500 records at a time.

Each settlement checks the fence and writes one history row. A commit waits for the disk, as ours
does. BENCH_URL is the path of its file.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import apsw

from bench.contenders.common import URL, Send, handle, main

BATCH = 500

TABLES = """
CREATE TABLE bare (
    id TEXT PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE,
    payload TEXT NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    leased_by TEXT,
    last_error TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX bare_due ON bare (due_at, id) WHERE status IN ('ready', 'working');
CREATE TABLE bare_history (
    seq INTEGER PRIMARY KEY,
    record_id TEXT NOT NULL,
    from_state TEXT NOT NULL,
    to_state TEXT NOT NULL,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    attempt INTEGER NOT NULL
);
"""

CLAIM = """
UPDATE bare
SET status = 'working', fence = fence + 1, attempts = attempts + 1, leased_by = 'w',
    due_at = ?2, updated_at = ?1
WHERE id IN (
    SELECT id FROM bare WHERE status IN ('ready', 'working') AND due_at <= ?1
    ORDER BY due_at, id LIMIT ?3
)
RETURNING id, fence, number, payload, attempts
"""

SETTLE = """
UPDATE bare SET status = 'done', leased_by = NULL, due_at = ?1, updated_at = ?1
WHERE id = ?2 AND fence = ?3
"""

ADD_HISTORY = """
INSERT INTO bare_history (record_id, from_state, to_state, at, who, attempt)
VALUES (?2, 'working', 'done', ?1, 'w', ?3)
"""

INSERT = (
    "INSERT INTO bare VALUES (?, ?, ?, 'ready', 0, ?, 0, NULL, NULL, ?, ?) ON CONFLICT DO NOTHING"
)


def _now() -> int:
    return time.time_ns() // 1000


def _open() -> apsw.Connection:
    connection = apsw.Connection(URL)
    # Fetched, because apsw stops at the first row.
    connection.execute(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 5000"
    ).fetchall()
    return connection


class LimitSqlite:
    async def setup(self) -> None:
        _open().execute(TABLES)

    async def fill(self, work: str, count: int) -> float:
        connection, now = _open(), _now()
        start = perf_counter()
        with connection:
            connection.executemany(
                INSERT, ((str(n), n, f"payload of {n}", now, now, now) for n in range(count))
            )
        return perf_counter() - start

    async def work(self, work: str, concurrency: int) -> None:
        connection = _open()
        while True:
            now = _now()
            with connection:
                rows: list[Any] = connection.execute(
                    CLAIM, (now, now + 60_000_000, BATCH)
                ).fetchall()
            if not rows:
                await asyncio.sleep(0.05)
                continue
            for row in rows:
                await handle(work, row[2])
            now = _now()
            with connection:
                connection.executemany(SETTLE, ((now, row[0], row[1]) for row in rows))
                connection.executemany(ADD_HISTORY, ((now, row[0], row[4]) for row in rows))

    @asynccontextmanager
    async def sender(self, work: str) -> AsyncIterator[Send]:
        connection = _open()

        async def send(number: int) -> None:
            now = _now()
            connection.execute(INSERT, (str(number), number, "one", now, now, now))

        yield send


if __name__ == "__main__":
    main(LimitSqlite())
