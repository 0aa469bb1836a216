"""Compressed pages and static files, for clients that accept it.

From the length of compressed answers an attacker who can make a visitor request addresses could
guess a secret that stands beside what the address says (BREACH). So only pages and static files are
compressed. The token of a page's forms is masked anew in each page, and secret fields are never in
one. Answers of the API, of the sign-in and to forms are left as they are.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from esclusa import extras

# Shorter bodies gain nothing.
LEAST: Final = 500
STATIC: Final = "/console/static/"
_TYPES: Final = ("text/html", "text/css", "text/javascript", "image/svg+xml")
_NEVER: Final = frozenset({"/console/sign-in"})


def accepted_encoding(header: str) -> str | None:
    """The encoding to use for an ``Accept-Encoding`` header; None: none."""
    quality: dict[str, float] = {}
    for part in header.lower().split(","):
        name, _, weight = part.strip().partition(";")
        try:
            quality[name.strip()] = float(weight.strip().removeprefix("q=") or 1)
        except ValueError:
            quality[name.strip()] = 0.0
    ranked = [(quality.get(name, quality.get("*", 0.0)), name) for name in _ENCODERS]
    best = max(ranked, key=lambda found: found[0])
    return best[1] if best[0] > 0 else None


class CompressionMiddleware:
    """Compresses the bodies of pages and static files; a 304 answers a static file that is known.

    ``Vary: Accept-Encoding`` is on every answer that could be compressed, and each encoding of a
    file has an ETag of its own.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or _path(scope) in _NEVER:
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Compressing(scope, send))


class _Compressing:
    """Sends one answer, compressed if it is a whole page or file."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._headers = Headers(scope=scope)
        self._static = _path(scope).startswith(STATIC)
        self._send = send
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kind = Headers(raw=message["headers"]).get("content-type", "")
            if message["status"] == 200 and kind.partition(";")[0] in _TYPES:
                self._start = message  # until its body is known
                return
        elif message["type"] == "http.response.body" and self._start is not None:
            start, self._start = self._start, None
            if not message.get("more_body"):
                message = self._encode(start, message)
            await self._send(start)
        await self._send(message)

    def _encode(self, start: Message, message: Message) -> Message:
        headers, body = MutableHeaders(raw=start["headers"]), message.get("body", b"")
        headers.add_vary_header("Accept-Encoding")
        encoding = accepted_encoding(self._headers.get("accept-encoding", ""))
        if encoding is not None and len(body) >= LEAST and "content-encoding" not in headers:
            body = _static(encoding, body) if self._static else _ENCODERS[encoding](body)
            headers["content-encoding"] = encoding
            headers["content-length"] = str(len(body))
            if "etag" in headers:
                headers["etag"] = f'{headers["etag"].rstrip(chr(34))}-{encoding}"'
        if "etag" in headers and _is_known(self._headers, headers["etag"]):
            start["status"], body = 304, b""
            for name in ("content-length", "content-encoding", "content-type"):
                if name in headers:
                    del headers[name]
        start["headers"] = headers.raw
        return {**message, "body": body}


def _path(scope: Scope) -> str:
    """The requested path without the prefix of a proxy or of the application around this one."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _is_known(request: Headers, etag: str) -> bool:
    known = request.get("if-none-match", "").split(",")
    return etag in (each.strip().removeprefix("W/") for each in known)


def _brotli(body: bytes) -> bytes:
    import brotli  # noqa: PLC0415 - an extra

    found: bytes = brotli.compress(body, quality=4)
    return found


# The encodings, the best first. Brotli comes with the extra `brotli`.
_ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    **({} if extras.is_missing("brotli") else {"br": _brotli}),
    "gzip": lambda body: gzip.compress(body, 5, mtime=0),
}


@lru_cache(maxsize=64)
def _static(encoding: str, body: bytes) -> bytes:
    """A static file, compressed once."""
    return _ENCODERS[encoding](body)
