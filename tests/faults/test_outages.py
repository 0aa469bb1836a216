"""A database that fails under load: nothing is lost and the pace recovers without a restart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.databases import PostgresProvider
from faults.kill_harness import KillHarness, kill_harness

# 20 handlers of 50 ms each: 400 parcels a second on any machine.
PACE = {"HANDLER_SECONDS": "0.05", "LEASE_SECONDS": "5"}


@pytest.fixture
def server() -> Iterator[PostgresProvider]:
    """A server for this test alone, because the test stops it."""
    provider = PostgresProvider()
    yield provider
    provider.stop()


KILL = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


async def pace(harness: KillHarness, seconds: float = 2.5) -> float:
    before, start = await _sent(harness), time.monotonic()
    await asyncio.sleep(seconds)
    return (await _sent(harness) - before) / (time.monotonic() - start)


async def _sent(harness: KillHarness) -> int:
    """How many are sent; asks again while the server does not answer."""
    while True:
        try:
            return await harness.sent()
        except Exception:
            await asyncio.sleep(0.1)


@pytest.mark.promise(1)
@pytest.mark.parametrize("fault", ["restart", "crash", "backends killed"])
async def test_the_pace_recovers_without_a_restart_of_the_worker(
    server: PostgresProvider, tmp_path: Path, fault: str
) -> None:
    count = 6000
    place: Any = await server.database(empty=True)
    async with kill_harness(place, tmp_path, count) as harness:
        process = harness.start(**PACE)
        async with asyncio.timeout(30):
            while await harness.sent() < 200:
                await asyncio.sleep(0.05)
        before = await pace(harness)
        for _ in range(2):
            if fault == "backends killed":
                await server.run("postgres", KILL)
            else:
                await asyncio.to_thread(server.server.restart, fault == "crash")
            await asyncio.sleep(0.5)
        await asyncio.sleep(1.5)
        after = await pace(harness)
        assert process.poll() is None, harness.log.read_text()[-2000:]
        assert after >= 0.95 * before, (before, after, harness.log.read_text()[-2000:])
        await harness.until_sent(count, 60)
        await harness.check(count)
