"""Requests in the log: their lines carry the trace that the caller told, and a failed one says what it was."""

from __future__ import annotations

import re
import time
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from esclusa.observability import log
from esclusa.observability.log import Trace
from esclusa.web.paths import restore

_W3C: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?:-.*)?\Z"
)
_GOOGLE: Final = re.compile(
    r"(?P<trace>[0-9a-fA-F]{32})(?:/(?P<span>[0-9]{1,20}))?(?:;o=(?P<flags>[0-3]))?\Z"
)
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})


def trace_of(headers: Headers) -> Trace | None:
    """What ``traceparent`` (W3C) or ``X-Cloud-Trace-Context`` (Google) says; None if neither says anything right."""
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


class Traced:
    """The middleware. At the level debug every request is a line, at warning only those that end in 5xx."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._log = log.get("esclusa.http")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, size, start = 500, 0, time.monotonic()

        async def out(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                size += len(message.get("body", b""))
            await send(message)

        with log.tracing(trace_of(Headers(scope=scope))):
            try:
                await self._app(scope, receive, out)
            finally:
                level = "warning" if status >= 500 else "debug"
                if log.enabled(level) and scope["path"] not in _QUIET:
                    told = _request(scope, status, size, time.monotonic() - start)
                    self._log.write(
                        level,
                        f"{scope['method']} {restore(scope['path'])}: {status}",
                        {"httpRequest": told},
                    )


def _request(scope: Scope, status: int, size: int, seconds: float) -> dict[str, Any]:
    """As Cloud Logging names its parts. Without the query: it may hold what nobody should read."""
    told: dict[str, Any] = {
        "requestMethod": scope["method"], "requestUrl": restore(scope["path"]), "status": status, "responseSize": str(size),
        "latency": f"{seconds:.6f}s", "protocol": f"HTTP/{scope.get('http_version', '1.1')}",
    }  # fmt: skip
    agent = Headers(scope=scope).get("user-agent")
    if agent:
        told["userAgent"] = agent[:300]
    if scope.get("client"):
        told["remoteIp"] = scope["client"][0]
    return told
