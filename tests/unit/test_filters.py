"""Filters in the syntax of the command line and the API."""

from __future__ import annotations

from datetime import datetime

import pytest

from esclusa import Lifecycle, Record, at_least, below, not_null, null, one_of, track
from esclusa.model.errors import BadQuery
from esclusa.model.query import Cond, parse_filter


class Ship(Record, table="ships", track=track(attempts="voyages")):
    name: str
    tons: int = 0
    flag: str | None = None
    seen: datetime | None = None
    cargo: dict[str, int] = {}

    lifecycle = Lifecycle("afloat -> sunk")


@pytest.mark.parametrize(
    ("filters", "tests"),
    [
        (["name=ada"], {"name": Cond("eq", "ada")}),
        ([" name = ada b "], {"name": Cond("eq", "ada b")}),
        (["name=a,b"], {"name": one_of("a", "b")}),
        (['name="a,b"'], {"name": Cond("eq", "a,b")}),
        (['name="null"'], {"name": Cond("eq", "null")}),
        (["name=a=b"], {"name": Cond("eq", "a=b")}),
        (["name="], {"name": Cond("eq", "")}),
        (["flag=null", "name!=null"], {"flag": null, "name": not_null}),
        (["tons>=3", "tons<10"], {"tons": (at_least("3"), below("10"))}),
        (["seen>2026-01-01T00:00:00+00:00"], {"seen": Cond("gt", "2026-01-01T00:00:00+00:00")}),
        (["voyages>=3", "attempts<9"], {"attempts": (at_least("3"), below("9"))}),
        (["status=afloat"], {"status": Cond("eq", "afloat")}),
        ([], {}),
    ],
)
def test_filters(filters: list[str], tests: dict[str, object]) -> None:
    assert parse_filter(Ship.kind, filters) == tests


@pytest.mark.parametrize(
    ("filter", "why"),
    [
        ("name", "is not a filter"),
        ("=x", "is not a filter"),
        ("colour=red", "no field colour"),
        ("tons=many", "type int"),
        ("tons=1,x", "type int"),
        ("name!=x", "!= works only with null"),
        ("cargo=1", "cannot be compared"),
        ("seen>=yesterday", "type time"),
    ],
)
def test_refused_filters(filter: str, why: str) -> None:
    with pytest.raises(BadQuery, match=why):
        parse_filter(Ship.kind, [filter])
