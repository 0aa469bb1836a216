"""Failing over: the primary is killed under load and its synchronous standby is promoted."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

import asyncpg
from faults import worker
from faults.kill_harness import KillHarness
from support.replication import PROMOTE_AFTER_SECONDS, ReplicatedPostgres

from bench.driver import Driver
from bench.measures import Scale, progress
from bench.report import Report, times
from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.stores.postgres import PostgresStore

# Settled parcels before the kill, and the seconds of work after it that are prepared for.
WARM_SECONDS, AFTER_SECONDS = 8.0, 12.0
# What counts as the rate being back: this share of the median before the kill.
BACK = 0.8
LEASE_SECONDS = 10.0


async def failover(driver: Driver, report: Report, scale: Scale) -> None:
    """Kill the primary under load; the standby takes over, and the workers go on by themselves."""
    gaps: list[float] = []
    for turn in range(min(3, scale.rounds)):
        folder = driver.folder / f"failover-{turn}"
        folder.mkdir()
        gap, lines = await _fail_over(folder)
        gaps.append(gap)
        for line in lines:
            progress(f"failover {turn + 1}: {line}")
        report.notes += [f"failover {turn + 1}: {line}" for line in lines]
    goal = [PROMOTE_AFTER_SECONDS + 10.0] * len(gaps)
    report.rows.append(
        times("primary killed: throughput back after", gaps, "promised", goal, 1.0, " s")
    )


async def _fail_over(folder: Path) -> tuple[float, list[str]]:
    """Return the seconds until the rate was back, and the timeline."""
    servers = ReplicatedPostgres(durable=True)
    with servers:
        url = servers.create_database("post")
        store = PostgresStore(url, timeout=LEASE_SECONDS / 3)
        await store.open()
        harness = KillHarness(store, url, folder)
        try:
            await harness.fill(0)
            workers = [
                harness.start(LEASE_SECONDS=str(LEASE_SECONDS), HANDLER_SECONDS="0.02")
                for _ in range(2)
            ]
            await harness.until_working(*workers)
            servers.supervise()
            stop = asyncio.Event()
            inserting = asyncio.create_task(_insert(harness, stop))
            await asyncio.sleep(WARM_SECONDS)
            servers.kill_primary()
            await asyncio.to_thread(servers.until_promoted)
            await asyncio.sleep(AFTER_SECONDS)
            stop.set()
            acknowledged = await inserting
            await harness.until_sent(acknowledged, 120)
            restarted = sum(process.poll() is not None for process in workers)
            calls = await harness.check(acknowledged)
            moments = await _settled(servers.standby.url("post"))
        finally:
            harness.end()
            await store.close()
    back, lines = _timeline(servers, moments)
    lines.append(
        f"{acknowledged:,} records acknowledged, all settled exactly once, none lost;"
        f" {sum(calls.values()) - len(calls)} handlers called again, {restarted} workers restarted"
    )
    return back, lines


async def _insert(harness: KillHarness, stop: asyncio.Event) -> int:
    """Insert parcels faster than they are sent; return how many were acknowledged."""
    done = 0
    while not stop.is_set():
        parcels = [worker.Parcel(name=f"p{n:06}") for n in range(done, done + 50)]
        try:
            await harness.store.insert(parcels)
            done += len(parcels)
        except (StoreUnavailable, StoreConflict):
            pass  # the same call again: keys that are there already are duplicates
        waiting = done - await _quietly(harness)
        await asyncio.sleep(0.02 if waiting < 500 else 0.2)
    return done


async def _quietly(harness: KillHarness) -> int:
    try:
        return await harness.sent()
    except (StoreUnavailable, StoreConflict):
        return 0


async def _settled(url: str) -> list[float]:
    """The times at which parcels were sent, from the history."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT extract(epoch FROM at)::float8 FROM esclusa.history"
            " WHERE table_name = 'parcels' AND to_state = 'sent' ORDER BY seq"
        )
    finally:
        await connection.close()
    return sorted(row[0] for row in rows)


def _timeline(servers: ReplicatedPostgres, moments: list[float]) -> tuple[float, list[str]]:
    killed = servers.killed
    seconds = [
        sum(killed + s <= moment < killed + s + 1 for moment in moments)
        for s in range(-int(WARM_SECONDS) + 3, int(AFTER_SECONDS))
    ]
    before = median(seconds[: int(WARM_SECONDS) - 3])
    first = next(moment for moment in moments if moment > servers.missed)
    back = next(
        moment
        for n, moment in enumerate(moments)
        if moment >= first and _rate(moments, n) >= BACK * before
    )
    shown = time.strftime("%H:%M:%S", time.gmtime(killed))
    return back - killed, [
        f"   0.0 s  primary killed (SIGKILL, {shown} UTC), {before:.0f} records/s before",
        f"{servers.missed - killed:6.1f} s  supervisor promotes the standby",
        f"{servers.promoted - killed:6.1f} s  the standby takes writes",
        f"{first - killed:6.1f} s  first settlement on it",
        f"{back - killed:6.1f} s  throughput back at {BACK:.0%}",
        f"records settled in each second, the kill at |: {_shown(seconds)}",
    ]


def _shown(seconds: list[int]) -> str:
    before = int(WARM_SECONDS) - 3
    return " | ".join(" ".join(map(str, part)) for part in (seconds[:before], seconds[before:]))


def _rate(moments: list[float], n: int) -> int:
    """How many records were settled in the second from the one with this number."""
    return sum(moments[n] <= moment < moments[n] + 1 for moment in moments[n : n + 5000])


MEASURES = {"failover": failover}
