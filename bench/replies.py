"""Measures of the pipeline ``replies``.

10,000 pending jobs in one run beside a bare loop of the same calls, the memory of that run, and a
count over a million jobs. Each side is a process of its own: the pipeline runs as ``esclusa run``
does (on uvloop), the loop as a script would, and for comparison on uvloop.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import uvloop

from bench.driver import Driver
from bench.measures import Measure, Scale, in_process, progress, resident_mb
from bench.report import Report, rates, times
from esclusa.app import open_runtime
from esclusa.cli.session import run_fast
from esclusa.engine.process_tuning import tune_process
from esclusa.pipelines.replies.records import Job
from esclusa.settings import Settings, load
from esclusa.simulators import SimulatorProcess

AT_ONCE = 16
LIMIT_MS = 250.0
_BARE = "bare aiohttp loop to disk"


async def replies(driver: Driver, report: Report, scale: Scale) -> None:
    """10,000 jobs, 16 at a time, beside a bare aiohttp loop; and a count over a million jobs."""
    count = scale.of(10_000)
    speeds: dict[str, list[float]] = {"SQLite": [], "PostgreSQL": [], "bare": [], "uvloop": []}
    cpu: dict[str, list[float]] = {name: [] for name in speeds}
    growth: list[float] = []
    with SimulatorProcess("information_tracer") as sim:
        async with (
            aiohttp.ClientSession() as session,
            session.post(sim.url + "/_quota", json={"every_job": True}) as answer,
        ):
            answer.raise_for_status()
        for turn in range(max(1, scale.rounds // 2)):
            folder = Path(tempfile.mkdtemp(prefix="esclusa-replies-", dir=driver.folder))
            stores = {
                "SQLite": f"sqlite:////{folder}/replies.db",
                "PostgreSQL": driver.server.create_database(f"replies_{turn}"),
            }
            for name, rate in speeds.items():
                side = partial(_loop, fast=name == "uvloop")
                if name in stores:
                    side = partial(_pipeline, store=stores[name])
                took, used, grown = await in_process(side, sim.url, count, folder / name)
                rate.append(count / took)
                cpu[name].append(1e6 * used / count)
                growth.append(grown)
            progress(
                f"replies {turn + 1}  "
                + ", ".join(
                    f"{name} {rate[-1]:,.0f}/s ({cpu[name][-1]:,.0f} µs of CPU each)"
                    for name, rate in speeds.items()
                )
                + f"; {max(growth):+.0f} MB"
            )
            shutil.rmtree(folder, ignore_errors=True)
    for store in ("SQLite", "PostgreSQL"):
        what = f"replies: {count:,} jobs in one run, {store}"
        report.rows.append(rates(what, speeds[store], _BARE, speeds["bare"], 0.6))
        report.rows.append(rates(what, speeds[store], "the same on uvloop", speeds["uvloop"]))
    report.notes.append(
        f"replies: memory grew by at most {max(growth):.0f} MB after the first tenth of a run"
    )
    report.notes.append(
        "replies: CPU of the process for each job, "
        + ", ".join(f"{name} {median(used):,.0f} µs" for name, used in cpu.items())
    )
    await _count_jobs(driver, report, scale)


def _loop(url: str, count: int, folder: Path, *, fast: bool) -> tuple[float, float, float]:
    """Run the bare loop; return its seconds, its seconds of CPU, and 0 for memory."""
    tune_process()  # as the pipeline's process does
    began = time.process_time()
    took = (uvloop.run if fast else asyncio.run)(_bare(url, count, folder))
    return took, time.process_time() - began, 0.0


def _pipeline(url: str, count: int, folder: Path, *, store: str) -> tuple[float, float, float]:
    return run_fast(_ours(url, count, store, folder))


async def _bare(url: str, count: int, folder: Path) -> float:
    """Make the same calls and write the same files as a script would; return the seconds."""
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


def _settings(store: str, folder: Path, url: str = "http://127.0.0.1:9") -> Settings:
    environ = {
        "ESCLUSA_STORE": store,
        "ESCLUSA_ARTIFACTS": str(folder),
        "ESCLUSA_PIPELINES": "replies",
        "ESCLUSA_LOG_LEVEL": "error",
        "INFORMATION_TRACER_API_KEY": "t",
        "INFORMATION_TRACER_API_URL": url,
        "REPLIES_CHECK_CONCURRENCY": str(AT_ONCE),
    }
    return load(environ=environ)


def _job(number: int, **fields: Any) -> Job:
    """The only job of a post, as the pipeline makes it."""
    given = {"siblings": 0, "done_siblings": 0} | fields
    return Job(
        job_id=f"b{number}",
        post_doc_id=f"twitter:{number}",
        post_id=str(number),
        platform="twitter",
        country="hn",
        **given,
    )


async def _ours(url: str, count: int, store: str, folder: Path) -> tuple[float, float, float]:
    """Run the cycle over fresh jobs.

    Return the seconds, the seconds of CPU, and by how many MB memory grew after the first tenth of
    the jobs.
    """
    async with (
        open_runtime(_settings(store, folder, url)) as runtime,
        runtime.engine.running() as engine,
    ):
        for start in range(0, count, 1000):
            await engine.records.insert([_job(n) for n in range(start, min(count, start + 1000))])
        early: list[float] = []

        async def sample() -> None:
            while True:
                run = engine.under_way("replies.process-jobs")
                if run is not None and run.counters["taken"] > count // 10 and not early:
                    early.append(resident_mb(os.getpid()))
                await asyncio.sleep(0.02)

        sampling = asyncio.create_task(sample())
        began, used = time.perf_counter(), time.process_time()
        run = await engine.run_cycle("replies.process-jobs")
        took, used = time.perf_counter() - began, time.process_time() - used
        sampling.cancel()
        if run.counters["done"] != count:
            raise RuntimeError(f"replies: {run.answer()}")
        return took, used, resident_mb(os.getpid()) - early[0]


async def _count_jobs(driver: Driver, report: Report, scale: Scale) -> None:
    """Time the count of failed jobs whose post has no done job.

    Every fifth of the million jobs has failed; half of those have a done job for the same post.
    """
    many = scale.rows if scale.rows < 1_000_000 or scale.share == 1.0 else scale.rows // 5
    folder = Path(tempfile.mkdtemp(prefix="esclusa-replies-", dir=driver.folder))
    for label, store in (
        ("SQLite", f"sqlite:////{folder}/count.db"),
        ("PostgreSQL", driver.server.create_database("replies_count")),
    ):
        async with open_runtime(_settings(store, folder)) as runtime:
            records = runtime.engine.records
            for start in range(0, many, 5000):
                await records.insert([_finished_job(n) for n in range(start, start + 5000)])
            where = {"status": "failed", "done_siblings": 0}
            took = []
            for _ in range(5):
                began = time.perf_counter()
                found = (await records.count(Job, where, cap=10**9))[0]
                took.append((time.perf_counter() - began) * 1000)
            if found != many // 10:
                raise RuntimeError(f"replies: counted {found} of {many // 10}")
            progress(
                f"replies: {found:,} of {many:,} jobs counted in {min(took):.0f} ms on {label}"
            )
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


def _finished_job(number: int) -> Job:
    failed = number % 5 == 0
    return _job(
        number,
        status="failed" if failed else "done",
        done_siblings=1 if failed and number % 10 == 0 else 0,
    )


MEASURES: dict[str, Measure] = {"replies": replies}
