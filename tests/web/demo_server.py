"""A server with the four built-in pipelines, the data of the demo, and simulated services."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esclusa.app import open_runtime
from esclusa.loading import BUILT_IN
from esclusa.runtime import Runtime
from esclusa.settings import load
from esclusa.simulators import SimulatorProcess
from esclusa.web.server import Service, listen

OPERATE, READ = "a-token-that-may-operate", "a-token-that-may-only-read"
TOKENS = f"operator={OPERATE}:operate,dashboard={READ}:read"


@dataclass
class DemoServer:
    """A running server."""

    url: str
    runtime: Runtime
    loop: asyncio.AbstractEventLoop


@asynccontextmanager
async def served(
    folder: Path, urls: dict[str, str], *, tokens: str = "", work: bool = False, **options: Any
) -> AsyncIterator[DemoServer]:
    """Serve all pipelines; with ``work`` every cycle runs once first and fills the lists."""
    demos = {name: importlib.import_module(f"esclusa.pipelines.{name}.demo") for name in BUILT_IN}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ESCLUSA_")}
    for name, demo in demos.items():
        (folder / name).mkdir()
        environ |= demo.environ(urls, folder / name)
    environ |= {
        "ESCLUSA_STORE": f"sqlite:///{folder / 'demo.db'}",
        "ESCLUSA_ARTIFACTS": str(folder / "artifacts"),
        "ESCLUSA_LOG_LEVEL": "error",
        "ESCLUSA_PIPELINES": ",".join(demos),
        "ESCLUSA_API_TOKENS": tokens,
        "ESCLUSA_GRACE_SECONDS": "2",
        "ESCLUSA_TICK_SECONDS": "1",
        "ESCLUSA_WAKE_SECRET": "a secret of the bank",
    }
    async with open_runtime(load(environ=environ)) as runtime:
        service = Service(runtime, worker=False)
        listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(
            service.run(listen("127.0.0.1", 0), listening.set_result, **options)
        )
        await asyncio.wait([task, listening], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        for name, demo in demos.items():
            await demo.prepare(runtime, urls, folder / name)
        for demo in demos.values() if work else ():
            for cycle in demo.CYCLES:
                await runtime.engine.run_cycle(cycle)
        yield DemoServer(f"http://127.0.0.1:{await listening}", runtime, asyncio.get_running_loop())
        service.stop()
        await task


@contextmanager
def simulators() -> Iterator[dict[str, str]]:
    """The simulators that the demos need, each in its own process; their URLs by name."""
    wanted = {
        s
        for name in BUILT_IN
        for s in importlib.import_module(f"esclusa.pipelines.{name}.demo").SIMULATORS
    }
    with ExitStack() as stack:
        yield {name: stack.enter_context(SimulatorProcess(name)).url for name in sorted(wanted)}


@contextmanager
def in_a_thread(folder: Path, urls: dict[str, str], **options: Any) -> Iterator[DemoServer]:
    """The same in its own thread, for a caller without an event loop."""
    made: list[DemoServer] = []
    loop, ready, end = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def live() -> None:
        try:
            async with served(folder, urls, **options) as server:
                made.append(server)
                ready.set()
                await end.wait()
        finally:
            ready.set()

    thread = threading.Thread(target=lambda: loop.run_until_complete(live()))
    thread.start()
    assert ready.wait(60)
    assert made, "the server did not start"
    yield made[0]
    loop.call_soon_threadsafe(end.set)
    thread.join(30)
    loop.close()
