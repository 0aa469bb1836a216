"""Counts and sums by group: the same numbers on every store."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from conformance.helpers import claim, insert_new, settle_all, settlement_of
from conformance.kinds import stage

from esclusa.model.errors import BadQuery
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import Grouping, Total, above, grouping, not_null, query
from esclusa.model.record import Record


class Sale(Record, table="t_sales", key="name", archive=True):
    name: str
    shop: str | None = None
    open: bool = True
    day: date | None = None
    size: int | None = None
    price: float | None = None
    note: dict[str, Any] = {}

    lifecycle = Lifecycle("""
        pending -> busy -> sold | lost
        busy -> pending
    """)


SELL = stage("sell", Sale.kind, take="pending", hold="busy", exhausted="lost")


async def totals(store: Any, by: list[str], *sums: str, **where: Any) -> list[tuple[Any, ...]]:
    found = await store.totals(query(Sale, where), grouping(Sale.kind, by, sums))
    assert all([*t.values] == by and [*t.sums] == [*sums] for t in found)
    return [(*t.values.values(), t.count, *t.sums.values()) for t in found]


@pytest.fixture
async def sales(bare_store: Any) -> Any:
    store = await bare_store((Sale.kind,), (SELL,))
    assert await totals(store, ["status"], "size") == []
    assert await totals(store, []) == []
    rows = [
        Sale(name="1", shop="ñandú", size=2, price=0.5, day=date(2026, 1, 2)),
        Sale(name="2", shop="ñandú", size=3, price=1.25, open=False),
        Sale(name="3", shop="b", size=2**40, attempts=2),
        Sale(name="4", size=2**40, price=-1.5, day=date(2026, 1, 2)),
        Sale(name="5", shop="b"),
    ]
    await insert_new(store, *rows)
    return store


async def test_groups_count_and_sum(sales: Any) -> None:
    assert await totals(sales, ["shop"], "size", "price") == [
        (None, 1, 2**40, -1.5),
        ("b", 2, 2**40, 0),
        ("ñandú", 2, 5, 1.75),
    ]
    assert await totals(sales, ["shop", "open"]) == [
        (None, True, 1),
        ("b", True, 2),
        ("ñandú", False, 1),
        ("ñandú", True, 1),
    ]
    assert await totals(sales, ["day"], "size") == [
        (None, 3, 2**40 + 3),
        (date(2026, 1, 2), 2, 2**40 + 2),
    ]
    assert await totals(sales, [], "size") == [(5, 2**41 + 5)]
    assert await totals(sales, ["size"]) == [(None, 1), (2**40, 2), (2, 1), (3, 1)]


async def test_a_filter_narrows_the_groups(sales: Any) -> None:
    assert await totals(sales, ["shop"], "size", size=above(2)) == [
        (None, 1, 2**40), ("b", 1, 2**40), ("ñandú", 1, 3),
    ]  # fmt: skip
    assert await totals(sales, ["shop"], shop=["b", "c"], size=not_null) == [("b", 1)]
    assert await totals(sales, ["status"], "size", id=["1", "2", "none"]) == [("pending", 2, 5)]
    assert await totals(sales, ["shop"], shop="none") == []
    many = [str(n) for n in range(40)]
    assert await totals(sales, ["status"], "size", name=many) == [("pending", 5, 2**41 + 5)]


async def test_states_are_groups_too(sales: Any) -> None:
    [one, two] = await claim(sales, SELL, limit=2)
    await settle_all(sales, settlement_of(one, "sold"), settlement_of(two, "lost"))
    found = await totals(sales, ["status"], "attempts")
    assert [row[:2] for row in found] == [("lost", 1), ("pending", 3), ("sold", 1)]
    assert sum(row[2] for row in found) == 4  # two before, two claims
    assert sum(row[2] for row in await totals(sales, ["status", "shop"])) == 5
    archived = await sales.archive(query(Sale, {"status": "sold"}))
    assert archived == 1
    found = await sales.totals(query(Sale, archived=True), grouping(Sale.kind, ["status"]))
    assert found == [Total({"status": "sold"}, 1, {})]


async def test_too_many_groups_are_refused(sales: Any) -> None:
    with pytest.raises(BadQuery, match="more than 4 groups by name"):
        await sales.totals(query(Sale), Grouping(("name",), (), cap=4))
    assert len(await sales.totals(query(Sale), Grouping(("name",), (), cap=5))) == 5


@pytest.mark.parametrize(
    ("by", "sums", "why"),
    [
        (["nothing"], [], "cannot be grouped by nothing"),
        (["note"], [], "cannot be grouped by note"),
        (["price"], [], "cannot be grouped by price"),
        (["shop"], ["name"], "no number field name to sum; there are attempts, fence, size, price"),
    ],
)
def test_only_fields_that_can_be_grouped_and_summed(by: Any, sums: Any, why: str) -> None:
    with pytest.raises(BadQuery, match=why):
        grouping(Sale.kind, by, sums)
