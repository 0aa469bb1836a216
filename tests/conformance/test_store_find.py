"""Find, count, tally, scan: every condition and order as ``query.matches`` defines them."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from conformance.helpers import claim, find_all, insert_new, settle_all, settlement_of
from conformance.kinds import WORK, Job, Note, Sample

from esclusa.model.errors import BadQuery
from esclusa.model.query import (
    Cond,
    above,
    at_least,
    at_most,
    below,
    matches,
    not_null,
    null,
    one_of,
    query,
)

T0 = datetime(2026, 9, 5, 23, 0, 0, 0, tzinfo=UTC)
MICRO = timedelta(microseconds=1)

VALUES: dict[str, list[Any]] = {
    "text": ["", "a", "A", "ab", "año", "ñandú", "z", "🚚", "it's", 'say "x"', "50%", "a_b", "\\"],
    "number": [-(2**62), -1, 0, 1, 2, 10, 2**53 + 1, 2**62],
    "ratio": [-1e300, -0.5, 0.0, 1e-9, 0.1, 1.0, 2.5, 1e300],
    "flag": [False, True],
    "moment": [
        T0 - timedelta(days=9000),
        T0 - MICRO,
        T0,
        T0 + MICRO,
        T0 + timedelta(seconds=1),
        T0 + timedelta(days=9000),
    ],
    "day": [date(1970, 1, 1), date(2024, 2, 29), date(2026, 9, 5), date(2026, 10, 1)],
    "price": [
        Decimal(-10),
        Decimal("-9.99"),
        Decimal(0),
        Decimal("0.01"),
        Decimal("9.99"),
        Decimal(10),
        Decimal("100.5"),
    ],
}


@pytest.fixture
async def samples(store: Any) -> list[Sample]:
    """Rows with every value of every field twice, and nulls."""
    out = []
    for n in range(28):
        fields = {
            name: None if n % 7 == 6 else values[n % len(values)] for name, values in VALUES.items()
        }
        data = {"n": n} if n % 2 else None
        out.append(
            Sample(
                name=f"s{n:02}",
                **fields,
                data=data,
                items=None if n % 3 else [n],
                blob=b"x" if n % 5 else None,
            )
        )
    await insert_new(store, *out)
    return out


def expected(samples: list[Sample], where: Any, order: tuple[str, ...] = ()) -> list[str]:
    """Return the expected names: matches(), sorted with nulls first in ascending order."""
    checked = query(Sample, where).where
    rows = sorted(
        (s for s in samples if matches({"id": s.name, **s.model_dump(exclude={"id"})}, checked)),
        key=lambda s: s.name,
    )
    for name in reversed(order):
        field, down = name.removeprefix("-"), name.startswith("-")
        rows.sort(key=lambda s, f=field: _rank(getattr(s, f)), reverse=down)
    return [s.name for s in rows]


def _rank(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    return (1, value.encode()) if isinstance(value, str) else (1, value)


async def ids(store: Any, where: Any, **options: Any) -> list[str]:
    return [s.id for s in await find_all(store, Sample, where=where, **options)]


@pytest.mark.parametrize("field", list(VALUES))
async def test_every_condition_on_every_type(store: Any, samples: list[Sample], field: str) -> None:
    for value in VALUES[field]:
        for cond in (
            Cond("eq", value),
            below(value),
            at_most(value),
            above(value),
            at_least(value),
            one_of(value, VALUES[field][0]),
        ):
            where = {field: cond}
            assert sorted(await ids(store, where)) == expected(samples, where), (field, cond)
    for where in ({field: null}, {field: not_null}, {field: None}):
        assert sorted(await ids(store, where)) == expected(samples, where)
    assert await ids(store, {field: one_of()}) == []


@pytest.mark.parametrize("field", list(VALUES))
async def test_order_and_nulls_on_every_type(store: Any, samples: list[Sample], field: str) -> None:
    up, down = await ids(store, {}, order=field), await ids(store, {}, order="-" + field)
    assert up == expected(samples, {}, (field,))
    assert [_rank(_value(samples, field, i)) for i in down] == sorted(
        (_rank(getattr(s, field)) for s in samples), reverse=True
    )
    assert up[0] in {s.name for s in samples if getattr(s, field) is None}
    assert down[-1] in {s.name for s in samples if getattr(s, field) is None}


@pytest.mark.parametrize(
    "order",
    [
        *VALUES,
        *("-" + f for f in VALUES),
        ("-flag", "number"),
        ("flag", "-text", "price"),
        (),
        "created_at",
    ],
)
async def test_pages_follow_each_other_without_gap_or_repeat(
    store: Any, samples: list[Sample], order: Any
) -> None:
    whole = await ids(store, {}, order=order)
    assert sorted(whole) == [s.name for s in samples]
    for size in (1, 3, 28, 100):
        walked, after = [], None
        while True:
            page = await store.find(query(Sample, order=order, limit=size, after=after))
            assert len(page.items) <= size
            walked += [s.id for s in page.items]
            after = page.next
            if after is None:
                break
        assert walked == whole


async def test_a_last_page_that_is_full_has_no_cursor(store: Any) -> None:
    await insert_new(store, Note(name="a"), Note(name="b"))
    page = await store.find(query(Note, limit=2))
    assert [n.id for n in page.items] == ["a", "b"]
    assert page.next is None
    first = await store.find(query(Note, limit=1))
    assert first.next is not None


async def test_a_cursor_keeps_its_position_while_rows_change(
    store: Any, samples: list[Sample]
) -> None:
    whole = await ids(store, {}, order="number")
    first = await store.find(query(Sample, order="number", limit=10))
    await store.purge(query(Sample, {"id": whole[9]}))
    await insert_new(store, Sample(name="s000", number=-(2**62)))
    rest = await ids(store, {}, order="number", after=first.next)
    assert rest == whole[10:]


async def test_several_conditions_are_combined(store: Any, samples: list[Sample]) -> None:
    for where in (
        {"number": (above(-1), at_most(10))},
        {"flag": True, "ratio": at_least(0.1), "day": not_null},
        {"number": [0, 1, 2], "moment": below(T0 + MICRO)},
        {"id": one_of("s01", "s02", "nowhere"), "status": "kept"},
        {"status": one_of("gone")},
        {"attempts": 0, "last_error": null, "created_at": not_null},
    ):
        assert sorted(await ids(store, where)) == expected_tracked(samples, where)


def expected_tracked(samples: list[Sample], where: Any) -> list[str]:
    rows = {
        s.name: {
            **s.model_dump(),
            "id": s.name,
            "status": "kept",
            "created_at": T0,
            "attempts": 0,
            "last_error": None,
        }
        for s in samples
    }
    return sorted(name for name, row in rows.items() if matches(row, query(Sample, where).where))


@pytest.mark.parametrize("order", ["id", "-id", ("flag", "-id")])
async def test_an_order_by_ids_holds_beside_a_range_on_another_field(
    store: Any, samples: list[Sample], order: Any
) -> None:
    """The numbers fall while the ids rise, so that a sort by number would show."""
    await insert_new(
        store, *(Sample(name=f"t{n:03}", number=500 - n, flag=n % 2 == 0) for n in range(230))
    )
    where = {"number": above(0), "text": null}
    asked = query(Sample, where, order=order, limit=40)
    found: list[Sample] = []
    while True:
        page = await store.find(asked)
        found += page.items
        if page.next is None:
            break
        asked = asked.but(after=page.next)
    matching = [f"t{n:03}" for n in range(230)] + [
        s.name for s in samples if matches(s.__dict__, asked.where)
    ]
    down = order != "id"
    expected = sorted(matching, reverse=down)
    if order == ("flag", "-id"):
        flags = {s.name: s.flag for s in found}
        expected.sort(key=lambda name: (flags[name] is not None, flags[name] or False))
    assert [s.name for s in found] == expected
    assert (await store.count(asked.but(after=None)))[0] == len(matching)


async def test_json_and_bytes_can_be_tested_for_null(store: Any, samples: list[Sample]) -> None:
    for field in ("data", "items", "blob"):
        for cond in (null, not_null):
            assert sorted(await ids(store, {field: cond})) == expected(samples, {field: cond})


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "####",
        "bm90IGpzb24",
        base64.urlsafe_b64encode(b'["a"]').decode(),
        base64.urlsafe_b64encode(b'{"a": 1}').decode(),
    ],
)
async def test_a_bad_cursor_is_a_bad_query(store: Any, samples: list[Sample], cursor: str) -> None:
    with pytest.raises(BadQuery):
        await store.find(query(Sample, order=("moment", "number"), after=cursor))


async def test_another_querys_cursor_is_a_bad_query(store: Any, samples: list[Sample]) -> None:
    page = await store.find(query(Sample, order="number", limit=8))
    assert page.next is not None
    with pytest.raises(BadQuery):
        await store.find(query(Sample, order="moment", after=page.next))
    with pytest.raises(BadQuery):
        await store.find(query(Sample, after=page.next))
    with pytest.raises(BadQuery):
        await store.find(query(Sample, order="-number", after=page.next))
    with pytest.raises(BadQuery):
        await store.find(query(Sample, order="attempts", after=page.next))  # another number field
    wrong = (
        base64.urlsafe_b64encode(json.dumps(["not a time", "s01"]).encode()).decode().rstrip("=")
    )
    with pytest.raises(BadQuery):
        await store.find(query(Sample, order="moment", after=wrong))
    by_id = await store.find(query(Sample, limit=8))
    with pytest.raises(BadQuery):
        await store.find(query(Job, after=by_id.next))  # an id of another table


async def test_a_cursor_with_the_wrong_values_is_a_bad_query(
    store: Any, samples: list[Sample]
) -> None:
    page = await store.find(query(Sample, order="moment", limit=8))
    mark, _, id = json.loads(base64.urlsafe_b64decode(f"{page.next}=="))
    for values in (["not a time", id], [[], id], [{}, id], [7, 8, id], [id]):
        wrong = base64.urlsafe_b64encode(json.dumps([mark, *values]).encode()).decode().rstrip("=")
        with pytest.raises(BadQuery):
            await store.find(query(Sample, order="moment", after=wrong))


async def test_count_up_to_a_cap(store: Any, samples: list[Sample]) -> None:
    assert await store.count(query(Sample)) == (28, True)
    assert await store.count(query(Sample, limit=1)) == (28, True)
    assert await store.count(query(Sample), cap=28) == (28, True)
    assert await store.count(query(Sample), cap=10) == (10, False)
    assert await store.count(query(Sample, {"flag": null})) == (4, True)
    assert await store.count(query(Sample, {"number": above(2**62)})) == (0, True)


async def test_tally_counts_each_declared_state(store: Any) -> None:
    assert {c.state: c.count for c in await store.tally(Job.kind)} == {
        "pending": 0,
        "working": 0,
        "done": 0,
        "failed": 0,
    }
    await insert_new(store, *[Job(id=f"j{n}") for n in range(6)], Job(id="f", status="failed"))
    leases = await claim(store, WORK, limit=3)
    await settle_all(store, settlement_of(leases[0], "done"))
    counts = await store.tally(Job.kind)
    assert {c.state: c.count for c in counts} == {
        "pending": 3,
        "working": 2,
        "done": 1,
        "failed": 1,
    }
    await store.purge(query(Job, {"status": "pending"}))
    assert {c.state: c.count for c in await store.tally(Job.kind)} == {
        "pending": 0,
        "working": 2,
        "done": 1,
        "failed": 1,
    }


async def test_a_tally_stops_at_its_cap_and_reports_it(store: Any) -> None:
    await insert_new(
        store,
        *[Job(id=f"j{n}") for n in range(6)],
        *[Job(id=f"f{n}", status="failed") for n in range(3)],
        Job(id="d", status="done"),
    )
    counts = {c.state: c for c in await store.tally(Job.kind, cap=3)}
    assert {state: c.exact for state, c in counts.items()} == {
        "pending": False,
        "working": True,
        "done": True,
        "failed": True,
    }
    assert (counts["working"].count, counts["done"].count, counts["failed"].count) == (0, 1, 3)
    assert counts["pending"].count >= 3  # at least three, or an estimate
    assert {c.state: c.count for c in await store.tally(Job.kind, cap=6)} == {
        "pending": 6,
        "working": 0,
        "done": 1,
        "failed": 3,
    }


async def test_scan_returns_all_rows_as_plain_values_in_bounded_pages(
    store: Any, samples: list[Sample]
) -> None:
    pages = [
        page
        async for page in store.scan(
            query(Sample, {"flag": not_null}, order="-number", limit=1, after="ignored"), size=5
        )
    ]
    assert [len(p) for p in pages] == [5, 5, 5, 5, 4]
    rows = [row for page in pages for row in page]
    assert [r["id"] for r in rows] == await ids(store, {"flag": not_null}, order="-number")
    by_id = {s.name: s for s in samples}
    for row in rows:
        for name in Sample.kind.by_name:
            assert row[name] == getattr(by_id[row["id"]], name), name
        assert row["status"] == "kept"
        assert row["created_at"] is not None
    assert [p async for p in store.scan(query(Sample, {"flag": null, "number": 5}))] in ([], [[]])


async def test_a_scan_may_end_early(store: Any, samples: list[Sample]) -> None:
    async for page in store.scan(query(Sample), size=2):
        assert len(page) == 2
        break
    assert (await store.count(query(Sample)))[0] == 28


def _value(samples: list[Sample], field: str, id: str) -> Any:
    return next(getattr(s, field) for s in samples if s.name == id)
