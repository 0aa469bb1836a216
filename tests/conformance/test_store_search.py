"""Search inside JSON and within texts, as ``query.matches`` defines it or with a refusal."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from conformance.helpers import claim, find_all, insert_new, settle_all, settlement_of
from conformance.kinds import WORK, Job, Sample

from esclusa.model.errors import BadQuery
from esclusa.model.query import (
    Cond,
    above,
    at_least,
    below,
    containing,
    matches,
    not_null,
    null,
    one_of,
    query,
)

DATA: list[Any] = [
    None,
    {},
    {"type": None},
    {"type": "timeout"},
    {"type": "Timeout"},
    {"type": "503"},
    {"type": 503},
    {"type": 5.5},
    {"type": True},
    {"type": "true"},
    {"type": ["timeout"]},
    {"type": {"type": "timeout"}},
    {"other": "timeout", "type": ""},
    {"type": 'it\'s "señal" 100%_\\'},
]
TESTS = [
    Cond("eq", "timeout"),
    Cond("eq", "503"),
    Cond("eq", "true"),
    Cond("eq", True),
    Cond("eq", ""),
    Cond("eq", DATA[-1]["type"]),
    one_of("timeout", "503", "nothing"),
    one_of(),
    null,
    not_null,
    containing("TIME"),
    containing("%_\\"),
    containing("Señal"),
    containing("SEÑAL"),
    containing("0"),
]
TEXTS = ["", "a", "A", "timed OUT", "Timed out: año", "AÑO", "100%", "1000", "a_b", "\\", "🚚"]


@pytest.fixture
async def failed(store: Any) -> list[Job]:
    """Jobs that failed with every kind of error."""
    await insert_new(store, *(Job(id=f"j{n:02}") for n in range(len(DATA))))
    leases = await claim(store, WORK, limit=100)
    by_id = dict(zip(sorted(lease.record.id for lease in leases), DATA, strict=True))
    await settle_all(store, *(settlement_of(x, "failed", error=by_id[x.record.id]) for x in leases))
    return sorted(await find_all(store, Job), key=lambda job: job.id)


async def search(store: Any, kind: Any, where: Any, **options: Any) -> list[str] | None:
    """The ids that a search finds; None if the store refuses it and says why."""
    refusal = ""
    try:
        found = sorted([r.id for r in await find_all(store, kind, where=where, **options)])
    except BadQuery as error:
        refusal = str(error)
    if refusal:
        assert "Firestore" in refusal
        return None
    counted, _exact = await store.count(query(kind, where, **options))
    assert counted == len(found)
    return found


def expected(records: list[Any], kind: Any, where: Any) -> list[str]:
    checked = query(kind, where).where
    values = [r.model_dump() | {"id": r.id or r.name} for r in records]
    return [each["id"] for each in values if matches(each, checked)]


async def test_an_error_type_is_found(store: Any, failed: list[Job]) -> None:
    for test in TESTS:
        where = {"error_type": test}
        found = await search(store, Job, where)
        assert found == await search(store, Job, {"last_error.type": test})
        if test.op in ("eq", "in"):
            assert found == expected(failed, Job, where), test
        else:
            assert found in (None, expected(failed, Job, where)), test


async def test_an_error_type_narrows_a_state(store: Any, failed: list[Job]) -> None:
    assert await search(store, Job, {"status": "failed", "error_type": "timeout"}) == ["j03"]
    assert await search(store, Job, {"status": "done", "error_type": "timeout"}) == []
    assert await search(store, Job, {"id": "j04", "error_type": "timeout"}) == []


async def test_a_value_inside_json_is_found_or_refused(store: Any) -> None:
    samples = [Sample(name=f"s{n:02}", data=data) for n, data in enumerate(DATA)]
    await insert_new(store, *samples)
    for name in ("data.type", "data.type.type", "data.nothing"):
        for test in TESTS:
            where = {name: test}
            found = await search(store, Sample, where)
            assert found in (None, expected(samples, Sample, where)), where


async def test_a_part_of_a_text_is_found_or_refused(store: Any) -> None:
    samples = [Sample(name=f"s{n:02}", text=text) for n, text in enumerate([*TEXTS, None])]
    await insert_new(store, *samples)
    for part in ("", "A", "out", "Ñ", "año", "0%", "a_", "\\", "🚚", "nothing"):
        for where in (
            {"text": containing(part)},
            {"id": containing("S0"), "text": containing(part)},
        ):
            found = await search(store, Sample, where)
            assert found in (None, expected(samples, Sample, where)), where


async def test_times_relative_to_now(store: Any) -> None:
    now = await store.now()
    moments = [now - timedelta(hours=3), now - timedelta(hours=1), now + timedelta(hours=1), None]
    samples = [
        Sample(name=f"s{n}", moment=moment, day=moment and moment.date())
        for n, moment in enumerate(moments)
    ]
    await insert_new(store, *samples)
    assert await search(store, Sample, {"moment": at_least("-2h")}, now=now) == ["s1", "s2"]
    assert await search(store, Sample, {"moment": below("-2h")}, now=now) == ["s0"]
    assert await search(store, Sample, {"moment": above("+30m")}, now=now) == ["s2"]
    assert await search(store, Sample, {"day": at_least("-2d")}, now=now) == ["s0", "s1", "s2"]
    assert await search(store, Sample, {"moment": below(f"{now:%Y-%m-%d}")}, now=now) == [
        s.name for s in samples if s.moment and s.moment.date() < now.date()
    ]


def test_a_relative_time_needs_to_know_when() -> None:
    with pytest.raises(BadQuery, match=r"t_samples\.moment: a time relative to now"):
        query(Sample, {"moment": at_least("-2h")})
