"""Huey on SQLite with two threads, which is its fastest number for handlers that do nothing.

BENCH_URL is the path of its file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

from huey import SqliteHuey

from bench.contenders.common import URL, Send, handle_blocking, main


def _huey(work: str) -> tuple[SqliteHuey, Any]:
    huey = SqliteHuey("bench", filename=URL)

    @huey.task(name=work)
    def task(number: int) -> None:
        handle_blocking(work, number)

    return huey, task


class HueyContender:
    async def setup(self) -> None:
        _huey("noop")

    async def fill(self, work: str, count: int) -> float:
        _, task = _huey(work)
        start = perf_counter()
        for number in range(count):
            task(number)
        return perf_counter() - start

    async def work(self, work: str, concurrency: int) -> None:
        huey, _ = _huey(work)
        logging.getLogger("huey").setLevel(logging.ERROR)
        consumer = huey.create_consumer(workers=concurrency or 2, periodic=False)
        consumer.start()
        await asyncio.Event().wait()

    @asynccontextmanager
    async def sender(self, work: str) -> AsyncIterator[Send]:
        _, task = _huey(work)

        async def send(number: int) -> None:
            task(number)

        yield send


if __name__ == "__main__":
    main(HueyContender())
