"""What each stage did, minute by minute: the basis of rates, error shares and latencies."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Final, TypeAlias

from esclusa.engine.clock import StoreClock
from esclusa.engine.tally import LATE, covering
from esclusa.model.histogram import add_times
from esclusa.model.results import FAILED, PROCESSED, RATED, ResultName
from esclusa.model.system_records import RateRecord
from esclusa.ports.store import Store

# Upper bounds of the histogram of handler times, in seconds; the last bucket is open.
BOUNDS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
    1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0,
)  # fmt: skip

_UPPER: Final = (*BOUNDS, 600.0)
# The percentiles of handler times.
SHARES: Final = (50, 90, 99)

# Minutes whose counts are kept in memory.
KEPT = 60

# The attempts of one minute: when it began, how many failed, how many there were.
Minute: TypeAlias = tuple[datetime, int, int]


@dataclass(slots=True)
class _Count:
    """The counts of one stage in the current minute."""

    minute: datetime
    results: dict[ResultName, int] = field(default_factory=lambda: dict.fromkeys(RATED, 0))
    seconds: float = 0.0
    histogram: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))


class Rates:
    """Counts in memory and writes one row per stage and minute once the minute has passed."""

    def __init__(self, store: Store, clock: StoreClock, worker: str) -> None:
        self._store = store
        self._clock = clock
        self._worker = worker
        self._counts: dict[str, _Count] = {}
        self._minutes: defaultdict[str, deque[Minute]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._done: list[RateRecord] = []

    def add(self, stage: str, result: ResultName, times: Sequence[float]) -> None:
        """Count attempts with this result, by the seconds that each handler took."""
        count = self._counts.get(stage)
        if count is None:
            count = self._counts[stage] = _Count(self._minute())
        if result in count.results:
            count.results[result] += len(times)
            count.seconds += sum(times)
            add_times(count.histogram, BOUNDS, times)

    def _minute(self) -> datetime:
        return self._clock.now().replace(second=0, microsecond=0)

    def minutes(self, stage: str) -> list[Minute]:
        """What this process counted in its latest minutes, the current one included."""
        count = self._counts.get(stage)
        return [*self._minutes[stage], *([_minute(count.minute, count.results)] if count else [])]

    async def flush(self, *, all: bool = False) -> None:
        """Write the minutes that have passed; with ``all``, the current one too.

        Minutes that are written late may be rolled up already: their samples are removed, and
        another is made (engine/samples.py).
        """
        minute = self._minute()
        for stage in [s for s, count in self._counts.items() if all or count.minute < minute]:
            count = self._counts.pop(stage)
            self._minutes[stage].append(_minute(count.minute, count.results))
            self._done.append(
                RateRecord(
                    stage=stage,
                    minute=count.minute,
                    worker=self._worker,
                    seconds=count.seconds,
                    histogram=count.histogram,
                    **count.results,
                )
            )
        if self._done:
            await self._store.insert(self._done)
            late = [row.minute for row in self._done if self._clock.now() - row.minute > LATE]
            self._done = []
            if late:
                await self._store.remove(covering(late))


def _minute(minute: datetime, results: Mapping[ResultName, int]) -> Minute:
    return minute, sum(results[n] for n in FAILED), sum(results[n] for n in PROCESSED)


def minute_of(row: RateRecord) -> Minute:
    """The attempts that a row counts."""
    return _minute(row.minute, {name: getattr(row, name) for name in PROCESSED})


def latest(minutes: Iterable[Minute], least: int, since: datetime) -> tuple[int, int]:
    """How many of the latest attempts failed, and how many there were.

    Whole minutes are taken, the newest first, until there are ``least`` attempts; none that began
    before ``since``.
    """
    failed = taken = 0
    last: datetime | None = None
    for minute, bad, all in sorted(minutes, reverse=True):
        if minute < since or (taken >= least and minute != last):
            break
        failed, taken, last = failed + bad, taken + all, minute
    return failed, taken


def merge(rows: list[RateRecord]) -> dict[str, dict[str, float]]:
    """Totals per stage: counts, and percentiles of handler times from the histograms."""
    out: dict[str, dict[str, float]] = {}
    histograms: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
    for row in rows:
        total = out.setdefault(row.stage, {**dict.fromkeys(RATED, 0), "seconds": 0.0})
        for name in total:
            total[name] += getattr(row, name)
        histograms[row.stage] = [
            a + b for a, b in zip(histograms[row.stage], row.histogram, strict=True)
        ]
    for stage, total in out.items():
        times = percentiles(histograms[stage]).items()
        total |= {f"p{share}": time for share, time in times if time is not None}
    return out


def percentiles(histogram: Sequence[int]) -> dict[int, float | None]:
    """The percentiles of ``SHARES``: the upper bound of the bucket that reaches it.

    None if there were no attempts.
    """
    counted = list(accumulate(histogram))
    if not counted or not counted[-1]:
        return dict.fromkeys(SHARES)
    return {share: _UPPER[bisect_left(counted, counted[-1] * share / 100)] for share in SHARES}
