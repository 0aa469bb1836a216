"""The telemetry protocol: what the engine reports while it works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

Fields: TypeAlias = Callable[[int], dict[str, Any]]


class Telemetry(Protocol):
    """Receives the engine's reports. It is fast, never raises and never blocks.

    ``observability.telemetry.Observer`` implements it; ``Silent`` is for libraries and tests.
    """

    def settled(self, stage: str, result: str, times: Sequence[float], fields: Fields) -> None:
        """Attempts had the same result; ``times`` has the seconds of each.

        Results: moved, retried, waited, exhausted, lost or given_back. ``fields(n)`` describes the
        record of the nth attempt; it is called only if something uses it.
        """

    def claimed(self, stage: str, count: int, seconds: float) -> None: ...

    def run_finished(
        self,
        cycle: str,
        outcome: str,
        seconds: float,
        counters: dict[str, int],
        message: str | None = None,
    ) -> None: ...

    def event(self, level: str, message: str, **fields: Any) -> None:
        """A structured event: debug, info, warning, error."""


class Silent:
    """Telemetry that ignores everything."""

    def settled(self, stage: str, result: str, times: Sequence[float], fields: Fields) -> None: ...
    def claimed(self, stage: str, count: int, seconds: float) -> None: ...
    def run_finished(
        self,
        cycle: str,
        outcome: str,
        seconds: float,
        counters: dict[str, int],
        message: str | None = None,
    ) -> None: ...
    def event(self, level: str, message: str, **fields: Any) -> None: ...
