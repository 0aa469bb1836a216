"""The port of a worker: ``/healthz``, ``/readyz`` and ``/metrics``, and nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from starlette.routing import Route

from esclusa.model.errors import SettingsError
from esclusa.ports.telemetry import Telemetry
from esclusa.runtime import Runtime
from esclusa.settings import Settings
from esclusa.web import problems
from esclusa.web.api import health
from esclusa.web.auth.middleware import AuthMiddleware
from esclusa.web.auth.tokens import hash_tokens, require_tokens
from esclusa.web.connections import ConnectionLimits, HttpServer
from esclusa.web.proxies import ForwardedMiddleware, TrustedProxies
from esclusa.web.request_log import RequestLogMiddleware
from esclusa.web.security import BODY_LIMIT, SecurityMiddleware
from esclusa.web.server import listen


def create_app(router: APIRouter, settings: Settings, telemetry: Telemetry) -> FastAPI:
    """The ASGI app of these routes. Its callers are authenticated as those of the server are."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.include_router(router)
    routes = [route for route in router.routes if isinstance(route, Route)]
    problems.install(app, routes)
    app.add_middleware(AuthMiddleware, tokens=hash_tokens(settings.api_tokens), routes=routes)
    app.add_middleware(SecurityMiddleware, telemetry=telemetry, body_limit=BODY_LIMIT)
    app.add_middleware(RequestLogMiddleware)
    app.add_middleware(ForwardedMiddleware, trusted=TrustedProxies(settings.proxies))
    return app


@asynccontextmanager
async def worker_port(runtime: Runtime, *, descriptor: int | None = None) -> AsyncIterator[None]:
    """Serve the port while the worker runs.

    ``descriptor``: a listening socket that the parent process made. Without it, the address of the
    settings is taken; see ``serve_port``.
    """
    settings, telemetry = runtime.settings, runtime.engine.telemetry
    app = create_app(health.health_router(runtime, worker=True), settings, telemetry)
    if descriptor is None:
        async with serve_port(app, settings, telemetry):
            yield
    else:
        async with _served(app, settings, telemetry, [socket.socket(fileno=descriptor)]):
            yield


@asynccontextmanager
async def serve_port(app: FastAPI, settings: Settings, telemetry: Telemetry) -> AsyncIterator[None]:
    """Serve this app at ESCLUSA_WORKER_PORT and log the address.

    If it cannot listen, as beside another worker with the same port, it logs that and the worker
    runs without it. Raises SettingsError if the address is not loopback and no token is set.
    """
    assert settings.worker_port is not None
    require_tokens(settings.host, settings.api_tokens)
    try:
        sockets = listen(settings.host, settings.worker_port, "ESCLUSA_WORKER_PORT")
    except SettingsError as error:
        telemetry.event("warning", f"{error.faults[0]}; the worker runs without its port")
        yield
        return
    host, port = sockets[0].getsockname()[:2]
    address = f"[{host}]" if ":" in host else host
    async with _served(app, settings, telemetry, sockets):
        telemetry.event("info", f"listening on http://{address}:{port} for probes and metrics")
        yield


@asynccontextmanager
async def _served(
    app: FastAPI, settings: Settings, telemetry: Telemetry, sockets: list[socket.socket]
) -> AsyncIterator[None]:
    limits = ConnectionLimits(settings.client_timeout_seconds, settings.max_connections)
    server = HttpServer(app, limits, telemetry, grace=0)
    task = asyncio.create_task(server.serve(sockets), name="worker port")
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.gather(task, return_exceptions=True)
        for each in sockets:
            each.close()
