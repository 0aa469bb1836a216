"""The pipeline on each store, served over HTTP, against the simulated provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from conformance.databases import Database
from support.replies import Trial, environ

from esclusa.app import open_runtime, open_store
from esclusa.settings import load
from esclusa.simulators.information_tracer import InformationTracerSimulator
from esclusa.web.server import Service, listen

NewTrial = Callable[..., Awaitable[Trial]]


@pytest.fixture
async def sim() -> AsyncIterator[InformationTracerSimulator]:
    sim = InformationTracerSimulator()
    sim.url = await sim.start()
    yield sim
    await sim.stop()


@pytest.fixture
async def new_trial(
    empty_database: Database, sim: InformationTracerSimulator, tmp_path: Path
) -> AsyncIterator[NewTrial]:
    """``await new_trial(REPLIES_…=…)`` starts another server on the same store."""
    async with AsyncExitStack() as stack:
        web = await stack.enter_async_context(aiohttp.ClientSession())

        async def new(**more: str) -> Trial:
            settings = load(environ=environ(empty_database.url, tmp_path, sim.url, **more))
            async with open_store(settings) as bare:
                await bare.migrate(foreign=True)  # the collections may be another program's
            runtime = await stack.enter_async_context(open_runtime(settings))
            service = Service(runtime, worker=False)
            listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(service.run(listen("127.0.0.1", 0), listening.set_result))

            async def stop() -> None:
                service.stop()
                await task

            stack.push_async_callback(stop)
            await asyncio.wait([task, listening], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            return Trial(runtime, sim, f"http://127.0.0.1:{await listening}", web, tmp_path)

        yield new


@pytest.fixture
async def trial(new_trial: NewTrial) -> Trial:
    return await new_trial()
