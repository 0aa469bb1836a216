"""Connections: what a client that stalls, trickles, smuggles or comes in crowds can hold up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from web.shop import Client, served
from yarl import URL

TOKEN = "o" * 32
# A limit that a test can wait for; a connection is checked twice a second.
TIMEOUT = {"ESCLUSA_CLIENT_TIMEOUT_SECONDS": "1"}
POST = "POST /api/records/items HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
# A deadline for progress; nothing here takes as long on an idle machine.
DEADLINE = 30


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[Client]:
    """A server whose clients may stall for one second."""
    async with served(tmp_path, environ=TIMEOUT) as client:
        yield client


class Connection:
    """One TCP connection to the server, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: str | bytes) -> None:
        self.writer.write(data.encode() if isinstance(data, str) else data)
        await self.writer.drain()

    async def rest(self) -> bytes:
        """Everything that the server sends until it closes the connection."""
        async with asyncio.timeout(DEADLINE):
            with contextlib.suppress(ConnectionResetError):
                return await self.reader.read()
        return b""

    async def answer(self) -> tuple[int, bytes]:
        """The status and the body of one answer with a Content-Length."""
        async with asyncio.timeout(DEADLINE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            return int(head.split()[1]), await self.reader.readexactly(length)


@contextlib.asynccontextmanager
async def connected(client: Client) -> AsyncIterator[Connection]:
    url = URL(client.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()


def problem_type(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower(), answer
    return int(head.split()[1]), json.loads(body)["type"].rpartition(":")[2]


# stalled clients


@pytest.mark.parametrize(
    "sent",
    [
        "GET /api/kinds HTTP/1.1\r\nHost: local",
        f"{POST}Content-Length: 100\r\n\r\n[",
        f"{POST}Transfer-Encoding: chunked\r\n\r\n5\r\n[{{",
        f"{POST}Idempotency-Key: k\r\nContent-Length: 100\r\n\r\n[",
        f"{POST}Expect: 100-continue\r\nContent-Length: 100\r\n\r\n",
    ],
    ids=["head", "body", "chunk", "body with key", "expect"],
)
async def test_a_half_sent_request_is_ended(strict: Client, sent: str) -> None:
    async with connected(strict) as connection:
        await connection.send(sent)
        answer = (await connection.rest()).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert problem_type(answer) == (408, "request-timeout")
    assert (await strict.get("/api/kinds")).status == 200


async def test_a_connection_without_a_request_is_closed(strict: Client) -> None:
    async with connected(strict) as fresh, connected(strict) as used:
        await used.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await used.answer())[0] == 200
        assert await fresh.rest() == b""
        assert await used.rest() == b""


async def test_a_half_sent_second_request_is_ended(strict: Client) -> None:
    async with connected(strict) as connection:
        await connection.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await connection.answer())[0] == 200
        await connection.send("GET /healthz HTTP/1.1\r\nHo")
        assert problem_type(await connection.rest())[0] == 408


@pytest.mark.parametrize("sent", ["GET / HTTP/1.1\r\nX: ", f"{POST}Content-Length: 99999\r\n\r\n["])
async def test_a_trickle_is_ended(strict: Client, sent: str) -> None:
    """A byte now and then keeps no connection open."""
    async with connected(strict) as connection:
        await connection.send(sent)
        answer = asyncio.create_task(connection.rest())
        with contextlib.suppress(ConnectionError):
            while not answer.done():
                await connection.send(b" ")
                await asyncio.wait([answer], timeout=0.2)
        assert problem_type(await answer)[0] == 408


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ("GET / HTTP/1.1\r\nX: ", 408),
        (f"{POST}Content-Length: 9\r\n\r\n[", 408),
        ("\0\r\n\r\n", 400),
    ],
)
async def test_an_answer_reaches_a_client_that_is_still_sending(
    strict: Client, sent: str, status: int
) -> None:
    async with connected(strict) as connection:
        connection.writer.transport.pause_reading()
        await connection.send(sent)
        async with asyncio.timeout(DEADLINE):
            while not any(each.ended for each in strict.service.connections):
                await asyncio.sleep(0.05)
        for _ in range(5):
            await connection.send(b" ")
            await asyncio.sleep(0.05)
        connection.writer.transport.resume_reading()
        assert problem_type(await connection.rest())[0] == status
    await until_connections(strict, 0)


async def test_the_rest_of_a_refused_body_is_not_awaited(tmp_path: Path) -> None:
    """A caller without a token cannot hold a connection with its body."""
    async with served(tmp_path, tokens=TOKEN) as client, connected(client) as connection:
        await connection.send(f"{POST}Content-Length: 1000000\r\n\r\n")
        assert (await connection.answer())[0] == 401
        closed = asyncio.create_task(connection.rest())
        with contextlib.suppress(ConnectionError):
            while not closed.done():  # steady, and faster than any limit
                await connection.send(b" " * 1000)
                await asyncio.wait([closed], timeout=0.1)
        assert await closed == b""


async def test_a_client_that_does_not_read_is_cut(strict: Client) -> None:
    url = URL(strict.url)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((url.host, url.port))
        deaf.sendall(b"GET /shop/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until_connections(strict, 0)


async def until_connections(client: Client, count: int) -> None:
    """Wait until the server has this many connections."""
    async with asyncio.timeout(DEADLINE):
        while len(client.service.connections) != count:
            await asyncio.sleep(0.1)


# slow but honest clients


async def test_a_slow_and_steady_upload_succeeds(strict: Client) -> None:
    """It takes several times the limit."""
    rows = [{"shop": "a", "code": str(n), "note": "x" * 900} for n in range(200)]
    body = json.dumps(rows).encode()
    async with connected(strict) as connection:
        await connection.send(f"{POST}Content-Length: {len(body)}\r\n\r\n")
        began = time.monotonic()
        for start in range(0, len(body), 8000):
            await connection.send(body[start : start + 8000])
            await asyncio.sleep(0.2)
        assert time.monotonic() - began > 3
        status, answer = await connection.answer()
        assert (status, json.loads(answer)["created"]) == (200, 200)


async def test_a_slow_reader_gets_a_large_answer(strict: Client) -> None:
    """The client takes several times the limit to read it."""
    async with connected(strict) as connection:
        await connection.send("GET /shop/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await connection.reader.readuntil(b"\r\n\r\n")
        left, steps = int(head.lower().partition(b"content-length: ")[2].split()[0]), 20
        part = left // steps
        for _ in range(steps):
            await connection.reader.readexactly(part)
            await asyncio.sleep(0.2)
        await connection.reader.readexactly(left - steps * part)


async def test_a_route_that_reads_late_does_not_time_out_its_client(strict: Client) -> None:
    answer = await strict.call("POST", "/shop/read-late", data=b"x" * 500_000)
    assert answer.json == {"length": 500_000}


async def test_a_route_that_works_long_is_not_cut(strict: Client) -> None:
    assert (await strict.call("POST", "/shop/read-late", data=b"")).json == {"length": 0}


async def test_an_event_stream_stays_open(strict: Client) -> None:
    async with connected(strict) as connection:
        await connection.send("GET /console/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        ends = asyncio.create_task(connection.rest())
        await asyncio.wait([ends], timeout=3)
        assert not ends.done()
        ends.cancel()
        await asyncio.gather(ends, return_exceptions=True)


async def test_a_busy_connection_is_kept_longer_than_the_limit(strict: Client) -> None:
    async with connected(strict) as connection:
        began = time.monotonic()
        while time.monotonic() - began < 3:
            await connection.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await connection.answer())[0] == 200
            await asyncio.sleep(0.05)


async def test_a_blocked_event_loop_does_not_time_out_clients(strict: Client) -> None:
    async with connected(strict) as connection:
        await connection.send(f"{POST}Content-Length: 2\r\n\r\n[")
        await strict.get("/shop/block")
        await connection.send("]")
        assert (await connection.answer())[0] == 200


# many clients


async def test_connections_are_limited(tmp_path: Path) -> None:
    limits = {"ESCLUSA_MAX_CONNECTIONS": "5", "ESCLUSA_CLIENT_TIMEOUT_SECONDS": "5"}
    async with served(tmp_path, environ=limits) as client, contextlib.AsyncExitStack() as stack:
        busy = [await stack.enter_async_context(connected(client)) for _ in range(5)]
        for connection in busy:
            await connection.send(f"{POST}Content-Length: 100\r\n\r\n[")
        await until_connections(client, 5)
        refused = await stack.enter_async_context(connected(client))
        await refused.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert problem_type(await refused.rest()) == (503, "too-many-connections")
        for connection in busy:  # those that were there are answered
            assert problem_type(await connection.rest())[0] == 408
        assert (await client.get("/healthz")).status == 200


async def test_idle_connections_give_way(tmp_path: Path) -> None:
    limits = {"ESCLUSA_MAX_CONNECTIONS": "5", "ESCLUSA_CLIENT_TIMEOUT_SECONDS": "60"}
    async with served(tmp_path, environ=limits) as client, contextlib.AsyncExitStack() as stack:
        for _ in range(5):
            await stack.enter_async_context(connected(client))
        await until_connections(client, 5)
        for _ in range(10):
            async with connected(client) as other:
                await other.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert (await other.answer())[0] == 200
        await until_connections(client, 4)


async def test_a_flood_leaves_no_connections_behind(tmp_path: Path) -> None:
    limits = {"ESCLUSA_MAX_CONNECTIONS": "5", "ESCLUSA_CLIENT_TIMEOUT_SECONDS": "1"}
    async with served(tmp_path, environ=limits) as client, contextlib.AsyncExitStack() as stack:
        for _ in range(300):
            connection = await stack.enter_async_context(connected(client))
            with contextlib.suppress(ConnectionError):
                await connection.send("GET / HTTP/1.1\r\nHost: loc")
        assert len(client.service.connections) <= 5 + 100
        await until_connections(client, 0)
        assert (await client.get("/healthz")).status == 200


# framing


@pytest.mark.parametrize(
    "headers",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "transfer-encoding: CHUNKED\r\ncontent-length: 0\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length : 5\r\n",
    ],
)
async def test_ambiguous_framing_is_refused(shop: Client, headers: str) -> None:
    """A proxy before the server may read it otherwise: the second request would be smuggled."""
    smuggled = "0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = await shop.send_raw(f"{POST}{headers}\r\n{smuggled}".encode())
    assert problem_type(answer) == (400, "bad-request")
    assert answer.count(b"HTTP/1.1") == 1


async def test_chunks_in_http_1_0_are_refused(shop: Client) -> None:
    head = "POST /api/records/items HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    answer = await shop.send_raw(f"{head}\r\n2\r\n[]\r\n0\r\n\r\n".encode())
    assert problem_type(answer) == (400, "bad-request")


async def test_an_upgrade_is_ignored(shop: Client) -> None:
    answer = await shop.send_raw(
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade, close\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: YQ==\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 200 ")


# clients that leave


async def test_a_client_that_leaves_is_not_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with served(tmp_path) as client:
        async with connected(client) as connection:
            await connection.send(f"{POST}Content-Length: 100\r\n\r\n[")
            await asyncio.sleep(0.2)
        await until_connections(client, 0)
        await asyncio.sleep(0.2)
    assert "ClientDisconnect" not in capfd.readouterr().err
