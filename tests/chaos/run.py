"""A run: steady work, one fault after the other, then the invariants and the recovery."""

from __future__ import annotations

import asyncio
import bisect
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from .cluster import Cluster, Size, cluster
from .faults import FAULTS
from .invariants import Episode, Evidence, Violation, gather, violations

WINDOW = 2.0
"""Seconds over which a rate is taken."""


@dataclass(frozen=True)
class Recovery:
    """What a fault did to the rate, as shares of the rate before the first fault.

    ``seconds``: from the end of the fault until the rate is back at 95 %; None: not before the
    next fault. ``after``: the share in the time after two leases.
    """

    episode: Episode
    lease: float
    during: float | None
    seconds: float | None
    after: float

    @property
    def complete(self) -> bool:
        """Whether the rate came back within two leases and stayed."""
        return self.seconds is not None and self.seconds <= 2 * self.lease and self.after >= 0.95


@dataclass
class Report:
    """What a run has shown."""

    seed: int
    size: Size
    rate: float = 0.0
    recoveries: list[Recovery] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    evidence: Evidence | None = None

    def explain(self) -> str:
        """The violations: how many of each invariant, and everything about the first records."""
        assert self.evidence is not None
        lines = []
        for invariant, count in Counter(each.invariant for each in self.violations).items():
            lines.append(f"{invariant}: {count} violations; seed {self.seed}; the first ones:")
            for each in [each for each in self.violations if each.invariant == invariant][:3]:
                lines.append(f"- {each.why}")
                if each.record is not None:
                    lines.append(self.evidence.describe(*each.record))
        return "\n".join(lines)

    @property
    def calls(self) -> dict[int, int]:
        """How many parcels had so many calls."""
        made: dict[int, int] = {}
        assert self.evidence is not None
        for (table, id), calls in self.evidence.calls.items():
            if table == "parcels" and id not in self.evidence.poison:
                made[len(calls)] = made.get(len(calls), 0) + 1
        return dict(sorted(made.items()))


async def run(
    seed: int,
    names: Sequence[str],
    size: Size,
    *,
    quiet: float | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Run these faults in this order. ``quiet``: seconds after each, for the measurement."""
    rng = Random(seed)
    report = Report(seed, size)
    episodes: list[Episode] = []
    quiet = 2 * size.lease + 3 * WINDOW if quiet is None else quiet
    async with cluster(size) as made:
        await _warm_up(made)
        await asyncio.sleep(max(3 * WINDOW, 2 * size.lease))
        for name in names:
            if name == "disk-full" and made.disk.missing is not None:
                report.skipped[name] = made.disk.missing
                continue
            await _happen(made, name, rng, episodes, report)
            say(f"{name}: {FAULTS[name].what}, {episodes[-1].end - episodes[-1].begin:.1f} s")
            await asyncio.sleep(quiet)
        made.feeding = False
        await _drain(made, report)
        report.violations += [
            Violation("orderly stop", fault) for fault in await made.stop_workers()
        ]
        report.violations += [Violation("workers go on", exit) for exit in made.exits]
        report.evidence = await gather(made, episodes)
        report.violations += violations(report.evidence, size.questions)
        _measure(report, quiet)
        for violation in report.violations[:1]:
            say(f"the logs of the workers end with (first violation: {violation.invariant}):")
            for machine in made.machines:
                say(machine.log.read_text(errors="replace")[-3000:])
    return report


async def _warm_up(made: Cluster) -> None:
    wanted = int(made.size.pace * WINDOW)

    async def flows() -> bool:
        rows = await made.fetch("SELECT count(*) FROM parcels WHERE send_status = 'sent'")
        return bool(rows[0][0] >= wanted)

    await made.until(flows, 60, f"{wanted} parcels are sent at the start")


async def _happen(
    made: Cluster, name: str, rng: Random, episodes: list[Episode], report: Report
) -> None:
    begin = time.time()
    try:
        await asyncio.wait_for(FAULTS[name].happen(made, rng), 60 * made.size.lease)
    except (AssertionError, TimeoutError) as error:
        report.violations.append(Violation("progress", f"{name}: {error!r}"))
    episodes.append(Episode(FAULTS[name], begin, time.time()))


async def _drain(made: Cluster, report: Report) -> None:
    """Wait until every parcel has ended; slow machines get more time than they need."""
    limit = 10 * made.size.lease + 60

    async def drained() -> bool:
        return await made.open_parcels() == 0

    try:
        await made.until(drained, limit, "every parcel ends after the last fault")
    except AssertionError as error:
        report.violations.append(
            Violation("progress", f"{error}: {await made.open_parcels()} left")
        )


def _measure(report: Report, quiet: float) -> None:
    """Compute the rates from the times at which the settlements were written."""
    seen = report.evidence
    assert seen is not None
    times = sorted(
        step.at for (table, _), steps in seen.steps.items() if table == "parcels"
        for step in steps if step.to == "sent"
    )  # fmt: skip

    def rate(begin: float, end: float) -> float:
        count = bisect.bisect(times, end) - bisect.bisect(times, begin)
        return count / (end - begin) if end > begin else 0.0

    if not seen.episodes:
        return
    first = seen.episodes[0].begin
    report.rate = rate(first - 3 * WINDOW, first)
    for episode in seen.episodes:
        until = episode.end + quiet
        recovered = None
        start = episode.end
        while recovered is None and start + WINDOW <= until:
            if rate(start, start + WINDOW) >= 0.95 * report.rate:
                recovered = start - episode.end
            start += 0.1
        long = episode.end - episode.begin > 1
        report.recoveries.append(
            Recovery(
                episode,
                seen.lease,
                rate(episode.begin, episode.end) / report.rate if long else None,
                recovered,
                rate(episode.end + 2 * seen.lease, until) / report.rate,
            )
        )
