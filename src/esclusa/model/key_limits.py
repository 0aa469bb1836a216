"""Limits per key: how many records of one customer, host or account a stage holds at once.

A claim finds candidates of several keys and divides its places among them in turn, so that a key
with many records does not hold up one with few. Which keys are looked at, and how what others hold
is kept from changing meanwhile, is the store's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from esclusa.model.value import value

# With no more due records than this, a claim looks at all of them. Otherwise it goes from key to
# key.
LOOKED_AT = 100
# How many keys one claim looks at, at most.
MOST_KEYS = 1000


@value
class KeyLimit:
    """At most ``at_once`` records with the same value of ``field`` are held at once.

    Null is a value like any other.
    """

    field: str
    at_once: int


@value
class KeyCandidates:
    """What a claim may take of one key.

    ``held``: how many of its records have a holder, whether its lease has ended or not.
    ``orphans``: those whose lease has ended. ``fresh``: due records without a holder. Both are ids,
    in the order of the claim.
    """

    key: Any
    held: int
    orphans: Sequence[str]
    fresh: Sequence[str]

    def allowed(self, at_once: int) -> list[str]:
        """The ids that may be taken now.

        An orphan counts as held until it is taken: its worker may be slow and not dead.
        """
        leased = self.held - len(self.orphans)
        return [
            *self.orphans[: max(0, at_once - leased)],
            *self.fresh[: max(0, at_once - self.held)],
        ]


@value
class Share:
    """What one claim takes of one key."""

    key: Any
    ids: tuple[str, ...]


def divide(candidates: Sequence[KeyCandidates], at_once: int, limit: int) -> list[Share]:
    """Divide the places of a claim among keys in turn: one for each, then a second for each.

    The last share is that of the key at which the next claim begins, behind it.
    """
    allowed = {each.key: each.allowed(at_once) for each in candidates}
    taken: dict[Any, int] = dict.fromkeys((key for key, ids in allowed.items() if ids), 0)
    left, last = limit, None
    while left > 0 and (open_keys := [k for k, n in taken.items() if n < len(allowed[k])]):
        for key in open_keys[:left]:
            taken[key] += 1
            last = key
        left -= len(open_keys[:left])
    shares = [Share(key, tuple(allowed[key][:n])) for key, n in taken.items() if n]
    return sorted(shares, key=lambda share: share.key == last)


def in_cycle(candidates: Sequence[KeyCandidates], after: Any) -> list[KeyCandidates]:
    """The candidates in the order of their keys, beginning behind ``after``."""
    ordered = sorted(candidates, key=lambda each: order_of(each.key))
    if after is None:
        return ordered
    behind = order_of(after)
    return sorted(ordered, key=lambda each: order_of(each.key) <= behind)


def order_of(key: Any) -> tuple[int, Any]:
    """The place of a key among others: null, then numbers, then texts."""
    return (0, 0) if key is None else (2, key) if isinstance(key, str) else (1, key)
