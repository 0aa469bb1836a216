"""The border: what holds for every request and response, whichever route answers."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from esclusa.model.errors import SettingsError
from esclusa.ports.telemetry import Telemetry
from esclusa.web import paths
from esclusa.web.problems import of_error, problem

BODY_LIMIT: Final = 16 * 1024 * 1024
HEAD_ONLY: Final = "esclusa.head"
"""In the scope of a request for the head alone: a route whose body has no end, or is dear, leaves it out."""
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+){1,8}\Z")
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
"""Set where the route has not set them itself."""


class Trusted:
    """The proxies whose word is taken: addresses and networks, separated by commas, or ``*``."""

    def __init__(self, text: str) -> None:
        names = [name.strip() for name in text.split(",") if name.strip()]
        self._all = "*" in names
        try:
            self._networks = [
                ipaddress.ip_network(name, strict=False) for name in names if name != "*"
            ]
        except ValueError as error:
            raise SettingsError(
                "settings", [f"proxies: {error}; name addresses or networks, or *"]
            ) from None

    def __contains__(self, address: str) -> bool:
        if self._all:
            return True
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)


class PrefixMiddleware:
    """The outermost middleware: where we are, seen from outside, and slashes in ids.

    ``X-Forwarded-Prefix`` is believed only from a trusted proxy, and means that the proxy took the prefix off. ``root_path`` is
    where we are otherwise; a proxy may take it off or leave it.
    """

    def __init__(self, app: ASGIApp, trusted: Trusted, root_path: str = "") -> None:
        self._app = app
        self._trusted = trusted
        self._root_path = root_path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            paths.keep(scope)
            self._place(scope)
        await self._app(scope, receive, send)

    def _place(self, scope: Scope) -> None:
        given = Headers(scope=scope).get("x-forwarded-prefix", "").rstrip("/")
        peer = scope["client"][0] if scope.get("client") else ""
        if (
            given
            and peer in self._trusted
            and _PREFIX.match(given)
            and not {".", ".."} & set(given.split("/"))
        ):
            prefix, taken_off = given, True
        else:
            prefix = self._root_path
            taken_off = not (scope["path"] == prefix or scope["path"].startswith(prefix + "/"))
        if prefix:
            scope["root_path"] = prefix
            if taken_off:
                scope["path"] = prefix + scope["path"]
            elif scope["path"] == prefix:
                scope["path"] += "/"  # the sub-path itself: the map


class SecurityMiddleware:
    """The limit of a body, the security headers, and a problem instead of a broken connection when something unexpected
    happens. HEAD is answered as GET is, of which the server leaves out the body."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry, *, body_limit: int = BODY_LIMIT) -> None:
        self._app = app
        self._telemetry = telemetry
        self._body_limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET", HEAD_ONLY: True}
        started = False

        async def out(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            if "\0" in scope["path"] or b"%00" in scope["query_string"]:
                refused = problem(
                    400,
                    "the address has a null character in it, which no record can have",
                    slug="bad-request",
                )
                await refused(scope, receive, out)
                return
            limited = self._limited(scope, receive)
            if limited is None:
                await _too_large(self._body_limit)(scope, receive, out)
                return
            await self._app(scope, limited, out)
        except Exception as error:
            path = paths.restore(scope["path"])
            self._telemetry.event(
                "error",
                f"{scope['method']} {path}: {type(error).__name__}: {error}",
                path=path,
                exc_info=error,
            )
            if started:
                raise
            await of_error(error, scope["path"])(scope, receive, out)

    def _limited(self, scope: Scope, receive: Receive) -> Receive | None:
        """The body, up to the limit; None if it says at once that it is larger."""
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdigit() and int(length) > self._body_limit:
            return None
        left = self._body_limit

        async def limited() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(
                    413,
                    f"the body is larger than {self._body_limit // (1024 * 1024)} MB; send it in parts",
                )
            return message

        return limited


def _too_large(limit: int) -> ASGIApp:
    return problem(413, f"the body is larger than {limit // (1024 * 1024)} MB; send it in parts")
