"""Temporal's own server with SQLite on disk: one workflow with one activity for each record.

BENCH_URL is the address of the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from time import perf_counter

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from bench.contenders.common import URL, Send, chunks, handle, main

QUEUE = "bench"


@activity.defn
async def handled(work: str, number: int) -> None:
    await handle(work, number)


@workflow.defn
class OneRecord:
    @workflow.run
    async def run(self, work: str, number: int) -> None:
        await workflow.execute_activity(
            handled, args=[work, number], start_to_close_timeout=timedelta(seconds=30)
        )


async def _start(client: Client, work: str, number: int) -> None:
    await client.start_workflow(
        OneRecord.run, args=[work, number], id=f"{work}-{number}", task_queue=QUEUE
    )


class TemporalContender:
    async def setup(self) -> None:
        """The server made its tables."""

    async def fill(self, work: str, count: int) -> float:
        client = await Client.connect(URL)
        start = perf_counter()
        for part in chunks(count, 50):
            await asyncio.gather(*(_start(client, work, number) for number in part))
        return perf_counter() - start

    async def work(self, work: str, concurrency: int) -> None:
        worker = Worker(
            await Client.connect(URL),
            task_queue=QUEUE,
            workflows=[OneRecord],
            activities=[handled],
            max_concurrent_activities=concurrency or 100,
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        await worker.run()

    @asynccontextmanager
    async def sender(self, work: str) -> AsyncIterator[Send]:
        client = await Client.connect(URL)
        yield lambda number: _start(client, work, number)


if __name__ == "__main__":
    main(TemporalContender())
