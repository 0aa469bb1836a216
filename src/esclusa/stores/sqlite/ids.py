"""Ids of records without a key. Time comes first, so that new rows are neighbours in an index."""

from __future__ import annotations

import os
import time
from uuid import UUID


def uuid7() -> str:
    """Return a version 7 UUID (RFC 9562)."""
    milliseconds = time.time_ns() // 1_000_000
    number = (milliseconds << 80) | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | (7 << 76)
    return str(UUID(int=number & ~(3 << 62) | (2 << 62)))
