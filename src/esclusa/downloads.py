"""SSRF-safe downloads of untrusted URLs, with bounded memory and time.

Pipelines import these names from ``esclusa.http``.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from esclusa.model.errors import EsclusaError
from esclusa.model.value import value
from esclusa.response_body import BadResponse, Download, Spool, TooLarge, decompressor_for
from esclusa.ssrf import AllowedHosts, is_public

if TYPE_CHECKING:
    import aiohttp

# The longest delay, in seconds, that a `Retry-After` header can ask for.
MAX_RETRY_AFTER = 86_400.0


# A body of up to this many bytes stays in memory; a larger one goes to a temporary file.
IN_MEMORY = 1 << 20

_ERROR_TEXT_TIMEOUT = 1.0  # seconds to read the text of an error response
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PLAIN = re.compile(r"[!#-;=?-\[\]_a-z~]*\Z")
_BEGINNING = re.compile(r"\A[^:/?#@]{0,20}[:/]{0,3}")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9])[0-9a-fx.]*\Z", re.IGNORECASE)
_HEADERS = {
    "Accept": "image/*,video/*;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "identity",
    "User-Agent": "esclusa",
}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SUCCESS = frozenset({200, 201, 202, 203, 204})


class ForbiddenAddress(EsclusaError):
    """The URL, or a redirect of it, has a forbidden scheme or leads to a non-public address."""

    error_type = "forbidden"


def retry_after(headers: Any, now: float) -> float | None:
    """The seconds of a ``Retry-After`` header, given as a number or a date; at most one day.

    None if the header is missing or cannot be read.
    """
    given = headers.get("Retry-After")
    if given is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        try:
            seconds = max(0.0, parsedate_to_datetime(given).timestamp() - now)
        except (TypeError, ValueError, OverflowError):
            return None
    return min(seconds, MAX_RETRY_AFTER) if seconds >= 0 else None  # refuses nan too


@dataclass
class _Request:
    """One request of a download, as the socket factory sees it."""

    # The host is allowed by name, at any address.
    any_address: bool
    # The address that was refused.
    refused: str | None = None
    # An address was accepted.
    connected: bool = False


_request: ContextVar[_Request | None] = ContextVar("esclusa_request", default=None)


@value
class SafeSession:
    """A session for untrusted URLs.

    The address of every connection is checked when its socket is made, so neither a redirect nor a
    DNS answer that changes can lead to a private address.
    """

    session: aiohttp.ClientSession
    allowed: AllowedHosts


@asynccontextmanager
async def safe_session(
    allowed: AllowedHosts, *, connections: int = 100, **connector: Any
) -> AsyncIterator[SafeSession]:
    """A session that connects only to public and allowed addresses. It keeps no cookies."""
    import aiohttp  # noqa: PLC0415 - slow to import, needed only for calls

    def make_socket(info: Any) -> socket.socket:
        address = info[4][0]
        request = _request.get() or _Request(any_address=False)
        if not (request.any_address or is_public(address) or allowed.allows_address(address)):
            request.refused = address
            raise PermissionError(f"{address} is not a public address")
        request.connected = True
        return socket.socket(*info[:3])

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, socket_factory=make_socket, **connector),
        timeout=aiohttp.ClientTimeout(total=None),  # `download` limits the time of it all
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        headers=_HEADERS,
    ) as opened:
        yield SafeSession(opened, allowed)


def download(
    session: SafeSession,
    url: str,
    *,
    limit: int,
    total: float,
    inspect: Callable[[bytes], object] | None = None,
    redirects: int = 5,
    in_memory: int = IN_MEMORY,
) -> AbstractAsyncContextManager[Download]:
    """Fetch a URL with bounded memory.

    ``limit``: bytes after decompression. ``total``: seconds, redirects included. ``inspect`` gets
    the first bytes as soon as they arrive; it may raise to end the download.

    Raises TimeoutError, ForbiddenAddress, TooLarge or BadResponse. No message contains the URL's
    path or query, which may be signed.
    """
    return _Fetch(session, url, total, redirects, Spool(in_memory, limit, inspect))


class _Fetch(AbstractAsyncContextManager[Download]):
    """A download and the temporary file that it may have.

    It is a class because a generator costs as much as everything else that a small body needs.
    """

    def __init__(
        self, session: SafeSession, url: str, total: float, redirects: int, spool: Spool
    ) -> None:
        self._session, self._url, self._spool = session, url, spool
        self._total, self._redirects = total, redirects

    async def __aenter__(self) -> Download:
        import aiohttp  # noqa: PLC0415 - loaded by the session already

        try:
            async with asyncio.timeout(self._total):
                await self._follow()
        except BaseException as error:
            self._spool.clear()
            match error:
                case TimeoutError():
                    raise TimeoutError(f"the download took longer than {self._total:g} s") from None
                case aiohttp.InvalidURL() | ValueError():
                    raise ForbiddenAddress(
                        "the URL, or a redirect of it, cannot be parsed"
                    ) from None
                case aiohttp.ClientError():
                    raise BadResponse(f"{_host_of(self._url)}: {_cause(error)}") from None
            raise
        return self._spool.download

    async def __aexit__(self, *_: object) -> None:
        self._spool.clear()

    async def _follow(self) -> None:
        url = self._url
        for count in range(self._redirects + 1):
            target = _parse(url)
            request = _Request(self._session.allowed.allows_host(target.host or "", target.port))
            token = _request.set(request)
            try:
                location = await _get(self._session, target, self._spool)
            except OSError as error:
                if request.refused is not None and not request.connected:
                    by = "" if target.host == request.refused else f" (where {target.host} leads)"
                    raise ForbiddenAddress(
                        f"{request.refused}{by} is not a public address"
                    ) from None
                # An allowed address did not answer, and may do so later.
                raise BadResponse(f"{target.host}: {_cause(error)}") from None
            finally:
                _request.reset(token)
            self._spool.download.redirects = count
            if location is None:
                return
            url = urljoin(url, location)
        raise BadResponse(f"{_host_of(url)}: more than {self._redirects} redirects")


async def _get(session: SafeSession, target: Any, spool: Spool) -> str | None:
    """Fetch the body into the spool, or return the location of a redirect."""
    async with session.session.get(target, allow_redirects=False) as response:
        if response.status in _REDIRECTS:
            location = response.headers.get("Location")
            if not location:
                raise BadResponse(f"{target.host}: HTTP {response.status} without a Location")
            return location
        if response.status not in _SUCCESS:
            raise BadResponse(
                f"{target.host}: HTTP {response.status}{await _error_text(response)}",
                status=response.status,
                after=retry_after(response.headers, time.time()),
            )
        decompressor = decompressor_for(response.headers.get("Content-Encoding", ""))
        length = response.content_length
        if decompressor is None and (length or 0) > spool.limit:
            raise TooLarge(f"the body has {length:,} bytes, the limit is {spool.limit:,}")
        unbounded = length is None and "Transfer-Encoding" not in response.headers
        closed = _connection_closed(response) if unbounded else None
        while chunk := await response.content.readany():
            for part in (chunk,) if decompressor is None else decompressor.parts(chunk):
                if spool.add(part):
                    await spool.flush()
        if closed is not None and closed.done() and closed.exception() is not None:
            raise BadResponse(f"{target.host}: the body was cut off")
        if decompressor is not None:
            decompressor.end()
        await spool.end()
    return None


def _parse(url: str) -> Any:
    """The URL to request, unchanged where possible: a signature covers the exact spelling."""
    from yarl import URL  # noqa: PLC0415 - comes with aiohttp

    text = url.strip()
    if text.partition(":")[0].lower() not in ("http", "https"):
        raise ForbiddenAddress(
            f"the URL must begin with http:// or https://, not {_BEGINNING.findall(text)[0]!r}"
        )
    plain = _PLAIN.match(text)
    if not plain and _CONTROL.search(text):
        raise ForbiddenAddress("the URL contains a control character")
    target = URL(text, encoded=True) if plain else URL(text)
    if not target.host:
        raise ForbiddenAddress("the URL has no host")
    if not _NUMERIC.match(target.host):
        return target
    try:  # the resolver accepts 2130706433, 0177.1 and 0x7f000001 as addresses, too
        number = socket.inet_ntoa(socket.inet_aton(target.host.rstrip(".")))
    except OSError:
        return target
    return target if number == target.host else target.with_host(number)


def _connection_closed(response: Any) -> asyncio.Future[None] | None:
    """Done when the connection ends, with an error if it broke. None if it has ended already.

    A body without a length ends with the connection, and aiohttp takes any end for a good one.
    """
    if response.connection is None:
        return None
    closed: asyncio.Future[None] = response.connection.protocol.closed
    # Mark its error as seen, in case nobody else reads it.
    closed.add_done_callback(lambda future: future.cancelled() or future.exception())
    return closed


async def _error_text(response: Any) -> str:
    """The first line of an error in plain text, such as ``URL signature expired``, in brackets."""
    import aiohttp  # noqa: PLC0415 - loaded by the session already

    if not (response.content_type or "").startswith("text/plain"):
        return ""
    try:
        async with asyncio.timeout(_ERROR_TEXT_TIMEOUT):
            line = (await response.content.read(120)).decode("utf-8", "replace").split("\n")[0]
    except (TimeoutError, aiohttp.ClientError):  # the status is enough
        return ""
    return f" ({''.join(c for c in line if c.isprintable()).strip()})" if line.strip() else ""


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or "the URL"
    except ValueError:
        return "the URL"


def _cause(error: BaseException) -> str:
    """What aiohttp reports, without the URL."""
    import aiohttp  # noqa: PLC0415 - loaded by the session already

    match error:
        case aiohttp.ClientConnectorDNSError():
            return f"there is no such host ({error.os_error.strerror or error.os_error})"
        case aiohttp.ClientConnectorError():
            return f"cannot connect: {error.os_error.strerror or error.os_error}"
        case aiohttp.ClientPayloadError():
            return "the body was cut off"
        case aiohttp.ServerDisconnectedError():
            return "the connection was closed without a response"
        case aiohttp.ClientResponseError():
            first_line = error.message.partition("\n")[0].rstrip(":")
            return f"the response is not HTTP: {first_line}"[:200]
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]
