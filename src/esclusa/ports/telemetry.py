"""The telemetry protocol: what the engine reports while it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from esclusa.model.value import value

Fields: TypeAlias = Callable[[int], dict[str, Any]]


@value
class SpanLink:
    """A link of a span to another, which ``context`` names as in a ``traceparent`` header."""

    context: str
    meaning: str


class HandlerSpan(Protocol):
    """The span around one call of a handler, which is current while the handler runs.

    ``context`` names it, as in a ``traceparent`` header. Spans that the handler makes are within.
    """

    context: str

    def result(self, outcome: str, *, failed: bool) -> None:
        """Note what the handler answered."""


class Telemetry(Protocol):
    """Receives the engine's reports. It is fast, never raises and never blocks.

    ``observability.telemetry.Observer`` implements it; ``Silent`` is for libraries and tests.
    """

    @property
    def spans(self) -> bool:
        """Whether spans are made."""

    def caller_span(self) -> str | None:
        """The span of the caller, or of the HTTP request; None if there is none or not sampled."""

    def settled(self, stage: str, result: str, times: Sequence[float], fields: Fields) -> None:
        """Attempts had the same result; ``times`` has the seconds of each.

        Results: moved, retried, waited, exhausted, lost or given_back. ``fields(n)`` describes the
        record of the nth attempt; it is called only if something uses it.
        """

    def claimed(self, stage: str, count: int, seconds: float) -> None: ...

    def handler_span(
        self, stage: str, attributes: Mapping[str, Any], links: Sequence[SpanLink]
    ) -> AbstractContextManager[HandlerSpan]:
        """A span for one call of a handler; only called if ``spans`` are made."""

    def counted(
        self, pipeline: str, name: str, amount: float, labels: Mapping[str, object]
    ) -> None:
        """A handler added to a counter of its pipeline."""

    def observed(
        self, pipeline: str, name: str, seconds: float, labels: Mapping[str, object]
    ) -> None:
        """A handler added a time to a histogram of its pipeline."""

    def run_finished(
        self,
        cycle: str,
        outcome: str,
        seconds: float,
        counters: dict[str, int],
        message: str | None = None,
    ) -> None: ...

    def event(self, level: str, message: str, /, **fields: Any) -> None:
        """A structured event: debug, info, warning, error."""

    def masked(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of an event without secrets, as the log has them."""


class Silent:
    """Telemetry that ignores everything."""

    spans = False

    def caller_span(self) -> str | None:
        return None

    def settled(self, stage: str, result: str, times: Sequence[float], fields: Fields) -> None: ...
    def claimed(self, stage: str, count: int, seconds: float) -> None: ...
    def handler_span(
        self, stage: str, attributes: Mapping[str, Any], links: Sequence[SpanLink]
    ) -> AbstractContextManager[HandlerSpan]:
        raise AssertionError("no spans are made")

    def counted(
        self, pipeline: str, name: str, amount: float, labels: Mapping[str, object]
    ) -> None: ...
    def observed(
        self, pipeline: str, name: str, seconds: float, labels: Mapping[str, object]
    ) -> None: ...

    def run_finished(
        self,
        cycle: str,
        outcome: str,
        seconds: float,
        counters: dict[str, int],
        message: str | None = None,
    ) -> None: ...
    def event(self, level: str, message: str, /, **fields: Any) -> None: ...

    def masked(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return dict(fields)
