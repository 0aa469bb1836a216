"""This machine's own network: free ports, and a small HTTP server of a test's own."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import SystemRandom

from aiohttp import web

_PORTS = range(10_000, 20_000)
"""Below those that the kernel gives to outgoing connections: none of them takes a port before the server that it was picked for
does, nor while that server restarts."""


def free_port(*, twin: int = 0) -> int:
    """A free port; with ``twin``, one whose number + twin is free too."""
    for _ in range(200):
        port = SystemRandom().choice(_PORTS)
        if _free(port) and _free(port + twin):
            return port
    raise RuntimeError("no free port on loopback")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@asynccontextmanager
async def serving(*routes: web.RouteDef) -> AsyncIterator[str]:
    """Serve these routes; its address."""
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
