"""A query that is ready to be sent, what it finds, and Firestore's order of that."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from esclusa.model.kind import Kind
from esclusa.model.query import Cond, Order, Query
from esclusa.model.value import value
from esclusa.stores.firestore import names

Conditions = tuple[tuple[str, Cond], ...]


@dataclass(slots=True)
class FoundDocument:
    """A document that a query found, with its decoded values."""

    document: Any
    id: str
    values: dict[str, Any]


@value
class PreparedQuery:
    """A query, ready to be sent: one structured query, several to merge, or ids to look up."""

    query: Query
    # The whole order except the name.
    order: tuple[Order, ...]
    name_descending: bool
    parts: tuple[Any, ...]
    ids: tuple[str, ...] | None
    # Conditions that are checked here because Firestore cannot combine them with the order.
    local_conditions: Conditions = ()

    @property
    def empty(self) -> bool:
        """Whether no record can match."""
        return self.ids == () or (self.ids is None and not self.parts)


def sort_found(prepared: PreparedQuery, found: list[FoundDocument]) -> None:
    """Sort the answers of several queries into the order of one."""
    found.sort(key=functools.cmp_to_key(functools.partial(compare, prepared)))


def compare(prepared: PreparedQuery, a: FoundDocument, b: FoundDocument) -> int:
    """Firestore's order: nulls first, text by its bytes, then the name."""
    for item in prepared.order:
        x, y = _rank(a.values[item.field]), _rank(b.values[item.field])
        if x != y:
            return (1 if x > y else -1) * (-1 if item.descending else 1)
    kind = prepared.query.kind
    x, y = _rank(_sortable_path(kind, a.id)), _rank(_sortable_path(kind, b.id))
    return 0 if x == y else (1 if x > y else -1) * (-1 if prepared.name_descending else 1)


def _sortable_path(kind: Kind, id: str) -> str:
    """The path with a separator that sorts first, because Firestore compares segment by segment."""
    return (names.path(kind, id) or id).replace("/", "\0")


def _rank(value: Any) -> tuple[Any, ...]:
    """Firestore's order of types: a field that another program wrote may have any."""
    match value:
        case None:
            return (0,)
        case bool():
            return (1, value)
        case int() | float() | Decimal():
            return (2, value)
        case datetime():
            return (3, value)
        case date():
            return (4, value.isoformat().encode())
        case str():
            return (4, value.encode())
        case bytes():
            return (5, value)
    return (6, repr(value))
