"""Firestore's emulator answers every query; Firestore refuses one without its index. Here the emulator refuses it too."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from google.api_core.exceptions import FailedPrecondition

from esclusa.loading import BUILT_IN, load_app
from esclusa.stores.firestore import indexes_for, uncovered
from esclusa.stores.firestore.client import FirestoreClient
from esclusa.stores.firestore.indexes import shape_of


def built_in() -> dict[str, Any]:
    """The index file of the four pipelines."""
    return indexes_for([app.bind(app.settings()) for app in map(load_app, BUILT_IN)])


@contextmanager
def enforced(
    file: dict[str, Any], ops: Collection[str] = (), tables: Collection[str] = ()
) -> Iterator[set[str]]:
    """Have every query of every Firestore store refused that this file does not serve (or those of these operations, of these
    tables); yields the operations that asked."""
    asked: set[str] = set()

    def check(op: str, query: Any, average: str | None) -> None:
        asked.add(op)
        shape = shape_of(query, average)
        if (ops and op not in ops) or (tables and shape.collection not in tables):
            return
        if faults := uncovered([shape], file):
            raise FailedPrecondition(f"The query requires an index ({op}): {faults[0]}")  # type: ignore[no-untyped-call]

    FirestoreClient.on_query = staticmethod(check)
    try:
        yield asked
    finally:
        FirestoreClient.on_query = None
