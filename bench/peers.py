"""Esclusa beside every peer that runs here: drain, insert, pickup, and a killed worker."""

from __future__ import annotations

import asyncio
import time
from math import log10
from statistics import median

from bench.driver import (
    CELERY,
    DBOS,
    DRAMATIQ,
    HELD,
    HUEY,
    LIMIT,
    OBAN,
    OURS,
    PGQUEUER,
    PROCRASTINATE,
    TEMPORAL,
    Driver,
    Side,
)
from bench.measures import Measure, Scale, progress
from bench.peers_env import PINNED
from bench.report import Report, rates, times

PEERS = (PGQUEUER, OBAN, PROCRASTINATE, DBOS, HUEY, CELERY, DRAMATIQ, TEMPORAL)
# Records of the killed worker, and how long they are waited for.
KILLED_RECORDS, WATCHED_SECONDS = 200, 90.0


async def peers(driver: Driver, report: Report, scale: Scale) -> None:
    """Drain, insert and pickup of Esclusa beside every peer, one process each."""
    report.machine["peers"] = versions()
    drained: dict[Side, list[float]] = {}
    filled: dict[Side, list[float]] = {}
    pickups: dict[Side, list[list[float]]] = {}
    for turn in range(scale.rounds):
        for side in (OURS, HELD, LIMIT, *PEERS):
            try:
                result = await driver.drain(side, scale.of(side.count))
                drained.setdefault(side, []).append(result.rate)
                filled.setdefault(side, []).append(result.fill)
                progress(f"round {turn + 1}: {side.label}: {result.rate:,.0f}/s")
                if side not in (HELD, LIMIT):
                    pickups.setdefault(side, []).append(await driver.pickups(side, 100))
            except RuntimeError as error:
                report.notes.append(f"{side.label}: {error}")
    for peer in (LIMIT, *PEERS):
        if len(drained.get(peer, ())) == scale.rounds:
            report.rows.append(rates("drain", drained[OURS], peer.label, drained[peer]))
    for peer in PEERS:
        if len(filled.get(peer, ())) == scale.rounds:
            report.rows.append(rates("insert", filled[OURS], peer.label, filled[peer]))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        for peer in PEERS:
            if len(pickups.get(peer, ())) == scale.rounds:
                ours, theirs = pickups[OURS], pickups[peer]
                report.rows.append(
                    times(
                        f"pickup, {name}",
                        [_quantile(each, share) for each in ours],
                        peer.label,
                        [_quantile(each, share) for each in theirs],
                    )
                )


async def killed(driver: Driver, report: Report, scale: Scale) -> None:
    """A worker is killed with records under way; another starts. Default settings everywhere."""
    ours = 0.0
    for side in (OURS, *PEERS):
        try:
            seconds, missing = await _killed(driver, side)
        except RuntimeError as error:
            report.notes.append(f"{side.label}: {error}")
            continue
        progress(f"{side.label}: {missing} of {KILLED_RECORDS} not handled after {seconds:.0f} s")
        if side is OURS:
            ours = seconds
        if ours:
            what = f"killed worker ({missing} of {KILLED_RECORDS} of theirs missing)"
            report.rows.append(times(what, [ours], side.label, [seconds], unit=" s"))


async def _killed(driver: Driver, side: Side) -> tuple[float, int]:
    """Seconds from the kill until all records are handled, and how many never were."""
    work = "sleep"
    url = driver.fresh_database(side)
    timings = driver.timings(KILLED_RECORDS)
    driver.fill(side, url, KILLED_RECORDS, work)
    async with driver.working(side, url, work, 20) as first:
        deadline = time.monotonic() + 60
        while timings.handled() < KILLED_RECORDS // 4:
            if time.monotonic() > deadline or first.poll() is not None:
                raise RuntimeError("the first worker handled too little")
            await asyncio.sleep(0.01)
    # The block has killed it, with records under way.
    since = time.monotonic()
    async with driver.working(side, url, work, 20):
        while timings.handled() < KILLED_RECORDS and time.monotonic() - since < WATCHED_SECONDS:
            await asyncio.sleep(0.05)
        return time.monotonic() - since, KILLED_RECORDS - timings.handled()


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def versions() -> list[str]:
    """The pinned packages of the peers."""
    lines = PINNED.read_text().splitlines()
    return [line.partition(";")[0].strip() for line in lines if not line.startswith("#")]


def chart(report: Report) -> str:
    """The drain of each contender as horizontal bars on a logarithmic scale, as SVG."""
    bars = {
        row.beside: median(row.theirs) for row in report.rows if row.what == "drain" and row.theirs
    }
    ours = next((median(row.ours) for row in report.rows if row.what == "drain"), None)
    if ours is None:
        return ""
    bars = dict(sorted({"Esclusa": ours, **bars}.items(), key=lambda each: -each[1]))
    most = log10(max(bars.values()))
    height = 34 * len(bars) + 64
    machine = report.machine
    made = (
        f"{machine['date']}, {machine['cores']} cores, Python {machine['python']},"
        f" PostgreSQL {machine['postgresql']}"
    )
    out = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" role="img"'
            ' aria-label="Records drained per second" font-family="system-ui, sans-serif"'
            ' font-size="14">'
        ),
        (
            "<style>text{fill:#1f2937}.bar{fill:#94a3b8}.ours{fill:#0f766e}"
            "@media(prefers-color-scheme:dark){text{fill:#e5e7eb}.bar{fill:#64748b}"
            ".ours{fill:#2dd4bf}}</style>"
        ),
        '<text x="0" y="18">Records drained per second, one process, logarithmic scale</text>',
    ]
    for number, (label, rate) in enumerate(bars.items()):
        y = 36 + 34 * number
        width = max(2, 400 * (log10(rate) - 1) / (most - 1))
        kind = "ours" if label == "Esclusa" else "bar"
        out += [
            f'<text x="0" y="{y + 17}">{label}</text>',
            f'<rect class="{kind}" x="210" y="{y}" width="{width:.0f}" height="24" rx="3"/>',
            f'<text x="{218 + width:.0f}" y="{y + 17}">{rate:,.0f}</text>',
        ]
    out.append(f'<text x="0" y="{height - 8}" font-size="12">{made}</text>')
    return "\n".join([*out, "</svg>", ""])


MEASURES: dict[str, Measure] = {"peers": peers, "killed": killed}
