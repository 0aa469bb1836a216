"""The server's clock, learned from the times that its answers carry."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DRIFT = 1e-4
"""How much the trust in a measurement fades, in seconds a second: then a newer one counts, even if it is rougher."""


class ServerClock:
    """Firestore cannot be asked the time, but every commit and read tells when it was. This machine's monotonic clock
    carries on from the best of those. It never goes back."""

    def __init__(self) -> None:
        self._offset = 0.0
        self._error = float("inf")
        self._measured = 0.0
        self._last = 0.0

    @staticmethod
    def ticks() -> float:
        return time.monotonic()

    def learn(self, began: float, stamp: Any) -> None:
        """An answer to a call that began at these ticks and is here now said that it was ``stamp``."""
        if not stamp.seconds:
            return
        ended = self.ticks()
        error = (ended - began) / 2
        if error <= self._error + (ended - self._measured) * _DRIFT:
            self._offset = stamp.seconds + stamp.nanos / 1e9 - (began + ended) / 2
            self._error, self._measured = error, ended

    @property
    def age(self) -> float:
        """How old the measurement is, in seconds."""
        return self.ticks() - self._measured

    def now(self) -> datetime:
        self._last = max(self._last, self.ticks() + self._offset)
        return _EPOCH + timedelta(seconds=self._last)
