"""Queries: values are converted and checked before a store gets them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from conformance.kinds import Sample
from hypothesis import given
from hypothesis import strategies as st

from esclusa.model.cursors import decode_cursor, encode_cursor
from esclusa.model.errors import BadQuery
from esclusa.model.query import (
    Cond,
    Order,
    above,
    at_least,
    at_most,
    below,
    conditions,
    matches,
    not_null,
    null,
    one_of,
    query,
)

T0 = datetime(2026, 4, 5, 3, tzinfo=UTC)


def test_a_filter_becomes_checked_conditions() -> None:
    made = conditions(
        Sample.kind,
        {
            "text": "x",
            "number": (above("3"), at_most(5.0)),
            "flag": "true",
            "day": ["2026-01-02"],
            "price": below("1.5"),
            "data": None,
            "moment": not_null,
        },
    )
    assert made == (
        ("text", Cond("eq", "x")),
        ("number", Cond("gt", 3)),
        ("number", Cond("le", 5)),
        ("flag", Cond("eq", True)),
        ("day", Cond("in", (date(2026, 1, 2),))),
        ("price", Cond("lt", Decimal("1.5"))),
        ("data", null),
        ("moment", not_null),
    )


@pytest.mark.parametrize(
    ("where", "word"),
    [
        ({"nope": 1}, "no field nope"),
        ({"number": "many"}, "number"),
        ({"number": 1.5}, "number"),
        ({"number": 2**63}, "number"),
        ({"number": None, "ratio": "x"}, "ratio"),
        ({"flag": "perhaps"}, "flag"),
        ({"flag": 2}, "flag"),
        ({"moment": "yesterday"}, "moment"),
        ({"moment": "2026-01-01T00:00:00"}, "moment"),
        ({"moment": datetime(2026, 1, 1)}, "moment"),
        ({"day": "2026-13-01"}, "day"),
        ({"day": 5}, "day"),
        ({"price": "ten"}, "price"),
        ({"price": "NaN"}, "price"),
        ({"price": Decimal("-Infinity")}, "price"),
        ({"data": {"a": 1}}, "cannot be compared"),
        ({"blob": above(b"x")}, "cannot be compared"),
        ({"number": one_of(*range(1001))}, "at most 1000"),
    ],
)
def test_a_wrong_filter_names_its_field(where: dict[str, Any], word: str) -> None:
    with pytest.raises(BadQuery, match=word):
        query(Sample, where)


@pytest.mark.parametrize("order", ["nope", "-data", ("text", "blob")])
def test_a_wrong_order_is_refused(order: Any) -> None:
    with pytest.raises(BadQuery, match="cannot be ordered"):
        query(Sample, order=order)


@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_a_wrong_limit_is_refused(limit: int) -> None:
    with pytest.raises(BadQuery, match="limit"):
        query(Sample, limit=limit)


def test_orders_and_copies_of_a_query() -> None:
    made = query(Sample, order=("-moment", "text"), limit=5)
    assert made.order == (Order("moment", True), Order("text"))
    assert made.but(limit=7).limit == 7
    assert query(Sample.kind).kind is Sample.kind


@pytest.mark.parametrize(
    ("value", "cond", "answer"),
    [
        (None, null, True),
        (1, null, False),
        (None, not_null, False),
        (0, not_null, True),
        (1, Cond("eq", 1), True),
        (None, Cond("eq", 1), False),
        (1, one_of(1, 2), True),
        (None, one_of(1), False),
        (1, one_of(), False),
        (1, below(2), True),
        (2, below(2), False),
        (2, at_most(2), True),
        (2, above(2), False),
        (3, above(2), True),
        (2, at_least(2), True),
        (None, below(2), False),
        (None, at_most(2), False),
        (None, above(2), False),
        (None, at_least(2), False),
    ],
)
def test_what_a_condition_means(value: Any, cond: Cond, answer: bool) -> None:
    assert matches({"number": value}, (("number", cond),)) is answer


moments = st.datetimes(timezones=st.just(UTC))


@given(
    st.none() | st.text(),
    st.none() | moments,
    st.none() | st.decimals(allow_nan=False, allow_infinity=False),
    st.none() | st.dates(),
    st.text(),
)
def test_a_cursor_comes_back_typed(text: Any, moment: Any, price: Any, day: Any, id: str) -> None:
    asked = query(Sample, order=("text", "-moment", "price", "day"))
    values = [text, moment, price, day, id]
    assert decode_cursor(asked.but(after=encode_cursor(asked, values))) == values


@given(st.text())
def test_a_text_that_is_not_a_cursor_is_a_bad_query(text: str) -> None:
    with pytest.raises(BadQuery):
        decode_cursor(query(Sample, order=("number", "moment"), after=text))
