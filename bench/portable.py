"""The price of the portable profile of PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from bench.driver import OURS, Driver
from bench.measures import Scale, progress
from bench.report import Report, rates, times

PORTABLE = replace(OURS, label="ours, portable profile", portable=True)


async def portable(driver: Driver, report: Report, scale: Scale) -> None:
    """Drain, bulk insert and pickup with the portable profile, beside the native one."""
    drained: dict[bool, list[float]] = {True: [], False: []}
    filled: dict[bool, list[float]] = {True: [], False: []}
    waited: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(scale.rounds):
        for side in (OURS, PORTABLE):
            done = await driver.drain(side, scale.of(side.count))
            drained[side.portable].append(done.rate)
            filled[side.portable].append(done.fill)
            waited[side.portable].append(median(await driver.pickups(side, scale.of(50))))
            progress(
                f"portable {turn + 1}/{scale.rounds}  {side.label}: {done.rate:,.0f}/s,"
                f" inserted at {done.fill:,.0f}/s, picked up in {waited[side.portable][-1]:.1f} ms"
            )
    for what, figures in (("drain", drained), ("bulk insert with dedup", filled)):
        report.rows.append(
            rates(f"{what}, portable profile", figures[True], "native profile", figures[False])
        )
    report.rows.append(
        times("pickup p50, portable profile", waited[True], "native profile", waited[False])
    )


MEASURES = {"portable": portable}
