"""Workers that die at the worst moment: nothing is lost, nothing is done twice in the store, no budget is overspent."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from faults.yard import died, yard

POINTS = [
    "before claim", "inside claim", "after claim", "after spend", "handler begins", "handler ends",
    "before settle", "inside settle", "after settle", "inside renew",
]  # fmt: skip


@pytest.mark.promise(1)
@pytest.mark.parametrize("point", POINTS)
async def test_killed_at_every_point_between_claim_and_settle(
    empty_database: Any, tmp_path: Path, point: str
) -> None:
    async with yard(empty_database, tmp_path, 120) as here:
        slow = {"HANDLER_SECONDS": "1.2"} if "renew" in point else {}
        count = {"handler begins": 30, "handler ends": 30}.get(point, 2)
        await died(here.start(f"{point}:{count}", **slow))
        here.start()
        await here.until_sent(120)
        seen = await here.check(120)
        assert (
            max(seen.values()) <= 2
        )  # at most the one attempt that was cut off, and the one that was not


@pytest.mark.promise(1)
@pytest.mark.promise(6)
async def test_workers_killed_at_random_moments(empty_database: Any, tmp_path: Path) -> None:
    rng = random.Random(7)
    async with yard(empty_database, tmp_path, 1500) as here:
        team = [here.start(HANDLER_SECONDS="0.02", BUDGET="100000") for _ in range(3)]
        for _ in range(8):
            await asyncio.sleep(rng.uniform(0.2, 0.9))
            victim = rng.randrange(len(team))
            team[victim].send_signal(signal.SIGKILL)
            team[victim].wait()
            team[victim] = here.start(HANDLER_SECONDS="0.02", BUDGET="100000")
        await here.until_sent(1500, 120)
        await here.check(1500, budget=100_000)


@pytest.mark.promise(6)
async def test_a_budget_is_never_overspent_by_workers_that_die(
    empty_database: Any, tmp_path: Path
) -> None:
    async with yard(empty_database, tmp_path, 300) as here:
        await died(here.start("handler begins:20", BUDGET="100"))
        team = [here.start(BUDGET="100") for _ in range(3)]
        last = -1
        async with asyncio.timeout(60):
            while (now := await here.sent()) != last or now == 0:
                last = now
                await asyncio.sleep(2)
        calls = len(here.outside.read_text().split())
        assert 0 < last <= calls <= 100
        for process in team:
            process.terminate()
            assert await asyncio.to_thread(process.wait, 30) == 0


@pytest.mark.promise(3)
async def test_a_worker_that_outlives_its_lease_does_not_overwrite_its_successor(
    empty_database: Any, tmp_path: Path
) -> None:
    async with yard(empty_database, tmp_path, 40) as here:
        frozen = here.start("handler ends", KILL_WITH="SIGSTOP", HANDLER_SECONDS="0.5")
        await asyncio.to_thread(os.waitpid, frozen.pid, os.WUNTRACED)
        here.start()
        await here.until_sent(40)
        frozen.send_signal(signal.SIGCONT)
        frozen.terminate()
        assert await asyncio.to_thread(frozen.wait, 30) == 0
        await here.check(40)


@pytest.mark.promise(9)
async def test_sigterm_gives_everything_back_at_once(empty_database: Any, tmp_path: Path) -> None:
    async with yard(empty_database, tmp_path, 400) as here:
        process = here.start(HANDLER_SECONDS="0.05", LEASE_SECONDS="600")
        async with asyncio.timeout(30):
            while await here.sent() < 40:
                await asyncio.sleep(0.02)
        process.terminate()
        assert await asyncio.to_thread(process.wait, 30) == 0
        left = [
            p
            async for p in here.records.each(here.engine.kind("parcels").model, {"status": "ready"})
        ]
        assert left
        assert all(p.leased_by is None and p.attempts == 0 for p in left)
        here.start(
            LEASE_SECONDS="600"
        )  # a lease of ten minutes: only what was given back can be taken now
        await here.until_sent(400, 30)
        await here.check(400)
