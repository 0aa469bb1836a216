"""Dispatch of the pipeline ``tenders`` by four processes, one of them killed: nothing stuck, nothing missed, little sent twice."""

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
from bench.report import Report, rates

TENDERS, DEVICES, PROCESSES = 100, 1000, 4
LEASE, CONCURRENCY, BATCH = 5, 6, 100
# What the killed process can have had under way: its requests at once, each of so many messages.
MOST_TWICE = CONCURRENCY * BATCH

_STATES = "SELECT status, count(*), count(locked_by) FROM notification_deliveries GROUP BY status"


async def dispatch(driver: Driver, report: Report, scale: Any) -> None:
    """100,000 deliveries by four processes, one killed by SIGKILL in the middle: each device and tender once at Expo's door."""
    tenders = max(10, int(TENDERS * scale.share))
    wanted = tenders * DEVICES
    found, twice = [], []
    for turn in range(1 if scale.share == 1.0 else min(2, scale.rounds)):
        with tempfile.TemporaryDirectory() as folder:
            async with _expo(Path(folder)) as expo:
                url = await _made(driver, f"tenders-dispatch-{turn}", Path(folder), tenders)
                seconds, told = await _killed(url, expo, Path(folder), wanted)
        states = await _states(url)
        if states != [("sent", wanted, 0)] or told["pairs"] != wanted or told["twice"] > MOST_TWICE:
            raise RuntimeError(f"deliveries end as {states} for {wanted:,}; Expo counted {told}")
        found.append(wanted / seconds)
        twice.append(told["twice"])
    what = f"dispatch, {wanted:,} by {PROCESSES} processes, one killed"
    report.rows.append(rates(what, found, "what Expo allows a project", [600.0] * len(found), 1.0))
    report.notes.append(
        f"dispatch: each of {wanted:,} devices and tenders reached Expo, no delivery was stuck; "
        f"sent twice: {max(twice)} (at most {MOST_TWICE})"
    )


async def _made(driver: Driver, name: str, folder: Path, tenders: int) -> str:
    """A database with deliveries that are due; its address."""
    from bench.tenders import opened
    from esclusa.pipelines.tenders.devices import DeviceBody
    from esclusa.pipelines.tenders.ingestion import load_devices, write_tender
    from esclusa.pipelines.tenders.sources.chilecompra_api import fields_of
    from esclusa.pipelines.tenders.tender_fields import make_tender
    from esclusa.simulators.chilecompra import sample_tender

    async with opened(driver, name, folder) as runtime:
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
    driver.settle_down(driver.server.url(name))
    return driver.server.url(name)


async def _killed(url: str, expo: str, folder: Path, wanted: int) -> tuple[float, dict[str, Any]]:
    """Seconds until everything is sent, and what Expo counted. One process dies when a third is done."""
    with _workers(url, expo, folder) as workers:
        async with aiohttp.ClientSession() as web:
            begun: float | None = None
            died: float | None = None
            while True:
                accepted = (await _told(web, expo))["accepted"]
                now = time.monotonic()
                if begun is None and accepted:
                    begun = now
                if died is None and accepted >= wanted // 3:
                    workers[0].kill()
                    died = now
                if (
                    died is not None
                    and begun is not None
                    and accepted >= wanted
                    and await _all_sent(url)
                ):
                    return time.monotonic() - begun, await _told(web, expo)
                if (
                    any(worker.poll() is not None for worker in workers[1:])
                    or now - (died or begun or now) > 300
                ):
                    raise RuntimeError(
                        f"stopped at {accepted:,} of {wanted:,}:\n{(folder / 'workers.log').read_text()[-3000:]}"
                    )
                await asyncio.sleep(0.1)


async def _told(web: aiohttp.ClientSession, expo: str) -> dict[str, Any]:
    async with web.get(f"{expo}/_state") as answer:
        told: dict[str, Any] = await answer.json()
        return told


async def _all_sent(url: str) -> bool:
    return {state for state, _, _ in await _states(url)} == {"sent"}


async def _states(url: str) -> list[tuple[str, int, int]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(_STATES)]
    finally:
        await connection.close()


@contextmanager
def _workers(url: str, expo: str, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    environ = os.environ | {
        "ESCLUSA_STORE": url, "ESCLUSA_ARTIFACTS": str(folder), "ESCLUSA_PIPELINES": "tenders", "ESCLUSA_LOG_LEVEL": "error",
        "ESCLUSA_LEASE_SECONDS": str(LEASE), "EXPO_API_URL": expo, "EXPO_CONCURRENCY": str(CONCURRENCY),
        "DISPATCH_INTERVAL_MINUTES": "0.02",
    }  # fmt: skip
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
    """Expo played by a process of its own; its address."""
    command = [sys.executable, "-m", "esclusa.simulators", "expo"]
    with (folder / "expo.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            yield (await asyncio.to_thread(process.stdout.readline)).strip()
        finally:
            process.kill()
            process.wait()
