"""PostgreSQL: a connection that hangs or vanishes is given up in time, by both sides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest
from conformance.helpers import claim_request, settlement_of
from conformance.kinds import KINDS, STAGES, WORK, Job, Post
from support.postgres import PostgresServer
from support.proxy import TcpProxy

from esclusa.model.effects import Add
from esclusa.model.errors import StoreUnavailable
from esclusa.model.settlement import Locked, Rejected, Settled
from esclusa.stores.postgres import PostgresStore

numbers = count()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[TcpProxy]:
    with TcpProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.create_database(f"db{next(numbers)}")


async def opened(url: str, **options: Any) -> PostgresStore:
    store = PostgresStore(url, **({"timeout": 1.0} | options))
    await store.open()
    await store.migrate(KINDS, STAGES)
    return store


@pytest.fixture
async def direct(url: str) -> AsyncIterator[PostgresStore]:
    """A store that no fault reaches."""
    store = await opened(url)
    yield store
    await store.close()


@pytest.fixture
async def store(url: str, direct: PostgresStore, proxy: TcpProxy) -> AsyncIterator[PostgresStore]:
    """A store behind the proxy, all of whose connections are open."""
    assert direct
    store = await opened(proxy.url(url))
    await asyncio.gather(*(store._connections.fetch("SELECT pg_sleep(0.1)") for _ in range(8)))
    await asyncio.gather(*(store._connections.read("SELECT pg_sleep(0.1)") for _ in range(8)))
    await asyncio.gather(*(store._connections.claim("SELECT pg_sleep(0.1)") for _ in range(8)))
    yield store
    await store.close()


async def test_connections_that_hang_are_replaced_at_the_first_timeout(
    store: PostgresStore, proxy: TcpProxy
) -> None:
    assert len(proxy.connections()) == 8
    await store.insert([Job(id=f"j{n}") for n in range(4)])
    leases = await store.claim(claim_request(WORK))
    proxy.freeze(new=False)
    async with asyncio.timeout(10):
        with pytest.raises(StoreUnavailable):
            await store.now()
        # every other connection hangs, too, and costs no further timeout
        began = time.monotonic()
        await store.insert([Job(id="new")])
        assert len(await store.claim(claim_request(WORK))) == 1
        verdicts = await store.settle([settlement_of(lease, "done") for lease in leases])
        assert time.monotonic() - began < 2.5
    assert verdicts == [Settled(lease.ref) for lease in leases]


async def test_a_call_that_is_cancelled_does_not_wait_for_a_connection_that_hangs(
    store: PostgresStore, proxy: TcpProxy
) -> None:
    async def count_all(connection: Any) -> None:
        await connection.fetch("SELECT 1")
        proxy.freeze(new=False)
        await connection.fetch("SELECT 2")

    for call in (store.now, lambda: store._connections.transaction(count_all)):
        task = asyncio.create_task(call())
        await asyncio.sleep(0.3)
        proxy.freeze(new=False)
        task.cancel()
        async with asyncio.timeout(3):
            await asyncio.gather(task, return_exceptions=True)
        proxy.cut()


async def test_closing_does_not_wait_for_connections_that_hang(
    url: str, direct: PostgresStore, proxy: TcpProxy
) -> None:
    store = await opened(proxy.url(url))
    await asyncio.gather(*(store._connections.fetch("SELECT pg_sleep(0.1)") for _ in range(8)))
    end = await store.listen(lambda _: None)
    proxy.freeze(new=False)
    async with asyncio.timeout(8):
        await store.close()
    await end()


@pytest.mark.promise(1)
async def test_the_locks_of_a_worker_that_vanished_are_released(
    store: PostgresStore, direct: PostgresStore, proxy: TcpProxy
) -> None:
    await direct.insert([Post(platform="x", post_id="0"), Job(id="a"), Job(id="b")])
    a, b = await direct.claim(claim_request(WORK))
    effects = (Add(Post, "x:0", jobs=1),)
    rule = proxy.when(b"COMMIT", "freeze")
    with pytest.raises(StoreUnavailable):
        await store.settle([settlement_of(a, "done", effects=effects)])
    assert rule.connection is not None
    rule.connection.half_open("client")  # the server still has the transaction, and its locks
    async with asyncio.timeout(15):
        while True:
            [verdict] = await direct.settle([settlement_of(b, "done", effects=effects)])
            if not isinstance(verdict, Locked):
                break
            await asyncio.sleep(0.1)
        assert verdict == Settled(b.ref)
        assert await store.settle([settlement_of(a, "done", effects=effects)]) == [Settled(a.ref)]
    [post] = await direct.get(Post.kind, ["x:0"])
    assert post.jobs == 2  # type: ignore[union-attr]


async def test_a_listener_that_hangs_is_replaced(
    store: PostgresStore, direct: PostgresStore, proxy: TcpProxy
) -> None:
    woken: list[str] = []
    end = await store.listen(woken.append)
    proxy.freeze(new=False)
    with pytest.raises(StoreUnavailable):
        await store.now()
    async with asyncio.timeout(10):
        while "*" not in woken:
            await asyncio.sleep(0.05)
        await direct.insert([Job(id="j")])
        while "t_jobs" not in woken:
            await asyncio.sleep(0.05)
    await end()


async def test_a_transaction_that_a_blocked_loop_leaves_open_is_ended(
    direct: PostgresStore,
) -> None:
    async def block(connection: Any) -> None:
        await connection.fetch("SELECT 1")
        time.sleep(3)
        await connection.fetch("SELECT 2")

    with pytest.raises(StoreUnavailable):
        await direct._connections.transaction(block)
    assert await direct.now()


SHOW = """SELECT name, setting FROM pg_settings WHERE name IN (
    'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout',
    'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count', 'tcp_user_timeout')"""


@pytest.mark.parametrize("pooler", [False, True])
async def test_every_connection_has_its_limits(
    url: str, direct: PostgresStore, pooler: bool
) -> None:
    options = {"statement_cache_size": 0} if pooler else {}
    store = await opened(url, timeout=2.0, **options)
    connections = store._connections
    shown = {
        name: dict(tuple(row) for row in await call(SHOW))
        for name, call in (
            ("work", connections.fetch),
            ("claims", connections.claim),
            ("reads", connections.read),
        )
    }
    for name, settings in shown.items():
        assert settings["statement_timeout"] == ("60000" if name == "reads" else "2000")
        assert settings["lock_timeout"] == "250"
        assert int(settings["idle_in_transaction_session_timeout"]) > 0
        if not pooler:
            assert int(settings["tcp_keepalives_idle"]) <= 10
            assert int(settings["tcp_user_timeout"]) > 0
    async with connections.connection() as connection:
        assert await connection.fetchval("SHOW statement_timeout") == ("0" if pooler else "2s")
    await store.close()


async def test_long_work_has_more_time(direct: PostgresStore) -> None:
    from esclusa.stores.postgres.limits import LONG_LIMITS

    with pytest.raises(StoreUnavailable, match="timeout"):
        await direct._connections.fetch("SELECT pg_sleep(2)")
    await direct._connections.fetch("SELECT pg_sleep(2)", limits=LONG_LIMITS)
    await direct._connections.read("SELECT pg_sleep(2)")


async def test_a_settlement_that_breaks_the_connection_by_its_size_is_rejected_alone(
    store: PostgresStore, proxy: TcpProxy
) -> None:
    """A message that the server does not accept ends its connection, as one of 1 GB does."""
    proxy.when(b"TOO-LARGE", "cut", times=99)
    await store.insert([Job(id=f"j{n}") for n in range(3)])
    leases = await store.claim(claim_request(WORK))
    results = ["small", "x" * (17 << 20) + "TOO-LARGE", "small"]
    verdicts = await store.settle(
        [
            settlement_of(lease, "done", fields={"result": result})
            for lease, result in zip(leases, results, strict=True)
        ]
    )
    assert [type(verdict) for verdict in verdicts] == [Settled, Rejected, Settled]
    assert "too large" in verdicts[1].why  # type: ignore[union-attr]


async def test_a_small_settlement_whose_connection_breaks_is_not_rejected(
    store: PostgresStore, proxy: TcpProxy
) -> None:
    proxy.when(b"SMALL", "cut", times=5)
    await store.insert([Job(id="j")])
    [lease] = await store.claim(claim_request(WORK))
    made = settlement_of(lease, "done", fields={"result": "SMALL"})
    for _ in range(5):
        with pytest.raises(StoreUnavailable):
            await store.settle([made])
    assert await store.settle([made]) == [Settled(lease.ref)]
