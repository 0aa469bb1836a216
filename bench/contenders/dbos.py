"""DBOS with a queue of default settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

import sqlalchemy
from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions

from bench.contenders.common import URL, Send, chunks, handle, main

QUEUE = "bench"


async def _launch(work: str, concurrency: int) -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": URL,
        "application_version": "1",
        "log_level": "ERROR",
        "run_admin_server": False,
    }
    DBOS(config=config)

    @DBOS.workflow(name=work)
    async def workflow(number: int) -> None:
        await handle(work, number)

    DBOS.launch()
    await DBOS.register_queue_async(
        QUEUE, worker_concurrency=concurrency or None, on_conflict="always_update"
    )


def _options(work: str) -> EnqueueOptions:
    return {
        "queue_name": QUEUE,
        "workflow_name": work,
        "app_version": "1",
        "application_name": "bench",
    }


class DbosContender:
    async def setup(self) -> None:
        await _launch("noop", 0)
        DBOS.destroy()

    async def fill(self, work: str, count: int) -> float:
        client, options = DBOSClient(system_database_url=URL), _options(work)
        engine = sqlalchemy.create_engine(URL.replace("postgresql://", "postgresql+psycopg://"))
        start = perf_counter()
        for part in chunks(count, 500):
            with engine.begin() as connection:
                for number in part:
                    client.enqueue_in_transaction(connection, options, number)
        return perf_counter() - start

    async def work(self, work: str, concurrency: int) -> None:
        await _launch(work, concurrency)
        await asyncio.Event().wait()

    @asynccontextmanager
    async def sender(self, work: str) -> AsyncIterator[Send]:
        client, options = DBOSClient(system_database_url=URL), _options(work)
        yield lambda number: client.enqueue_async(options, number)
        client.destroy()


if __name__ == "__main__":
    main(DbosContender())
