"""Counts of times in buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


def add_times(counts: list[int], bounds: Sequence[float], times: Sequence[float]) -> None:
    """Count each time in the first bucket whose upper bound it does not exceed.

    ``counts`` has one bucket more than there are bounds, for what exceeds them all.
    """
    if times and max(times) <= bounds[0]:  # a batch of fast handlers costs no search for each
        counts[0] += len(times)
        return
    for seconds in times:
        counts[bisect_left(bounds, seconds)] += 1
