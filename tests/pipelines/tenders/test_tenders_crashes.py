"""Worker processes killed between every external call and its settlement."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pipelines.tenders.conftest import TendersTrial, environ_of

from esclusa.pipelines.tenders.devices import DeviceBody
from esclusa.pipelines.tenders.records import RegistryEntry

HERE = Path(__file__).parent
LEASE = 60
"""Seconds; longer than a busy machine stalls, so that a live worker keeps its leases."""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(place: Any, tmp_path: Path, trial: TendersTrial) -> Iterator[Start]:
    """``start("tenders.dispatch", kill_at="after send")`` starts a worker process on the store."""
    processes: list[subprocess.Popen[bytes]] = []
    outside = [
        trial.runtime.settings.plans[0].settings.api_url,
        trial.runtime.settings.plans[0].settings.expo_url,
    ]

    def new(cycle: str, kill_at: str = "", **settings: str) -> subprocess.Popen[bytes]:
        env = os.environ | environ_of(
            place,
            tmp_path,
            *outside,
            **{"ESCLUSA_LEASE_SECONDS": str(LEASE), "KILL_AT": kill_at, **settings},
        )
        processes.append(
            subprocess.Popen(
                [sys.executable, str(HERE / "tenders_worker.py"), cycle],
                env=env,
                stdin=subprocess.DEVNULL,
            )
        )
        return processes[-1]

    yield new
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


async def wait_killed(process: subprocess.Popen[bytes]) -> None:
    assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL


async def devices(trial: TendersTrial, count: int) -> None:
    now = await trial.now()
    bodies = [
        {"installation_id": f"d{n}", "push_token": f"ExponentPushToken[d{n}]"} for n in range(count)
    ]
    await trial.records.put(
        [r for b in bodies for r in DeviceBody.model_validate(b).records(now)], who="test"
    )


@pytest.mark.parametrize(
    ("point", "most"),
    [("before send", 1), ("after send", 2), ("before settle", 2), ("after settle 1", 1)],
)
async def test_kills_of_dispatch_at_every_point(
    trial: TendersTrial, start: Start, point: str, most: int
) -> None:
    """Only messages that were sent and not settled are sent again, after the lease."""
    await devices(trial, 30)
    await trial.publish(1)
    await trial.run("ingest")
    await wait_killed(start("tenders.dispatch", point))
    await trial.later(LEASE + 1)
    run = await trial.run("dispatch")
    assert run.outcome == "ok"
    found = await trial.deliveries()
    assert {d.status for d in found} == {"sent"}
    assert all(d.leased_by is None for d in found)
    assert max(trial.expo.messages.values()) == most
    assert len(trial.expo.messages) == 30


async def test_no_batch_is_sent_before_the_last_is_settled(
    trial: TendersTrial, start: Start
) -> None:
    """A kill repeats at most EXPO_CONCURRENCY × 60 messages, however slow the store is."""
    await devices(trial, 300)
    await trial.publish(3)
    await trial.run("ingest")
    await wait_killed(start("tenders.dispatch", "late settle", EXPO_CONCURRENCY="2"))
    assert 60 <= trial.expo.messages.total() <= 120
    await trial.later(LEASE + 1)
    await trial.run("dispatch")
    assert len(trial.expo.messages) == 900
    assert trial.expo.messages.total() <= 1020
    assert {d.status for d in await trial.deliveries()} == {"sent"}


@pytest.mark.parametrize(
    "point", ["before receipts", "after receipts", "before settle", "after settle 1"]
)
async def test_kills_of_receipt_at_every_point(
    trial: TendersTrial, start: Start, point: str
) -> None:
    await devices(trial, 10)
    await trial.publish(1)
    await trial.run("ingest")
    await trial.run("dispatch")
    await wait_killed(start("tenders.receipt", point, ESCLUSA_CLOCK_OFFSET_SECONDS="901"))
    await trial.later(901 + LEASE + 1)
    await trial.run("receipt")
    assert {(d.status, d.attempts) for d in await trial.deliveries()} == {("ok", 1)}
    assert set(trial.expo.messages.values()) == {1}


@pytest.mark.parametrize(
    "point", ["after detail 1", "before insert", "after insert", "after detail 2"]
)
async def test_kills_of_ingest_at_every_point(
    trial: TendersTrial, start: Start, place: Any, point: str
) -> None:
    await devices(trial, 10)
    codes = await trial.publish(4)
    await wait_killed(start("tenders.ingest", point))
    entries = {
        r["codigo_externo"] for r in await place.rows("licitacion_registry", "codigo_externo")
    }
    assert entries == {r["codigo_externo"] for r in await place.rows("licitaciones", "id")}
    assert len(await trial.deliveries()) == 10 * len(entries)
    await trial.later(LEASE + 1)  # its lock ends with its lease
    run = await trial.run("ingest")
    assert run.counters["new"] == 4 - len(entries)
    assert (await trial.records.count(RegistryEntry))[0] == len(codes)
    assert len(await trial.deliveries()) == 40


async def test_four_processes_share_the_work_and_one_is_killed(
    trial: TendersTrial, start: Start
) -> None:
    """Each delivery is sent once, except the calls under way in the killed process."""
    await devices(trial, 300)
    await trial.publish(5)
    await trial.run("ingest")
    trial.expo.order("/--/api/v2/push/send", times=100, fault="slow", seconds=0.2)
    first = start("tenders.dispatch", "after send 2")
    while not trial.expo.counts:
        await asyncio.sleep(0.02)
    others = [start("tenders.dispatch") for _ in range(3)]
    await wait_killed(first)
    for worker in others:
        assert await asyncio.to_thread(worker.wait, 60) == 0
    await trial.later(LEASE + 1)
    await trial.run("dispatch")
    found = await trial.deliveries()
    assert len(found) == 1500
    assert {d.status for d in found} == {"sent"}
    assert len(trial.expo.messages) == 1500
    twice = trial.expo.messages.total() - 1500
    assert twice <= 600, twice
