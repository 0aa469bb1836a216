"""What one stage did and had to do in a span of time, and the spans in which it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import add
from typing import Any, Final

from esclusa.model.kind import Ref
from esclusa.model.results import FAILED, RATED, ResultName
from esclusa.model.settlement import Backlog
from esclusa.model.system_records import RateRecord, StageSample

# The spans of samples, in seconds: backlogs each minute, rolled up into quarters and hours.
MINUTE: Final = 60
QUARTER: Final = 900
HOUR: Final = 3600
ROLLED: Final = (QUARTER, HOUR)

# How long after its end a span is rolled up: until then workers write what they counted in it.
LATE: Final = timedelta(minutes=2)


def floor(moment: datetime, seconds: int) -> datetime:
    """The beginning of the span of so many seconds that contains the moment."""
    return datetime.fromtimestamp(moment.timestamp() // seconds * seconds, UTC)


def covering(minutes: Iterable[datetime]) -> list[Ref]:
    """The rolled-up samples that contain one of these minutes."""
    ids = {StageSample.kind.id_of(span, floor(m, span)) for m in minutes for span in ROLLED}
    return [Ref(StageSample.kind, id) for id in sorted(ids)]


@dataclass(slots=True)
class Tally:
    """Counts by result, handler times, and the largest backlog that was found.

    ``due`` and ``oldest`` (seconds) are None if no backlog was read. ``exact``: ``due`` was counted
    to its end.
    """

    results: dict[ResultName, int] = field(default_factory=lambda: dict.fromkeys(RATED, 0))
    seconds: float = 0.0
    histogram: list[int] = field(default_factory=list)
    due: int | None = None
    exact: bool = True
    oldest: float | None = None

    @property
    def failed(self) -> int:
        """How many attempts ended with an error."""
        return sum(self.results[name] for name in FAILED)

    def add_row(self, row: RateRecord) -> None:
        """Add what a worker counted in a minute."""
        for name in RATED:
            self.results[name] += getattr(row, name)
        self.seconds += row.seconds
        self._add_histogram(row.histogram)

    def add_backlog(self, backlog: Backlog, now: datetime) -> None:
        """Add a backlog that was read now."""
        age = (now - backlog.oldest).total_seconds() if backlog.oldest is not None else 0.0
        self._grow(backlog.due, backlog.exact, round(max(0.0, age), 1))

    def add(self, other: Tally, *, together: bool = False) -> None:
        """Add another span of the same stage; ``together``: the same span of another stage."""
        for name in RATED:
            self.results[name] += other.results[name]
        self.seconds += other.seconds
        self._add_histogram(other.histogram)
        if other.due is not None:
            due = other.due + (self.due or 0) if together else other.due
            self._grow(due, other.exact and (self.exact or not together), other.oldest or 0.0)

    def _add_histogram(self, other: Sequence[int]) -> None:
        if not self.histogram:
            self.histogram = list(other)
        elif other:
            self.histogram = list(map(add, self.histogram, other))

    def _grow(self, due: int, exact: bool, oldest: float) -> None:
        if self.due is None or due >= self.due:
            self.due, self.exact = due, exact
        self.oldest = max(self.oldest or 0.0, oldest)

    def dump(self) -> dict[str, Any]:
        """As a sample stores it: only what is not empty."""
        stored: dict[str, Any] = {name: n for name, n in self.results.items() if n}
        if any(self.histogram):
            stored |= {"seconds": round(self.seconds, 3), "histogram": self.histogram}
        if self.due is not None:
            stored |= {"due": self.due, "oldest": self.oldest}
            if not self.exact:
                stored["exact"] = False
        return stored

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> Tally:
        """From what ``dump`` wrote."""
        return cls(
            {name: stored.get(name, 0) for name in RATED},
            stored.get("seconds", 0.0),
            stored.get("histogram", []),
            stored.get("due"),
            stored.get("exact", True),
            stored.get("oldest"),
        )
