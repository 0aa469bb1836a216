"""The port of a worker: ``/healthz``, ``/readyz`` and ``/metrics``, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.routing import Route

from esclusa.model.errors import SettingsError
from esclusa.runtime import Runtime
from esclusa.web import problems
from esclusa.web.api import health
from esclusa.web.auth.middleware import AuthMiddleware
from esclusa.web.auth.tokens import hash_tokens, require_tokens
from esclusa.web.connections import ConnectionLimits, HttpServer
from esclusa.web.proxies import ForwardedMiddleware, TrustedProxies
from esclusa.web.request_log import RequestLogMiddleware
from esclusa.web.security import BODY_LIMIT, SecurityMiddleware
from esclusa.web.server import listen


def create_app(runtime: Runtime) -> FastAPI:
    """The ASGI app. Its callers are authenticated as those of the server are."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    router = health.health_router(runtime, worker=True)
    app.include_router(router)
    routes = [route for route in router.routes if isinstance(route, Route)]
    problems.install(app, routes)
    app.add_middleware(
        AuthMiddleware,
        tokens=hash_tokens(runtime.settings.api_tokens),
        routes=routes,
    )
    app.add_middleware(
        SecurityMiddleware, telemetry=runtime.engine.telemetry, body_limit=BODY_LIMIT
    )
    app.add_middleware(RequestLogMiddleware)
    app.add_middleware(ForwardedMiddleware, trusted=TrustedProxies(runtime.settings.proxies))
    return app


@asynccontextmanager
async def worker_port(runtime: Runtime) -> AsyncIterator[None]:
    """Serve the port while the worker runs.

    If it cannot listen, as beside another worker with the same port, it logs that and the worker
    runs without it. Raises SettingsError if the address is not loopback and no token is set.
    """
    settings, telemetry = runtime.settings, runtime.engine.telemetry
    assert settings.worker_port is not None
    require_tokens(settings.host, settings.api_tokens)
    try:
        sockets = listen(settings.host, settings.worker_port, "ESCLUSA_WORKER_PORT")
    except SettingsError as error:
        telemetry.event("warning", f"{error.faults[0]}; the worker runs without its port")
        yield
        return
    limits = ConnectionLimits(settings.client_timeout_seconds, settings.max_connections)
    server = HttpServer(create_app(runtime), limits, telemetry, grace=0)
    task = asyncio.create_task(server.serve(sockets), name="worker port")
    try:
        host, port = sockets[0].getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        telemetry.event("info", f"listening on http://{address}:{port} for probes and metrics")
        yield
    finally:
        server.should_exit = True
        await asyncio.gather(task, return_exceptions=True)
        for each in sockets:
            each.close()
