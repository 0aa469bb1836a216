"""Expo's limit per second, kept by several processes together, of which one is killed."""

from __future__ import annotations

import asyncio

import pytest
from pipelines.tenders.conftest import TendersTrial
from pipelines.tenders.test_tenders_crashes import Start, devices, start

from esclusa.pipelines.tenders.settings import BATCH

__all__ = ["start"]

RATE, DEVICES, PROCESSES, LEASE = 240, 500, 3, 6
SETTINGS = {
    "EXPO_RATE_PER_SECOND": str(RATE),
    "EXPO_CONCURRENCY": "2",
    "ESCLUSA_LEASE_SECONDS": str(LEASE),
}
# The killed process has at most so many messages in batches that are not settled.
MOST_TWICE = 2 * BATCH


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_processes_share_the_pace(trial: TendersTrial, start: Start) -> None:
    """Hardly a request is refused, nothing is stuck, and few messages are sent twice.

    That none is refused needs a machine that is not late; ``bench`` measures it.
    """
    await devices(trial, DEVICES)
    await trial.publish(3)
    assert (await trial.run("ingest")).counters["deliveries"] == 3 * DEVICES
    trial.expo.rate = RATE
    workers = [start("tenders.dispatch", **SETTINGS) for _ in range(PROCESSES)]
    async with asyncio.timeout(90):
        while trial.expo.messages.total() < DEVICES:
            await asyncio.sleep(0.05)
        workers[0].kill()
        while len(trial.expo.messages) < 3 * DEVICES:
            if all(worker.poll() is not None for worker in workers):
                workers = [start("tenders.dispatch", **SETTINGS) for _ in range(2)]
            await asyncio.sleep(0.2)
        for worker in workers[1:]:
            await asyncio.to_thread(worker.wait)
    assert len(trial.expo.refused) <= trial.expo.counts["POST /--/api/v2/push/send"] // 10
    assert trial.expo.messages.total() - 3 * DEVICES <= MOST_TWICE
    found = await trial.deliveries()
    assert {(d.status, d.attempts) for d in found} <= {("sent", 1), ("sent", 2)}
    assert all(d.leased_by is None for d in found)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_the_pace_spaces_requests_evenly(new_trial: object) -> None:
    """One process at 60 messages a second, in requests of a tenth of it."""
    trial: TendersTrial = await new_trial(EXPO_RATE_PER_SECOND="60")  # type: ignore[operator]
    trial.expo.rate = 60
    await devices(trial, 100)
    await trial.publish(1)
    await trial.run("ingest")
    assert (await trial.run("dispatch")).named_counters["sent"] == 100
    assert len(trial.expo.refused) <= 2
    assert trial.expo.largest["send"] <= 6
