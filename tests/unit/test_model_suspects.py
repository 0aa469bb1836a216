"""Crash suspects: the whole life of a record that ends its process, in pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esclusa.model.suspects import (
    GROUP,
    claimed,
    crash_counts,
    group_of,
    handling_holder,
    waiting_holder,
    worker_of,
)

WORKER = "host-12-ab"
HOLDERS = [None, WORKER, f"{WORKER}/8", f"{WORKER}/1"]


def test_a_mark_says_what_a_crash_means() -> None:
    assert [group_of(holder) for holder in HOLDERS] == [0, 8, 1, 1]
    assert [crash_counts(holder) for holder in HOLDERS] == [True, False, False, True]
    assert [worker_of(holder) for holder in HOLDERS] == [None, WORKER, WORKER, WORKER]


def test_the_holder_of_a_suspect() -> None:
    assert [waiting_holder("w", group) for group in (0, 8, 1)] == ["w", "w", "w/8"]
    assert [handling_holder("w", group) for group in (8, 1)] == ["w/8", "w/1"]


@pytest.mark.parametrize(
    ("holder", "attempts", "tries", "expected"),
    [
        (None, 0, 3, (1, False, "w")),
        (None, 3, 3, (3, True, "w/1")),
        (None, 3, None, (4, False, "w")),
        ("v", 3, 3, (3, False, "w")),
        ("v", 4, 3, (4, True, "w/1")),
        ("v", 0, 3, (1, False, "w")),
        ("v/8", 3, 3, (3, False, "w/8")),
        ("v/1", 2, 3, (3, False, "w/8")),
        ("v/1", 3, 3, (3, True, "w/1")),
        ("v/1", 3, None, (4, False, "w/8")),
    ],
)
def test_a_claim(
    holder: str | None, attempts: int, tries: int | None, expected: tuple[int, bool, str]
) -> None:
    assert claimed(holder, attempts, tries, "w") == expected


@pytest.mark.promise(7)
@given(st.integers(1, 9), st.lists(st.booleans(), max_size=30))
def test_a_record_that_ends_its_process_is_called_twice_more_than_its_attempts(
    tries: int, other_crashes: list[bool]
) -> None:
    """Crashes of others while it waits change nothing."""
    holder, attempts, calls = None, 0, 0
    others = iter(other_crashes)
    while True:
        group = group_of(holder)
        attempts, over, holder = claimed(holder, attempts, tries, "w")
        if over:
            break
        if next(others, False) and group:
            continue  # the process ended before this record began
        calls += 1
        assert calls < 100
        holder = handling_holder("w", group) if group else holder
    assert calls == tries + 2
    assert attempts == tries


@pytest.mark.promise(7)
@given(st.lists(st.booleans(), min_size=3, max_size=30))
def test_no_attempt_is_used_up_by_a_crash_of_another_record(begun: list[bool]) -> None:
    """Beside others it is called at most twice, however often they end the process."""
    holder, attempts, calls = None, 0, 0
    for begins in begun:
        group = group_of(holder)
        attempts, over, holder = claimed(holder, attempts, 1, "w")
        assert (attempts, over) == (1, False)
        if group == 1:
            continue  # alone it ends without a crash; it may wait for that as long as it takes
        if begins or not group:
            calls += 1
            holder = handling_holder("w", GROUP) if group else holder
    assert calls <= 2
