"""The primary is killed under load; its synchronous standby takes over."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import worker
from faults.kill_harness import KillHarness
from support.loopback import free_port
from support.replication import ReplicatedPostgres

from esclusa.model.errors import StoreConflict, StoreNotReady, StoreUnavailable
from esclusa.stores.postgres import PostgresStore

PARCELS = 1500


@pytest.fixture
def servers() -> Iterator[ReplicatedPostgres]:
    with ReplicatedPostgres() as started:
        yield started


async def insert_all(harness: KillHarness, first: int) -> None:
    """Insert parcels as another program that repeats a call which was not acknowledged."""
    for start in range(first, PARCELS, 25):
        parcels = [worker.Parcel(name=f"p{n:05}") for n in range(start, start + 25)]
        while True:
            try:
                await harness.store.insert(parcels)
                break
            except (StoreUnavailable, StoreConflict):
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.05)


async def test_no_record_is_lost_or_settled_twice_when_the_standby_takes_over(
    servers: ReplicatedPostgres, tmp_path: Path
) -> None:
    servers.create_database("post")
    store = PostgresStore(servers.url("post"), timeout=3.0)
    await store.open()
    harness = KillHarness(store, servers.url("post"), tmp_path)
    try:
        await harness.fill(500)
        workers = [harness.start(LEASE_SECONDS="4") for _ in range(2)]
        await harness.until_working(*workers)
        servers.supervise()
        inserting = asyncio.create_task(insert_all(harness, 500))
        await harness.until_sent(100)
        servers.kill_primary()
        await asyncio.to_thread(servers.until_promoted)
        await inserting
        await harness.until_sent(PARCELS, 120)
        assert all(process.poll() is None for process in workers)  # nothing was restarted
        await harness.check(PARCELS)
    finally:
        harness.end()
        await store.close()


async def test_a_standby_is_refused_until_it_is_promoted(servers: ReplicatedPostgres) -> None:
    servers.create_database("post")
    alone = servers.standby.url("post")
    dead = f"127.0.0.1:{free_port()},"
    several = PostgresStore(alone.replace("127.0.0.1:", f"{dead}127.0.0.1:"))
    with pytest.raises(StoreNotReady):
        await several.open()
    store = PostgresStore(alone)
    await store.open()
    try:
        with pytest.raises(StoreNotReady, match="read-only"):
            await store.migrate([worker.Parcel.kind], [])
        servers.kill_primary()
        servers.standby.promote()
        await several.open()
        await store.migrate([worker.Parcel.kind], [])
    finally:
        await several.close()
        await store.close()


async def test_a_host_that_does_not_answer_uses_up_its_share_of_the_time_only(
    servers: ReplicatedPostgres,
) -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # nobody accepts or answers
    port = silent.getsockname()[1]
    servers.create_database("post")
    url = servers.primary.url("post").replace("127.0.0.1:", f"127.0.0.1:{port},127.0.0.1:")
    store = PostgresStore(url, timeout=3.0)
    try:
        await store.open()
        begun = time.monotonic()
        await store.now()
        assert time.monotonic() - begun < 10
    finally:
        await store.close()
        silent.close()
