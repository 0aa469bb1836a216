"""A worker on a machine of its own, whose network is cut and healed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import worker
from faults.kill_harness import KillHarness
from support.namespace import Namespace
from support.postgres import PostgresServer

from esclusa.model.system_records import RateRecord
from esclusa.stores.postgres import PostgresStore

pytestmark = pytest.mark.skipif(Namespace.missing() is not None, reason=Namespace.missing() or "")

HELD = 20  # as many as the worker handles at a time


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with Namespace() as started:
        yield started


@pytest.fixture
def server(namespace: Namespace) -> Iterator[PostgresServer]:
    """A server that the namespace reaches."""
    with PostgresServer(options={"listen_addresses": "*"}) as server:
        hba = server.run_sql("SHOW hba_file")
        server.run_sql(
            "COPY (SELECT 'host all all 127.0.0.1/32 trust' UNION ALL"
            f" SELECT 'host all all {namespace.host}/30 trust') TO '{hba}'"
        )
        server.run_sql("SELECT pg_reload_conf()")
        yield server


async def test_a_worker_that_is_cut_off_loses_its_records_and_goes_on_when_healed(
    namespace: Namespace, server: PostgresServer, tmp_path: Path
) -> None:
    url = server.create_database("post")
    store = PostgresStore(url)
    await store.open()
    harness = KillHarness(store, url, tmp_path)
    lease = {"LEASE_SECONDS": "3"}
    try:
        await harness.fill(100)
        far = harness.start(
            url=url.replace("127.0.0.1", namespace.host),
            namespace=namespace,
            HANDLER_SECONDS="1.5",
            **lease,
        )
        async with asyncio.timeout(60):
            while (await harness.records.count(worker.Parcel, {"status": "packing"}))[0] < HELD:
                await asyncio.sleep(0.02)
        namespace.cut()
        near = harness.start(**lease)
        await harness.until_sent(100)  # also those that the other one held: their leases ended
        assert far.poll() is None
        namespace.heal()
        near.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(near.wait, 60) == 0
        await store.insert([worker.Parcel(name=f"late{n}") for n in range(30)])
        await harness.until_sent(130)  # the healed worker goes on by itself
        far.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(far.wait, 60) == 0
        calls = await harness.check(130)  # each was settled once
        assert sum(count > 1 for count in calls.values()) > 0  # though some were handled twice
        rates = [rate async for rate in harness.records.each(RateRecord)]
        assert sum(rate.lost for rate in rates) > 0  # the late settlements were refused
    finally:
        namespace.heal()
        harness.end()
        await store.close()
