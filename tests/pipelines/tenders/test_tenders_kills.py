"""Real worker processes killed between every outside call and its settlement: nothing is stuck, nothing is half-made."""

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
from pipelines.tenders.conftest import Yard, environ_of

from esclusa.pipelines.tenders.devices import DeviceBody
from esclusa.pipelines.tenders.records import RegistryEntry

HERE = Path(__file__).parent
LEASE = 60
"""Seconds: longer than any stall of a busy machine, for a worker that lives must not lose what it holds."""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(place: Any, tmp_path: Path, yard: Yard) -> Iterator[Start]:
    """``start("tenders.dispatch", kill_at="after send")`` is a worker process on the yard's data."""
    processes: list[subprocess.Popen[bytes]] = []
    outside = [
        yard.runtime.settings.plans[0].settings.api_url,
        yard.runtime.settings.plans[0].settings.expo_url,
    ]

    def new(cycle: str, kill_at: str = "", **settings: str) -> subprocess.Popen[bytes]:
        env = os.environ | environ_of(
            place, tmp_path, *outside, ESCLUSA_LEASE_SECONDS=str(LEASE), KILL_AT=kill_at, **settings
        )
        processes.append(
            subprocess.Popen(
                [sys.executable, str(HERE / "worker.py"), cycle], env=env, stdin=subprocess.DEVNULL
            )
        )
        return processes[-1]

    yield new
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


async def died(process: subprocess.Popen[bytes]) -> None:
    assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL


async def devices(yard: Yard, count: int) -> None:
    now = await yard.now()
    bodies = [
        {"installation_id": f"d{n}", "push_token": f"ExponentPushToken[d{n}]"} for n in range(count)
    ]
    await yard.records.put(
        [r for b in bodies for r in DeviceBody.model_validate(b).records(now)], who="test"
    )


@pytest.mark.parametrize(
    ("point", "most"),
    [("before send", 1), ("after send", 2), ("before settle", 2), ("after settle 1", 1)],
)
async def test_dispatch_killed_at_every_point(
    yard: Yard, start: Start, point: str, most: int
) -> None:
    """At least once: only what was sent and not settled is sent again, and the lease brings it back."""
    await devices(yard, 30)
    await yard.publish(1)
    await yard.run("ingest")
    await died(start("tenders.dispatch", point))
    await yard.later(LEASE + 1)
    run = await yard.run("dispatch")
    assert run.outcome == "ok"
    found = await yard.deliveries()
    assert {d.status for d in found} == {"sent"}
    assert all(d.leased_by is None for d in found)
    assert max(yard.expo.messages.values()) == most
    assert len(yard.expo.messages) == 30


async def test_nothing_more_is_sent_while_what_was_sent_is_not_settled(
    yard: Yard, start: Start
) -> None:
    """So a kill repeats no more than EXPO_CONCURRENCY × 100 messages, however slow the store is."""
    await devices(yard, 300)
    await yard.publish(3)
    await yard.run("ingest")
    await died(start("tenders.dispatch", "late settle", EXPO_CONCURRENCY="2"))
    assert 100 <= yard.expo.messages.total() <= 200
    await yard.later(LEASE + 1)
    await yard.run("dispatch")
    assert len(yard.expo.messages) == 900
    assert yard.expo.messages.total() <= 1100
    assert {d.status for d in await yard.deliveries()} == {"sent"}


@pytest.mark.parametrize(
    "point", ["before receipts", "after receipts", "before settle", "after settle 1"]
)
async def test_receipt_killed_at_every_point(yard: Yard, start: Start, point: str) -> None:
    await devices(yard, 10)
    await yard.publish(1)
    await yard.run("ingest")
    await yard.run("dispatch")
    await died(start("tenders.receipt", point, ESCLUSA_CLOCK_OFFSET_SECONDS="901"))
    await yard.later(901 + LEASE + 1)
    await yard.run("receipt")
    assert {(d.status, d.attempts) for d in await yard.deliveries()} == {("ok", 1)}
    assert set(yard.expo.messages.values()) == {1}


@pytest.mark.parametrize(
    "point", ["after detail 1", "before insert", "after insert", "after detail 2"]
)
async def test_ingest_killed_at_every_point_leaves_nothing_half_made(
    yard: Yard, start: Start, place: Any, point: str
) -> None:
    await devices(yard, 10)
    codes = await yard.publish(4)
    await died(start("tenders.ingest", point))
    entries = {r["codigo_externo"] for r in await place.rows("licitacion_registry", "id")}
    assert entries == {r["codigo_externo"] for r in await place.rows("licitaciones", "id")}
    assert len(await yard.deliveries()) == 10 * len(entries)
    await yard.later(LEASE + 1)  # its lock runs out with its lease
    run = await yard.run("ingest")
    assert run.counters["new"] == 4 - len(entries)
    assert (await yard.records.count(RegistryEntry))[0] == len(codes)
    assert len(await yard.deliveries()) == 40


async def test_four_processes_share_the_work_and_one_is_killed(yard: Yard, start: Start) -> None:
    """Each device and tender once, but for what the killed process had sent and not settled: at most its calls under way."""
    await devices(yard, 300)
    await yard.publish(5)
    await yard.run("ingest")
    yard.expo.order("/--/api/v2/push/send", times=100, fault="slow", seconds=0.2)
    first = start("tenders.dispatch", "after send 2")
    while not yard.expo.counts:
        await asyncio.sleep(0.02)
    others = [start("tenders.dispatch") for _ in range(3)]
    await died(first)
    for worker in others:
        assert await asyncio.to_thread(worker.wait, 60) == 0
    await yard.later(LEASE + 1)
    await yard.run("dispatch")
    found = await yard.deliveries()
    assert len(found) == 1500
    assert {d.status for d in found} == {"sent"}
    assert len(yard.expo.messages) == 1500
    twice = yard.expo.messages.total() - 1500
    assert twice <= 600, twice
