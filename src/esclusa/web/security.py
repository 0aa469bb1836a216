"""What holds for every request: body limit, security headers, other origins, unexpected errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from esclusa.ports.telemetry import Telemetry
from esclusa.web.paths import restore_slashes
from esclusa.web.problems import error_response, problem

BODY_LIMIT: Final = 16 * 1024 * 1024
# The limit where no authentication was required: such a body is read before its signature is known.
OPEN_BODY_LIMIT: Final = 4 * 1024 * 1024
# Set in the scope of a HEAD request: a route with an endless or expensive body leaves it out.
HEAD_ONLY: Final = "esclusa.head"
# Response headers; a header that a route sets itself is kept.
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


def cors_options(origins: Sequence[str]) -> dict[str, Any]:
    """The options of the middleware that lets pages of other origins read answers.

    Cookies are not accepted from there, so that a page cannot use a visitor's session.
    """
    return {
        "allow_origins": origins,
        "allow_methods": ["GET", "POST", "PUT", "PATCH", "DELETE"],
        "allow_headers": ["Authorization", "Content-Type", "Idempotency-Key", "X-Request-Id"],
        "expose_headers": ["Retry-After", "Idempotent-Replay", "X-Request-Id"],
        "max_age": 3600,
    }


class SecurityMiddleware:
    """Limits bodies, sets security headers, and answers unexpected errors with a problem.

    HEAD is handled as GET; the server leaves out the body.
    """

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

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await (self._refusal(scope) or self._app)(
                scope, self._limited(scope, receive), with_headers
            )
        except ClientDisconnect:
            return  # nobody waits for an answer
        except Exception as error:
            path = restore_slashes(scope["path"])
            self._telemetry.event(
                "error",
                f"{scope['method']} {path}: {type(error).__name__}: {error}",
                path=path,
                exc_info=error,
            )
            if started:
                raise
            await error_response(error, scope["path"])(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """A response to a request that no route may handle, judged by its head."""
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            return problem(
                400,
                "the address contains a null character, which no record can contain",
                slug="bad-request",
            )
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdigit() and int(length) > self._body_limit:
            return problem(413, _too_large(self._body_limit))
        return None

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            limit = self._body_limit
            if scope.get("state", {}).get("open"):
                limit = min(limit, OPEN_BODY_LIMIT)
            if received > limit:
                raise HTTPException(413, _too_large(limit))
            return message

        return limited


def _too_large(limit: int) -> str:
    return f"the body is larger than {limit // (1024 * 1024)} MB; send it in parts"
