"""Time series of stages and pipelines: throughput, errors, backlog and latency, for charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, get_args

from esclusa.engine.rates import SHARES, percentiles
from esclusa.engine.records import Records
from esclusa.engine.tally import HOUR, MINUTE, QUARTER, Tally, floor
from esclusa.model.query import at_least, below
from esclusa.model.results import PROCESSED, RATED
from esclusa.model.system_records import RateRecord, StageSample
from esclusa.model.value import value

Over: TypeAlias = Literal["hour", "day", "week", "fortnight"]

OVER: Final[tuple[Over, ...]] = get_args(Over)

# The most time for which samples are replaced by their parts, if they are not rolled up yet.
_QUARTERS, _MINUTES = timedelta(hours=26), timedelta(hours=4)
# Rows that are read at a time.
_PAGE = 2000


@value
class Span:
    """A span of time in equal steps; ``step`` in seconds."""

    over: Over
    first: datetime
    step: int
    points: int

    @property
    def end(self) -> datetime:
        return self.first + timedelta(seconds=self.step * self.points)

    @property
    def previous(self) -> Span | None:
        """The span of the same length before; None if it is not kept so long."""
        if self.over == "fortnight":
            return None
        back = timedelta(seconds=self.step * self.points)
        return Span(self.over, self.first - back, self.step, self.points)

    def place(self, moment: datetime) -> int:
        """The index of the step that contains the moment."""
        return int((moment - self.first).total_seconds() // self.step)


_STEPS: Final[dict[Over, tuple[int, int]]] = {
    "hour": (MINUTE, 60),
    "day": (QUARTER, 96),
    "week": (HOUR, 168),
    "fortnight": (HOUR, 336),
}


def span_of(over: Over, now: datetime) -> Span:
    """The span that ends now. The last step of an hour has passed; that of others lasts still."""
    step, points = _STEPS[over]
    end = floor(now, step) + timedelta(seconds=0 if over == "hour" else step)
    return Span(over, end - timedelta(seconds=step * points), step, points)


class SeriesReader:
    """Reads the series of stages: some hundred rows, whatever the span."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def read(
        self, span: Span, stages: Sequence[str], now: datetime
    ) -> dict[str, list[Tally | None]]:
        """What each of these stages did in each step; None: nothing is known of it."""
        found: dict[str, list[Tally | None]] = {name: [None] * span.points for name in stages}
        begun = span.first
        if span.step >= HOUR:
            begun = await self._samples(found, span, HOUR, begun, begun)
        if span.step >= QUARTER:
            least = now - _QUARTERS if span.step >= HOUR else begun
            begun = await self._samples(found, span, QUARTER, begun, least)
        begun = max(begun, now - _MINUTES)
        if begun < span.end:
            await self._samples(found, span, MINUTE, begun, begun)
            await self._rates(found, span, begun)
        return found

    async def _samples(
        self,
        found: Mapping[str, list[Tally | None]],
        span: Span,
        length: int,
        begun: datetime,
        least: datetime,
    ) -> datetime:
        """Add the samples of this length; return the end of the last one."""
        begun = end = max(begun, least)
        where = {"span": length, "start": (at_least(begun), below(span.end))}
        async for sample in self._records.each(StageSample, where, order="start", size=_PAGE):
            end = sample.start + timedelta(seconds=length)
            place = span.place(sample.start)
            for name, tallies in found.items():
                stored = sample.stages.get(name)
                tally = Tally() if stored is None else Tally.load(stored)
                before = tallies[place]
                if before is None:
                    tallies[place] = tally
                else:
                    before.add(tally)
        return end

    async def _rates(
        self, found: Mapping[str, list[Tally | None]], span: Span, begun: datetime
    ) -> None:
        """Add the rows that are not rolled up."""
        within = (at_least(begun), below(span.end))
        where: dict[str, Any] = {"minute": within}
        if len(found) == 1:
            where["stage"] = next(iter(found))
        async for row in self._records.each(RateRecord, where, size=_PAGE):
            if (tallies := found.get(row.stage)) is None:
                continue
            place = span.place(row.minute)
            if (tally := tallies[place]) is None:
                tally = tallies[place] = Tally()
            tally.add_row(row)


def together(series: Iterable[Sequence[Tally | None]]) -> list[Tally | None]:
    """Several stages as one."""
    series = list(series)
    if len(series) == 1:
        return list(series[0])
    out: list[Tally | None] = []
    for step in zip(*series, strict=True):
        known = [tally for tally in step if tally is not None]
        if not known:
            out.append(None)
            continue
        whole = Tally()
        for tally in known:
            whole.add(tally, together=True)
        out.append(whole)
    return out


def series_shape(span: Span, tallies: Sequence[Tally | None]) -> dict[str, Any]:
    """A series as plain data: a list for each number, and the numbers of the whole span.

    Counts are 0 where nothing is known; a backlog and a latency are null. ``oldest``, ``p50``,
    ``p90`` and ``p99`` are seconds.
    """
    points = [tally or Tally() for tally in tallies]
    shape: dict[str, Any] = {
        "first": span.first,
        "step": span.step,
        "points": span.points,
    }
    for name in RATED:
        shape[name] = [point.results[name] for point in points]
    shape["due"] = [point.due for point in points]
    shape["due_exact"] = all(point.exact for point in points)
    shape["oldest"] = [point.oldest for point in points]
    times = [percentiles(point.histogram) for point in points]
    shape |= {f"p{share}": [each[share] for each in times] for share in SHARES}
    shape["total"] = span_total(tallies)
    return shape


def span_total(tallies: Iterable[Tally | None]) -> dict[str, Any]:
    """The numbers of a whole span; ``due`` and ``oldest`` are the largest in it."""
    whole = Tally()
    for tally in tallies:
        if tally is not None:
            whole.add(tally)
    processed = sum(whole.results[name] for name in PROCESSED)
    counts: dict[str, Any] = {name: whole.results[name] for name in RATED}
    return counts | {
        "failed": whole.failed,
        "error_share": round(whole.failed / processed, 4) if processed else None,
        "due": whole.due,
        "oldest": whole.oldest,
        **{f"p{share}": each for share, each in percentiles(whole.histogram).items()},
    }
