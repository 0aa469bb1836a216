"""Free ports and a small HTTP server on loopback."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import SystemRandom

from aiohttp import web

_PORTS = range(10_000, 20_000)
"""Ports below those of outgoing connections.

So no connection takes a port before its server listens, or while that server restarts.
"""


def free_port(*, twin: int = 0) -> int:
    """A free port; with ``twin``, a port for which port + twin is free too."""
    for _ in range(200):
        port = SystemRandom().choice(_PORTS)
        if _is_free(port) and _is_free(port + twin):
            return port
    raise RuntimeError("no free port on loopback")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@asynccontextmanager
async def http_server(*routes: web.RouteDef) -> AsyncIterator[str]:
    """Serve these routes; yield the address."""
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
