"""What the engine tells the world while it works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

Fields: TypeAlias = Callable[[int], dict[str, Any]]


class Telemetry(Protocol):
    """Cheap, never raises, never blocks. ``observe`` implements it; ``Silent`` is for libraries and tests."""

    def settled(self, stage: str, result: str, times: Sequence[float], fields: Fields) -> None:
        """Attempts ended alike: moved, retried, waited, exhausted, lost or given_back, each after so many seconds. ``fields(n)``
        says which record the nth was about, if anybody listens."""

    def claimed(self, stage: str, count: int, seconds: float) -> None: ...

    def run_finished(
        self, cycle: str, outcome: str, seconds: float, counters: dict[str, int]
    ) -> None: ...

    def event(self, level: str, message: str, **fields: Any) -> None:
        """A structured event: debug, info, warning, error."""


class Silent:
    """Tells nobody."""

    def settled(self, stage: str, result: str, times: Sequence[float], fields: Fields) -> None: ...
    def claimed(self, stage: str, count: int, seconds: float) -> None: ...
    def run_finished(
        self, cycle: str, outcome: str, seconds: float, counters: dict[str, int]
    ) -> None: ...
    def event(self, level: str, message: str, **fields: Any) -> None: ...
