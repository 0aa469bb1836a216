"""The outside: a loopback HTTP server in a process of its own that logs every call it gets.

POST /call    {"stage", "record", "worker", "attempt"}: logged, answered after DELAY seconds
GET /calls    the log
POST /block   {"seconds"}: the next call's handler blocks its event loop for so long
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

DELAY = 0.1


@dataclass(frozen=True, slots=True)
class Call:
    """One call that a handler made."""

    number: int
    at: float
    stage: str
    record: str
    worker: str
    attempt: int


class Outside:
    """A running server, as the harness sees it."""

    def __init__(self, address: str) -> None:
        self.address = address

    def calls(self) -> list[Call]:
        with urllib.request.urlopen(f"{self.address}/calls", timeout=60) as answer:
            return [Call(*each) for each in json.load(answer)]

    def block_next(self, seconds: float) -> None:
        """Let the handler that calls next block its event loop."""
        body = json.dumps({"seconds": seconds}).encode()
        urllib.request.urlopen(f"{self.address}/block", body, timeout=10).close()


@contextmanager
def outside() -> Iterator[Outside]:
    """Run the server until the block ends."""
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            yield Outside(process.stdout.readline().decode().strip())
        finally:
            process.kill()


async def serve() -> None:
    """Serve until the parent ends."""
    log: list[tuple[int, float, str, str, str, int]] = []
    block = 0.0

    async def called(request: web.Request) -> web.Response:
        nonlocal block
        asked: dict[str, Any] = await request.json()
        number = len(log)
        entry = (asked["stage"], asked["record"], asked["worker"], asked["attempt"])
        log.append((number, time.time(), *entry))
        seconds, block = block, 0.0
        await asyncio.sleep(DELAY)
        return web.json_response({"call": number, "block": seconds})

    async def calls(request: web.Request) -> web.Response:
        return web.json_response(log)

    async def set_block(request: web.Request) -> web.Response:
        nonlocal block
        block = json.loads(await request.read())["seconds"]
        return web.json_response({})

    app = web.Application()
    app.add_routes(
        [web.post("/call", called), web.get("/calls", calls), web.post("/block", set_block)]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve())
