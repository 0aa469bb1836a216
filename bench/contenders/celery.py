"""Celery on Redis with a pool of threads. BENCH_URL is the address of Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

from celery import Celery

from bench.contenders.common import URL, Send, handle_blocking, main


def _app(work: str) -> tuple[Any, Any]:
    app = Celery("bench", broker=URL, backend=URL)
    app.conf.update(worker_prefetch_multiplier=64, broker_connection_retry_on_startup=True)

    def task(number: int) -> None:
        handle_blocking(work, number)

    return app, app.task(name=work)(task)


class CeleryContender:
    async def setup(self) -> None:
        """Redis needs no tables."""

    async def fill(self, work: str, count: int) -> float:
        app, task = _app(work)
        start = perf_counter()
        with app.producer_pool.acquire(block=True) as producer:
            for number in range(count):
                task.apply_async((number,), producer=producer)
        return perf_counter() - start

    async def work(self, work: str, concurrency: int) -> None:
        app, _ = _app(work)
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
        app.worker_main(["worker", "-P", "threads", "-c", str(concurrency or 4), *quiet])

    @asynccontextmanager
    async def sender(self, work: str) -> AsyncIterator[Send]:
        _, task = _app(work)

        async def send(number: int) -> None:
            task.apply_async((number,))

        yield send


if __name__ == "__main__":
    main(CeleryContender())
