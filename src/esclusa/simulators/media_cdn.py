"""A media CDN like Meta's: signed links that expire, files of any size, and links that fail.

- ``GET /m/{type}/{bytes}/{name}``: a file of that type (``jpg``, ``png``, ``mp4`` …) and size,
  always the same for one name. ``oe`` (expiry, hex seconds) and ``oh`` (signature) in the query are
  checked: 403 with ``URL signature expired`` or ``URL signature mismatch`` as plain text.
  ``sign(path)`` returns a valid link.
- ``GET /drip/{seconds}``: a picture that arrives byte by byte for that long. ``GET /cut/{bytes}``:
  half of the promised length.
- ``GET /chunked/{bytes}``: without a length. ``GET /bomb/{bytes}``: zeros in a small gzip.
- ``GET /html``, ``/text``, ``/svg``, ``/json``, ``/empty``: 200, but not media. ``/gone/{status}``:
  that status.
- ``GET /to?url=…``: a redirect. ``GET /hops/{n}?url=…``: after so many redirects to itself. ``GET
  /loop``: a redirect to itself for ever.
- ``GET /gzip/{bytes}``: a compressed picture.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote

from aiohttp import web

from esclusa.simulators.base import Simulator, cut_off

# The content type and the first bytes of each type of file.
MAGIC: dict[str, tuple[str, bytes]] = {
    "jpg": ("image/jpeg", b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01"),
    "png": ("image/png", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"),
    "gif": ("image/gif", b"GIF89a\x01\x00\x01\x00"),
    "webp": ("image/webp", b"RIFF\x24\x00\x00\x00WEBPVP8 "),
    "mp4": ("video/mp4", b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom"),
    "webm": (
        "video/webm",
        bytes.fromhex("1a45dfa39f4286810142f7810142f2810442f381084282") + b"\x84webm",
    ),
}

_SECRET = b"nobody outside knows it"
_NOT_MEDIA = {
    "html": ("text/html", b"<!DOCTYPE html><html><body>Log in to continue</body></html>"),
    "text": ("text/plain", b"URL signature expired"),
    "svg": ("image/svg+xml", b'<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>'),
    "json": ("application/json", b'{"error": {"message": "An error"}}'),
    "empty": ("image/jpeg", b""),
}
_BLOCK = 1 << 16


def sign(path: str, lifetime: float = 3600.0) -> str:
    """The path with an expiry and a valid signature."""
    expiry = f"{int(time.time() + lifetime):x}"
    return f"{path}?oe={expiry}&oh={_signature(path, expiry)}&_nc_sid=a%2Fb%3D"


def content(kind: str, size: int, name: str) -> bytes:
    """The whole content of a file, to compare with a download."""
    return b"".join(_body(kind, size, name))


def _signature(path: str, expiry: str) -> str:
    return hashlib.blake2b(f"{path} {expiry}".encode(), key=_SECRET, digest_size=12).hexdigest()


def _body(kind: str, size: int, name: str) -> Iterator[bytes]:
    """The content of a file block by block."""
    block = MAGIC[kind][1] + hashlib.sha256(name.encode()).digest()
    block = block.ljust(_BLOCK, b"\x55")
    rest = b"\x55" * _BLOCK
    while size > 0:
        yield block[:size]
        size -= len(block)
        block = rest


class MediaCdnSimulator(Simulator):
    """The CDN's files and failures."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/m/{kind}/{size}/{name:.*}", self._file),
            web.get("/drip/{seconds}", self._drip),
            web.get("/cut/{size}", self._cut_off),
            web.get("/chunked/{size}", self._chunked),
            web.get("/bomb/{size}", self._bomb),
            web.get("/gzip/{size}", self._gzip),
            web.get("/gone/{status}", self._status),
            web.get("/to", self._redirect),
            web.get("/hops/{count}", self._hops),
            web.get("/loop", self._loop),
            web.get("/{odd}", self._not_media),
        ]

    async def _file(self, request: web.Request) -> web.StreamResponse:
        kind, size, name = (
            request.match_info["kind"],
            int(request.match_info["size"]),
            request.match_info["name"],
        )
        if kind not in MAGIC:
            return web.Response(status=404, text="Not Found")
        if "oe" in request.query:
            refused = self._refuse(request)
            if refused is not None:
                return web.Response(status=403, text=refused)
        return await _send(request, kind, size, name, length=True)

    def _refuse(self, request: web.Request) -> str | None:
        """Why a signed link is refused, or None. The exact spelling of the link is signed."""
        expiry = request.query["oe"]
        if request.query.get("oh") != _signature(
            request.rel_url.raw_path, expiry
        ) or not request.raw_path.endswith("&_nc_sid=a%2Fb%3D"):
            return "URL signature mismatch"
        return "URL signature expired" if int(expiry, 16) < time.time() else None

    async def _drip(self, request: web.Request) -> web.StreamResponse:
        seconds = float(request.match_info["seconds"])
        response = web.StreamResponse(headers={"Content-Type": "image/jpeg"})
        await response.prepare(request)
        await response.write(content("jpg", 2000, "drip"))
        end = time.monotonic() + seconds
        with suppress(ConnectionResetError):  # the client closed the connection
            while time.monotonic() < end:
                await response.write(b"\x55")
                await asyncio.sleep(0.02)
        return response

    async def _cut_off(self, request: web.Request) -> web.StreamResponse:
        body = content("jpg", int(request.match_info["size"]), "cut")
        return await cut_off(web.Response(body=body, content_type="image/jpeg"), request)

    async def _chunked(self, request: web.Request) -> web.StreamResponse:
        return await _send(request, "jpg", int(request.match_info["size"]), "chunked", length=False)

    async def _bomb(self, request: web.Request) -> web.StreamResponse:
        """A picture's first bytes, then zeros: a thousand times smaller when compressed."""
        return await _packed(request, _zeros(int(request.match_info["size"])))

    async def _gzip(self, request: web.Request) -> web.StreamResponse:
        return await _packed(request, _body("jpg", int(request.match_info["size"]), "gzip"))

    async def _status(self, request: web.Request) -> web.Response:
        status = int(request.match_info["status"])
        return web.Response(
            status=status, text="" if status in (204, 304) else "gone", content_type="text/plain"
        )

    async def _redirect(self, request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": request.query["url"]})

    async def _hops(self, request: web.Request) -> web.Response:
        count, url = int(request.match_info["count"]), request.query["url"]
        return web.Response(
            status=302,
            headers={
                "Location": url if count <= 1 else f"/hops/{count - 1}?url={quote(url, safe='')}"
            },
        )

    async def _loop(self, request: web.Request) -> web.Response:
        return web.Response(status=301, headers={"Location": "/loop"})

    async def _not_media(self, request: web.Request) -> web.Response:
        if request.match_info["odd"] not in _NOT_MEDIA:
            return web.Response(status=404, text="Not Found")
        kind, body = _NOT_MEDIA[request.match_info["odd"]]
        return web.Response(body=body, content_type=kind)


def _zeros(size: int) -> Iterator[bytes]:
    yield MAGIC["jpg"][1]
    for _ in range(size // _BLOCK):
        yield bytes(_BLOCK)


async def _send(
    request: web.Request, kind: str, size: int, name: str, *, length: bool
) -> web.StreamResponse:
    if length and size <= 4 << 20:
        return web.Response(body=content(kind, size, name), content_type=MAGIC[kind][0])
    response = web.StreamResponse(headers={"Content-Type": MAGIC[kind][0]})
    if length:
        response.content_length = size
    await response.prepare(request)
    with suppress(ConnectionResetError):
        for block in _body(kind, size, name):
            await response.write(block)
    return response


async def _packed(request: web.Request, blocks: Iterator[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={"Content-Type": "image/jpeg", "Content-Encoding": "gzip"}
    )
    await response.prepare(request)
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    with suppress(ConnectionResetError):
        for block in blocks:
            if packed := packer.compress(block):
                await response.write(packed)
            await asyncio.sleep(0)
        await response.write(packer.flush())
    return response
