"""The HTTP server: the app over the house, and the process that serves it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import math
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from esclusa import __version__
from esclusa.engine.idempotency import Idempotency
from esclusa.engine.scheduler import Scheduler
from esclusa.model.errors import EsclusaError, SettingsError
from esclusa.runtime import Runtime
from esclusa.web import problems
from esclusa.web.api import health, openapi, operations, records, tick, trends
from esclusa.web.auth import AuthMiddleware, Guesses, refuse_open_door, signed_routes, tokens_of
from esclusa.web.console import render, views
from esclusa.web.console.context import Desk
from esclusa.web.console.pages import console
from esclusa.web.idempotency import IdempotencyMiddleware
from esclusa.web.protocol import Http
from esclusa.web.request_log import Traced
from esclusa.web.security import BODY_LIMIT, PrefixMiddleware, SecurityMiddleware, Trusted

PROXIES = "127.0.0.1,::1"
SOON = 1.0
"""Seconds that a server which already answers waits until it is prepared, before it says that it is there."""


def create_app(
    runtime: Runtime, *, root_path: str = "", proxies: str = PROXIES, body_limit: int = BODY_LIMIT
) -> FastAPI:
    """The whole HTTP face of the house: generic API, vitals, the pipelines' own routes, and the console.

    ``root_path``: the sub-path that a proxy serves it under. ``proxies``: whose X-Forwarded-* headers are believed.
    """
    app = FastAPI(
        title="Esclusa",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    looks = [
        health.vitals(runtime),
        records.reading(runtime),
        trends.reading(runtime),
        operations.reading(runtime),
    ]
    own = [*looks, operations.acting(runtime), records.writing(runtime), tick.ticking(runtime)]
    tokens, guesses = tokens_of(runtime.settings.api_tokens), Guesses()
    desk = Desk(runtime, tokens, guesses)
    routers = [*own, *_pipelines(runtime), *console(desk)]
    for router in routers:
        app.include_router(router)
    problems.install(app, [route for router in routers for route in router.routes])

    @app.get("/openapi.json", include_in_schema=False)
    async def description(request: Request) -> JSONResponse:
        place = request.scope.get("root_path", "")
        return JSONResponse(
            openapi.document(app) | ({"servers": [{"url": place}]} if place else {})
        )

    app.state.prepare = functools.partial(_prepare, app, desk)
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]  # FastAPI's own way to replace it
    signed = [route for router in routers for route in signed_routes(router)]
    app.add_middleware(IdempotencyMiddleware, calls=Idempotency(runtime.engine))
    app.add_middleware(
        AuthMiddleware,
        tokens=tokens,
        signed=signed,
        accounts=tick.Accounts(runtime.settings),
        guesses=guesses,
        porter=desk,
    )
    app.add_middleware(
        SecurityMiddleware, telemetry=runtime.engine.telemetry, body_limit=body_limit
    )
    app.add_middleware(Traced)
    app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=proxies)
    app.add_middleware(PrefixMiddleware, trusted=Trusted(proxies), root_path=root_path)
    return app


async def _prepare(app: FastAPI, desk: Desk) -> None:
    """Do what the first visitor of a new process would wait for: routes, connections to the store, counts, templates."""
    for route in app.routes:  # those of a router are only made when it is first asked
        route.matches(
            {"type": "http", "method": "GET", "path": "/", "root_path": "", "headers": []}
        )
        await asyncio.sleep(0)
    with contextlib.suppress(EsclusaError):  # the store is away: whoever looks is told
        await asyncio.gather(views.board(desk), desk.badges())
    await asyncio.to_thread(render.prepare)


def _pipelines(runtime: Runtime) -> Iterator[APIRouter]:
    for plan in runtime.engine.plans:
        if plan.app.routes_ is not None:
            built = plan.app.routes_(runtime)
            if not isinstance(built, APIRouter):
                raise TypeError(
                    f"pipeline {plan.name}: its routes are an APIRouter, not {type(built).__name__}"
                )
            yield built


class _Server(uvicorn.Server):
    """Signals are the process's, not the server's: it also has a scheduler to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Service:
    """One process that serves HTTP and, as a worker, the cycles too. Stopped once it ends in order: no new requests and no new
    claims, then what is under way has the grace period. Stopped twice it aborts."""

    def __init__(self, runtime: Runtime, *, worker: bool) -> None:
        self._runtime = runtime
        self._scheduler = Scheduler(runtime.engine) if worker else None
        self._server: uvicorn.Server | None = None
        self._stops = 0
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stops += 1
        self._stopping.set()
        if self._server is not None:
            self._server.should_exit = True
            self._server.force_exit = self._stops > 1
        if self._scheduler is not None:
            self._scheduler.stop()
        self._runtime.engine.stop()
        if self._stops > 1:
            self._runtime.engine.abort()

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """While this lasts, SIGTERM and SIGINT stop it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def run(
        self,
        sockets: list[socket.socket],
        started: Callable[[int], None] | None = None,
        **options: Any,
    ) -> None:
        """Serve on these sockets until stopped; returns when all is settled."""
        engine = self._runtime.engine
        async with engine.running(card=self._scheduler is not None):
            app = create_app(self._runtime, **options)
            config = uvicorn.Config(
                app, http=Http, lifespan="off", log_config=None, log_level="warning", access_log=False, proxy_headers=False,
                server_header=False, timeout_graceful_shutdown=math.ceil(engine.options.grace) + 3,
            )  # fmt: skip
            self._server = _Server(config)
            self._server.should_exit = self._stops > 0  # told to stop while it was starting
            address = sockets[0].getsockname()
            parts = [asyncio.create_task(self._server.serve(sockets), name="http")]
            if self._scheduler is not None:
                parts.append(asyncio.create_task(self._scheduler.serve(), name="scheduler"))
            prepared = asyncio.create_task(app.state.prepare(), name="prepare the console")
            aside = [asyncio.create_task(self._abort_in_time(), name="grace"), prepared]
            host = f"[{address[0]}]" if ":" in address[0] else address[0]
            try:
                await asyncio.wait(
                    [prepared, *parts], timeout=SOON, return_when=asyncio.FIRST_COMPLETED
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
                    self.stop()  # one part ended by itself, or we were cancelled: the other ends too
                await asyncio.gather(*parts, return_exceptions=True)
                for task in aside:
                    task.cancel()
                await asyncio.gather(*aside, return_exceptions=True)
            for part in parts:
                part.result()

    async def _abort_in_time(self) -> None:
        """Runs that a request started have the grace period too."""
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
    """Serve until SIGTERM or SIGINT. ``started`` is called with the port once it listens (0 takes a free one).

    Raises SettingsError if the address cannot be listened on, or is not loopback while no token is set.
    """
    refuse_open_door(host, tokens_of(runtime.settings.api_tokens))
    sockets = listen(host, port)
    service = Service(runtime, worker=worker)
    try:
        with service.signals():
            await service.run(sockets, started, root_path=root_path, proxies=proxies)
    finally:
        for each in sockets:
            each.close()


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets on every address of the host, one port for all."""
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                sockets.append(
                    _bound(
                        family, (str(address[0]), sockets[0].getsockname()[1] if sockets else port)
                    )
                )
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                absent = error  # localhost may name ::1 where there is no IPv6
        if not sockets:
            raise absent or OSError("it has no address")
    except (OSError, OverflowError) as error:
        for each in sockets:
            each.close()
        why = getattr(error, "strerror", None) or error
        raise SettingsError(
            "settings", [f"PORT: {host}:{port} cannot be listened on: {why}"]
        ) from None
    return sockets


def _bound(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    """A socket that says that it is TCP: only then are answers not held back for the caller's acknowledgement (Nagle)."""
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(2048)
    except OSError:
        made.close()
        raise
    return made
