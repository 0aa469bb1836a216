"""Metrics for Prometheus. Counting is a few dictionary steps; the exposition library is loaded with the first scrape."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

BUCKETS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
)
"""Upper bounds in seconds: from a row that only moves to a handler that waits for a slow service."""


class _Times:
    """A histogram: how many fell under each bound, and their sum."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
        return list(zip(bounds, accumulate(self.counts), strict=True))


class Metrics:
    """What this process did and saw since it began. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._settled: dict[tuple[str, str], int] = {}
        self._handle: dict[str, _Times] = {}
        self._claimed: dict[str, int] = {}
        self._claim = _Times()
        self._runs: dict[tuple[str, str], int] = {}
        self._run: dict[str, _Times] = {}
        self._due: dict[str, float] = {}
        self._oldest: dict[str, float] = {}
        self._used: dict[tuple[str, str], float] = {}
        self._limit: dict[tuple[str, str], float] = {}
        self._inflight: dict[str, float] = {}
        self._registry: Any = None

    def settled(self, stage: str, result: str, times: Sequence[float]) -> None:
        """So many attempts ended with this result; the seconds that each handler took."""
        with self._lock:
            self._settled[stage, result] = self._settled.get((stage, result), 0) + len(times)
            handle = self._handle.setdefault(stage, _Times())
            for seconds in times:
                handle.add(seconds)

    def claimed(self, stage: str, count: int, seconds: float) -> None:
        with self._lock:
            self._claimed[stage] = self._claimed.get(stage, 0) + count
            self._claim.add(seconds)

    def run_finished(self, cycle: str, outcome: str, seconds: float) -> None:
        with self._lock:
            self._runs[cycle, outcome] = self._runs.get((cycle, outcome), 0) + 1
            self._run.setdefault(cycle, _Times()).add(seconds)

    def backlog(self, stage: str, due: int, oldest_seconds: float) -> None:
        """What the stage could claim now, and for how long the oldest of it has been due (0 when there is none)."""
        with self._lock:
            self._due[stage] = due
            self._oldest[stage] = max(0.0, oldest_seconds)

    def budget(self, budget: str, window: str, used: float, limit: float) -> None:
        with self._lock:
            self._used[budget, window] = used
            self._limit[budget, window] = limit

    def inflight(self, stage: str, count: int) -> None:
        """How many records of the stage this worker holds."""
        with self._lock:
            self._inflight[stage] = count

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The page for a scrape and its content type; ``accept`` is the scraper's own header."""
        from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415  # loaded with the first scrape
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415

        with self._lock:
            if self._registry is None:
                self._registry = CollectorRegistry()
                ProcessCollector(registry=self._registry)
                self._registry.register(_Collector(self))
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def families(self) -> list[Any]:
        """Everything as the exposition library wants it, from one moment."""
        from prometheus_client.core import (  # noqa: PLC0415
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        def counter(name: str, about: str, labels: list[str], values: dict[Any, int]) -> Any:
            return _filled(CounterMetricFamily(name, about, labels=labels), values)

        def gauge(name: str, about: str, labels: list[str], values: dict[Any, float]) -> Any:
            return _filled(GaugeMetricFamily(name, about, labels=labels), values)

        def times(
            name: str, about: str, labels: list[str], values: Iterable[tuple[list[str], _Times]]
        ) -> Any:
            family = HistogramMetricFamily(name, about, labels=labels)
            for names, each in values:
                family.add_metric(names, buckets=each.cumulative(), sum_value=each.sum)
            return family

        with self._lock:
            handle = [([stage], each) for stage, each in self._handle.items()]
            run = [([cycle], each) for cycle, each in self._run.items()]
            return [
                counter(
                    "esclusa_settled",
                    "Attempts that ended, by result.",
                    ["stage", "result"],
                    self._settled,
                ),
                times(
                    "esclusa_handle_seconds",
                    "Time from the handler's call to its outcome.",
                    ["stage"],
                    handle,
                ),
                counter("esclusa_claimed", "Records claimed.", ["stage"], self._claimed),
                times(
                    "esclusa_claim_seconds",
                    "Time of one claim in the store.",
                    [],
                    [([], self._claim)],
                ),
                counter(
                    "esclusa_runs", "Runs of cycles, by outcome.", ["cycle", "outcome"], self._runs
                ),
                times("esclusa_run_seconds", "Time of one run.", ["cycle"], run),
                gauge("esclusa_due", "Records that a stage could claim now.", ["stage"], self._due),
                gauge(
                    "esclusa_oldest_due_seconds",
                    "For how long the oldest of them has been due.",
                    ["stage"],
                    self._oldest,
                ),
                gauge(
                    "esclusa_budget_used",
                    "Spent in the present window.",
                    ["budget", "window"],
                    self._used,
                ),
                gauge(
                    "esclusa_budget_limit",
                    "What may be spent in one window.",
                    ["budget", "window"],
                    self._limit,
                ),
                gauge(
                    "esclusa_worker_inflight",
                    "Records that this worker holds.",
                    ["stage"],
                    self._inflight,
                ),
            ]


class _Collector:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Any]:
        return iter(self._metrics.families())


def _filled(family: Any, values: dict[Any, Any]) -> Any:
    for key, value in values.items():
        family.add_metric([key] if isinstance(key, str) else list(key), value)
    return family
