"""``esclusa demo``: every built-in pipeline against simulated providers with real faults, before the viewer's eyes.

Each pipeline says in its ``demo`` module which simulators it needs, its settings, its data, and when it is over.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from esclusa.cli.session import Session, run_fast
from esclusa.loading import BUILT_IN

if TYPE_CHECKING:
    from esclusa.runtime import Runtime
    from esclusa.settings import Settings

FOLDER = Path(".cache") / "demo"
LIMIT = 180.0
"""Seconds after which a demo that is not over has failed."""


def demonstrate(session: Session, *, stay: bool, port: int | None) -> int:
    """Play the demo and return the exit code; ``stay`` leaves the server running until Ctrl-C."""
    from esclusa.simulators import Played

    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    plays = {name: importlib.import_module(f"esclusa.pipelines.{name}.demo") for name in BUILT_IN}
    with ExitStack() as stack:
        session.note(
            "starting the outside world: "
            + ", ".join(sorted({s for play in plays.values() for s in play.SIMULATORS}))
        )
        urls = {
            name: stack.enter_context(Played(name)).url
            for name in sorted({s for play in plays.values() for s in play.SIMULATORS})
        }
        settings = _settings(plays, urls, session.settings.port if port is None else port)
        return run_fast(_play(session, settings, plays, urls, stay=stay))


def _settings(plays: dict[str, ModuleType], urls: dict[str, str], port: int) -> Settings:
    """The demo's own settings: nothing of the viewer's environment but PATH and the like counts."""
    from esclusa.settings import load

    environ = {name: value for name, value in os.environ.items() if not name.startswith("ESCLUSA_")}
    for name, play in plays.items():
        (FOLDER / name).mkdir()
        environ |= play.environ(urls, (FOLDER / name).absolute())
    overrides = {
        "store": f"sqlite:///{FOLDER / 'esclusa.db'}", "artifacts": str(FOLDER / "artifacts"), "pipelines": ",".join(plays),
        "log_level": "error", "port": port, "lease_seconds": 10,
    }  # fmt: skip
    return load(environ=environ, overrides=overrides)


async def _play(
    session: Session,
    settings: Settings,
    plays: dict[str, ModuleType],
    urls: dict[str, str],
    *,
    stay: bool,
) -> int:
    from esclusa.web.server import serve

    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with session.open_runtime(settings) as runtime, _logged():
        server = asyncio.create_task(
            serve(runtime, settings.host, settings.port, worker=True, started=listening.set_result)
        )
        either: set[asyncio.Future[Any]] = {server, listening}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if server.done():
            await server  # tells why it could not start
        address = f"http://{settings.host}:{listening.result()}"
        session.note(f"the console is at {address}\n")
        code = await _watch(session, runtime, plays, urls, server)
        if stay and code == 0 and not server.done():
            session.note(f"\nThe console goes on at {address}; Ctrl-C ends it.")
            await server
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)
    return code


@asynccontextmanager
async def _logged() -> AsyncIterator[None]:
    """The log goes to a file meanwhile: the terminal is for the story."""
    from esclusa.observability import log

    with (FOLDER / "log.ndjson").open("w") as file:
        log.configure("json", "info", stream=file)
        try:
            yield
        finally:
            log.configure()


async def _watch(
    session: Session,
    runtime: Runtime,
    plays: dict[str, ModuleType],
    urls: dict[str, str],
    server: asyncio.Task[None],
) -> int:
    begun, seen = time.monotonic(), dict.fromkeys(plays, "")
    for name, play in plays.items():
        await play.prepare(runtime, urls, (FOLDER / name).absolute())
    left = dict(plays)
    while left and not server.done() and time.monotonic() - begun < LIMIT:
        await asyncio.sleep(0.5)
        for name in list(left):
            line = await _counts(runtime, name)
            if line != seen[name]:
                seen[name] = line
                session.note(f"{time.monotonic() - begun:5.1f}s  {name:<10} {line}")
            if await left[name].finished(runtime):
                del left[name]
    for name, play in plays.items():
        session.note(f"\n{name}")
        for line in await play.summary(runtime):
            session.note(f"  {line}")
    if left:
        session.note(f"\nnot over after {LIMIT:.0f} s: {', '.join(left)}")
        return 1
    session.note(
        f"\nAll of it in {time.monotonic() - begun:.0f} s. Everything is below {FOLDER}, the log too."
    )
    return 0


async def _counts(runtime: Runtime, pipeline: str) -> str:
    """The states of the pipeline's records that its stages move, in one line."""
    plan = runtime.engine.plan_of(f"{pipeline}.")
    parts: list[str] = []
    for kind in dict.fromkeys(stage.kind for stage in plan.stages):
        counts: list[Any] = await runtime.store.tally(kind)
        said = ", ".join(f"{c.count} {c.state}" for c in counts if c.count)
        if said:
            parts.append(f"{kind.table}: {said}")
    return "; ".join(parts)
