"""The HTTP server: the ASGI app over a runtime, and the process that serves it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hashlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse
from starlette.routing import Route

from esclusa import __version__
from esclusa.engine.signals import on_stop_signals
from esclusa.model.errors import EsclusaError, SettingsError
from esclusa.model.texts import text
from esclusa.runtime import Runtime
from esclusa.web import problems
from esclusa.web.api import (
    actions,
    alert_rules,
    cycles,
    dead_letters,
    health,
    history,
    lifecycles,
    openapi,
    records,
    saved_filters,
    series,
    signals,
    stages,
    status,
    tick,
    views,
)
from esclusa.web.auth.host import FindCaller, HostAuthMiddleware
from esclusa.web.auth.middleware import AuthMiddleware
from esclusa.web.auth.tokens import FailedAttempts, hash_tokens, require_tokens
from esclusa.web.compression import CompressionMiddleware
from esclusa.web.connections import ConnectionLimits, HttpProtocol, HttpServer
from esclusa.web.console import page_data, pages, render
from esclusa.web.console.context import ConsoleContext
from esclusa.web.idempotency import IdempotencyMiddleware
from esclusa.web.paths import PrefixMiddleware
from esclusa.web.proxies import ForwardedMiddleware, TrustedProxies
from esclusa.web.request_log import RequestLogMiddleware
from esclusa.web.security import BODY_LIMIT, SecurityMiddleware, cors_options

PROXIES: Final = "127.0.0.1,::1"
# Seconds to wait for the preparation of the console before the server reports that it listens.
PREPARE_TIMEOUT: Final = 1.0
_API: Final = (
    *(records, saved_filters, lifecycles, stages, series, history, status),
    *(alert_rules, actions),
    *(cycles, dead_letters, views, tick, signals),
)


def create_app(
    runtime: Runtime,
    *,
    worker: bool = False,
    root_path: str = "",
    proxies: str = PROXIES,
    body_limit: int = BODY_LIMIT,
    caller: FindCaller | None = None,
) -> FastAPI:
    """The ASGI app: API, health, the pipelines' own routes, and the console.

    ``root_path`` is the path prefix under which a proxy serves it. ``proxies`` lists the proxies
    whose ``X-Forwarded-*`` headers are trusted. ``caller`` finds who makes a request, where this is
    mounted in another application: then tokens and sign-in are not used.
    """
    app = FastAPI(
        title="Esclusa",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.runtime = runtime
    given = () if caller is not None else runtime.settings.api_tokens
    tokens, failed_attempts = hash_tokens(given), FailedAttempts()
    form_key = None if caller is None else _shared_key(runtime)
    console = ConsoleContext(runtime, tokens, failed_attempts, form_key=form_key)
    first = [
        health.health_router(runtime, worker=worker, readiness=console.readiness),
        *(module.router for module in _API),
    ]
    pipelines = list(_pipelines(runtime, console.readiness.failures))
    last = pages.routers(console)
    for router, required in [*((r, None) for r in first), *pipelines, *((r, None) for r in last)]:
        app.include_router(router, dependencies=required)
    routers = [*first, *(router for router, _ in pipelines), *last]
    routes = [route for router in routers for route in router.routes if isinstance(route, Route)]
    problems.install(app, routes)

    @app.get("/openapi.json", include_in_schema=False)
    async def description(request: Request) -> JSONResponse:
        prefix = request.scope.get("root_path", "")
        return JSONResponse(
            openapi.document(app) | ({"servers": [{"url": prefix}]} if prefix else {})
        )

    app.state.prepare = functools.partial(_prepare, app, console)
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]  # FastAPI documents this
    app.add_middleware(IdempotencyMiddleware, idempotency=runtime.engine.idempotency)
    if caller is not None:
        app.add_middleware(HostAuthMiddleware, caller=caller, routes=routes, console=console)
    else:
        app.add_middleware(
            AuthMiddleware,
            tokens=tokens,
            routes=routes,
            failed_attempts=failed_attempts,
            sessions=console,
            oidc=tick.oidc_verifiers(runtime.settings),
            origins=runtime.settings.cors_origins,
        )
    app.add_middleware(CompressionMiddleware)
    app.add_middleware(
        SecurityMiddleware, telemetry=runtime.engine.telemetry, body_limit=body_limit
    )
    if runtime.settings.cors_origins:
        app.add_middleware(CORSMiddleware, **cors_options(runtime.settings.cors_origins))
    app.add_middleware(RequestLogMiddleware)
    trusted = TrustedProxies(proxies)
    app.add_middleware(ForwardedMiddleware, trusted=trusted)
    app.add_middleware(PrefixMiddleware, trusted=trusted, root_path=root_path)
    return app


def _shared_key(runtime: Runtime) -> bytes:
    """The key of forms that all processes of a host share; forms also need the visitor's cookie."""
    return hashlib.sha256(f"esclusa forms {runtime.settings.store}".encode()).digest()


async def _prepare(app: FastAPI, console: ConsoleContext) -> None:
    """Build routes, store connections, counts and templates before the first visitor needs them."""
    for route in app.routes:  # FastAPI builds the routes of a router at its first match
        route.matches(
            {"type": "http", "method": "GET", "path": "/", "root_path": "", "headers": []}
        )
        await asyncio.sleep(0)
    with contextlib.suppress(EsclusaError):  # store unavailable: the first page will say so
        await asyncio.gather(page_data.overview(console), console.badges())
    await asyncio.to_thread(render.compile_templates, console.templates)


def _pipelines(
    runtime: Runtime, failures: dict[str, str]
) -> Iterator[tuple[APIRouter, list[Any] | None]]:
    """The routers of the pipelines, each with what its routes require.

    A pipeline whose routes cannot be built is logged and added to ``failures``.
    """
    for plan in runtime.engine.plans:
        if plan.app.routes_ is None:
            continue
        try:
            built = plan.app.routes_(runtime)
            if not isinstance(built, APIRouter):
                raise TypeError(f"@app.routes must return an APIRouter, not {type(built).__name__}")
        except Exception as error:  # noqa: BLE001 - one pipeline must not stop the others
            failures[plan.name] = text("routes_failed", error=type(error).__name__)
            runtime.engine.telemetry.event(
                "error",
                f"the routes of pipeline {plan.name} cannot be built: {error}",
                pipeline=plan.name,
                exc_info=error,
            )
            continue
        yield built, [Depends(_require(runtime, plan.name))] if plan.app.lifespan_ else None


def _require(runtime: Runtime, pipeline: str) -> Callable[[], Awaitable[None]]:
    """What refuses calls of a pipeline's routes while its lifespan is not open."""

    async def require() -> None:
        runtime.engine.lifespans.refuse_closed(pipeline)

    return require


class Service:
    """One process that serves HTTP and, as a worker, runs cycles and stages.

    The first ``stop`` ends it in order: no new requests, no new claims, then a grace period for
    work in progress. The second ``stop`` aborts it.
    """

    def __init__(self, runtime: Runtime, *, worker: bool) -> None:
        self._runtime = runtime
        self._scheduler = runtime.engine.scheduler() if worker else None
        self._server: HttpServer | None = None
        self._stops = 0
        self._stopping = asyncio.Event()

    @property
    def connections(self) -> list[HttpProtocol]:
        """The open connections."""
        return self._server.connections if self._server is not None else []

    def stop(self, by: str | None = None) -> None:
        """Stop in order; called again, abort. ``by`` is what asked for it, such as a signal."""
        self._stops += 1
        self._stopping.set()
        if self._server is not None:
            self._server.should_exit = True
            self._server.force_exit = self._stops > 1
        if self._scheduler is not None:
            self._scheduler.stop(by)
        elif self._stops == 1:
            self._runtime.engine.telemetry.event("info", f"stopping{f' on {by}' if by else ''}")
        self._runtime.engine.stop(by)
        if self._stops > 1:
            self._runtime.engine.abort()

    async def run(
        self,
        sockets: list[socket.socket],
        started: Callable[[int], None] | None = None,
        **options: Any,
    ) -> None:
        """Serve on these sockets until stopped; return when all work is settled."""
        engine = self._runtime.engine
        async with engine.running(register=self._scheduler is not None, judge=True):
            app = create_app(self._runtime, worker=self._scheduler is not None, **options)
            settings = self._runtime.settings
            limits = ConnectionLimits(settings.client_timeout_seconds, settings.max_connections)
            self._server = HttpServer(app, limits, engine.telemetry, grace=engine.options.grace)
            self._server.should_exit = self._stops > 0  # stopped during startup
            address = sockets[0].getsockname()
            parts = [asyncio.create_task(self._server.serve(sockets), name="http")]
            if self._scheduler is not None:
                parts.append(asyncio.create_task(self._scheduler.serve(), name="scheduler"))
            prepared = asyncio.create_task(app.state.prepare(), name="prepare the console")
            helpers = [asyncio.create_task(self._abort_after_grace(), name="grace"), prepared]
            host = f"[{address[0]}]" if ":" in address[0] else address[0]
            try:
                await asyncio.wait(
                    [prepared, *parts], timeout=PREPARE_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
                )
                engine.telemetry.event(
                    "info",
                    f"listening on http://{host}:{address[1]}",
                    worker=self._scheduler is not None,
                )
                if started is not None:
                    started(address[1])
                await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not self._stops:
                    self.stop()  # one part ended, or this task was cancelled: stop the other
                await asyncio.gather(*parts, return_exceptions=True)
                for task in helpers:
                    task.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)
            for part in parts:
                part.result()

    async def _abort_after_grace(self) -> None:
        """Abort work in progress after the grace period, including runs that requests started."""
        await self._stopping.wait()
        await asyncio.sleep(self._runtime.engine.options.grace)
        self._runtime.engine.abort()


async def serve(
    runtime: Runtime,
    host: str,
    port: int,
    *,
    worker: bool,
    root_path: str = "",
    proxies: str = PROXIES,
    started: Callable[[int], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    ``started`` is called with the port once the server listens; port 0 takes a free one. Raises
    SettingsError if it cannot listen on the address, or if the address is not loopback and no token
    is set.
    """
    require_tokens(host, runtime.settings.api_tokens)
    sockets = listen(host, port)
    service = Service(runtime, worker=worker)
    forget_signals = on_stop_signals(service.stop)
    try:
        await service.run(sockets, started, root_path=root_path, proxies=proxies)
    finally:
        forget_signals()
        for each in sockets:
            each.close()


def listen(host: str, port: int, setting: str = "PORT") -> list[socket.socket]:
    """Listening sockets on every address of the host, all on one port.

    Raises SettingsError, which names the setting of the port.
    """
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for af, _, _, _, address in dict.fromkeys(
            socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        ):
            try:
                sockets.append(
                    _listening_socket(
                        af, (str(address[0]), sockets[0].getsockname()[1] if sockets else port)
                    )
                )
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error  # localhost may resolve to ::1 on a machine without IPv6
        if not sockets:
            raise missing or OSError("the host has no address")
    except (OSError, OverflowError) as error:
        for each in sockets:
            each.close()
        raise SettingsError(
            "settings",
            [f"{setting}: cannot listen on {host}:{port}: {_reason(error)}"],
        ) from None
    return sockets


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _listening_socket(af: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    """A listening TCP socket.

    The protocol is given explicitly: asyncio disables Nagle's algorithm only then.
    """
    bound = socket.socket(af, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if af == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.listen(2048)
    except OSError:
        bound.close()
        raise
    return bound
