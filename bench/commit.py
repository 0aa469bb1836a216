"""How long it takes from a host's commit to the handler, on PostgreSQL: python -m bench.commit."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import psycopg
from support.postgres import PostgresServer

import esclusa
from esclusa import App, Attempt, Lifecycle, Outcome, Record, To, track
from esclusa.integrations.psycopg import insert

COUNT = 200

app = App("commit")
begun: dict[str, float] = {}


class Own(Record, table="own", key="number"):
    number: str
    lifecycle = Lifecycle("new -> done | failed")


class Foreign(Record, table="foreign_rows", key="number", track=track("job_", notify=True)):
    number: str
    lifecycle = Lifecycle("new -> done | failed")


@app.stage(Own, take="new", exhausted="failed")
async def own(record: Own, at: Attempt) -> Outcome:
    begun[record.id] = time.monotonic()
    return To("done")


@app.stage(Foreign, take="new", exhausted="failed")
async def foreign(record: Foreign, at: Attempt) -> Outcome:
    begun[record.number] = time.monotonic()
    return To("done")


async def measure(url: str, name: str, add: Callable[[Any, str], None]) -> str:
    """One insert after another; the time from the end of each commit to its handler."""
    times = []
    connection = psycopg.connect(url)
    for number in range(COUNT):
        id = f"{name}-{number}"
        add(connection, id)
        connection.commit()
        committed = time.monotonic()
        while id not in begun:
            await asyncio.sleep(0.001)
        times.append(max(0.0, begun[id] - committed) * 1000)
        await asyncio.sleep(0.02)
    connection.close()
    cuts = statistics.quantiles(times, n=100)
    return f"{name}: median {cuts[49]:.1f} ms, p95 {cuts[94]:.1f} ms, most {max(times):.1f} ms"


def add_record(connection: Any, id: str) -> None:
    insert(connection, [Own(number=id)])


def add_row(connection: Any, id: str) -> None:
    connection.execute("INSERT INTO foreign_rows (id, number) VALUES (%s, %s)", (id, id))


async def main() -> None:
    """Print the times of an insert by ``insert``, and of a row that a program adds."""
    server = PostgresServer(durable=True)
    server.start()
    try:
        url = server.create_database("commit")
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE foreign_rows (id text PRIMARY KEY, number text)")
        await esclusa.migrate(app, store=url, foreign=True, environ={})
        with tempfile.TemporaryDirectory() as folder:
            async with esclusa.open(app, store=url, worker=True, artifacts=folder, environ={}):
                print(await measure(url, "insert", add_record))
                print(await measure(url, "trigger", add_row))
    finally:
        server.stop()


if __name__ == "__main__":
    asyncio.run(main())
