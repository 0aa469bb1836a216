"""Dispatch of the pipeline ``tenders`` by four processes, of which one is killed.

Expo is simulated with its limit of 600 messages in any second. Checks that every delivery is sent,
none is stuck and few are sent twice; measures the time, and what Expo refuses after the first
second.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg

from bench.driver import Driver
from bench.measures import Scale
from bench.report import Report, Row, rates

TENDERS, DEVICES, PROCESSES = 100, 1000, 4
LEASE, CONCURRENCY, BATCH = 5, 6, 60
RATE = 600
# The time may be this much of the ideal.
SLOWER = 1.15
# The killed process can have had this many messages in open requests.
MOST_TWICE = CONCURRENCY * BATCH

_STATES = "SELECT status, count(*), count(locked_by) FROM notification_deliveries GROUP BY status"


async def dispatch(driver: Driver, report: Report, scale: Scale) -> None:
    """100,000 deliveries by four processes, one of them killed: every delivery reaches Expo."""
    tenders = max(10, int(TENDERS * scale.share))
    wanted = tenders * DEVICES
    speeds: list[float] = []
    twice: list[int] = []
    late: list[int] = []
    requests: list[float] = []
    for turn in range(1 if scale.share == 1.0 else min(2, scale.rounds)):
        with tempfile.TemporaryDirectory() as folder:
            async with _expo(Path(folder)) as expo:
                url = await _fill(driver, f"tenders-dispatch-{turn}", Path(folder), tenders)
                seconds, counted = await _send_all(url, expo, Path(folder), wanted)
        states = await _states(url)
        if (
            states != [("sent", wanted, 0)]
            or counted["pairs"] != wanted
            or counted["twice"] > MOST_TWICE
        ):
            raise RuntimeError(f"{wanted:,} deliveries ended as {states}; Expo counted {counted}")
        speeds.append(wanted / seconds)
        twice.append(counted["twice"])
        late.append(sum(second > 1.0 for second in counted["refused"]))
        requests.append(wanted / BATCH + late[-1])
    what = f"dispatch, {wanted:,} by {PROCESSES} processes, one killed"
    allowed = [float(RATE)] * len(speeds)
    report.rows.append(
        rates(what, speeds, "Expo's limit for a project", allowed, round(1 / SLOWER, 3))
    )
    accepted = [1 - n / total for n, total in zip(late, requests, strict=True)]
    report.rows.append(
        Row(
            "dispatch, requests without a 429 after the first second",
            "",
            accepted,
            "all of them",
            [1.0] * len(accepted),
            accepted,
            1.0,
        )
    )
    report.notes.append(
        f"dispatch: all {wanted:,} deliveries reached Expo and none was stuck, in"
        f" {RATE / min(speeds):.3f} of the ideal time (at most {SLOWER}); refused with 429 after"
        f" the first second: {sum(late)} of {sum(requests):,.0f} requests; sent twice:"
        f" {max(twice)} (at most {MOST_TWICE}); load {os.getloadavg()[0]:.1f}"
    )


async def _fill(driver: Driver, name: str, folder: Path, tenders: int) -> str:
    """Make a database with deliveries that are due; return its URL."""
    from bench.tenders import open_tenders
    from esclusa.pipelines.tenders.devices import DeviceBody
    from esclusa.pipelines.tenders.ingestion import load_devices, write_tender
    from esclusa.pipelines.tenders.sources.chilecompra_api import fields_of
    from esclusa.pipelines.tenders.tender_fields import make_tender
    from esclusa.simulators.chilecompra import sample_tender

    async with open_tenders(driver, name, folder) as runtime:
        now = runtime.engine.clock.now()
        bodies = [
            {"installation_id": f"i{n}", "push_token": f"ExponentPushToken[i{n}]"}
            for n in range(DEVICES)
        ]
        await runtime.engine.records.insert(
            [record for body in bodies for record in DeviceBody.model_validate(body).records(now)]
        )
        targets = await load_devices(runtime.engine.records)
        run = runtime.engine.runner.new_run(runtime.engine.cycle("tenders.ingest"), now)
        run.id = "bench"
        for n in range(tenders):
            await write_tender(
                run, make_tender(fields_of(sample_tender(n, "2026-11-16")), now), targets
            )
    driver.vacuum(driver.server.url(name))
    return driver.server.url(name)


async def _send_all(url: str, expo: str, folder: Path, wanted: int) -> tuple[float, dict[str, Any]]:
    """Run the workers and kill one when a third is sent.

    Returns the seconds until everything is sent, and Expo's counters.
    """
    with _workers(url, expo, folder) as workers:
        async with aiohttp.ClientSession() as web:
            await web.post(f"{expo}/_state", json={"rate": RATE})
            begun: float | None = None
            killed: float | None = None
            while True:
                accepted = (await _counters(web, expo))["accepted"]
                now = time.monotonic()
                if begun is None and accepted:
                    begun = now
                if killed is None and accepted >= wanted // 3:
                    workers[0].kill()
                    killed = now
                if begun and killed and accepted >= wanted and await _all_sent(url):
                    return time.monotonic() - begun, await _counters(web, expo)
                ended = any(worker.poll() is not None for worker in workers[1:])
                if ended or now - (killed or begun or now) > 300:
                    log = (folder / "workers.log").read_text()[-3000:]
                    raise RuntimeError(f"stopped at {accepted:,} of {wanted:,}:\n{log}")
                await asyncio.sleep(0.1)


async def _counters(web: aiohttp.ClientSession, expo: str) -> dict[str, Any]:
    async with web.get(f"{expo}/_state") as answer:
        counters: dict[str, Any] = await answer.json()
        return counters


async def _all_sent(url: str) -> bool:
    return {state for state, _, _ in await _states(url)} == {"sent"}


async def _states(url: str) -> list[tuple[str, int, int]]:
    connection = await asyncpg.connect(url)
    try:
        return [(row[0], row[1], row[2]) for row in await connection.fetch(_STATES)]
    finally:
        await connection.close()


@contextmanager
def _workers(url: str, expo: str, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    environ = os.environ | {
        "ESCLUSA_STORE": url,
        "ESCLUSA_ARTIFACTS": str(folder),
        "ESCLUSA_PIPELINES": "tenders",
        "ESCLUSA_LOG_LEVEL": "error",
        "ESCLUSA_LEASE_SECONDS": str(LEASE),
        "EXPO_API_URL": expo,
        "EXPO_CONCURRENCY": str(CONCURRENCY),
        "DISPATCH_INTERVAL_MINUTES": "0.02",
    }
    with (folder / "workers.log").open("wb") as log:
        command = [sys.executable, "-m", "esclusa", "tenders", "dispatch"]
        workers = [
            subprocess.Popen(command, env=environ, stdout=log, stderr=log) for _ in range(PROCESSES)
        ]
        try:
            yield workers
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


@asynccontextmanager
async def _expo(folder: Path) -> AsyncIterator[str]:
    """Simulate Expo in a process of its own; yield its URL."""
    command = [sys.executable, "-m", "esclusa.simulators", "expo"]
    with (folder / "expo.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            yield (await asyncio.to_thread(process.stdout.readline)).strip()
        finally:
            process.kill()
            process.wait()
