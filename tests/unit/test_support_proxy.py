"""The proxy of the fault tests does what its overview says, in front of a real PostgreSQL."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
from support.postgres import PostgresServer
from support.proxy import TcpProxy

ENDED = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[TcpProxy]:
    with TcpProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
async def connection(server: PostgresServer, proxy: TcpProxy) -> AsyncIterator[Any]:
    until(server, [""])  # the sessions of the test before have ended
    connection = await asyncpg.connect(proxy.url(server.url()))
    yield connection
    connection.terminate()


async def answers(connection: Any, seconds: float = 10) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return bool(await connection.fetchval("SELECT 1") == 1)
    except TimeoutError:
        return False


def sessions(server: PostgresServer) -> list[str]:
    """The states of the client sessions, as the server sees them."""
    return server.run_sql(
        """SELECT state FROM pg_stat_activity WHERE backend_type = 'client backend'
            AND pid <> pg_backend_pid() ORDER BY backend_start"""
    ).split("\n")


def until(server: PostgresServer, expected: list[str]) -> None:
    deadline = time.monotonic() + 10
    while sessions(server) != expected:
        assert time.monotonic() < deadline, sessions(server)
        time.sleep(0.02)


async def test_cut_resets_both_sides(
    server: PostgresServer, proxy: TcpProxy, connection: Any
) -> None:
    assert await answers(connection)
    proxy.cut()
    with pytest.raises(ENDED):
        await connection.fetchval("SELECT 1")
    until(server, [""])
    assert proxy.connections() == []


async def test_refuse_resets_new_connections_only(
    server: PostgresServer, proxy: TcpProxy, connection: Any
) -> None:
    proxy.refuse()
    with pytest.raises(ENDED):
        await asyncpg.connect(proxy.url(server.url()))
    assert await answers(connection)
    proxy.accept()
    await (await asyncpg.connect(proxy.url(server.url()))).close()


async def test_delay_makes_every_answer_late(proxy: TcpProxy, connection: Any) -> None:
    proxy.delay(0.2)
    begun = time.monotonic()
    assert await answers(connection)
    assert time.monotonic() - begun >= 0.4  # the question and the answer
    proxy.delay(0)
    assert await answers(connection)


async def test_frozen_connections_hang_and_go_on_after_thaw(
    server: PostgresServer, proxy: TcpProxy, connection: Any
) -> None:
    proxy.freeze(new=False)
    waiting = asyncio.create_task(connection.fetchval("SELECT 7"))
    other = await asyncpg.connect(proxy.url(server.url()))
    assert await answers(other)  # new connections work
    assert not waiting.done()
    proxy.thaw()
    assert await asyncio.wait_for(waiting, 10) == 7
    proxy.freeze(existing=False)
    assert await answers(other)
    with pytest.raises(TimeoutError):
        await asyncpg.connect(proxy.url(server.url()), timeout=0.3)
    await other.close()


async def test_the_server_never_learns_of_a_client_that_vanished(
    server: PostgresServer, proxy: TcpProxy, connection: Any
) -> None:
    transaction = connection.transaction()
    await transaction.start()
    proxy.half_open("client")
    with pytest.raises(ENDED):
        await connection.fetchval("SELECT 1")
    await asyncio.sleep(0.2)
    assert sessions(server) == ["idle in transaction"]
    proxy.stop()
    until(server, [""])


async def test_a_program_that_ends_while_frozen_has_vanished(
    server: PostgresServer, proxy: TcpProxy, connection: Any
) -> None:
    assert await answers(connection)
    [one] = proxy.connections()
    one.freeze()
    connection.terminate()
    await asyncio.sleep(0.2)
    assert sessions(server) == ["idle"]
    one.thaw()
    until(server, [""])


async def test_the_client_never_learns_of_a_server_that_vanished(
    server: PostgresServer, proxy: TcpProxy, connection: Any
) -> None:
    assert await answers(connection)
    proxy.half_open("server")
    until(server, [""])
    assert not await answers(connection, 0.3)


async def test_a_rule_freezes_one_connection_just_before_its_commit(
    server: PostgresServer, proxy: TcpProxy, connection: Any
) -> None:
    rule = proxy.when(b"COMMIT", "freeze")
    other = await asyncpg.connect(proxy.url(server.url()))

    async def write() -> None:
        async with connection.transaction():
            await connection.execute("CREATE TABLE written ()")

    writing = asyncio.create_task(write())
    frozen = await asyncio.to_thread(rule.wait, 10)
    assert sessions(server) == ["idle in transaction", "idle"]
    async with other.transaction():  # the rule applied once
        await other.execute("SELECT 1")
    assert not writing.done()
    frozen.cut()
    with pytest.raises(ENDED):
        await writing
    assert await other.fetchval("SELECT to_regclass('written')") is None
    await other.close()


async def test_a_rule_cuts_before_the_answer_of_a_commit_that_was_written(
    server: PostgresServer, proxy: TcpProxy, connection: Any
) -> None:
    proxy.when(b"COMMIT", "cut", sender="server")
    with pytest.raises(ENDED):
        async with connection.transaction():
            await connection.execute("CREATE TABLE committed ()")
    assert server.run_sql("SELECT to_regclass('committed')") == "committed"


def test_a_pattern_may_be_sent_in_parts() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        TcpProxy(listener.getsockname()[1]) as proxy,
    ):
        rule = proxy.when(b"COMMIT", "cut")
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted, _ = listener.accept()
            client.sendall(b"...COM")
            assert accepted.recv(10) == b"...COM"
            assert not rule.matched
            client.sendall(b"MIT")
            rule.wait(10)
            with pytest.raises(ConnectionResetError):
                accepted.recv(10)
            accepted.close()
