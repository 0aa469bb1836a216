"""Oban for Python with 100 jobs at a time, on psycopg. It needs Python 3.12."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

from oban import Oban, worker
from oban.schema import install

from bench.contenders.common import URL, Send, chunks, handle, main


@worker(queue="default")
class Noop:
    async def process(self, job: Any) -> None:
        await handle("noop", job.args["number"])


@worker(queue="default")
class Sleep:
    async def process(self, job: Any) -> None:
        await handle("sleep", job.args["number"])


def _job(work: str, number: int) -> Any:
    kind: Any = Sleep if work == "sleep" else Noop
    return kind.new({"number": number})


@asynccontextmanager
async def _oban(**options: Any) -> AsyncIterator[Any]:
    pool = await Oban.create_pool(URL, max_size=10)
    try:
        yield Oban(pool=pool, **options)
    finally:
        await pool.close()


class ObanContender:
    async def setup(self) -> None:
        pool = await Oban.create_pool(URL, max_size=1)
        await install(pool)
        await pool.close()

    async def fill(self, work: str, count: int) -> float:
        async with _oban() as oban:
            start = perf_counter()
            for part in chunks(count, 1000):
                await oban.enqueue_many([_job(work, number) for number in part])
            return perf_counter() - start

    async def work(self, work: str, concurrency: int) -> None:
        async with _oban(queues={"default": concurrency or 100}) as oban:
            await oban.start()
            await asyncio.Event().wait()

    @asynccontextmanager
    async def sender(self, work: str) -> AsyncIterator[Send]:
        async with _oban() as oban:
            yield lambda number: oban.enqueue(_job(work, number))


if __name__ == "__main__":
    main(ObanContender())
