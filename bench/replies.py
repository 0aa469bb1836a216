"""Ten thousand pending jobs in one run beside a bare loop of the same calls; the worker's memory; a count among a million jobs."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

from bench.driver import Driver
from bench.measures import Measure, Scale, _resident, say
from bench.report import Report, rates, times
from esclusa.app import open_runtime
from esclusa.pipelines.replies import Job
from esclusa.pipelines.replies.operations import job_filter
from esclusa.settings import load
from esclusa.simulators import SimulatorProcess

AT_ONCE = 16
LIMIT_MS = 250.0


async def replies(driver: Driver, report: Report, scale: Scale) -> None:
    """Check, download and save 10,000 jobs, 16 at a time, beside a bare aiohttp loop; and /jobs/count among a million jobs."""
    count = scale.of(10_000)
    got: dict[str, list[float]] = {"sqlite": [], "postgresql": [], "bare": []}
    growth: list[float] = []
    with SimulatorProcess("information_tracer") as sim:
        async with (
            aiohttp.ClientSession() as session,
            session.post(sim.url + "/_quota", json={"every_job": True}) as answer,
        ):
            answer.raise_for_status()
        for turn in range(max(1, scale.rounds // 2)):
            folder = Path(tempfile.mkdtemp(prefix="esclusa-replies-", dir=driver.folder))
            got["bare"].append(count / await _bare(sim.url, count, folder / "bare"))
            got["sqlite"].append(
                count
                / await _ours(
                    sim.url, count, f"sqlite:////{folder}/replies.db", folder / "a", growth
                )
            )
            database = driver.server.create_database(f"replies_{turn}")
            got["postgresql"].append(
                count / await _ours(sim.url, count, database, folder / "b", growth)
            )
            say(
                f"replies {turn + 1}  "
                + ", ".join(f"{name} {rate[-1]:,.0f}/s" for name, rate in got.items())
                + f"; {growth[-1]:+.0f} MB"
            )
            shutil.rmtree(folder, ignore_errors=True)
    for store, label in (("sqlite", "SQLite"), ("postgresql", "PostgreSQL")):
        report.rows.append(
            rates(
                f"replies: {count:,} jobs in one run, {label}",
                got[store],
                "bare aiohttp loop to disk",
                got["bare"],
            )
        )
    report.notes.append(
        f"replies: memory grew by {max(growth):.0f} MB at most between a tenth of the run and its end"
    )
    await _counting(driver, report, scale)


async def _bare(url: str, count: int, folder: Path) -> float:
    folder.mkdir(parents=True)
    todo = iter(range(count))
    start = time.perf_counter()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:

        async def work() -> None:
            for number in todo:
                async with session.get(
                    f"{url}/status", params={"id_hash256": f"b{number}", "token": "t"}
                ) as answer:
                    await answer.json()
                async with session.get(
                    f"{url}/rawdata", params={"id": f"b{number}", "source": "twitter", "token": "t"}
                ) as answer:
                    body = await answer.read()
                await asyncio.to_thread((folder / f"{number}.json").write_bytes, body)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return time.perf_counter() - start


def _settings(store: str, folder: Path, url: str = "http://127.0.0.1:9") -> Any:
    environ = {
        "ESCLUSA_STORE": store, "ESCLUSA_ARTIFACTS": str(folder), "ESCLUSA_PIPELINES": "replies", "ESCLUSA_LOG_LEVEL": "error",
        "INFORMATION_TRACER_API_KEY": "t", "INFORMATION_TRACER_API_URL": url, "REPLIES_CHECK_CONCURRENCY": str(AT_ONCE),
    }  # fmt: skip
    return load(environ=environ)


def _job(number: int, **fields: Any) -> Job:
    return Job(
        job_id=f"b{number}",
        post_doc_id=f"twitter:{number}",
        post_id=str(number),
        platform="twitter",
        country="hn",
        **fields,
    )


async def _ours(url: str, count: int, store: str, folder: Path, growth: list[float]) -> float:
    async with (
        open_runtime(_settings(store, folder, url)) as runtime,
        runtime.engine.running() as engine,
    ):
        for start in range(0, count, 1000):
            await engine.records.insert([_job(n) for n in range(start, min(count, start + 1000))])
        early: list[float] = []

        async def look() -> None:
            while True:
                run = engine.under_way("replies.process-jobs")
                if run is not None and run.counters["taken"] > count // 10 and not early:
                    early.append(_resident(os.getpid()))
                await asyncio.sleep(0.02)

        watch = asyncio.create_task(look())
        began = time.perf_counter()
        run = await engine.run_cycle("replies.process-jobs")
        took = time.perf_counter() - began
        watch.cancel()
        if run.counters["done"] != count:
            raise RuntimeError(f"replies: {run.answer()}")
        growth.append(_resident(os.getpid()) - early[0])
        return took


async def _counting(driver: Driver, report: Report, scale: Scale) -> None:
    """Among a million jobs, of which every fifth failed and half of those have a done one."""
    many = scale.rows if scale.rows < 1_000_000 or scale.share == 1.0 else scale.rows // 5
    folder = Path(tempfile.mkdtemp(prefix="esclusa-replies-", dir=driver.folder))
    for label, store in (
        ("SQLite", f"sqlite:////{folder}/count.db"),
        ("PostgreSQL", driver.server.create_database("replies_count")),
    ):
        async with open_runtime(_settings(store, folder)) as runtime:
            records = runtime.engine.records
            for start in range(0, many, 5000):
                await records.insert([_like(n) for n in range(start, start + 5000)])
            where = job_filter({}, without_done=True)
            took = []
            for _ in range(5):
                began = time.perf_counter()
                found = (await records.count(Job, where, cap=10**9))[0]
                took.append((time.perf_counter() - began) * 1000)
            if found != many // 10:
                raise RuntimeError(f"replies: counted {found} of {many // 10}")
            say(f"replies: {found:,} of {many:,} jobs counted in {min(took):.0f} ms on {label}")
            report.rows.append(
                times(
                    f"failed without done, {many:,} jobs, {label}",
                    took,
                    "limit we set",
                    [LIMIT_MS] * 5,
                    1.0,
                )
            )
    shutil.rmtree(folder, ignore_errors=True)


def _like(number: int) -> Job:
    failed = number % 5 == 0
    return _job(
        number,
        status="failed" if failed else "done",
        done_siblings=1 if failed and number % 10 == 0 else None,
    )


MEASURES: dict[str, Measure] = {"replies": replies}
