"""Counts per state on pages that must not wait: short at first, whole for whoever looks again."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from esclusa.model.errors import StoreUnavailable
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.record import Kind, Record
from esclusa.model.settlement import StateCount
from esclusa.ports.telemetry import Silent
from esclusa.web.console import counts
from esclusa.web.console.counts import Counts

SHORT, WHOLE = (counts.SHORT, False), (900_000, True)


class Large(Record, table="large"):
    lifecycle = Lifecycle("pending -> done")


class Store:
    """A store that counts to the end when it is told to."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.whole = 0
        self.fault: Exception | None = None

    async def tally(self, kind: Kind, cap: int | None = None) -> list[StateCount]:
        if self.fault is not None:
            raise self.fault
        if cap is not None:
            return [StateCount("pending", 3, exact=True), StateCount("done", cap, exact=False)]
        self.whole += 1
        await self.told.wait()
        return [StateCount("pending", 3, exact=True), StateCount("done", 900_000, exact=True)]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> Counts:
    monkeypatch.setattr(counts, "SOON", 0.001)
    return Counts(cast(Any, store), Silent())


async def done(counted: Counts) -> tuple[int, bool]:
    found = (await counted.soon([Large.kind]))["large"]
    assert found[0] == StateCount("pending", 3, exact=True)
    return found[1].count, found[1].exact


async def settled(counted: Counts) -> None:
    await asyncio.gather(*counted._making.values())


async def test_the_first_look_is_short_and_the_next_whole(store: Store, counted: Counts) -> None:
    assert await done(counted) == SHORT
    assert await done(counted) == SHORT
    store.told.set()
    await settled(counted)
    assert await done(counted) == WHOLE
    assert store.whole == 1  # for everybody who looked


async def test_a_small_table_is_told_whole_at_once(
    store: Store, counted: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "SOON", 10)
    store.told.set()
    assert await done(counted) == WHOLE


async def test_after_an_act_it_is_counted_anew_and_what_was_known_is_at_least_so_many(
    store: Store, counted: Counts
) -> None:
    store.told.set()
    assert (await counted.whole([Large.kind]))["large"][1] == StateCount(
        "done", 900_000, exact=True
    )
    counted.forget()
    store.told.clear()
    assert await done(counted) == (900_000, False)
    counted.forget()  # a count that was under way then is not what is now
    store.told.set()
    assert await done(counted) in ((900_000, False), WHOLE)
    assert store.whole == 3


async def test_a_store_that_does_not_answer_is_told(store: Store, counted: Counts) -> None:
    store.fault = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable, match="away"):
        await done(counted)
    with pytest.raises(StoreUnavailable, match="away"):
        await counted.whole([Large.kind])
    store.fault = None
    store.told.set()
    await done(counted)
    await settled(counted)
    assert await done(counted) == WHOLE
