"""A script that downloads files with the durable work of the pipeline ``media``, and nothing more.

The links are rows of a table. They are claimed in a transaction, 100 at a time. Each file is
hashed and synced to disk with its name, before its row says so. Rows are settled in a transaction
with those that ended meanwhile. It has no retries, leases, history, address checks or limits.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import apsw
import asyncpg

_CLAIMED = 100
_TABLE = (
    "CREATE TABLE media (id bigint PRIMARY KEY, link text, status text, path text, sha256 text)"
)
_CLAIM = """UPDATE media SET status = 'downloading' WHERE id IN
    (SELECT id FROM media WHERE status = 'pending' ORDER BY id LIMIT 100) RETURNING id, link"""
_SETTLE = "UPDATE media SET status = 'success', path = $2, sha256 = $3 WHERE id = $1"
_INSERT = "INSERT INTO media (id, link, status) VALUES ($1, $2, 'pending')"

_Done = tuple[int, str, str]


class _Table(Protocol):
    async def execute(self, sql: str, rows: list[Any]) -> None: ...
    async def claim(self) -> list[Any]: ...


class _Postgres:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._turn = asyncio.Lock()

    async def execute(self, sql: str, rows: list[Any]) -> None:
        async with self._turn:
            await self._connection.executemany(sql, rows)

    async def claim(self) -> list[Any]:
        async with self._turn:
            return list(await self._connection.fetch(_CLAIM))


class _Sqlite:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._turn = asyncio.Lock()

    async def execute(self, sql: str, rows: list[Any]) -> None:
        def write() -> None:
            with self._connection:
                self._connection.executemany(sql, rows)

        async with self._turn:
            await asyncio.to_thread(write)

    async def claim(self) -> list[Any]:
        async with self._turn:
            return await asyncio.to_thread(lambda: list(self._connection.execute(_CLAIM)))


async def run(
    urls: list[str], store: str, folder: Path, at_once: int, prepare: Callable[[], None]
) -> float:
    """Download and settle all links; return the seconds."""
    folder.mkdir(parents=True)
    table = await _open(store)
    await table.execute(_INSERT, list(enumerate(urls)))
    prepare()
    start = time.perf_counter()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=at_once)) as session:
        await _drain(table, session, folder, at_once)
    return time.perf_counter() - start


async def _open(store: str) -> _Table:
    if store.startswith("sqlite:"):
        path = "/" + store.removeprefix("sqlite:").lstrip("/")
        connection = apsw.Connection(path)
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.execute(_TABLE)
        return _Sqlite(connection)
    server = await asyncpg.connect(store)
    await server.execute(_TABLE)
    return _Postgres(server)


async def _drain(table: _Table, session: aiohttp.ClientSession, folder: Path, at_once: int) -> None:
    claimed: list[Any] = []
    claiming = asyncio.Lock()
    done: list[_Done] = []

    async def settle() -> None:
        rows, done[:] = list(done), []
        if rows:
            await table.execute(_SETTLE, rows)

    async def next_row() -> Any:
        async with claiming:
            if not claimed:
                claimed.extend(await table.claim())
            return claimed.pop() if claimed else None

    async def work() -> None:
        while (row := await next_row()) is not None:
            id, link = row
            async with session.get(link) as answer:
                body = await answer.read()
            path = folder / f"{id}.jpg"
            await asyncio.to_thread(_write, path, body)
            done.append((id, str(path), hashlib.sha256(body).hexdigest()))
            if len(done) >= _CLAIMED:
                await settle()

    await asyncio.gather(*(work() for _ in range(at_once)))
    await settle()


def _write(path: Path, body: bytes) -> None:
    """Write a file that survives a power cut: sync its content, then its directory entry."""
    with path.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
