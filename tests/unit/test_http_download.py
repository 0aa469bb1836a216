"""Downloads of untrusted URLs: which addresses, how large, how long."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp.abc import AbstractResolver

from esclusa.http import (
    BadResponse,
    ForbiddenAddress,
    TooLarge,
    download,
    retry_after,
    safe_session,
)
from esclusa.model.errors import ArtifactError
from esclusa.response_body import Spool
from esclusa.simulators import SimulatorProcess
from esclusa.simulators.media_cdn import MediaCdnSimulator, content, sign
from esclusa.ssrf import AllowedHosts, is_public

MB = 1 << 20


@pytest.fixture
async def cdn() -> AsyncIterator[tuple[MediaCdnSimulator, str]]:
    made = MediaCdnSimulator()
    yield made, await made.start()
    await made.stop()


async def fetch(url: str, *allow: str, **options: Any) -> bytes:
    """The body of a URL, as a pipeline would get it."""
    connector = options.pop("connector", {})
    options = {"limit": 10 * MB, "total": 10.0} | options
    async with (
        safe_session(AllowedHosts.parse(allow), **connector) as session,
        download(session, url, **options) as got,
    ):
        return got.body if isinstance(got.body, bytes) else got.body.read_bytes()


LOOPBACK = "127.0.0.1"


async def test_a_body_is_kept_in_memory_or_in_a_file(cdn: tuple[MediaCdnSimulator, str]) -> None:
    _, url = cdn
    assert await fetch(f"{url}/m/jpg/5000/a", LOOPBACK) == content("jpg", 5000, "a")
    async with safe_session(AllowedHosts.parse([LOOPBACK])) as session:
        async with download(session, f"{url}/m/mp4/{3 * MB}/b", limit=4 * MB, total=10) as got:
            assert isinstance(got.body, Path)
            assert (got.size, got.body.stat().st_size) == (3 * MB, 3 * MB)
            assert got.body.read_bytes() == content("mp4", 3 * MB, "b")
            assert got.sha256 == hashlib.sha256(content("mp4", 3 * MB, "b")).hexdigest()
            kept = got.body
        assert not kept.exists()
        async with download(
            session, f"{url}/chunked/{3 * MB}", limit=4 * MB, total=10, in_memory=8 * MB
        ) as got:
            assert isinstance(got.body, bytes)
            assert len(got.body) == 3 * MB


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 429, 500, 502, 503, 504])
async def test_every_error_status_is_a_bad_response(
    cdn: tuple[MediaCdnSimulator, str], status: int
) -> None:
    with pytest.raises(BadResponse, match=f"HTTP {status}") as caught:
        await fetch(f"{cdn[1]}/gone/{status}?secret=1", LOOPBACK)
    assert (caught.value.status, caught.value.after) == (status, None)


async def test_a_bad_response_has_the_seconds_of_retry_after(
    cdn: tuple[MediaCdnSimulator, str],
) -> None:
    cdn[0].order("/m/jpg", status=429, headers={"Retry-After": "7200"})
    with pytest.raises(BadResponse) as caught:
        await fetch(f"{cdn[1]}/m/jpg/9/a", LOOPBACK)
    assert caught.value.after == 7200


async def test_a_signed_url_is_requested_unchanged_and_its_expiry_is_reported(
    cdn: tuple[MediaCdnSimulator, str],
) -> None:
    _, url = cdn
    good = sign("/m/jpg/100/x_%2B%20y.jpg")
    assert await fetch(url + good, LOOPBACK) == content("jpg", 100, "x_+ y.jpg")
    assert await fetch(f"{url}/to?url={quote(good, safe='')}", LOOPBACK)
    with pytest.raises(BadResponse, match=r"HTTP 403 \(URL signature expired\)") as caught:
        await fetch(url + sign("/m/jpg/100/x", lifetime=-10), LOOPBACK)
    assert "oe=" not in str(caught.value)
    with pytest.raises(BadResponse, match="URL signature mismatch"):
        await fetch(url + good.replace("oh=", "oh=0"), LOOPBACK)


async def test_a_failed_request_is_a_bad_response_that_hides_the_url(
    cdn: tuple[MediaCdnSimulator, str],
) -> None:
    _, url = cdn
    for target, words in (
        ("http://127.0.0.1:9/x?sig=1", "cannot connect"),
        ("http://no-such-host.invalid/x?sig=1", "no such host"),
        (f"{url}/cut/10000?sig=1", "cut off"),
        (f"{url}/loop?sig=1", "more than 5 redirects"),
        (f"{url}/hops/6?url=/m/jpg/10/a", "more than 5 redirects"),
    ):
        with pytest.raises(BadResponse, match=words) as caught:
            await fetch(target, LOOPBACK)
        assert "sig" not in str(caught.value)
    assert await fetch(f"{url}/hops/5?url=/m/jpg/10/a", LOOPBACK) == content("jpg", 10, "a")
    with pytest.raises(BadResponse, match="more than 0"):
        await fetch(f"{url}/to?url=/m/jpg/10/a", LOOPBACK, redirects=0)


async def test_a_server_that_does_not_speak_http_is_a_bad_response() -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"220 ftp ready\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    async with server:
        with pytest.raises(BadResponse):
            await fetch(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", LOOPBACK)


@asynccontextmanager
async def answering(answer: bytes, *, reset: bool = False) -> AsyncIterator[str]:
    """A server that sends these bytes and closes the connection, or resets it; its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        if reset:
            await asyncio.sleep(0.05)
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@pytest.mark.parametrize(
    "head", [b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"]
)
async def test_a_body_without_length_ends_with_the_connection_unless_that_breaks(
    head: bytes,
) -> None:
    async with answering(head + b"x" * 5000) as url:
        assert await fetch(url, LOOPBACK) == b"x" * 5000
    async with answering(head + b"x" * 5000, reset=True) as url:
        with pytest.raises(BadResponse, match=r"127\.0\.0\.1: the body was cut off"):
            await fetch(url, LOOPBACK)


async def test_a_kept_alive_connection_gets_no_callback(
    cdn: tuple[MediaCdnSimulator, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callbacks would pile up with every body that it carries."""
    monkeypatch.setattr("esclusa.downloads._connection_closed", None)
    for path in ("/chunked/5000", "/m/jpg/5000/a", "/gzip/5000"):
        assert len(await fetch(cdn[1] + path, LOOPBACK)) == 5000


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nlonger than that",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\n" + b"X-Header: x\r\n" * 100_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
        + b"X: x\r\n" * 100_000,
        b"<html>no head at all",
    ],
)
async def test_a_malformed_response_is_reported_in_one_line(answer: bytes) -> None:
    async with answering(answer) as url:
        with pytest.raises(BadResponse, match=r"127\.0\.0\.1: the response is not HTTP: [^\n]+\Z"):
            await fetch(url, LOOPBACK)


async def test_an_error_response_that_stalls_still_reports_its_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("esclusa.downloads._ERROR_TEXT_TIMEOUT", 0.05)

    async def stalling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(
            b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 500\r\n\r\nno"
        )
        await reader.read()
        writer.close()
        hung_up.set()

    hung_up = asyncio.Event()
    server = await asyncio.start_server(stalling, "127.0.0.1", 0)
    async with server:
        with pytest.raises(BadResponse, match="HTTP 404"):
            await fetch(
                f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", LOOPBACK, total=30.0
            )
        await hung_up.wait()


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", None),
        ("1e300", 86_400.0),
        ("inf", 86_400.0),
        ("nan", None),
        ("soon", None),
        ("", None),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 60.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
def test_the_seconds_of_a_retry_after_header(given: str, seconds: float | None) -> None:
    assert retry_after({"Retry-After": given}, 40.0) == seconds


async def test_the_time_limit_covers_redirects_and_body(cdn: tuple[MediaCdnSimulator, str]) -> None:
    server, url = cdn
    for path in ("/drip/30", "/hang"):
        server.order("/hang", fault="hang")
        with pytest.raises(TimeoutError, match=r"longer than 0\.3 s"):
            await fetch(url + path, LOOPBACK, total=0.3)
    server.order("/hops/1", fault="slow", seconds=0.25)
    with pytest.raises(TimeoutError):
        await fetch(f"{url}/hops/1?url=/drip/0.3", LOOPBACK, total=0.4)


async def test_too_large_by_header_by_count_and_after_decompression(
    cdn: tuple[MediaCdnSimulator, str],
) -> None:
    _, url = cdn
    assert len(await fetch(f"{url}/m/jpg/1000/a", LOOPBACK, limit=1000)) == 1000
    for path in ("/m/jpg/1001/a", f"/chunked/{5 * MB}", f"/bomb/{20 * MB}"):
        with pytest.raises(TooLarge, match="1,000"):
            await fetch(url + path, LOOPBACK, limit=1000)
    assert await fetch(f"{url}/gzip/300000", LOOPBACK) == content("jpg", 300000, "gzip")


async def test_inspect_gets_the_first_bytes_and_may_end_the_download(
    cdn: tuple[MediaCdnSimulator, str],
) -> None:
    seen: list[bytes] = []

    def inspect(head: bytes) -> None:
        seen.append(head)
        if not head:
            raise KeyError("nothing")

    _, url = cdn
    await fetch(f"{url}/m/png/{2 * MB}/a", LOOPBACK, inspect=inspect)
    await fetch(f"{url}/m/png/20/a", LOOPBACK, inspect=inspect)
    assert [len(head) for head in seen] == [1024, 20]
    with pytest.raises(KeyError):
        await fetch(f"{url}/empty", LOOPBACK, inspect=inspect)


# Addresses.

PRIVATE = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.8",
    "192.0.2.1",
    "198.18.0.1",
    "203.0.113.7",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "192.88.99.1",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "2001::1",
    "2002:7f00:1::",
    "2001:db8::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "100::1",
    "not an address",
    "",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "1.1.1.1",
        "157.240.22.35",
        "2a03:2880:f12f:83:face:b00c:0:25de",
        "2606:4700:4700::1111",
    ],
)
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


@pytest.fixture
def silent() -> Iterator[int]:
    """A port whose listener must never get a connection."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.settimeout(0.05)
        yield listening.getsockname()[1]
        with pytest.raises(TimeoutError):
            listening.accept()


HOSTS = [
    "127.0.0.1",
    "localhost",
    "0.0.0.0",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0x7f.1",
    "127.1",
    "017700000001",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[0:0:0:0:0:ffff:7f00:1]",
    "[2002:7f00:1::]",
    "169.254.169.254",
    "127.0.0.1.",
    "LOCALHOST",
]


@pytest.mark.parametrize("host", HOSTS)
async def test_no_spelling_of_a_private_address_is_accepted(host: str, silent: int) -> None:
    with pytest.raises(ForbiddenAddress, match="not a public address"):
        await fetch(f"http://{host}:{silent}/")


@pytest.mark.parametrize("host", HOSTS)
async def test_no_redirect_to_a_private_address_is_followed(
    host: str, silent: int, cdn: tuple[MediaCdnSimulator, str]
) -> None:
    target = quote(f"http://{host}:{silent}/", safe="")
    here = cdn[1].removeprefix("http://")  # this port alone is allowed
    with pytest.raises(ForbiddenAddress, match="not a public address"):
        await fetch(f"{cdn[1]}/to?url={target}", here)
    with pytest.raises(ForbiddenAddress):
        await fetch(f"{cdn[1]}/hops/3?url={target}", here)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/x",
        "gopher://x/",
        "data:image/png;base64,AAAA",
        "//example.org/x",
        "example.org/x",
        "",
        "http://",
        "http:///x",
        "javascript:1",
        "http+unix://%2Fvar%2Frun%2Fx/y",
        "http://example.org/\r\nX: y",
        "unix:///x",
    ],
)
async def test_only_http_and_https(url: str, cdn: tuple[MediaCdnSimulator, str]) -> None:
    with pytest.raises(ForbiddenAddress):
        await fetch(url)
    if "://" in url and not url.startswith("http:"):
        with pytest.raises(ForbiddenAddress):
            await fetch(f"{cdn[1]}/to?url={quote(url, safe='')}", LOOPBACK)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ftp://me:secret@host/x", "'ftp://'"),
        ("//host/secret", "'//'"),
        ("host/secret?a", "'host/'"),
        ("me@host", "'me'"),
        ("", "''"),
        ("data:image/png;base64,secret", "'data:'"),
    ],
)
async def test_the_message_shows_only_the_beginning_of_a_wrong_url(url: str, shown: str) -> None:
    with pytest.raises(ForbiddenAddress, match=f"not {shown}\\Z"):
        await fetch(url)


class Changing(AbstractResolver):
    """A resolver with a different answer each time."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def resolve(self, host: str, port: int = 0, **_: Any) -> Any:
        found = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        return [
            {
                "hostname": host,
                "host": ip,
                "port": port,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST,
                "family": socket.AF_INET6 if ":" in ip else socket.AF_INET,
            }
            for ip in found
        ]

    async def close(self) -> None:
        return


async def test_dns_rebinding_is_refused_at_the_connection(
    silent: int, cdn: tuple[MediaCdnSimulator, str]
) -> None:
    # A check before the call would see the first answer, the call itself the second.
    resolver = Changing(["127.0.0.1"])
    with pytest.raises(ForbiddenAddress, match=r"127\.0\.0\.1 \(where rebind\.example leads\)"):
        await fetch(
            f"http://rebind.example:{silent}/",
            connector={"resolver": resolver, "use_dns_cache": False},
        )
    assert resolver.asked == 1
    several = Changing(["10.0.0.1", "127.0.0.1", "::1"])
    with pytest.raises(ForbiddenAddress):
        await fetch(
            f"http://rebind.example:{silent}/",
            connector={"resolver": several, "use_dns_cache": False},
        )
    # The first host is allowed by name, the second is not.
    port = cdn[1].rpartition(":")[2]
    moved = Changing(["127.0.0.1"])
    url = f"http://good.example:{port}/to?url={quote(f'http://bad.example:{silent}/', safe='')}"
    with pytest.raises(ForbiddenAddress, match=r"bad\.example"):
        await fetch(url, "good.example", connector={"resolver": moved, "use_dns_cache": False})


@pytest.mark.parametrize(
    "answer",
    [["127.0.0.1", "10.0.0.1"], ["10.0.0.1", "127.0.0.1"], ["64:ff9b::7f00:1", "127.0.0.1"]],
)
async def test_a_host_with_one_allowed_address_is_not_forbidden(
    cdn: tuple[MediaCdnSimulator, str], answer: list[str]
) -> None:
    """The allowed address may answer later; NAT64 gives every host a second address."""
    connector: Any = {"resolver": Changing(answer), "use_dns_cache": False}
    port = cdn[1].rpartition(":")[2]
    assert await fetch(
        f"http://both.example:{port}/m/jpg/10/a", "127.0.0.0/8", connector=connector
    ) == content("jpg", 10, "a")
    with pytest.raises(BadResponse, match="cannot connect"):
        await fetch(
            "http://both.example:9/m/jpg/10/a",
            "127.0.0.0/8",
            connector={**connector, "resolver": Changing(answer)},
        )
    with pytest.raises(ForbiddenAddress):
        await fetch(
            f"http://both.example:{port}/m/jpg/10/a",
            connector={**connector, "resolver": Changing(answer)},
        )


async def test_a_failing_resolver_is_reported() -> None:
    class Away(Changing):
        async def resolve(self, host: str, port: int = 0, **_: Any) -> Any:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    with pytest.raises(BadResponse, match=r"no such host \(Temporary failure in name resolution\)"):
        await fetch("http://some.example/", connector={"resolver": Away(), "use_dns_cache": False})


async def test_hosts_ports_and_networks_that_are_allowed(
    cdn: tuple[MediaCdnSimulator, str],
) -> None:
    _, url = cdn
    port = int(url.rpartition(":")[2])
    for allow in ("127.0.0.1", f"127.0.0.1:{port}", "127.0.0.0/8"):
        assert await fetch(f"{url}/m/jpg/10/a", allow)
    assert await fetch(f"http://localhost:{port}/m/jpg/10/a", "localhost")
    assert await fetch(f"http://LocalHost:{port}/m/jpg/10/a", f"LOCALHOST:{port}")
    for allow in (f"127.0.0.1:{port + 1}", "127.0.0.2", "10.0.0.0/8", "localhost"):
        with pytest.raises(ForbiddenAddress):
            await fetch(f"{url}/m/jpg/10/a", allow)


@pytest.mark.parametrize(
    "wrong",
    [
        "10.0.0.0/99",
        "http://x",
        "a b",
        "x:99999",
        "x:y",
        ":80",
        "user@x",
        "",
        "*",
        "*.internal",
        "'x'",
        '"x:80"',
        "a;b",
        "x\\y",
    ],
)
def test_a_wrong_exception_is_named(wrong: str) -> None:
    with pytest.raises(ValueError, match="is n"):
        AllowedHosts.parse([wrong])


# Temporary files.


async def test_a_timeout_leaves_no_file(
    cdn: tuple[MediaCdnSimulator, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tempfile.mkstemp

    def slow(**named: Any) -> tuple[int, str]:
        time.sleep(0.5)
        return made(dir=tmp_path, **named)

    monkeypatch.setattr(tempfile, "mkstemp", slow)
    with pytest.raises(TimeoutError, match=r"longer than 0\.3 s"):
        await fetch(f"{cdn[1]}/m/mp4/{3 * MB}/film", LOOPBACK, total=0.3)
    await asyncio.sleep(0.5)
    assert not list(tmp_path.iterdir())


async def test_a_full_disk_is_reported_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "body").touch()
    monkeypatch.setattr(
        tempfile, "mkstemp", lambda **_: (os.open("/dev/full", os.O_WRONLY), str(tmp_path / "body"))
    )
    spool = Spool(1000, 10 * MB, None)
    spool.add(b"x" * 2000)
    with pytest.raises(ArtifactError, match=r"cannot be written to .*: No space left on device"):
        await spool.flush()
    spool.clear()
    assert not list(tmp_path.iterdir())


# Memory.


def own_memory() -> int:
    status = Path("/proc/self/status").read_text()
    return next(
        int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon")
    )


@pytest.mark.parametrize("path", ["/chunked/{}", "/m/mp4/{}/film", "/bomb/{}"])
async def test_two_gigabytes_are_refused_at_the_limit_with_flat_memory(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with SimulatorProcess("media_cdn") as server:
        await fetch(f"{server.url}/m/jpg/{3 * MB}/warm", LOOPBACK)
        before, most, done = own_memory(), 0, asyncio.Event()

        async def watch() -> None:
            nonlocal most
            while not done.is_set():
                most = max(most, own_memory() - before)
                await asyncio.sleep(0.005)

        watching = asyncio.create_task(watch())
        with pytest.raises(TooLarge):
            await fetch(server.url + path.format(2 << 30), LOOPBACK, limit=64 * MB, total=60)
        done.set()
        await watching
    assert most < 60 * MB
    assert not list(tmp_path.iterdir())
