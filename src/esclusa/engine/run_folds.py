"""Lists of runs in which runs without work are folded away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

T = TypeVar("T")

# The fewest runs without work, one after another, that are folded.
FOLD = 3


def folded(runs: Sequence[T], idle: Callable[[T], bool]) -> list[T | list[T]]:
    """The runs in their order; several ``idle`` ones, one after another, are a list."""
    out: list[T | list[T]] = []
    for is_idle, group in groupby(runs, idle):
        members = list(group)
        if is_idle and len(members) >= FOLD:
            out.append(members)
        else:
            out += members
    return out
