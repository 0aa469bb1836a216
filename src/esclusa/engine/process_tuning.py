"""Settings of a process that handles many records: garbage collection, memory and threads."""

from __future__ import annotations

import ctypes
import gc
import sys

# Options of the C library's `mallopt`.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

# How long a thread may keep Python's lock while others wait for it.
_SWITCH_SECONDS = 0.0005


def tune_process() -> None:
    """Collect garbage less often, keep freed memory, and let threads take turns faster.

    Call it once, after everything is imported and declared. Records are freed by reference
    counting, by the thousand. What a worker holds at a time is some ten thousand objects, so that
    the collector runs only if others stay: below that it takes a sixth of a worker's time if its
    handlers are short. Bodies of files come and go as often; by default glibc returns the memory of
    each to the system, which clears it for the next one.

    A thread that returns from a statement of SQLite, or from a file, waits for Python's lock until
    the event loop gives it up: by default 5 ms, while a statement takes less than one.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(100_000, 10, 10)
    try:
        choose = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # another C library than GNU's
        return
    choose(_TRIM_THRESHOLD, 32 << 20)
    choose(_MMAP_THRESHOLD, 2 << 20)
