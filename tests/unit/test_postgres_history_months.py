"""The history divided by month: beside work, whole, and pruned by dropping months."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from conformance.helpers import assert_chain, claim, settle_all, settlement_of
from conformance.kinds import KINDS, STAGES, WORK, Job
from support.postgres import PostgresServer

from esclusa.model.errors import SchemaRefused
from esclusa.model.kind import Ref
from esclusa.stores.postgres import PostgresStore
from esclusa.stores.sqlite.store import SqliteStore

numbers = count()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
async def store(server: PostgresServer) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(server.create_database(f"db{next(numbers)}"))
    await store.open()
    await store.migrate(KINDS, STAGES)
    yield store
    await store.close()


async def work(store: PostgresStore, *ids: str) -> None:
    await store.insert([Job(id=id) for id in ids])
    await settle_all(store, *[settlement_of(x, "done") for x in await claim(store, WORK, limit=99)])


async def tables(store: PostgresStore) -> list[str]:
    rows: list[Any] = await store._connections.read(
        "SELECT tablename FROM pg_tables WHERE tablename LIKE 'history%' ORDER BY 1"
    )
    return [row[0] for row in rows]


async def test_records_keep_their_history_when_it_is_divided(store: PostgresStore) -> None:
    await work(store, "a")
    done = await store.partition_history()
    assert done[0] == "divide the history by month"
    await work(store, "b")
    for id in "ab":
        assert [step.to for step in await store.history(Ref(Job.kind, id))] == ["working", "done"]
        await assert_chain(store, Ref(Job.kind, id))
    steps = await store.history(Ref(Job.kind, "b"), newest=True, limit=1)
    assert [step.to for step in steps] == ["done"]
    assert await store.pending(KINDS, STAGES) == []
    assert await store.partition_history() == []
    assert await store.remove([Ref(Job.kind, "a")]) == [True]
    assert await store.history(Ref(Job.kind, "a")) == []


async def test_work_goes_on_while_the_history_is_divided(store: PostgresStore) -> None:
    divided = asyncio.Event()
    ids: list[str] = []

    async def go_on() -> None:
        while not divided.is_set() or len(ids) < 20:
            ids.append(f"j{len(ids)}")
            await work(store, ids[-1])

    working = asyncio.create_task(go_on())
    while len(ids) < 5:
        await asyncio.sleep(0)
    await store.partition_history()
    divided.set()
    await working
    for id in ids:
        assert [step.to for step in await store.history(Ref(Job.kind, id))] == ["working", "done"]


async def test_whole_months_are_dropped_when_they_are_old(store: PostgresStore) -> None:
    await work(store, "first")
    await store.partition_history()
    store.clock_offset = timedelta(days=70).total_seconds()
    await work(store, "second")
    now = await store.now()
    month = f"history_{now:%Y_%m}"
    assert month in await tables(store)
    assert await store.prune_history(now - timedelta(days=1), 1000) >= 2
    assert await store.history(Ref(Job.kind, "first")) == []
    assert len(await store.history(Ref(Job.kind, "second"))) == 2
    await store.prune_history(now + timedelta(days=40), 1000)
    assert month not in await tables(store)
    assert await store.history(Ref(Job.kind, "second")) == []


async def test_moves_of_a_month_without_a_partition_are_kept_and_pruned(
    store: PostgresStore,
) -> None:
    await store.partition_history()
    store.clock_offset = timedelta(days=1000).total_seconds()
    await work(store, "late")
    assert len(await store.history(Ref(Job.kind, "late"))) == 2
    assert await store.prune_history(await store.now() + timedelta(days=1), 1000) == 2


async def test_stores_without_partitions_say_so(server: PostgresServer, tmp_path: Any) -> None:
    portable = PostgresStore(server.create_database(f"db{next(numbers)}"), portable=True)
    await portable.open()
    try:
        await portable.migrate(KINDS, STAGES)
        with pytest.raises(SchemaRefused, match="portable"):
            await portable.partition_history()
    finally:
        await portable.close()
    with pytest.raises(SchemaRefused, match="PostgreSQL"):
        await SqliteStore(str(tmp_path / "a.db")).partition_history()
