"""The garbage collector of a process that works through records for a long time."""

from __future__ import annotations

import gc


def calm_collector() -> None:
    """Look for cycles less often. Call it once, when everything is imported and declared.

    Records come and go by the thousand and are freed by their counts; the default looks for cycles among them after every
    700 new objects, which is a good part of a worker's time when its handlers are short.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
