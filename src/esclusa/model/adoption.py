"""Documents that other programs wrote without tracking fields: how many were adopted or are left.

Only Firestore has them: on SQL stores, a row whose tracking columns are null is worked as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from esclusa.model.kind import Kind
from esclusa.model.query import Query, not_null, null
from esclusa.model.value import value

# A count without a limit.
ALL = 2**53


def untouched(kind: Kind) -> Query:
    """The rows of an existing table that Esclusa has not written yet."""
    return Query(kind, (("leased_by", null), ("fence", null)))


def inserted(kind: Kind) -> Query | None:
    """The rows of an existing table that Esclusa has inserted; None if nothing shows it.

    It fills the columns that it added to the table. In a row of another program, those are null
    until a handler sets all of them.
    """
    filled = sorted(name for name in kind.added if kind.default_of(name) is not None)
    return Query(kind, tuple((name, not_null) for name in filled)) if filled else None


@value
class Adopted:
    """What one search adopted in a collection."""

    table: str
    count: int
    # How many began in a state that ``adopt=`` gives.
    states: Mapping[str, int]
    # Documents of the collection.
    documents: int
    # Documents that cannot be adopted, and why.
    refused: Mapping[str, str]
    # Seconds between two searches.
    interval: float

    @property
    def reads_per_hour(self) -> int:
        """What searching costs while it finds nothing: two counts, and four more reads."""
        if not self.interval:
            return 0
        return round(3600 / self.interval * (2 * max(1, -(-self.documents // 1000)) + 4))


@value
class Unadopted:
    """Documents of a collection without tracking fields. ``examples`` are some of their paths."""

    table: str
    count: int
    examples: tuple[str, ...]
