"""Passes the engine's events on to the log, the metrics and the traces."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from esclusa.model.results import FAILED, LOG_LEVELS
from esclusa.observability import log, redact, traces
from esclusa.observability.metrics import Metrics
from esclusa.ports.telemetry import Fields, HandlerSpan, SpanLink


class Observer:
    """The Telemetry of a process. Fast, never raises, blocks only to write a line.

    A settlement is one structured event: info (moved, retried, waited), warning (exhausted, lost,
    an unexpected error, with its traceback) or error (a fault of the handler). Its stage is in the
    field ``engine_stage``; ``stage`` is for pipelines.
    """

    def __init__(
        self, metrics: Metrics | None = None, *, name: str = "esclusa", tracer: Any | None = None
    ) -> None:
        self.metrics = metrics or Metrics()
        self._log = log.get(name)
        self._warned: set[str] = set()
        self._tracer = tracer if tracer is not None else traces.tracer()

    @property
    def spans(self) -> bool:
        return self._tracer is not None

    def settled(self, stage: str, result: str, times: Sequence[float], fields: Fields) -> None:
        self.metrics.settled(stage, result, times)
        usual = LOG_LEVELS.get(result, "info")
        if not log.enabled(usual) and result not in FAILED and self._tracer is None:
            return
        for n, seconds in enumerate(times):
            details = fields(n)
            span, settling = details.pop("span", None), details.pop("settling", seconds)
            level = "warning" if "traceback" in details else usual
            level = "error" if "fault" in details else level
            self._log.write(
                level,
                details.pop("message", f"{stage}: {result}"),
                {**details, "engine_stage": stage, "result": result, "seconds": round(seconds, 6)},
            )
            if self._tracer is not None:
                self._span(
                    f"settle {stage}",
                    settling,
                    {"esclusa.stage": stage, "esclusa.result": result},
                    details,
                    failed=level != "info",
                    parent=span,
                )

    def claimed(self, stage: str, count: int, seconds: float) -> None:
        self.metrics.claimed(stage, count, seconds)
        if log.enabled("debug"):
            self._log.write(
                "debug",
                f"{stage}: claimed {count}",
                {"engine_stage": stage, "count": count, "seconds": round(seconds, 6)},
            )
        if self._tracer is not None and count:
            self._span(
                f"claim {stage}", seconds, {"esclusa.stage": stage, "esclusa.count": count}, {}
            )

    def caller_span(self) -> str | None:
        try:
            return traces.current_span() or log.request_span()
        except Exception as error:  # noqa: BLE001  # telemetry must not break the work
            self._switch_off(error)
            return None

    def handler_span(
        self, stage: str, attributes: Mapping[str, Any], links: Sequence[SpanLink]
    ) -> AbstractContextManager[HandlerSpan]:
        about = {"esclusa.stage": stage} | {f"esclusa.{n}": v for n, v in attributes.items()}
        try:
            return traces.handler_span(self._tracer, f"handle {stage}", about, links)
        except Exception as error:  # noqa: BLE001  # telemetry must not break the work
            self._switch_off(error)
            return nullcontext(NoSpan())

    def counted(
        self, pipeline: str, name: str, amount: float, labels: Mapping[str, object]
    ) -> None:
        self._warn(self.metrics.count_own(pipeline, name, amount, labels))

    def observed(
        self, pipeline: str, name: str, seconds: float, labels: Mapping[str, object]
    ) -> None:
        self._warn(self.metrics.observe_own(pipeline, name, seconds, labels))

    def _warn(self, fault: str | None) -> None:
        """Log a wrong call of a metric, each once."""
        if fault is not None and fault not in self._warned:
            self._warned.add(fault)
            message = f"{fault}; a call with another form or labels is not counted"
            self._log.write("warning", message, {})

    def run_finished(
        self,
        cycle: str,
        outcome: str,
        seconds: float,
        counters: dict[str, int],
        message: str | None = None,
    ) -> None:
        self.metrics.run_finished(cycle, outcome, seconds)
        self._log.write(
            LOG_LEVELS.get(outcome, "info"),
            f"{cycle}: {outcome}" + (f": {message}" if message else ""),
            {
                "cycle": cycle,
                "outcome": outcome,
                "seconds": round(seconds, 3),
                "counters": counters,
            },
        )
        if self._tracer is not None:
            self._span(
                f"run {cycle}",
                seconds,
                {"esclusa.cycle": cycle, "esclusa.outcome": outcome},
                counters,
                failed=outcome == "error",
            )

    def event(self, level: str, message: str, /, **fields: Any) -> None:
        self._log.write(level, message, fields)

    def masked(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return redact.fields(fields)

    def _span(
        self,
        name: str,
        seconds: float,
        attributes: dict[str, Any],
        fields: Mapping[str, Any],
        *,
        failed: bool = False,
        parent: str | None = None,
    ) -> None:
        """A span that ends now and began ``seconds`` ago, within the one that ``parent`` names."""
        try:
            from opentelemetry.trace import StatusCode  # noqa: PLC0415  # loaded already

            end = time.time_ns()
            for key, value in fields.items():
                if isinstance(value, str | int | float) and not redact.secret_name(key):
                    attributes[f"esclusa.{key}"] = (
                        redact.text(value) if isinstance(value, str) else value
                    )
            assert self._tracer is not None
            within = traces.context_of(parent)
            span = self._tracer.start_span(
                name,
                context=None if within is None else traces.within(within),
                start_time=end - int(seconds * 1e9),
                attributes=attributes,
            )
            if failed:
                span.set_status(StatusCode.ERROR)
            span.end(end)
        except Exception as error:  # noqa: BLE001  # telemetry must not break the work
            self._switch_off(error)

    def _switch_off(self, error: Exception) -> None:
        self._tracer = None
        self._log.error("tracing is switched off: a span could not be made", error=str(error))


class NoSpan:
    """Stands for a span that could not be made."""

    context = ""

    def result(self, outcome: str, *, failed: bool) -> None: ...
