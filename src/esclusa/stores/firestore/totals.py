"""Counts and sums by group: by aggregation if the groups are states, else from the fields read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import isfinite
from typing import Any

from esclusa.model.kind import Kind
from esclusa.model.query import Cond, Grouping, Query, Total, totals_in_order
from esclusa.stores.firestore import queries
from esclusa.stores.firestore.client import FirestoreClient
from esclusa.stores.firestore.codec import Codec
from esclusa.stores.firestore.found import PreparedQuery

# Documents that are read at a time, with the named fields only.
_PAGE = 5000


async def totals(
    client: FirestoreClient,
    codec: Codec,
    query: Query,
    grouping: Grouping,
    states: Callable[[Kind], Awaitable[list[str]]],
) -> list[Total]:
    """Return count and sums of number fields by the values of other fields."""
    query = query.but(order=(), after=None)
    prepared = queries.prepare(codec, query, client.root)
    if grouping.by == ("status",) and queries.is_single(prepared) and not query.archived:
        found = await _by_state(client, codec, query, grouping, await states(query.kind))
    else:
        found = await _streamed(client, codec, prepared, grouping)
    return totals_in_order(query, grouping, found)


async def _by_state(
    client: FirestoreClient, codec: Codec, query: Query, grouping: Grouping, occurring: list[str]
) -> list[Total]:
    """A read for each 1,000 documents: Firestore counts and sums."""
    found = []
    for state in dict.fromkeys([*query.kind.lifecycle.states, *occurring]):
        where = (*query.where, ("status", Cond("eq", state)))
        prepared = queries.prepare(codec, query.but(where=where), client.root)
        count = await queries.count(client, codec, prepared, 2**53, "totals")
        if count:
            sums = {
                name: await client.sum(prepared.parts[0], queries.field_path(codec, name), "totals")
                for name in grouping.sums
            }
            found.append(Total({"status": state}, count, sums))
    return found


async def _streamed(
    client: FirestoreClient, codec: Codec, prepared: PreparedQuery, grouping: Grouping
) -> list[Total]:
    """A read for each document, and memory for each group."""
    selected = queries.selecting(codec, prepared, [*grouping.by, *grouping.sums])
    groups: dict[tuple[Any, ...], list[Any]] = {}
    after = None
    while len(groups) <= grouping.cap:
        found = await queries.page(client, codec, selected, _PAGE, "totals", after)
        for document in found:
            values = document.values
            key = tuple(_hashable(values.get(name)) for name in grouping.by)
            group = groups.setdefault(key, [0] * (len(grouping.sums) + 1))
            group[0] += 1
            for n, name in enumerate(grouping.sums, 1):
                group[n] += _number(values.get(name))
        if len(found) < _PAGE:
            break
        after = queries.position_of(selected, found[-1])
    return [
        Total(
            dict(zip(grouping.by, key, strict=True)),
            count,
            dict(zip(grouping.sums, sums, strict=True)),
        )
        for key, (count, *sums) in groups.items()
    ]


def _hashable(value: Any) -> Any:
    """Another program may have stored a list or a map."""
    return str(value) if isinstance(value, dict | list) else value


def _number(value: Any) -> int | float:
    """Another program may have stored a number as text, or one that is not finite."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if type(value) is int or (type(value) is float and isfinite(value)) else 0
