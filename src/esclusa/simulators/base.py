"""The base of all simulators: an HTTP server with injected faults and a log of its calls.

Besides the provider's own routes, each simulator has three control routes:

- ``POST /_faults`` ``{"path": "/submit", "times": 2, "status": 429, "headers": {}, "body": "…"}``:
  the next ``times`` calls whose path begins with ``path`` get this answer. ``match`` is a text that
  their URL or body must contain; ``headers`` may set the content type. Instead of ``status``, a
  ``fault``: ``hang`` (no answer for ``seconds``), ``slow`` (the right answer after ``seconds``),
  ``cut`` (the connection closes in the middle of the body), ``html`` (a gateway's error page),
  ``bad_json``.
- ``GET /_calls``: how often each route was called, and the last calls.
- ``POST /_reset``: remove faults and calls.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

FAULTS = ("hang", "slow", "cut", "html", "bad_json")


@dataclass
class InjectedFault:
    """A fault for the next calls that match."""

    path: str
    times: int = 1
    match: str = ""
    fault: str | None = None
    status: int | None = None
    seconds: float = 30.0
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = ""


class Simulator:
    """A simulated provider. Subclasses define its routes and hold its state."""

    def __init__(self) -> None:
        self.app = web.Application(middlewares=[self._middleware], client_max_size=64 << 20)
        self.app.add_routes(
            [
                web.post("/_faults", self._add_faults),
                web.get("/_calls", self._list_calls),
                web.post("/_reset", self._reset),
                *self.routes(),
            ]
        )
        self._runner: web.AppRunner | None = None
        self.reset()

    def routes(self) -> list[web.RouteDef]:
        """The provider's routes, and control routes of its own."""
        return []

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Start to serve; return the address."""
        self._runner = web.AppRunner(self.app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        server: Any = site._server  # noqa: SLF001 - aiohttp has no other way to the chosen port
        return f"http://{host}:{server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def order(self, path: str, **fault: Any) -> None:
        """Inject a fault from the same process."""
        self.faults.append(InjectedFault(path, **fault))

    def reset(self) -> None:
        """Remove faults and calls. Subclasses define their own state here too."""
        self.faults: list[InjectedFault] = []
        self.counts: Counter[str] = Counter()
        self.calls: deque[dict[str, Any]] = deque(maxlen=1000)

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith("/_"):
            return await handler(request)
        body = ""
        if request.can_read_body and not (request.content_type or "").startswith(
            ("image", "video", "application/octet", "multipart")
        ):
            body = (await request.read()).decode("utf-8", "replace")
        self.counts[f"{request.method} {request.path}"] += 1
        self.calls.append(
            {
                "method": request.method,
                "path": request.path,
                "query": dict(request.query),
                "body": body[:2000],
            }
        )
        found = next(
            (
                f
                for f in self.faults
                if request.path.startswith(f.path) and f.match in f"{request.path_qs} {body}"
            ),
            None,
        )
        if found is None:
            return await handler(request)
        found.times -= 1
        if found.times <= 0:
            self.faults.remove(found)
        return await self._respond_with(found, request, handler)

    async def _respond_with(
        self, fault: InjectedFault, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        if fault.status is not None:
            text = fault.body if isinstance(fault.body, str) else json.dumps(fault.body)
            kind = "text/plain" if isinstance(fault.body, str) else "application/json"
            headers = {"Content-Type": f"{kind}; charset=utf-8"} | fault.headers
            return web.Response(status=fault.status, body=text.encode(), headers=headers)
        match fault.fault:
            case "hang":
                await asyncio.sleep(fault.seconds)
                return web.Response(status=504)
            case "slow":
                await asyncio.sleep(fault.seconds)
                return await handler(request)
            case "html":
                return web.Response(
                    status=502,
                    text="<html><body><h1>502 Bad Gateway</h1></body></html>",
                    content_type="text/html",
                )
            case "bad_json":
                return web.Response(text='{"half": ', content_type="application/json")
            case _:
                return await cut_off(await handler(request), request)

    async def _add_faults(self, request: web.Request) -> web.Response:
        body = await request.json()
        for item in body if isinstance(body, list) else [body]:
            if item.get("fault") not in (None, *FAULTS):
                return web.json_response(
                    {"error": f"fault must be one of {', '.join(FAULTS)}"}, status=400
                )
            self.faults.append(InjectedFault(**item))
        return web.json_response({"ordered": len(self.faults)})

    async def _list_calls(self, request: web.Request) -> web.Response:
        return web.json_response({"counts": dict(self.counts), "calls": list(self.calls)})

    async def _reset(self, request: web.Request) -> web.Response:
        self.reset()
        return web.json_response({})


async def cut_off(whole: web.StreamResponse, request: web.Request) -> web.StreamResponse:
    """Send half of the right answer, then close the connection."""
    body = (
        whole.body
        if isinstance(whole, web.Response) and isinstance(whole.body, bytes)
        else b'{"data": [1, 2, 3]}'
    )
    response = web.StreamResponse(
        status=200, headers={"Content-Type": whole.content_type or "application/json"}
    )
    response.content_length = len(body) + 1
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response
