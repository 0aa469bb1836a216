"""A database that goes away under load: the worker is not restarted, nothing is lost, the pace comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.databases import PostgresProvider
from faults.yard import Yard, yard

PACE = {
    "HANDLER_SECONDS": "0.05",
    "LEASE_SECONDS": "5",
}  # 20 handlers of 50 ms: 400 parcels a second, whatever the machine


@pytest.fixture
def server() -> Iterator[PostgresProvider]:
    """A server of its own: others must not feel what happens to it."""
    provider = PostgresProvider()
    yield provider
    provider.stop()


KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"


async def pace(here: Yard, seconds: float = 2.5) -> float:
    before, start = await _patient(here), time.monotonic()
    await asyncio.sleep(seconds)
    return (await _patient(here) - before) / (time.monotonic() - start)


async def _patient(here: Yard) -> int:
    while True:
        try:
            return await here.sent()
        except Exception:
            await asyncio.sleep(0.1)


@pytest.mark.promise(1)
@pytest.mark.parametrize("fault", ["restart", "crash", "backends killed"])
async def test_the_pace_comes_back_without_a_restart_of_the_worker(
    server: PostgresProvider, tmp_path: Path, fault: str
) -> None:
    count = 6000
    place: Any = await server.database(empty=True)
    async with yard(place, tmp_path, count) as here:
        process = here.start(**PACE)
        async with asyncio.timeout(30):
            while await here.sent() < 200:
                await asyncio.sleep(0.05)
        before = await pace(here)
        for _ in range(2):
            if fault == "backends killed":
                await server.run("postgres", KILL)
            else:
                await asyncio.to_thread(server.server.restart, fault == "crash")
            await asyncio.sleep(0.5)
        await asyncio.sleep(1.5)
        after = await pace(here)
        assert process.poll() is None, here.log.read_text()[-2000:]
        assert after >= 0.95 * before, (before, after, here.log.read_text()[-2000:])
        await here.until_sent(count, 60)
        await here.check(count)
