"""``esclusa demo``: every built-in pipeline against simulated providers with real faults.

Each pipeline's ``demo`` module names its simulators and declares its settings, its data, and when
it is finished.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib
import os
import shutil
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from esclusa.cli.session import Session, run_fast
from esclusa.loading import BUILT_IN
from esclusa.model.errors import SettingsError

if TYPE_CHECKING:
    from esclusa.runtime import Runtime
    from esclusa.settings import Settings

# The folder of the first demo that runs here; others run beside it, in `demo-2` and so on.
FOLDER = Path(".cache") / "demo"
# The most demos that run beside each other.
MOST_DEMOS = 20
# Seconds after which an unfinished demo has failed.
LIMIT = 180.0


def demonstrate(session: Session, *, stay: bool, port: int | None) -> int:
    """Run the demo; return the exit code. ``stay`` keeps the server running until Ctrl-C."""
    from esclusa.simulators import SimulatorProcess

    demos = {name: importlib.import_module(f"esclusa.pipelines.{name}.demo") for name in BUILT_IN}
    simulators = sorted({s for demo in demos.values() for s in demo.SIMULATORS})
    with ExitStack() as stack:
        folder = stack.enter_context(_own_folder())
        session.note(f"Starting simulators: {', '.join(simulators)}")
        urls = {name: stack.enter_context(SimulatorProcess(name)).url for name in simulators}
        settings = _settings(folder, demos, urls, port)
        if "port" not in settings.sources and _is_taken(settings.host, settings.port):
            settings = settings.model_copy(update={"port": 0})  # any free one
        return run_fast(_run(session, folder, settings, demos, urls, stay=stay))


@contextmanager
def _own_folder() -> Iterator[Path]:
    """An empty folder that no other running demo uses: a lock on it ends with the process."""
    for number in range(1, MOST_DEMOS + 1):
        folder = FOLDER if number == 1 else FOLDER.with_name(f"{FOLDER.name}-{number}")
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            for path in folder.iterdir():
                if path.name != "lock":
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            yield folder
            return
    raise SettingsError("demo", [f"{MOST_DEMOS} demos run here; stop one"])


def _is_taken(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex((host, port)) == 0


def _settings(
    folder: Path, demos: dict[str, ModuleType], urls: dict[str, str], port: int | None
) -> Settings:
    """The demo's own settings. Of the variables ``ESCLUSA_…`` only the port is read."""
    from esclusa.settings import load

    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ESCLUSA_") or name == "ESCLUSA_PORT"
    }
    for name, demo in demos.items():
        (folder / name).mkdir()
        environ |= demo.environ(urls, (folder / name).absolute())
    overrides = {
        "store": f"sqlite:///{folder / 'esclusa.db'}",
        "artifacts": str(folder / "artifacts"),
        "pipelines": ",".join(demos),
        "log_level": "error",
        "port": port,
        "lease_seconds": 10,
    }
    return load(environ=environ, overrides=overrides)


async def _run(
    session: Session,
    folder: Path,
    settings: Settings,
    demos: dict[str, ModuleType],
    urls: dict[str, str],
    *,
    stay: bool,
) -> int:
    from esclusa.web.server import serve

    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with session.open_runtime(settings) as runtime, _logged(folder):
        server = asyncio.create_task(
            serve(runtime, settings.host, settings.port, worker=True, started=listening.set_result)
        )
        either: set[asyncio.Future[Any]] = {server, listening}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if server.done():
            await server  # raises the reason
        address = f"http://{settings.host}:{listening.result()}"
        session.note(f"The console is at {address}\n")
        code = await _watch(session, folder, runtime, demos, urls, server)
        if stay and code == 0 and not server.done():
            session.note(f"\nThe console stays at {address}. Press Ctrl-C to stop.")
            await server
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)
    return code


@asynccontextmanager
async def _logged(folder: Path) -> AsyncIterator[None]:
    """Write the log to a file while the demo runs."""
    from esclusa.observability import log

    with (folder / "log.ndjson").open("w") as file:
        log.configure("json", "info", stream=file)
        try:
            yield
        finally:
            log.configure()


async def _watch(
    session: Session,
    folder: Path,
    runtime: Runtime,
    demos: dict[str, ModuleType],
    urls: dict[str, str],
    server: asyncio.Task[None],
) -> int:
    begun, seen = time.monotonic(), dict.fromkeys(demos, "")
    for name, demo in demos.items():
        await demo.prepare(runtime, urls, (folder / name).absolute())
    left = dict(demos)
    while left and not server.done() and time.monotonic() - begun < LIMIT:
        await asyncio.sleep(0.5)
        for name in list(left):
            line = await _counts(runtime, name)
            if line != seen[name]:
                seen[name] = line
                session.note(f"{time.monotonic() - begun:5.1f}s  {name:<10} {line}")
            if await left[name].finished(runtime):
                del left[name]
    for name, demo in demos.items():
        session.note(f"\n{name}")
        for line in await demo.summary(runtime):
            session.note(f"  {line}")
    if left:
        session.note(f"\nNot finished after {LIMIT:.0f} s: {', '.join(left)}")
        return 1
    session.note(
        f"\nFinished in {time.monotonic() - begun:.0f} s. Data and log are below {folder}."
    )
    return 0


async def _counts(runtime: Runtime, pipeline: str) -> str:
    """The counts per state of the kinds that the pipeline's stages move, in one line."""
    plan = runtime.engine.plan_of(f"{pipeline}.")
    parts: list[str] = []
    for kind in dict.fromkeys(stage.kind for stage in plan.stages):
        counts: list[Any] = await runtime.store.tally(kind)
        states = ", ".join(f"{c.count} {c.state}" for c in counts if c.count)
        if states:
            parts.append(f"{kind.table}: {states}")
    return "; ".join(parts)
