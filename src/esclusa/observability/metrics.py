"""Metrics for Prometheus. The client library is imported with the first scrape."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, Literal

from esclusa.model.gauge import Gauge
from esclusa.model.histogram import add_times
from esclusa.model.value import value

_MILLISECONDS = (1, 2.5, 5, 10, 25, 50, 100, 250, 500)
# Upper bounds in seconds, for fast moves and for handlers that wait for a slow service.
BUCKETS = (*(each / 1000 for each in _MILLISECONDS), 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)


class _Times:
    """A histogram: the count below each bound, and the sum."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, *times: float) -> None:
        add_times(self.counts, BUCKETS, times)
        self.sum += sum(times)

    def cumulative(self) -> list[tuple[str, float]]:
        return list(zip([*map(str, BUCKETS), "+Inf"], accumulate(self.counts), strict=True))


@value
class Metric:
    """A metric of the engine. The name of a counter gets ``_total``."""

    name: str
    form: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    about: str


METRICS: Final = (
    Metric("esclusa_settled", "counter", ("stage", "result"), "Attempts that ended, by result."),
    Metric("esclusa_handle_seconds", "histogram", ("stage",), "Time of one call of the handler."),
    Metric("esclusa_claimed", "counter", ("stage",), "Records claimed."),
    Metric("esclusa_claim_seconds", "histogram", (), "Time of one claim in the store."),
    Metric("esclusa_runs", "counter", ("cycle", "outcome"), "Runs of cycles, by outcome."),
    Metric("esclusa_run_seconds", "histogram", ("cycle",), "Time of one run."),
    Metric("esclusa_due", "gauge", ("stage",), "Records that a stage can claim now."),
    Metric(
        "esclusa_oldest_due_seconds",
        "gauge",
        ("stage",),
        "For how long the oldest due record has been due.",
    ),
    Metric(
        "esclusa_budget_used", "gauge", ("budget", "window"), "Units spent in the current window."
    ),
    Metric(
        "esclusa_budget_limit",
        "gauge",
        ("budget", "window"),
        "Units that may be spent in the current window.",
    ),
    Metric("esclusa_worker_inflight", "gauge", ("stage",), "Records that this worker holds."),
)

# The most combinations of label values of a pipeline's own metric; others count as `other`.
MOST_LABELS = 100


class _OwnMetric:
    """A counter or a histogram that handlers fill. Its first call fixes its labels."""

    def __init__(self, form: type[float] | type[_Times], labels: Iterable[str]) -> None:
        self.form = form
        self.labels = tuple(sorted(labels))
        self.values: dict[tuple[str, ...], Any] = {}

    def key(self, labels: Mapping[str, object]) -> tuple[str, ...]:
        key = tuple(str(labels[name])[:100] for name in self.labels)
        full = len(self.values) >= MOST_LABELS and key not in self.values
        return ("other",) * len(key) if full else key


class Metrics:
    """The metrics of this process. Methods may be called from any thread."""

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
        self._own: dict[str, tuple[Gauge, ...]] = {}
        self._filled: dict[str, _OwnMetric] = {}
        self._registry: Any = None

    def settled(self, stage: str, result: str, times: Sequence[float]) -> None:
        """Count attempts that ended with this result; ``times``: the seconds of each handler."""
        with self._lock:
            self._settled[stage, result] = self._settled.get((stage, result), 0) + len(times)
            self._handle.setdefault(stage, _Times()).add(*times)

    def claimed(self, stage: str, count: int, seconds: float) -> None:
        with self._lock:
            self._claimed[stage] = self._claimed.get(stage, 0) + count
            self._claim.add(seconds)

    def run_finished(self, cycle: str, outcome: str, seconds: float) -> None:
        with self._lock:
            self._runs[cycle, outcome] = self._runs.get((cycle, outcome), 0) + 1
            self._run.setdefault(cycle, _Times()).add(seconds)

    def backlog(self, stage: str, due: int, oldest_seconds: float) -> None:
        """Set how many records the stage can claim now, and for how long the oldest is due."""
        with self._lock:
            self._due[stage] = due
            self._oldest[stage] = max(0.0, oldest_seconds)

    def budget(self, budget: str, window: str, used: float, limit: float) -> None:
        with self._lock:
            self._used[budget, window] = used
            self._limit[budget, window] = limit

    def inflight(self, stage: str, count: int) -> None:
        """Set how many records of the stage this worker holds."""
        with self._lock:
            self._inflight[stage] = count

    def own(self, pipeline: str, gauges: Iterable[Gauge]) -> None:
        """Set the figures of a pipeline's own."""
        with self._lock:
            self._own[pipeline] = tuple(gauges)

    def count_own(
        self, pipeline: str, name: str, amount: float, labels: Mapping[str, object]
    ) -> str | None:
        """Add to a counter of a pipeline's own; return what is wrong with the call, or None."""
        return self._fill(pipeline, name, float, amount, labels)

    def observe_own(
        self, pipeline: str, name: str, seconds: float, labels: Mapping[str, object]
    ) -> str | None:
        """Add a time to a histogram of a pipeline's own; return what is wrong with the call."""
        return self._fill(pipeline, name, _Times, seconds, labels)

    def _fill(
        self,
        pipeline: str,
        name: str,
        form: type[float] | type[_Times],
        amount: float,
        labels: Mapping[str, object],
    ) -> str | None:
        full = f"esclusa_{pipeline.replace('-', '_')}_{name}"
        with self._lock:
            metric = self._filled.setdefault(full, _OwnMetric(form, labels))
            if metric.form is not form or metric.labels != tuple(sorted(labels)):
                kind = "a counter" if metric.form is float else "a histogram"
                return f"metric {full} is {kind} with the labels {list(metric.labels)}"
            key = metric.key(labels)
            if form is _Times:
                metric.values.setdefault(key, _Times()).add(amount)
            else:
                metric.values[key] = metric.values.get(key, 0.0) + amount
        return None

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The page for a scrape and its content type; ``accept`` is the request's header."""
        from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415

        with self._lock:
            if self._registry is None:
                self._registry = CollectorRegistry()
                ProcessCollector(registry=self._registry)
                self._registry.register(self)
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> list[Any]:
        """All metrics as the client library expects them, from one moment."""
        from prometheus_client import core  # noqa: PLC0415

        forms = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        with self._lock:
            return [
                *(
                    _filled(forms[each.form], each.name, each.about, list(each.labels), values)
                    for each, values in zip(METRICS, self._values(), strict=True)
                ),
                *(
                    _filled(
                        forms["counter" if metric.form is float else "histogram"],
                        name,
                        "Of the pipeline's own.",
                        list(metric.labels),
                        metric.values,
                    )
                    for name, metric in self._filled.items()
                ),
                *(
                    _filled(
                        forms["gauge"],
                        name,
                        found[0].about,
                        list(found[0].labels),
                        _by_labels(found),
                    )
                    for name, found in self._own_by_name().items()
                ),
            ]

    def _values(self) -> tuple[Mapping[Any, float | _Times], ...]:
        """The values of each of ``METRICS``, by their labels."""
        return (
            self._settled,
            self._handle,
            self._claimed,
            {(): self._claim},
            self._runs,
            self._run,
            self._due,
            self._oldest,
            self._used,
            self._limit,
            self._inflight,
        )

    def _own_by_name(self) -> dict[str, list[Gauge]]:
        named: dict[str, list[Gauge]] = {}
        for pipeline, gauges in self._own.items():
            prefix = f"esclusa_{pipeline.replace('-', '_')}"
            for each in gauges:
                named.setdefault(f"{prefix}_{each.name}", []).append(each)
        return named


def _by_labels(gauges: Sequence[Gauge]) -> dict[tuple[str, ...], float]:
    return {tuple(each.labels.values()): each.value for each in gauges}


def _filled(
    form: Any, name: str, about: str, labels: list[str], values: Mapping[Any, float | _Times]
) -> Any:
    metric = form(name, about, labels=labels)
    for key, found in values.items():
        names = [key] if isinstance(key, str) else list(key)
        if isinstance(found, _Times):
            metric.add_metric(names, buckets=found.cumulative(), sum_value=found.sum)
        else:
            metric.add_metric(names, found)
    return metric
