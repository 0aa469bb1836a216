"""Run the faults: ``python -m tests.chaos [--seed N] [--only cut,kill] [--rounds N]``."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from random import Random

from .cluster import Size
from .faults import FAULTS
from .run import Report, run


def main() -> int:
    """Print the table; return 1 if an invariant does not hold or the rate does not come back."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--only", default="", help=f"faults: {', '.join(FAULTS)}")
    parser.add_argument("--rounds", type=int, default=1, help="how often each fault happens")
    parser.add_argument("--workers", type=int, default=Size.workers)
    parser.add_argument("--concurrency", type=int, default=Size.concurrency)
    parser.add_argument("--lease", type=float, default=Size.lease)
    options = parser.parse_args()
    names = [*(options.only.split(",") if options.only else FAULTS)] * options.rounds
    if unknown := set(names) - set(FAULTS):
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    Random(options.seed).shuffle(names)
    size = Size(options.workers, options.concurrency, options.lease, questions=40 * len(names))
    print(f"seed {options.seed}: {len(names)} faults, {size.workers} workers, lease {size.lease} s")
    report = asyncio.run(run(options.seed, names, size, say=lambda line: print(line, flush=True)))
    show(report)
    return int(bool(report.violations) or any(not each.complete for each in report.recoveries))


def show(report: Report) -> None:
    """Print the recovery of every fault, then the violations."""
    assert report.evidence is not None
    print(f"\nBefore the first fault: {report.rate:.0f} parcels a second.\n")
    print("| fault | what happens | lasts | share during | back at 95 % after | share later |  |")
    print("|---|---|---:|---:|---:|---:|---|")
    for each in report.recoveries:
        fault, episode = each.episode.fault, each.episode
        during = "" if each.during is None else f"{each.during:.0%}"
        back = "never" if each.seconds is None else f"{each.seconds:.1f} s"
        verdict = "ok" if each.complete else "NOT BACK"
        print(
            f"| {fault.name} | {fault.what} | {episode.end - episode.begin:.1f} s | {during} |"
            f" {back} | {each.after:.0%} | {verdict} |"
        )
    for name, why in report.skipped.items():
        print(f"| {name} | {FAULTS[name].what} | not run: {why} | | | | |")
    rows = Counter(row["status"] for (t, _), row in report.evidence.rows.items() if t == "parcels")
    print(f"\nparcels: {dict(rows)}; {len(report.evidence.poison)} poison")
    print(f"calls for each innocent parcel: {report.calls}")
    print(f"questions: {report.evidence.used} of {report.size.questions} units used")
    print("\n" + (report.explain() or "Every invariant holds."))


if __name__ == "__main__":
    sys.exit(main())
