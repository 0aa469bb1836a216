"""The engine's measures. Each adds rows to the report.

A measure runs its contenders one after the other in every round, so that both sides of a ratio see
the same machine.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import TypeVar

from bench.contenders.common import SLEEP
from bench.driver import (
    DBOS,
    HELD,
    HELD_SQLITE,
    HUEY,
    LIMIT,
    LIMIT_SQLITE,
    NOTIFIED,
    OURS,
    OURS_SQLITE,
    PGQUEUER,
    PROCRASTINATE,
    Driver,
    Side,
)
from bench.report import Report, rates, times

T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    """How much to measure.

    ``share`` is applied to counts of records, ``rows`` is the size of the growth test,
    ``memory`` the number of records of the memory test, and ``minutes`` the time of the soak.
    """

    rounds: int
    share: float
    rows: int
    memory: int
    minutes: float

    def of(self, count: int) -> int:
        return max(100, int(count * self.share))


async def in_process(side: Callable[..., T], *arguments: object) -> T:
    """Run a side in a process of its own; return what it returns."""

    def run() -> T:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            return process.submit(side, *arguments).result()

    return await asyncio.to_thread(run)


def progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


async def drain(driver: Driver, report: Report, scale: Scale) -> None:
    """Drain and bulk insert on PostgreSQL: one process, handlers that do nothing, history on."""
    sides = (OURS, PGQUEUER, LIMIT, HELD, PROCRASTINATE, DBOS)
    drained, filled = await _drain_rounds("drain", sides, driver, scale)
    for ours, what, goals in (
        (OURS, "drain, PostgreSQL", (3.5, 0.8)),
        (HELD, "drain with a hold state", (2.5, 0.6)),
    ):
        for beside, name, goal in zip(
            (PGQUEUER, LIMIT), (PGQUEUER.label, f"limit: {LIMIT.label}"), goals, strict=True
        ):
            report.rows.append(rates(what, drained[ours], name, drained[beside], goal))
        for peer in (PROCRASTINATE, DBOS):
            report.rows.append(rates(what, drained[ours], peer.label, drained[peer]))
    report.rows.append(
        rates("bulk insert with dedup", filled[OURS], "PgQueuer, no dedup", filled[PGQUEUER], 3.0)
    )
    for peer in (PROCRASTINATE, DBOS):
        report.rows.append(rates("bulk insert with dedup", filled[OURS], peer.label, filled[peer]))


async def latency(driver: Driver, report: Report, scale: Scale) -> None:
    """Pickup by an idle worker process on PostgreSQL."""
    peers = (PGQUEUER, PROCRASTINATE, DBOS)
    pickups: dict[Side, list[list[float]]] = {side: [] for side in (OURS, NOTIFIED, *peers)}
    rounds = max(2, scale.rounds - 1)
    for turn in range(rounds):
        for side, taken in pickups.items():
            took = await driver.pickups(side, scale.of(200))
            taken.append(took)
            progress(
                f"latency {turn + 1}/{rounds}  {side.label}:"
                f" p50 {_percentile(took, 0.5):.2f} ms, p99 {_percentile(took, 0.99):.2f} ms"
            )
    ours = pickups[OURS]
    twice = [2 * _percentile(took, 0.5) for took in ours]
    report.rows.append(
        times("pickup p99", [_percentile(took, 0.99) for took in ours], "2 × p50", twice, 1.0)
    )
    for share in (0.5, 0.99):
        figures = {
            side: [_percentile(took, share) for took in measured]
            for side, measured in pickups.items()
        }
        report.rows.append(
            times(
                f"pickup p{share * 100:.0f}, {NOTIFIED.label}",
                figures[NOTIFIED],
                "promised: 50 ms",
                [50.0] * rounds,
                1.0,
            )
        )
        ranked = sorted(peers, key=lambda side: median(figures[side]))
        for peer in ranked:  # the goal is set against the fastest peer
            report.rows.append(
                times(
                    f"pickup p{share * 100:.0f}",
                    figures[OURS],
                    peer.label,
                    figures[peer],
                    1.0 if peer is ranked[0] else None,
                )
            )


async def concurrency(driver: Driver, report: Report, scale: Scale) -> None:
    """1,000 handlers of 50 ms, 100 at a time, beside the ideal half second."""
    count, width = 1000, 100
    ideal = count * SLEEP / width
    measured: dict[Side, list[float]] = {OURS: [], PGQUEUER: []}
    for turn in range(scale.rounds):
        for side, spans in measured.items():
            done = await driver.drain(side, count, work="sleep", concurrency=width)
            spans.append(done.span)
            progress(
                f"concurrency {turn + 1}/{scale.rounds}  {side.label}:"
                f" {done.span:.3f} s, {ideal / done.span:.2f} of the ideal"
            )
    what = "1,000 × 50 ms, 100 at a time"
    report.rows.append(times(what, measured[OURS], "ideal", [ideal] * scale.rounds, 0.9, " s"))
    report.rows.append(times(what, measured[OURS], PGQUEUER.label, measured[PGQUEUER], unit=" s"))


async def sqlite(driver: Driver, report: Report, scale: Scale) -> None:
    """Drain and bulk insert on SQLite."""
    sides = (OURS_SQLITE, HUEY, LIMIT_SQLITE, HELD_SQLITE)
    drained, filled = await _drain_rounds("sqlite", sides, driver, scale)
    limit = f"limit: {LIMIT_SQLITE.label}"
    for ours, what in (
        (OURS_SQLITE, "drain, SQLite"),
        (HELD_SQLITE, "drain with a hold state, SQLite"),
    ):
        report.rows.append(rates(what, drained[ours], "Huey on SQLite", drained[HUEY], 10.0))
        report.rows.append(rates(what, drained[ours], limit, drained[LIMIT_SQLITE], 0.4))
    report.rows.append(
        rates("bulk insert with dedup, SQLite", filled[OURS_SQLITE], "Huey on SQLite", filled[HUEY])
    )


async def memory(driver: Driver, report: Report, scale: Scale) -> None:
    """A worker's private memory while it drains very many records: flat after a tenth of them."""
    count, url, timings = scale.memory, driver.fresh_database(OURS), driver.timings(scale.memory)
    progress(f"memory: {count:,} records inserted at {driver.fill(OURS, url, count):,.0f}/s")
    driver.vacuum(url)
    samples: list[tuple[int, float]] = []
    async with driver.working(OURS, url, "noop") as process:
        waiting = asyncio.create_task(driver.handled(OURS, process, timings, count))
        while not waiting.done():
            samples.append((timings.handled(), resident_mb(process.pid)))
            await asyncio.wait([waiting], timeout=0.5)
        await waiting
    warm = next(size for handled, size in samples if handled >= count / 10)
    most = max(size for handled, size in samples if handled >= count / 10)
    report.rows.append(
        times(f"memory while draining {count:,}", [most], "the same, when warm", [warm], 0.9, " MB")
    )
    report.notes.append(
        f"a worker's memory grew by {most - warm:.1f} MB from {warm:.1f} MB"
        f" after the first tenth of {count:,} records"
    )


async def cli(driver: Driver, report: Report, scale: Scale) -> None:
    """Duration of ``esclusa status`` on a small SQLite store, start of the process included."""
    program = Path(sys.executable).with_name("esclusa")
    hello = Path(__file__).parents[1] / "examples" / "hello.py"
    environment = os.environ | {
        "ESCLUSA_STORE": f"sqlite:///{driver.folder}/status.db",
        "ESCLUSA_PIPELINES": f"{hello}:app",
    }
    # Users have bytecode from the second start on, so it is written and the first is left out.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    took = []
    for command in ("migrate", *["status"] * 11):
        start = time.perf_counter()
        done = subprocess.run(
            [str(program), command],
            env=environment,
            cwd=driver.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        took.append(time.perf_counter() - start)
        if done.returncode:
            raise RuntimeError(
                f"esclusa {command} failed: {(done.stderr or done.stdout).strip()[-300:]}"
            )
    report.rows.append(
        times("esclusa status, start to end", took[2:], "limit we set", [0.25] * 10, 1.0, " s")
    )


Measure = Callable[[Driver, Report, Scale], Awaitable[None]]


async def testkit(driver: Driver, report: Report, scale: Scale) -> None:
    """One test of a user's pipeline with ``esclusa.testing``: open, insert, run, assert, close."""
    from esclusa.testing import Harness
    from examples.hello import Greeting, app

    took = []
    for _ in range(20):
        start = time.perf_counter()
        async with Harness(app) as h:
            greeting = await h.insert(Greeting(name="ada"))
            await h.run_stage("say-hello")
            await h.assert_state(greeting, "greeted")
        took.append(1000 * (time.perf_counter() - start))
    report.rows.append(
        times("a test with the test kit (ms)", took[1:], "allowed", [50.0] * (len(took) - 1), 1.0)
    )


MEASURES: dict[str, Measure] = {
    "drain": drain,
    "latency": latency,
    "concurrency": concurrency,
    "sqlite": sqlite,
    "cli": cli,
    "testkit": testkit,
    "memory": memory,
}
ON_REQUEST = frozenset(
    {
        "billion",
        "capacity",
        "processes",
        "soak",
        "killed",
        "memory",
        "migrate",
        "peers",
        "rename",
        "failover",
        "portable",
        "reply-export",
        "documents-quota",
        "documents-ticks",
    }
)
SLOW = ON_REQUEST | {"growth"}


async def _drain_rounds(
    name: str, sides: tuple[Side, ...], driver: Driver, scale: Scale
) -> tuple[dict[Side, list[float]], dict[Side, list[float]]]:
    """Drain every side in every round; return the drain rates and the insert rates."""
    drained: dict[Side, list[float]] = {side: [] for side in sides}
    filled: dict[Side, list[float]] = {side: [] for side in sides}
    for turn in range(scale.rounds):
        for side in sides:
            done = await driver.drain(side, scale.of(side.count))
            drained[side].append(done.rate)
            filled[side].append(done.fill)
            progress(
                f"{name} {turn + 1}/{scale.rounds}  {side.label}:"
                f" {done.rate:,.0f}/s, inserted at {done.fill:,.0f}/s"
            )
    return drained, filled


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def resident_mb(pid: int) -> float:
    """The private memory of a process in MB, without the shared map of timings."""
    status = Path(f"/proc/{pid}/status").read_text()
    return (
        next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
        / 1024
    )
