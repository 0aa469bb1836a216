"""Garbage collection and memory settings of a process that handles many records."""

from __future__ import annotations

import ctypes
import gc

# Options of the C library's `mallopt`.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def tune_gc() -> None:
    """Collect garbage less often, and keep freed memory in the process.

    Call it once, after everything is imported and declared. Records are freed by reference
    counting, by the thousand. What a worker holds at a time is some ten thousand objects, so that
    the collector runs only if others stay: below that it takes a sixth of a worker's time if its
    handlers are short. Bodies of files come and go as often; by default glibc returns the memory of
    each to the system, which clears it for the next one.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)
    try:
        choose = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # another C library than GNU's
        return
    choose(_TRIM_THRESHOLD, 32 << 20)
    choose(_MMAP_THRESHOLD, 2 << 20)
