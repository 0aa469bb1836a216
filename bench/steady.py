"""Work that goes on: a soak at full speed, and the arrivals of a billion records a day."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median

from bench.capacity import PER_DAY
from bench.costs import Costs, Meter, children
from bench.driver import Driver
from bench.measures import Measure, Scale, progress, resident_mb
from bench.report import Report, rates, times
from bench.steady_pipeline import Parcel, Turn, billion, soak
from esclusa import App
from esclusa.model.plan import NoSettings
from esclusa.model.query import query
from esclusa.stores.postgres import PostgresStore

# Records that go round, and for how long their history is kept.
ROUND, KEPT = 20_000, timedelta(seconds=60)
# How often the state of the soak is read, and into how many parts its time is divided.
EVERY, PARTS = 5.0, 4
# What must stay as it is: field of a sample, name, unit and divisor.
_WATCHED = (
    ("table", "table with its indexes", " MB", 1e6),
    ("history", "history of one minute", " MB", 1e6),
    ("memory", "memory of the workers", " MB", 1.0),
    ("files", "open files of the workers", "", 1.0),
)
# Arrivals are inserted in so many batches a second.
BATCHES = 10

_SIZES = """SELECT sum(n_tup_upd)::float8, sum(n_dead_tup)::float8,
    (SELECT pg_total_relation_size('turns'))::float8,
    (SELECT pg_total_relation_size('esclusa.history'))::float8
FROM pg_stat_user_tables WHERE relname = 'turns'"""
# Milliseconds from the insertion until the settlement, of what was settled in the last seconds.
_WAITED = """SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (
    ORDER BY extract(epoch FROM updated_at - created_at)) FROM parcels
WHERE status = 'sent' AND updated_at > now() - interval '2 s'"""


@dataclass(frozen=True)
class Sample:
    """The state of the soak at a moment."""

    at: float
    updates: float  # of records, so far
    dead: float  # rows that are not yet vacuumed
    table: float  # bytes, with indexes
    history: float
    memory: float  # MB, of all workers
    files: int  # open files of all workers


async def soak_measure(driver: Driver, report: Report, scale: Scale) -> None:
    """Two workers at full speed for --minutes: rate, bloat, memory and open files stay as they are.

    The history is pruned as fast as it grows, so that autovacuum has its work there, too.
    """
    url = driver.server.create_database("soak")
    store = await _opened(url, soak)
    meter = await Meter.open(driver.server, url, statements=False)
    samples: list[Sample] = []
    try:
        for start in range(0, ROUND, 5000):
            await store.insert(
                [Turn(number=n, payload=f"payload of {n}") for n in range(start, start + 5000)]
            )
        async with _workers(driver, url, "soak") as parent:
            pruning = asyncio.create_task(_prune(store))
            end = time.monotonic() + scale.minutes * 60
            while time.monotonic() < end:
                await asyncio.sleep(EVERY)
                samples.append(await _sample(meter, parent))
                _show(samples)
            pruning.cancel()
    finally:
        await meter.close()
        await store.close()
    first, last = _part(samples, 1), _part(samples, PARTS - 1)
    what = f"soak, {scale.minutes:g} minutes: "
    part = "its second quarter"
    report.rows.append(rates(f"{what}updates", [_rate(last)], part, [_rate(first)], 0.8))
    for name, shown, unit, share in _WATCHED:
        ours, theirs = ([getattr(each, name) / share for each in some] for some in (last, first))
        report.rows.append(times(what + shown, [max(ours)], part, [max(theirs)], 0.8, unit))


def _part(samples: list[Sample], number: int) -> list[Sample]:
    size = max(1, len(samples) // PARTS)
    return samples[number * size : (number + 1) * size + 1]


def _rate(samples: list[Sample]) -> float:
    first, last = samples[0], samples[-1]
    return (last.updates - first.updates) / (last.at - first.at)


def _show(samples: list[Sample]) -> None:
    if len(samples) % 6 == 2:
        new = samples[-1]
        progress(
            f"soak, {len(samples) * EVERY / 60:.1f} min: {_rate(samples[-2:]):,.0f} updates/s,"
            f" {new.dead:,.0f} dead rows, table {new.table / 1e6:.1f} MB,"
            f" history {new.history / 1e6:.1f} MB, workers {new.memory:.0f} MB, {new.files} files"
        )


async def _sample(meter: Meter, parent: int) -> Sample:
    updates, dead, table, history = await meter.row(_SIZES)
    workers = children(parent)
    files = sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in workers)
    memory = sum(map(resident_mb, workers))
    return Sample(time.monotonic(), updates, dead, table, history, memory, files)


async def _prune(store: PostgresStore) -> None:
    while True:
        pruned = await store.prune_history(await store.now() - KEPT, 20_000)
        await asyncio.sleep(0 if pruned else 1.0)


async def billion_measure(driver: Driver, report: Report, scale: Scale) -> None:
    """The average arrivals of a billion records a day on this machine, for --minutes.

    Another program inserts them, two workers move them, and what is done is deleted again.
    """
    url, mean = driver.server.create_database("billion"), PER_DAY / 86_400
    store = await _opened(url, billion)
    meter = await Meter.open(driver.server, url, statements=False)
    waited: list[list[float]] = []
    try:
        async with _workers(driver, url, "billion") as parent:
            deleting = asyncio.create_task(_delete(store))
            before, start = await meter.read(children(parent)), time.monotonic()
            inserting = asyncio.create_task(_arrive(store, mean, scale.minutes * 60))
            while not inserting.done():
                await asyncio.wait([inserting], timeout=EVERY)
                if (found := (await meter.row(_WAITED))[0]) is not None:
                    waited.append([1000 * each for each in found])
                    progress(f"billion: p50 {waited[-1][0]:.0f} ms, p99 {waited[-1][1]:.0f} ms")
            arrived = await inserting
            costs, seconds = (await meter.read(children(parent))) - before, time.monotonic() - start
            deleting.cancel()
            left, _ = await store.count(query(Parcel, {"status": ["ready", "working"]}))
    finally:
        await meter.close()
        await store.close()
    _report_billion(report, mean, arrived, left, waited, costs, seconds)


def _report_billion(
    report: Report,
    mean: float,
    arrived: int,
    left: int,
    waited: list[list[float]],
    costs: Costs,
    seconds: float,
) -> None:
    settled = [(arrived - left) / seconds]
    report.rows.append(
        rates("a billion a day: inserted and settled", settled, "arrivals", [mean], 0.98)
    )
    for n, name in enumerate(("p50", "p99")):
        took = [median(each[n] for each in waited)]
        report.rows.append(times(f"a billion a day: {name} until settled", took, "1 s", [1000.0]))
    report.notes.append(
        f"a billion a day: {arrived:,} records arrived in {seconds:.0f} s, {left:,} were left;"
        f" {costs.server / seconds:.2f} cores of PostgreSQL, insertion and deletion included,"
        f" {costs.worker / seconds:.2f} of the workers;"
        f" log {costs.wal / seconds / 1e6:.0f} MB/s"
    )


async def _arrive(store: PostgresStore, mean: float, seconds: float) -> int:
    """Insert so many records a second; when the machine is late, more at once."""
    start, done = time.monotonic(), 0
    while (passed := time.monotonic() - start) < seconds:
        wanted = min(int(mean * passed), done + 5000)
        if wanted - done < mean / BATCHES:
            await asyncio.sleep(0.5 / BATCHES)
            continue
        await store.insert(
            [Parcel(number=n, payload=f"payload of {n}") for n in range(done, wanted)]
        )
        done = wanted
    return done


async def _delete(store: PostgresStore) -> None:
    """Delete the oldest of what was sent, so that what five seconds bring is left."""
    sent = query(Parcel, {"status": "sent"}, order="updated_at", limit=5000)
    while True:
        found, _ = await store.count(sent, cap=60_000)
        if found >= 60_000:
            await store.purge(sent)
        else:
            await asyncio.sleep(0.2)


async def _opened(url: str, app: App) -> PostgresStore:
    """A store with the tables of a pipeline."""
    store, plan = PostgresStore(url), app.bind(NoSettings())
    await store.open()
    await store.migrate(plan.kinds, plan.stages)
    await store.use(plan.kinds, plan.stages)
    return store


@asynccontextmanager
async def _workers(driver: Driver, url: str, app: str) -> AsyncIterator[int]:
    """``esclusa worker --processes 2``; the process id of the parent."""
    environment = os.environ | {
        "ESCLUSA_STORE": url,
        "ESCLUSA_PIPELINES": f"{Path(__file__).with_name('steady_pipeline.py')}:{app}",
        "ESCLUSA_ARTIFACTS": f"file://{driver.folder}/artifacts",
        "ESCLUSA_LOG_LEVEL": "warning",
    }
    command = [sys.executable, "-m", "esclusa", "worker", "--processes", "2"]
    process = subprocess.Popen(command, env=environment, cwd=driver.folder)
    try:
        while len(children(process.pid)) < 2:
            if process.poll() is not None:
                raise RuntimeError(f"esclusa worker ended with {process.returncode}")
            await asyncio.sleep(0.1)
        await asyncio.sleep(3)
        yield process.pid
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()


MEASURES: dict[str, Measure] = {"soak": soak_measure, "billion": billion_measure}
