"""Requests in the log, and the caller's trace on every log line of a request."""

from __future__ import annotations

import re
import time
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from esclusa.observability import log
from esclusa.observability.log import Trace
from esclusa.web.paths import restore_slashes

_W3C: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?:-.*)?\Z"
)
_GOOGLE: Final = re.compile(
    r"(?P<trace>[0-9a-fA-F]{32})(?:/(?P<span>[0-9]{1,20}))?(?:;o=(?P<flags>[0-3]))?\Z"
)
# The status in the log of a request that got no answer because its client left.
CLIENT_LEFT: Final = 499
_NOT_LOGGED: Final = frozenset({"/healthz", "/readyz", "/metrics"})


def trace_of(headers: Headers) -> Trace | None:
    """The trace in ``traceparent`` (W3C) or ``X-Cloud-Trace-Context`` (Google); None if invalid."""
    found = _W3C.match(headers.get("traceparent", "").strip())
    if found and int(found["trace"], 16) and int(found["span"], 16):
        return Trace(found["trace"], found["span"], bool(int(found["flags"], 16) & 1))
    found = _GOOGLE.match(headers.get("x-cloud-trace-context", "").strip())
    if found and int(found["trace"], 16):
        span = int(found["span"] or 0)
        return Trace(
            found["trace"].lower(),
            f"{span:016x}" if 0 < span < 1 << 64 else None,
            found["flags"] in ("1", "3"),
        )
    return None


class RequestLogMiddleware:
    """Logs requests: all of them at the level debug, those that end in 5xx as warnings."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._log = log.get("esclusa.http")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, size, start = CLIENT_LEFT, 0, time.monotonic()

        async def count(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                size += len(message.get("body", b""))
            await send(message)

        with log.tracing(trace_of(Headers(scope=scope))):
            try:
                await self._app(scope, receive, count)
            finally:
                level = "warning" if status >= 500 else "debug"
                if log.enabled(level) and scope["path"] not in _NOT_LOGGED:
                    self._log.write(
                        level,
                        f"{scope['method']} {restore_slashes(scope['path'])}: {status}",
                        {
                            "httpRequest": _request_fields(
                                scope, status, size, time.monotonic() - start
                            )
                        },
                    )


def _request_fields(scope: Scope, status: int, size: int, seconds: float) -> dict[str, Any]:
    """The fields that Cloud Logging knows. The query is left out: it may contain secrets."""
    agent, client = Headers(scope=scope).get("user-agent"), scope.get("client")
    return {
        "requestMethod": scope["method"],
        "requestUrl": restore_slashes(scope["path"]),
        "status": status,
        "responseSize": str(size),
        "latency": f"{seconds:.6f}s",
        "protocol": f"HTTP/{scope.get('http_version', '1.1')}",
        **({"userAgent": agent[:300]} if agent else {}),
        **({"remoteIp": client[0]} if client else {}),
    }
