"""PgQueuer in batches of 500, its fastest setting, on asyncpg, the driver it recommends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.contenders.common import URL, Send, chunks, handle, main


async def _queries() -> Queries:
    return Queries(AsyncpgDriver(await asyncpg.connect(URL)))


class PgQueuerContender:
    async def setup(self) -> None:
        await (await _queries()).install()

    async def fill(self, work: str, count: int) -> float:
        queries = await _queries()
        start = perf_counter()
        for part in chunks(count, 1000):
            await queries.enqueue(
                [work] * len(part), [b"%d" % number for number in part], [0] * len(part)
            )
        return perf_counter() - start

    async def work(self, work: str, concurrency: int) -> None:
        queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(URL)))

        @queuer.entrypoint(work)
        async def job(job: Job) -> None:
            await handle(work, int(job.payload or b""))

        if concurrency:
            await queuer.run(batch_size=max(1, concurrency // 2), max_concurrent_tasks=concurrency)
        else:
            await queuer.run(batch_size=500)

    @asynccontextmanager
    async def sender(self, work: str) -> AsyncIterator[Send]:
        queries = await _queries()
        yield lambda number: queries.enqueue(work, b"%d" % number)


if __name__ == "__main__":
    main(PgQueuerContender())
