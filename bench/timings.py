"""Handler start and end times in shared memory.

Every contender's handlers write here. A write costs about a microsecond per record.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path
from typing import Self


class Timings:
    """Start time, end time and a done flag per record, numbered from 0.

    The times are of the machine's monotonic clock, so that all processes can compare them.
    """

    RECORD_BYTES = 17  # two doubles and the flag

    def __init__(self, path: Path, slots: int) -> None:
        self._slots = slots
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), slots * self.RECORD_BYTES)
        self._ends = slots * 8
        self._flags = slots * 16

    @classmethod
    def create(cls, path: Path, slots: int) -> Self:
        with path.open("wb") as file:
            file.truncate(slots * cls.RECORD_BYTES)
        return cls(path, slots)

    def close(self) -> None:
        self._map.close()

    # for handlers

    def begin(self, number: int) -> None:
        struct.pack_into("d", self._map, number * 8, time.monotonic())

    def end(self, number: int) -> None:
        struct.pack_into("d", self._map, self._ends + number * 8, time.monotonic())
        self._map[self._flags + number] = 1

    # for the driver and the sender

    def begun(self, number: int) -> float:
        """When this record's handler began; 0.0 if it has not begun."""
        return float(struct.unpack_from("d", self._map, number * 8)[0])

    def handled(self) -> int:
        """How many handlers have ended."""
        return self._map[self._flags :].count(b"\x01")

    def first(self) -> float:
        """When the first handler began."""
        return min(t for t in self._times(0) if t)

    def last(self) -> float:
        """When the last handler ended."""
        return max(self._times(self._ends))

    def _times(self, start: int) -> tuple[float, ...]:
        return struct.unpack_from(f"{self._slots}d", self._map, start)
