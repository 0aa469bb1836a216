"""``python -m bench``: one table of Esclusa beside other queues and beside the bare database."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import time
from pathlib import Path

from bench import (
    capacity,
    documents,
    failover,
    firestore,
    growth,
    media,
    migrate,
    peers,
    portable,
    rename,
    replies,
    reply_export,
    steady,
    tenders,
)
from bench.driver import Driver
from bench.measures import MEASURES, ON_REQUEST, SLOW, Scale, progress
from bench.report import Report

MEASURES |= (
    growth.MEASURES
    | tenders.MEASURES
    | replies.MEASURES
    | reply_export.MEASURES
    | media.MEASURES
    | firestore.MEASURES
    | documents.MEASURES
    | rename.MEASURES
    | migrate.MEASURES
    | failover.MEASURES
    | peers.MEASURES
    | portable.MEASURES
    | capacity.MEASURES
    | steady.MEASURES
)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer records and rounds, and no growth test",
    )
    parser.add_argument(
        "--only",
        metavar="NAMES",
        help=f"run only these measures, separated by commas: {', '.join(MEASURES)}",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="also drain a million records and watch the worker's memory",
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=1_000_000,
        help="rows of the growth test and the rename test (default 1,000,000)",
    )
    parser.add_argument(
        "--minutes", type=float, default=30, help="of `soak` and of `billion` (default 30)"
    )
    parser.add_argument("--rounds", type=int, help="rounds of each measure (default 5; quick: 3)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write every number to this file"
    )
    parser.add_argument(
        "--chart", type=Path, metavar="FILE", help="also draw the drains of `peers` as SVG"
    )
    options = parser.parse_args()
    unknown = set((options.only or "").split(",")) - {*MEASURES, ""}
    if unknown:
        parser.error(
            f"--only: no measure named {', '.join(sorted(unknown))};"
            f" choose from {', '.join(MEASURES)}"
        )
    return options


def _selected(options: argparse.Namespace) -> list[str]:
    if options.only:
        return [name for name in MEASURES if name in options.only.split(",")]
    left_out = (SLOW if options.quick else ON_REQUEST) - ({"memory"} if options.memory else set())
    return [name for name in MEASURES if name not in left_out]


async def _run(options: argparse.Namespace) -> Report:
    rounds = options.rounds or (3 if options.quick else 5)
    scale = Scale(
        rounds,
        0.5 if options.quick else 1.0,
        options.rows,
        200_000 if options.quick else 1_000_000,
        options.minutes,
    )
    report = Report(
        machine={
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release().partition('-')[0]}",
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
        }
    )
    with Driver() as driver:
        report.machine["postgresql"] = driver.server.run_sql("SHOW server_version")
        for name in _selected(options):
            progress(f"{name}: {(MEASURES[name].__doc__ or '').splitlines()[0]}")
            try:
                await MEASURES[name](driver, report, scale)
            except RuntimeError as error:
                report.notes.append(f"{name} was not fully measured: {error}")
    return report


def main() -> int:
    options = _options()
    start = time.monotonic()
    report = asyncio.run(_run(options))
    machine = report.machine
    print(
        f"Python {machine['python']}, PostgreSQL {machine['postgresql']}"
        f" (fsync and synchronous_commit on), {machine['cores']} cores"
    )
    print(
        "ratio: Esclusa to the other, median over the rounds; above 1 Esclusa is better."
        f" {time.monotonic() - start:.0f} s\n"
    )
    print(report)
    if options.json:
        report.write(options.json)
    if options.chart and (drawn := peers.chart(report)):
        options.chart.write_text(drawn, encoding="utf-8")
    return 1 if report.notes and not report.rows else 0


if __name__ == "__main__":
    sys.exit(main())
