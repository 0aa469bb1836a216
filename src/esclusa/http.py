"""HTTP to the outside: one session per pipeline, without proxies or surprises from the environment; downloads of links that
somebody else gave, which lead to no address that is not theirs to give."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urljoin, urlsplit

from esclusa.engine.threads import finished
from esclusa.model.errors import ArtifactError, EsclusaError
from esclusa.model.value import value
from esclusa.ssrf import AllowedHosts, public

if TYPE_CHECKING:
    import aiohttp

HEAD = 1024
"""Bytes at the beginning of a body by which its type is judged."""

KEEP = 1 << 20
"""A body of up to so many bytes stays in memory; a larger one goes to a temporary file."""

LONGEST = 86_400.0
"""Seconds after which a server that asked for more patience is asked again."""

_BLOCK = 1 << 20
_PATIENCE = 1.0  # seconds for the words of an error whose number is known
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PLAIN = re.compile(r"[!#-;=?-\[\]_a-z~]*\Z")
_BEGINNING = re.compile(r"\A[^:/?#@]{0,20}[:/]{0,3}")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9])[0-9a-fx.]*\Z", re.IGNORECASE)
_ASKED = {
    "Accept": "image/*,video/*;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "identity",
    "User-Agent": "esclusa",
}
_MOVED = frozenset({301, 302, 303, 307, 308})
_WHOLE = frozenset({200, 201, 202, 203, 204})


class ForbiddenAddress(EsclusaError):
    """The link, or a redirect of it, leads where it must not: another scheme, an address that is not public."""

    error_type = "forbidden"


class TooLarge(EsclusaError):
    """The body is larger than the limit."""

    error_type = "too_large"


class BadResponse(EsclusaError):
    """No whole answer came: refused, not found, cut off, too many redirects, any 4xx and 5xx."""

    error_type = "http_error"


@asynccontextmanager
async def session(
    *,
    total: float | None = 60.0,
    connect: float | None = 10.0,
    connections: int = 100,
    **options: Any,
) -> AsyncIterator[aiohttp.ClientSession]:
    """An aiohttp session that ignores the environment's proxies and keeps to its time limits."""
    import aiohttp  # noqa: PLC0415 - heavy, and only needed where something is called

    timeout = aiohttp.ClientTimeout(total=total, connect=connect)
    connector = options.pop("connector", None) or aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=connector, trust_env=False, **options
    ) as opened:
        yield opened


def retry_after(headers: Any, now: float) -> float | None:
    """The seconds that a ``Retry-After`` header asks for, as a number or a date; None if it says nothing usable. Whoever asks for
    more than a day is asked again after one."""
    said = headers.get("Retry-After")
    if said is None:
        return None
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = max(0.0, parsedate_to_datetime(said).timestamp() - now)
        except (TypeError, ValueError, OverflowError):
            return None
    return min(seconds, LONGEST) if seconds >= 0 else None  # neither -5 nor nan is a time to wait


# links that somebody else gave


@dataclass
class _Hop:
    """One request on the way: whether its host is allowed whatever its address, the address that was refused, and whether another
    was called."""

    free: bool
    refused: str | None = None
    called: bool = False


_hop: ContextVar[_Hop | None] = ContextVar("esclusa_hop", default=None)


@value
class SafeSession:
    """A session for links of strangers. The address of every connection is judged at the moment it is made, so that neither
    a redirect nor a name whose answer changes can lead elsewhere."""

    session: aiohttp.ClientSession
    allowed: AllowedHosts


@asynccontextmanager
async def safe_session(
    allowed: AllowedHosts, *, connections: int = 100, **connector: Any
) -> AsyncIterator[SafeSession]:
    """A session whose connections go to public addresses and allowed ones only. It keeps no cookies."""
    import aiohttp  # noqa: PLC0415 - heavy, and only needed where something is called

    def made(info: Any) -> socket.socket:
        family, kind, proto, _, where = info
        hop = _hop.get()
        if (
            not (hop is not None and hop.free)
            and not public(where[0])
            and not allowed.address(where[0])
        ):
            if hop is not None:
                hop.refused = where[0]
            raise PermissionError(f"{where[0]} is not a public address")
        if hop is not None:
            hop.called = True
        return socket.socket(family, kind, proto)

    tcp = aiohttp.TCPConnector(limit=connections, socket_factory=made, **connector)
    unlimited: dict[str, Any] = {
        "total": None,
        "connect": None,
    }  # the caller's limit is over all of it
    async with session(
        connector=tcp,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers=_ASKED,
        **unlimited,
    ) as opened:
        yield SafeSession(opened, allowed)


@dataclass
class Download:
    """A body that was fetched whole: its bytes, or the temporary file that holds them, for as long as the download is open."""

    size: int = 0
    head: bytes = b""
    redirects: int = 0
    body: bytes | Path = b""


def download(
    guard: SafeSession,
    url: str,
    *,
    limit: int,
    total: float,
    look: Callable[[bytes], None] | None = None,
    redirects: int = 5,
    keep: int = KEEP,
) -> AbstractAsyncContextManager[Download]:
    """Fetch a link with bounded memory. ``limit``: bytes, after decompression. ``total``: seconds for all of it, redirects too.
    ``look`` sees the first bytes as soon as they are there, and may raise to end it.

    Raises TimeoutError, ForbiddenAddress, TooLarge or BadResponse, none of which tells the link's path or query: they may be signed.
    """
    return _Fetch(guard, url, total, redirects, _Spool(keep, limit, look))


class _Fetch(AbstractAsyncContextManager[Download]):
    """A download, and the file that it may have: a class, since a generator costs as much as all else that is done for a small body."""

    def __init__(
        self, guard: SafeSession, url: str, total: float, redirects: int, spool: _Spool
    ) -> None:
        self._guard, self._url, self._total, self._redirects, self._spool = (
            guard,
            url,
            total,
            redirects,
            spool,
        )

    async def __aenter__(self) -> Download:
        import aiohttp  # noqa: PLC0415 - heavy, and only needed where something is called

        done = False
        try:
            async with asyncio.timeout(self._total):
                await self._follow()
            done = True
        except TimeoutError:
            raise TimeoutError(f"the download took longer than {self._total:g} s") from None
        except (aiohttp.InvalidURL, ValueError):  # and it never will be
            raise ForbiddenAddress("the link, or a redirect of it, cannot be read as an address") from None
        except aiohttp.ClientError as error:
            raise BadResponse(f"{_site(self._url)}: {_why(error)}") from None
        finally:
            if not done:
                self._spool.clear()
        return self._spool.download

    async def __aexit__(self, *_: object) -> None:
        self._spool.clear()

    async def _follow(self) -> None:
        guard, url, spool = self._guard, self._url, self._spool
        for count in range(self._redirects + 1):
            target = _target(url)
            hop = _Hop(guard.allowed.host(target.host or "", target.port))
            token = _hop.set(hop)
            try:
                following = await _ask(guard, target, spool)
            except OSError as error:
                if (
                    hop.refused is not None and not hop.called
                ):  # else the one that may be called did not answer, and may do so later
                    named = "" if target.host == hop.refused else f" (where {target.host} leads)"
                    raise ForbiddenAddress(f"{hop.refused}{named} is not a public address") from None
                raise BadResponse(f"{target.host}: {_why(error)}") from None
            finally:
                _hop.reset(token)
            spool.download.redirects = count
            if following is None:
                return
            url = urljoin(url, following)
        raise BadResponse(f"{_site(url)}: more than {self._redirects} redirects")


async def _ask(guard: SafeSession, target: Any, spool: _Spool) -> str | None:
    """Fetch the body, or return where the answer sends us."""
    async with guard.session.get(target, allow_redirects=False) as answer:
        if answer.status in _MOVED:
            where = answer.headers.get("Location")
            if not where:
                raise BadResponse(f"{target.host}: HTTP {answer.status} without saying where to")
            return where
        if answer.status not in _WHOLE:
            raise BadResponse(f"{target.host}: HTTP {answer.status}{await _said(answer)}")
        unpacker = _unpacker(answer.headers.get("Content-Encoding", ""))
        length = answer.content_length
        if unpacker is None and (length or 0) > spool.limit:
            raise TooLarge(f"the body has {length:,} bytes, the limit is {spool.limit:,}")
        end = (
            _hang_up(answer)
            if length is None and "Transfer-Encoding" not in answer.headers
            else None
        )
        while chunk := await answer.content.readany():
            for part in (chunk,) if unpacker is None else unpacker.parts(chunk):
                if spool.take(part):
                    await spool.flush()
        if end is not None and end.done() and end.exception() is not None:
            raise BadResponse(f"{target.host}: the body was cut off")
        if unpacker is not None:
            unpacker.end()
        await spool.end()
    return None


def _target(url: str) -> Any:
    """The address to ask, to the letter where it can be: another spelling of a signed link has another signature."""
    from yarl import URL  # noqa: PLC0415 - comes with aiohttp

    text = url.strip()
    scheme = text.partition(":")[0].lower()
    if scheme not in ("http", "https"):
        raise ForbiddenAddress(
            f"the link must begin with http:// or https://, not {_BEGINNING.findall(text)[0]!r}"
        )
    plain = _PLAIN.match(text)
    if not plain and _CONTROL.search(text):
        raise ForbiddenAddress("the link has a control character in it")
    target = URL(text, encoded=True) if plain else URL(text)
    if not target.host:
        raise ForbiddenAddress("the link names no host")
    if not _NUMERIC.match(target.host):
        return target
    try:  # 2130706433, 0177.1 and 0x7f000001 are addresses too, to those who call them
        number = socket.inet_ntoa(socket.inet_aton(target.host.rstrip(".")))
    except OSError:
        return target
    return target if number == target.host else target.with_host(number)


def _hang_up(answer: Any) -> asyncio.Future[None] | None:
    """Done when the connection is over, with an error if it broke: a body of no told length ends with it, and the library takes any
    end for a good one. None if it is over already."""
    end: asyncio.Future[None] | None = (
        answer.connection.protocol.closed if answer.connection is not None else None
    )
    if end is not None:
        end.add_done_callback(
            lambda over: over.cancelled() or over.exception()
        )  # nobody else may look
    return end


async def _said(answer: Any) -> str:
    """The first words of an error that came as plain text: ``URL signature expired`` says more than a number."""
    import aiohttp  # noqa: PLC0415 - loaded by the caller already

    if not (answer.content_type or "").startswith("text/plain"):
        return ""
    try:
        async with asyncio.timeout(_PATIENCE):
            words = (await answer.content.read(120)).decode("utf-8", "replace").split("\n")[0]
    except (TimeoutError, aiohttp.ClientError):  # the number says enough
        return ""
    return f" ({''.join(c for c in words if c.isprintable()).strip()})" if words.strip() else ""


def _site(url: str) -> str:
    try:
        return urlsplit(url).hostname or "the link"
    except ValueError:
        return "the link"


def _why(error: BaseException) -> str:
    """The library's own words, without the link."""
    import aiohttp  # noqa: PLC0415 - loaded by the caller already

    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"there is no such host ({error.os_error.strerror or error.os_error})"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect: {error.os_error.strerror or error.os_error}"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the body was cut off"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed without an answer"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the answer is not HTTP: {error.message.partition(chr(10))[0].rstrip(':')}"[:200]
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]


# bodies on their way


class _Unpacker:
    """Decompression in small parts: a bomb is counted as it goes off."""

    def __init__(self) -> None:
        self._inside = zlib.decompressobj(47)  # gzip or zlib, by the body itself

    def parts(self, chunk: bytes) -> Iterator[bytes]:
        try:
            while chunk:
                if self._inside.eof:  # one more member
                    self._inside = zlib.decompressobj(47)
                if part := self._inside.decompress(chunk, 1 << 16):
                    yield part
                chunk = (
                    self._inside.unused_data if self._inside.eof else self._inside.unconsumed_tail
                )
        except zlib.error as error:
            raise BadResponse(f"the body cannot be decompressed: {error}") from None

    def end(self) -> None:
        if not self._inside.eof:
            raise BadResponse("the compressed body was cut off")


def _unpacker(encoding: str) -> _Unpacker | None:
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return _Unpacker()
        case other:
            raise BadResponse(f"the body is compressed with {other!r:.20}, which was not asked for")


@dataclass
class _Spool:
    """Keeps a small body in memory and pours a large one into a file, block by block. ``look`` sees its first bytes."""

    keep: int
    limit: int
    look: Callable[[bytes], None] | None
    download: Download = field(default_factory=Download)
    _held: list[bytes] = field(default_factory=list)
    _holding: int = 0
    _file: BinaryIO | None = None
    _path: Path | None = None

    def take(self, part: bytes) -> bool:
        """Take the next part; whether it is time for a ``flush``."""
        done = self.download
        before = done.size
        done.size += len(part)
        if done.size > self.limit:
            raise TooLarge(f"the body has more than {self.limit:,} bytes")
        if before < HEAD:
            done.head += part[: HEAD - before]
            if done.size >= HEAD and self.look is not None:
                self.look(done.head)
        self._held.append(part)
        self._holding += len(part)
        return self._holding >= _BLOCK and done.size > self.keep

    async def end(self) -> None:
        done = self.download
        if done.size < HEAD and self.look is not None:
            self.look(done.head)
        if self._file is None:
            done.body = b"".join(self._held)
            return
        await self.flush()
        assert self._path is not None
        done.body = self._path

    async def flush(self) -> None:
        held, self._held, self._holding = self._held, [], 0
        try:  # seen to its end: a file that it makes after ``clear`` would stay
            await finished(None, lambda: self._pour(held))
        except OSError as error:
            raise ArtifactError(
                f"the body cannot be kept in {tempfile.gettempdir()}: {error.strerror}"
            ) from error

    def _pour(self, held: list[bytes]) -> None:
        if self._file is None:
            number, name = tempfile.mkstemp(prefix="esclusa-")
            self._file, self._path = os.fdopen(number, "wb"), Path(name)
        self._file.writelines(held)
        self._file.flush()

    def clear(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # a full disk does not take what is left of it, either
                self._file.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


__all__ = [
    "AllowedHosts",
    "BadResponse",
    "Download",
    "ForbiddenAddress",
    "SafeSession",
    "TooLarge",
    "download",
    "retry_after",
    "safe_session",
    "session",
]
