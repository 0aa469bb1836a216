"""What is measured. Each measure runs its contenders in turn, round by round, and adds rows to the report."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.contenders.common import SLEEP
from bench.driver import (
    DBOS,
    HELD,
    HELD_SQLITE,
    HUEY,
    LIMIT,
    LIMIT_SQLITE,
    OURS,
    OURS_SQLITE,
    PGQUEUER,
    PROCRASTINATE,
    Driver,
    Side,
)
from bench.report import Report, rates, times


@dataclass(frozen=True)
class Scale:
    """How large and how often."""

    rounds: int
    share: float
    rows: int
    memory: int

    def of(self, count: int) -> int:
        return max(100, int(count * self.share))


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


async def drain(driver: Driver, report: Report, scale: Scale) -> None:
    """Drain and bulk insert on PostgreSQL: one process, handlers that do nothing, history on."""
    sides = (OURS, PGQUEUER, LIMIT, HELD, PROCRASTINATE, DBOS)
    got: dict[Side, list[float]] = {side: [] for side in sides}
    filled: dict[Side, list[float]] = {side: [] for side in sides}
    for turn in range(scale.rounds):
        for side in sides:
            done = await driver.drain(side, scale.of(side.count))
            got[side].append(done.rate)
            filled[side].append(done.fill)
            say(
                f"drain {turn + 1}/{scale.rounds}  {side.label}: {done.rate:,.0f}/s, filled at {done.fill:,.0f}/s"
            )
    for ours, what in ((OURS, "drain, PostgreSQL"), (HELD, "drain with a hold state")):
        report.rows.append(rates(what, got[ours], PGQUEUER.label, got[PGQUEUER], 2.5))
        report.rows.append(rates(what, got[ours], f"limit: {LIMIT.label}", got[LIMIT], 0.6))
        for peer in (PROCRASTINATE, DBOS):
            report.rows.append(rates(what, got[ours], peer.label, got[peer]))
    report.rows.append(
        rates("bulk insert with dedup", filled[OURS], "PgQueuer, no dedup", filled[PGQUEUER], 2.0)
    )
    for peer in (PROCRASTINATE, DBOS):
        report.rows.append(rates("bulk insert with dedup", filled[OURS], peer.label, filled[peer]))


async def latency(driver: Driver, report: Report, scale: Scale) -> None:
    """Pickup by an idle worker process on PostgreSQL."""
    peers = (PGQUEUER, PROCRASTINATE, DBOS)
    got: dict[Side, list[list[float]]] = {side: [] for side in (OURS, *peers)}
    rounds = max(2, scale.rounds - 1)
    for turn in range(rounds):
        for side in (OURS, *peers):
            took = await driver.pickups(side, scale.of(200))
            got[side].append(took)
            say(
                f"latency {turn + 1}/{rounds}  {side.label}: p50 {_share(took, 0.5):.2f} ms, p99 {_share(took, 0.99):.2f} ms"
            )
    for share, goal in ((0.5, 1.0), (0.99, None)):
        figures = {side: [_share(took, share) for took in rounds_] for side, rounds_ in got.items()}
        best = min(peers, key=lambda side: median(figures[side]))
        for peer in sorted(peers, key=lambda side: median(figures[side])):
            report.rows.append(
                times(
                    f"pickup p{share * 100:.0f}",
                    figures[OURS],
                    peer.label,
                    figures[peer],
                    goal if peer is best else None,
                )
            )


async def concurrency(driver: Driver, report: Report, scale: Scale) -> None:
    """1,000 handlers of 50 ms, 100 at a time: how close to the ideal half second."""
    count, width = 1000, 100
    ideal = count * SLEEP / width
    got: dict[Side, list[float]] = {OURS: [], PGQUEUER: []}
    for turn in range(scale.rounds):
        for side, spans in got.items():
            done = await driver.drain(side, count, work="sleep", concurrency=width)
            spans.append(done.span)
            say(
                f"concurrency {turn + 1}/{scale.rounds}  {side.label}: {done.span:.3f} s, {ideal / done.span:.2f} of the ideal"
            )
    what = "1,000 × 50 ms, 100 at a time"
    report.rows.append(times(what, got[OURS], "ideal", [ideal] * scale.rounds, 0.9, " s"))
    report.rows.append(times(what, got[OURS], PGQUEUER.label, got[PGQUEUER], unit=" s"))


async def growth(driver: Driver, report: Report, scale: Scale) -> None:
    """The drain on a table with very many settled records, beside the same on an empty one."""
    count = scale.of(20_000)
    full, empty = driver.server.create_database("full"), driver.server.create_database("empty")
    for url in (full, empty):
        await driver.drain(OURS, 1, url=_made(driver, url))
    start = time.monotonic()
    _multiply(driver, "full", "plain", {"id": "'old-' || s", "number": f"{count} + s"}, scale.rows)
    _multiply(driver, "full", "esclusa_history", {"record_id": "'old-' || s"}, scale.rows)
    say(f"growth: {scale.rows:,} settled records made in {time.monotonic() - start:.0f} s")
    got: dict[str, list[float]] = {full: [], empty: []}
    for turn in range(scale.rounds):
        for url, found in got.items():
            driver.server.run_sql(
                f"DELETE FROM plain WHERE number < {count}", url.rsplit("/", 1)[1]
            )
            done = await driver.drain(OURS, count, url=url)
            found.append(done.rate)
            say(
                f"growth {turn + 1}/{scale.rounds}  {'full' if url == full else 'empty'}: {done.rate:,.0f}/s"
            )
    report.rows.append(
        rates(
            f"drain beside {scale.rows:,} settled", got[full], "ours, empty table", got[empty], 0.9
        )
    )


async def sqlite(driver: Driver, report: Report, scale: Scale) -> None:
    """Drain on SQLite."""
    sides = (OURS_SQLITE, HUEY, LIMIT_SQLITE, HELD_SQLITE)
    got: dict[Side, list[float]] = {side: [] for side in sides}
    filled: dict[Side, list[float]] = {side: [] for side in sides}
    for turn in range(scale.rounds):
        for side in sides:
            done = await driver.drain(side, scale.of(side.count))
            got[side].append(done.rate)
            filled[side].append(done.fill)
            say(
                f"sqlite {turn + 1}/{scale.rounds}  {side.label}: {done.rate:,.0f}/s, filled at {done.fill:,.0f}/s"
            )
    for ours, what in (
        (OURS_SQLITE, "drain, SQLite"),
        (HELD_SQLITE, "drain with a hold state, SQLite"),
    ):
        report.rows.append(rates(what, got[ours], "Huey on SQLite", got[HUEY], 10.0))
        report.rows.append(
            rates(what, got[ours], f"limit: {LIMIT_SQLITE.label}", got[LIMIT_SQLITE])
        )
    report.rows.append(
        rates("bulk insert with dedup, SQLite", filled[OURS_SQLITE], "Huey on SQLite", filled[HUEY])
    )


async def memory(driver: Driver, report: Report, scale: Scale) -> None:
    """A worker's own memory while it drains very many records: flat after a tenth of them."""
    count, url, marks = scale.memory, driver.place(OURS), driver.marks(scale.memory)
    say(f"memory: {count:,} records put in at {driver.fill(OURS, url, count):,.0f}/s")
    driver.settle_down(url)
    samples: list[tuple[int, float]] = []
    async with driver.working(OURS, url, "noop") as process:
        waiting = asyncio.create_task(driver.handled(OURS, process, marks, count))
        while not waiting.done():
            samples.append((marks.handled(), _resident(process.pid)))
            await asyncio.wait([waiting], timeout=0.5)
        await waiting
    warm = next(size for handled, size in samples if handled >= count / 10)
    most = max(size for handled, size in samples if handled >= count / 10)
    report.rows.append(
        times(f"memory while draining {count:,}", [most], "the same, when warm", [warm], 0.9, " MB")
    )
    report.notes.append(
        f"a worker's memory grew by {most - warm:.1f} MB from {warm:.1f} MB after the first tenth of {count:,} records"
    )


async def cli(driver: Driver, report: Report, scale: Scale) -> None:
    """How long ``esclusa status`` takes from start to end, on a small SQLite store."""
    program = Path(sys.executable).with_name("esclusa")
    environment = os.environ | {"ESCLUSA_STORE": f"sqlite:///{driver.folder}/status.db"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # the second start is the one that users know
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
        times("esclusa status, start to end", took[2:], "limit we set", [0.3] * 10, 1.0, " s")
    )


Measure = Callable[[Driver, Report, Scale], Awaitable[None]]

MEASURES: dict[str, Measure] = {
    "drain": drain, "latency": latency, "concurrency": concurrency, "growth": growth, "sqlite": sqlite, "cli": cli, "memory": memory,
}  # fmt: skip
BY_HAND = frozenset({"memory"})
SLOW = frozenset({"memory", "growth"})


def _share(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _made(driver: Driver, url: str) -> str:
    driver.call_setup(OURS, url)
    return url


def _multiply(
    driver: Driver, database: str, table: str, changed: dict[str, str], count: int
) -> None:
    """Make many rows like the one that a real drain left behind."""
    listed = driver.server.run_sql(
        f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}' AND is_identity = 'NO'",
        database,
    ).split()
    values = ", ".join(changed.get(name, f'"{name}"') for name in listed)
    names = ", ".join(f'"{name}"' for name in listed)
    source = f"(SELECT * FROM {table} {'WHERE table_name = ' + repr('plain') if table == 'esclusa_history' else ''} LIMIT 1) one"
    driver.server.run_sql(
        f"INSERT INTO {table} ({names}) SELECT {values} FROM {source}, generate_series(1, {count}) s",
        database,
    )


def _resident(pid: int) -> float:
    """MB of memory of its own (the shared map of marks not counted)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return (
        next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
        / 1024
    )
