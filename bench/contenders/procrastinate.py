"""Procrastinate with 20 jobs at a time and its default connection pool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

from procrastinate import App, PsycopgConnector

from bench.contenders.common import URL, Send, chunks, handle, main


def _app(work: str) -> tuple[App, Any]:
    app = App(connector=PsycopgConnector(conninfo=URL))

    @app.task(name=work)
    async def task(number: int) -> None:
        await handle(work, number)

    return app, task


class ProcrastinateContender:
    async def setup(self) -> None:
        app, _ = _app("noop")
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def fill(self, work: str, count: int) -> float:
        app, task = _app(work)
        async with app.open_async():
            start = perf_counter()
            for part in chunks(count, 1000):
                await task.batch_defer_async(*({"number": number} for number in part))
            return perf_counter() - start

    async def work(self, work: str, concurrency: int) -> None:
        app, _ = _app(work)
        async with app.open_async():
            await app.run_worker_async(concurrency=concurrency or 20)

    @asynccontextmanager
    async def sender(self, work: str) -> AsyncIterator[Send]:
        app, task = _app(work)
        async with app.open_async():
            yield lambda number: task.defer_async(number=number)


if __name__ == "__main__":
    main(ProcrastinateContender())
