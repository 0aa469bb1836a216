"""Index checks for the Firestore emulator.

Firestore refuses a query without its index; the emulator answers every query. With these checks it
refuses the same queries as Firestore.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from google.api_core.exceptions import FailedPrecondition

from esclusa.loading import BUILT_IN, load_app
from esclusa.stores.firestore import indexes_for, uncovered
from esclusa.stores.firestore.client import FirestoreClient
from esclusa.stores.firestore.indexes import shape_of


def built_in_indexes(names: Collection[str] = BUILT_IN) -> dict[str, Any]:
    """The index file of these built-in pipelines."""
    return indexes_for([app.bind(app.settings()) for app in map(load_app, names)])


@contextmanager
def enforce_indexes(
    file: dict[str, Any], ops: Collection[str] = (), tables: Collection[str] = ()
) -> Iterator[set[str]]:
    """Refuse the queries that this file does not cover; yield the operations that made a query.

    ``ops`` and ``tables`` restrict the check to queries of these operations and tables.
    """
    seen: set[str] = set()

    def check(op: str, query: Any, summed: str | None) -> None:
        seen.add(op)
        shape = shape_of(query, summed)
        if (ops and op not in ops) or (tables and shape.collection not in tables):
            return
        if faults := uncovered([shape], file):
            raise FailedPrecondition(f"The query requires an index ({op}): {faults[0]}")  # type: ignore[no-untyped-call]

    FirestoreClient.on_query = staticmethod(check)
    try:
        yield seen
    finally:
        FirestoreClient.on_query = None
