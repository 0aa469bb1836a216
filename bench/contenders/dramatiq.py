"""Dramatiq on Redis with eight threads, its default. BENCH_URL is the address of Redis."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.contenders.common import URL, Send, handle_blocking, main


def _actor(work: str) -> tuple[Any, Any]:
    broker = RedisBroker(url=URL)
    dramatiq.set_broker(broker)

    def task(number: int) -> None:
        handle_blocking(work, number)

    return broker, dramatiq.actor(task, actor_name=work)


class DramatiqContender:
    async def setup(self) -> None:
        """Redis needs no tables."""

    async def fill(self, work: str, count: int) -> float:
        _, actor = _actor(work)
        start = perf_counter()
        for number in range(count):
            actor.send(number)
        return perf_counter() - start

    async def work(self, work: str, concurrency: int) -> None:
        broker, _ = _actor(work)
        logging.getLogger("dramatiq").setLevel(logging.ERROR)
        dramatiq.Worker(broker, worker_threads=concurrency or 8).start()
        await asyncio.Event().wait()

    @asynccontextmanager
    async def sender(self, work: str) -> AsyncIterator[Send]:
        _, actor = _actor(work)

        async def send(number: int) -> None:
            actor.send(number)

        yield send


if __name__ == "__main__":
    main(DramatiqContender())
