"""Workers that are killed: nothing is lost, nothing is stored twice, no budget is overspent."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from faults.kill_harness import kill_harness, wait_until_killed

POINTS = [
    "before claim", "inside claim", "after claim", "after spend", "handler begins", "handler ends",
    "before settle", "inside settle", "after settle", "inside renew",
]  # fmt: skip


@pytest.mark.promise(1)
@pytest.mark.parametrize("point", POINTS)
async def test_a_worker_killed_between_claim_and_settle_loses_nothing(
    empty_database: Any, tmp_path: Path, point: str
) -> None:
    async with kill_harness(empty_database, tmp_path, 120) as harness:
        slow = {"HANDLER_SECONDS": "1.2"} if "renew" in point else {}
        count = {"handler begins": 30, "handler ends": 30}.get(point, 2)
        await wait_until_killed(harness.start(f"{point}:{count}", **slow))
        harness.start()
        await harness.until_sent(120)
        calls = await harness.check(120)
        assert max(calls.values()) <= 2  # the killed attempt and one more


@pytest.mark.promise(1)
@pytest.mark.promise(6)
async def test_workers_killed_at_random_lose_nothing(empty_database: Any, tmp_path: Path) -> None:
    rng = random.Random(7)
    async with kill_harness(empty_database, tmp_path, 1500) as harness:
        workers = [harness.start(HANDLER_SECONDS="0.02", BUDGET="100000") for _ in range(3)]
        for _ in range(8):
            await asyncio.sleep(rng.uniform(0.2, 0.9))
            victim = rng.randrange(len(workers))
            workers[victim].send_signal(signal.SIGKILL)
            workers[victim].wait()
            workers[victim] = harness.start(HANDLER_SECONDS="0.02", BUDGET="100000")
        await harness.until_sent(1500, 120)
        await harness.check(1500, budget=100_000)


@pytest.mark.promise(6)
async def test_killed_workers_never_overspend_a_budget(empty_database: Any, tmp_path: Path) -> None:
    async with kill_harness(empty_database, tmp_path, 300) as harness:
        await wait_until_killed(harness.start("handler begins:20", BUDGET="100"))
        workers = [harness.start(BUDGET="100") for _ in range(3)]
        await harness.until_working(*workers)
        last = -1
        async with asyncio.timeout(60):
            while (now := await harness.sent()) != last or now == 0:
                last = now
                await asyncio.sleep(2)
        calls = len(harness.calls.read_text().split())
        assert 0 < last <= calls <= 100
        for process in workers:
            process.terminate()
            assert await asyncio.to_thread(process.wait, 30) == 0


@pytest.mark.promise(3)
async def test_a_worker_whose_lease_expired_does_not_overwrite_the_next_one(
    empty_database: Any, tmp_path: Path
) -> None:
    async with kill_harness(empty_database, tmp_path, 40) as harness:
        frozen = harness.start("handler ends", KILL_WITH="SIGSTOP", HANDLER_SECONDS="0.5")
        await asyncio.to_thread(os.waitpid, frozen.pid, os.WUNTRACED)
        harness.start()
        await harness.until_sent(40)
        frozen.send_signal(signal.SIGCONT)
        frozen.terminate()
        assert await asyncio.to_thread(frozen.wait, 30) == 0
        await harness.check(40)


@pytest.mark.promise(9)
async def test_sigterm_gives_records_back_at_once(empty_database: Any, tmp_path: Path) -> None:
    async with kill_harness(empty_database, tmp_path, 400) as harness:
        process = harness.start(HANDLER_SECONDS="0.05", LEASE_SECONDS="600")
        async with asyncio.timeout(30):
            while await harness.sent() < 40:
                await asyncio.sleep(0.02)
        process.terminate()
        assert await asyncio.to_thread(process.wait, 30) == 0
        left = [
            p
            async for p in harness.records.each(
                harness.engine.kind("parcels").model, {"status": "ready"}
            )
        ]
        assert left
        assert all(p.leased_by is None and p.attempts == 0 for p in left)
        # With a lease of ten minutes, only records that were given back can be claimed now.
        harness.start(LEASE_SECONDS="600")
        await harness.until_sent(400, 30)
        await harness.check(400)
