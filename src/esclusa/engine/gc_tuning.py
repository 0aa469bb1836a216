"""The memory of a process that works through records for a long time."""

from __future__ import annotations

import ctypes
import gc

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Options of the C library's ``mallopt``."""

_SPARE = 32 << 20
_LARGE = 2 << 20


def tune_gc() -> None:
    """Look for cycles less often, and give freed memory back less eagerly. Call it once, when everything is imported and declared.

    Records come and go by the thousand and are freed by their counts; the default looks for cycles among them after every
    700 new objects, which is a good part of a worker's time when its handlers are short. Bodies of files come and go as often; by
    default the memory of each goes back to the system, which clears it page by page for the next.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    try:
        choose = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # another C library than GNU's
        return
    choose(_TRIM_THRESHOLD, _SPARE)
    choose(_MMAP_THRESHOLD, _LARGE)
