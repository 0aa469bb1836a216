"""What a record costs on PostgreSQL, what that makes for a billion a day, and several processes."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from statistics import median

from bench.costs import SERVER_OPTIONS, Costs, Meter, children
from bench.driver import HELD, LIMIT, OURS, Driver, Side
from bench.measures import Measure, Scale, progress
from bench.report import Report, rates, times

# The tables in which a side stores a record.
TABLES = {
    OURS: ("plain", "esclusa.history"),
    HELD: ("held", "esclusa.history"),
    LIMIT: ("bare", "bare_history"),
}
UNITS = {"worker": " µs", "server": " µs", "wal": " B", "statements": "", "stored": " B"}
NAMES = {
    "worker": "processor time of the worker",
    "server": "processor time of PostgreSQL",
    "wal": "write-ahead log",
    "statements": "statements for 1,000 records",
    "stored": "bytes stored",
}
PER_DAY, PEAK = 1_000_000_000, 3
# Seconds in which the records of a drain by several processes are made ready.
PREPARED = 12.0

_COPIES = """INSERT INTO plain SELECT copy.* FROM plain p, generate_series({first}, {last}) s,
    LATERAL jsonb_populate_record(p, jsonb_build_object('id', s::text, 'number', s,
        'status', 'ready', 'attempts', 0, 'fence', 0, 'leased_by', NULL,
        'due_at', now() + interval '{seconds} s')) copy
    WHERE p.number = 0"""


async def capacity(driver: Driver, report: Report, scale: Scale) -> None:
    """Processor time of both sides, log, statements and bytes for each record that is moved."""
    measured: dict[tuple[Side, str, str], list[float]] = {}
    with Driver(SERVER_OPTIONS) as own:
        for turn in range(scale.rounds):
            for side in TABLES:
                for phase, costs in (await _costs(own, side, scale.of(100_000))).items():
                    shown = ", ".join(f"{name} {cost:.4g}" for name, cost in costs.items())
                    progress(f"capacity {turn + 1}/{scale.rounds}  {side.label}, {phase}: {shown}")
                    for name, cost in costs.items():
                        measured.setdefault((side, phase, name), []).append(cost)
    for side in (OURS, HELD):
        for phase in ("insert", "move"):
            for name, unit in UNITS.items():
                if (ours := measured.get((side, phase, name))) is None:
                    continue
                what = f"{phase}, {side.label.removeprefix('ours, ')}: {NAMES[name]}"
                theirs = measured[LIMIT, phase, name]
                report.rows.append(times(what, ours, f"limit: {LIMIT.label}", theirs, unit=unit))
    for side in (OURS, HELD):
        costs = {
            name: sum(
                median(measured.get((side, phase, name), [0])) for phase in ("insert", "move")
            )
            for name in UNITS
        }
        report.notes.append(_day(side, costs))


async def _costs(driver: Driver, side: Side, count: int) -> dict[str, dict[str, float]]:
    """The costs of one record, of its insertion and of its moves until it is done."""
    url = driver.fresh_database(side)
    timings = driver.timings(count)
    meter = await Meter.open(driver.server, url)
    try:
        # Begin with some records, to know what the process costs without them.
        idle = await _filled(driver, side, url, 100, meter)
        filled = await _filled(driver, side, url, count, meter)
        empty = await meter.bytes_of(TABLES[side][1:])
        driver.vacuum(url)
        async with driver.working(side, url, side.work) as process:
            while (begun := timings.handled()) < count / 10:
                await asyncio.sleep(0.005)
            before = await meter.read([process.pid])
            await driver.handled(side, process, timings, count)
            await driver.settled(side, url)
            moved = (await meter.read([process.pid])) - before
        stored = await meter.bytes_of(TABLES[side]) - empty
    finally:
        await meter.close()
    costs = {"insert": (filled - idle).per(count), "move": moved.per(count - begun)}
    for each in costs.values():
        each["statements"] *= 1000
    costs["move"]["stored"] = stored / count
    return costs


async def _filled(driver: Driver, side: Side, url: str, count: int, meter: Meter) -> Costs:
    """The costs of inserting records, of the process that does it too."""
    before, own = await meter.read(), _ended_children()
    await asyncio.to_thread(driver.fill, side, url, count)
    costs = (await meter.read()) - before
    return Costs(_ended_children() - own, costs.server, costs.wal, costs.statements)


def _ended_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _day(side: Side, costs: dict[str, float]) -> str:
    """What a billion records a day take, at these costs of one."""
    mean = PER_DAY / 86_400
    cores = {name: mean * costs[name] / 1e6 for name in ("worker", "server")}
    return (
        f"a billion records a day, {side.label.removeprefix('ours, ')}: {mean:,.0f}/s on average;"
        f" at {PEAK} times the average {PEAK * cores['server']:.1f} cores of PostgreSQL and"
        f" {PEAK * cores['worker']:.1f} of workers are busy;"
        f" log {mean * costs['wal'] / 1e6:,.0f} MB/s on average,"
        f" {PER_DAY * costs['wal'] / 1e12:,.2f} TB a day;"
        f" stored {PER_DAY * costs['stored'] / 1e9:,.0f} GB a day without retention"
    )


async def processes(driver: Driver, report: Report, scale: Scale) -> None:
    """Drains by 1, 2 and 4 workers; and by one, with a core for it and one for PostgreSQL."""
    drained: dict[str, list[float]] = {}
    used: dict[str, list[Costs]] = {}
    waits: dict[str, Counter[str]] = {}
    count = scale.of(200_000)
    layouts = {"1 process": 1, "2 processes": 2, "4 processes": 4}
    if (os.cpu_count() or 1) > 1:
        layouts["a core each"] = 1
    with Driver(SERVER_OPTIONS) as own:
        for turn in range(scale.rounds):
            for name, number in layouts.items():
                waiting = waits.setdefault(name, Counter())
                rate, costs = await _drain_by(
                    own, number, count, waiting, pinned=name == "a core each"
                )
                drained.setdefault(name, []).append(rate)
                used.setdefault(name, []).append(costs)
                per = costs.per(count)
                progress(
                    f"processes {turn + 1}/{scale.rounds}  {name}: {rate:,.0f}/s; processor time"
                    f" of workers {per['worker']:.1f} µs, of PostgreSQL {per['server']:.1f} µs"
                )
    one = drained["1 process"]
    report.rows.append(rates("drain by 2 processes", drained["2 processes"], "by 1", one))
    report.rows.append(
        rates("drain by 4 processes", drained["4 processes"], "by 2", drained["2 processes"], 0.95)
    )
    if pinned := drained.get("a core each"):
        report.rows.append(rates("drain, a core for each side", pinned, "by 1, not pinned", one))
    for name, all_costs in used.items():
        worker = median(costs.per(count)["worker"] for costs in all_costs)
        server = median(costs.per(count)["server"] for costs in all_costs)
        report.notes.append(
            f"{name}: processor time for each record {worker:.1f} µs of workers,"
            f" {server:.1f} µs of PostgreSQL: a core of workers moves {1e6 / worker:,.0f}/s,"
            f" a core of PostgreSQL {1e6 / server:,.0f}/s; {_shown(waits[name])}"
        )


def _shown(waits: Counter[str]) -> str:
    """What the active sessions did whenever they were looked at."""
    total = max(1, waits.total())
    parts = [f"{event} {found / total:.0%}" for event, found in waits.most_common(6)]
    return f"active sessions: {', '.join(parts)}"


async def _drain_by(
    driver: Driver, number: int, count: int, waits: Counter[str], *, pinned: bool
) -> tuple[float, Costs]:
    """Records per second and costs of a drain by so many workers, which all wait for it to begin.

    Every record is due at the same moment, so that the start of a process takes no part in it.
    ``waits`` counts what active sessions wait for.
    """
    url, first = driver.fresh_database(OURS), 100
    timings = driver.timings(first + count)
    driver.fill(OURS, url, first)
    meter = await Meter.open(driver.server, url)
    try:
        async with AsyncExitStack() as stack:
            workers = [
                await stack.enter_async_context(driver.working(OURS, url, OURS.work))
                for _ in range(number)
            ]
            await driver.handled(OURS, workers[0], timings, first)
            await asyncio.sleep(1.5 * number)  # until the others are there, too
            if pinned:
                _pin([driver.server.pid, *children(driver.server.pid)], 0)
                _pin((worker.pid for worker in workers), 1)
            due = time.monotonic() + PREPARED
            driver.server.run_sql(
                _COPIES.format(first=first, last=first + count - 1, seconds=PREPARED),
                url.rsplit("/", 1)[1],
            )
            driver.vacuum(url)
            if (left := due - time.monotonic()) < 0:
                raise RuntimeError(f"{count:,} records were not ready in {PREPARED:.0f} s")
            await asyncio.sleep(left)
            before, start = await meter.read(worker.pid for worker in workers), time.monotonic()
            driver.server.run_sql("SELECT pg_notify('esclusa', 'plain')", url.rsplit("/", 1)[1])
            watching = asyncio.create_task(meter.watch(waits))
            await driver.handled(OURS, workers[0], timings, first + count)
            await driver.settled(OURS, url)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            seconds = time.monotonic() - start
            costs = (await meter.read(worker.pid for worker in workers)) - before
    finally:
        await meter.close()
        if pinned:
            _pin([driver.server.pid, *children(driver.server.pid)], *range(os.cpu_count() or 1))
    return count / seconds, costs


def _pin(processes: Iterable[int], *cores: int) -> None:
    """Let every thread of these processes run on these cores only."""
    for process in processes:
        with suppress(FileNotFoundError, ProcessLookupError):  # it may have ended meanwhile
            for thread in Path(f"/proc/{process}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cores)


MEASURES: dict[str, Measure] = {"capacity": capacity, "processes": processes}
