"""Counts per state on pages that must not wait: partial at first, full on the next page."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from esclusa.model.errors import StoreUnavailable
from esclusa.model.kind import Kind
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.record import Record
from esclusa.model.settlement import StateCount
from esclusa.ports.telemetry import Silent
from esclusa.web.console import cache
from esclusa.web.console.cache import CountCache

PARTIAL, FULL = (cache.PARTIAL, False), (900_000, True)


class Large(Record, table="large"):
    lifecycle = Lifecycle("pending -> done")


class SlowTally:
    """A read model whose full count ends when ``release`` is set."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.full_counts = 0
        self.fault: Exception | None = None

    async def tally(self, kind: Kind, cap: int | None = None) -> list[StateCount]:
        if self.fault is not None:
            raise self.fault
        if cap is not None:
            return [StateCount("pending", 3, exact=True), StateCount("done", cap, exact=False)]
        self.full_counts += 1
        await self.release.wait()
        return [StateCount("pending", 3, exact=True), StateCount("done", 900_000, exact=True)]


@pytest.fixture
def read_model() -> SlowTally:
    return SlowTally()


@pytest.fixture
def counted(read_model: SlowTally, monkeypatch: pytest.MonkeyPatch) -> CountCache:
    monkeypatch.setattr(cache, "WAIT", 0.001)
    return CountCache(cast(Any, read_model), Silent())


async def done(counted: CountCache) -> tuple[int, bool]:
    found = (await counted.quick([Large.kind]))["large"]
    assert found[0] == StateCount("pending", 3, exact=True)
    return found[1].count, found[1].exact


async def settled(counted: CountCache) -> None:
    await asyncio.gather(*counted._counting.values())


async def test_the_first_page_is_partial_and_the_next_full(
    read_model: SlowTally, counted: CountCache
) -> None:
    assert await done(counted) == PARTIAL
    assert await done(counted) == PARTIAL
    read_model.release.set()
    await settled(counted)
    assert await done(counted) == FULL
    assert read_model.full_counts == 1  # one count for all pages


async def test_a_small_table_is_counted_to_the_end_at_once(
    read_model: SlowTally, counted: CountCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "WAIT", 10)
    read_model.release.set()
    assert await done(counted) == FULL


async def test_after_an_action_the_known_count_is_a_lower_bound(
    read_model: SlowTally, counted: CountCache
) -> None:
    read_model.release.set()
    assert (await counted.full([Large.kind]))["large"][1] == StateCount("done", 900_000, exact=True)
    counted.clear()
    read_model.release.clear()
    assert await done(counted) == (900_000, False)
    counted.clear()  # the count that was running is outdated
    read_model.release.set()
    assert await done(counted) in ((900_000, False), FULL)
    assert read_model.full_counts == 3


async def test_an_unavailable_store_is_reported(read_model: SlowTally, counted: CountCache) -> None:
    read_model.fault = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable, match="away"):
        await done(counted)
    with pytest.raises(StoreUnavailable, match="away"):
        await counted.full([Large.kind])
    read_model.fault = None
    read_model.release.set()
    await done(counted)
    await settled(counted)
    assert await done(counted) == FULL
