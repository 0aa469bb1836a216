"""The server's clock, estimated from the timestamps of its answers."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# How fast a measurement loses precision, in seconds per second of age.
#
# An old precise measurement is replaced by a newer, less precise one once its error has grown
# larger.
_DRIFT = 1e-4


class ServerClock:
    """The server's time, which never goes back.

    Firestore has no call for the time, but every commit and read carries it. This machine's
    monotonic clock continues from the most precise of those timestamps.
    """

    def __init__(self) -> None:
        self._offset = 0.0
        self._error = float("inf")
        self._measured = 0.0
        self._last = 0.0

    @staticmethod
    def ticks() -> float:
        """This machine's monotonic time, to pass to ``learn`` as the start of a call."""
        return time.monotonic()

    def learn(self, began: float, stamp: Any) -> None:
        """Measure the offset: a call that began at ``began`` ticks has just answered ``stamp``."""
        if not stamp.seconds:
            return
        ended = self.ticks()
        error = (ended - began) / 2
        if error <= self._error + (ended - self._measured) * _DRIFT:
            self._offset = stamp.seconds + stamp.nanos / 1e9 - (began + ended) / 2
            self._error, self._measured = error, ended

    @property
    def age(self) -> float:
        """Seconds since the last measurement that was used."""
        return self.ticks() - self._measured

    def now(self) -> datetime:
        """The estimated time of the server."""
        self._last = max(self._last, self.ticks() + self._offset)
        return _EPOCH + timedelta(seconds=self._last)
