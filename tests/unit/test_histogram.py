"""Times are counted in the bucket of their upper bound, one by one or as a batch."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from esclusa.model.histogram import add_times

BOUNDS = (0.001, 0.01, 0.1)


@given(st.lists(st.floats(0, 1), max_size=30))
def test_a_time_is_counted_between_its_bounds(times: list[float]) -> None:
    counts = [0] * (len(BOUNDS) + 1)
    add_times(counts, BOUNDS, times)
    edges = [-1.0, *BOUNDS, float("inf")]
    assert counts == [sum(low < each <= high for each in times) for low, high in pairwise(edges)]


def test_batches_add_up() -> None:
    counts = [0] * (len(BOUNDS) + 1)
    add_times(counts, BOUNDS, [0.0005] * 3)  # all below the first bound
    add_times(counts, BOUNDS, [0.0005, 0.05, 5.0])
    assert counts == [4, 0, 1, 1]
