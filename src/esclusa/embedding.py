"""Esclusa inside another application: ``async with esclusa.open(app, store="…") as runtime``.

The host keeps its logging and its signals. ``open_sync`` is the same for code without an event
loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from esclusa.app import open_runtime, open_store
from esclusa.loading import load_app
from esclusa.model.pipeline import App
from esclusa.runtime import Runtime
from esclusa.settings import Settings, load
from esclusa.sync import SyncRuntime, background_loop

Pipeline = App | str


@asynccontextmanager
async def open(
    *pipelines: Pipeline,
    worker: bool | Iterable[str] = False,
    migrate: bool | None = None,
    config: str | Path | None = None,
    environ: Mapping[str, str] = os.environ,
    **settings: Any,
) -> AsyncIterator[Runtime]:
    """Open Esclusa in this process, with its records, operations, read model and files.

    ``pipelines``: Apps, or names as in ``ESCLUSA_PIPELINES``; without any, the settings name them.
    ``worker``: also handle records here, of all cycles or of those named. At the end nothing more
    is claimed, and handlers have ``grace_seconds``. ``migrate``: whether to bring Esclusa's own
    tables up to date; by default as ``ESCLUSA_AUTO_MIGRATE`` says. ``settings``: such as
    ``store="postgresql://…"``; they come before the environment and the file, see ``esclusa.toml``.

    Its log lines go to ``logging``, to loggers below ``esclusa``. No signal handler is installed.
    Raises SettingsError, SchemaBehind or StoreUnavailable.
    """
    loaded = embedded_settings(pipelines, config=config, environ=environ, settings=settings)
    async with open_runtime(loaded, migrate=migrate, hosted=True) as runtime:
        names = None if isinstance(worker, bool) else _cycles(runtime, worker)
        async with runtime.engine.running(
            register=bool(worker) if names is None else names,
            judge=bool(worker),
            pipelines=None if worker else (),
        ):
            if not worker:
                yield runtime
                return
            async with _working(runtime, names):
                yield runtime


@contextmanager
def open_sync(
    *pipelines: Pipeline,
    worker: bool | Iterable[str] = False,
    migrate: bool | None = None,
    config: str | Path | None = None,
    environ: Mapping[str, str] = os.environ,
    **settings: Any,
) -> Iterator[SyncRuntime]:
    """The same for code without an event loop: it runs in a thread of its own, until the end.

    Any thread may use what it yields. After a fork the child process opens its own.
    """
    opened = open(
        *pipelines,
        worker=worker,
        migrate=migrate,
        config=config,
        environ=environ,
        **settings,
    )
    with background_loop() as call:
        runtime = call(opened.__aenter__())
        try:
            yield SyncRuntime(runtime, call)
        finally:
            call(opened.__aexit__(None, None, None))


async def migrate(
    *pipelines: Pipeline,
    foreign: bool = False,
    config: str | Path | None = None,
    environ: Mapping[str, str] = os.environ,
    **settings: Any,
) -> list[str]:
    """Bring the schema up to date, as ``esclusa migrate``; return one line for each change.

    ``foreign``: also tables of other programs, such as those of the host's own models. Without
    it, raises ForeignTables if one must be changed.
    """
    loaded = embedded_settings(pipelines, config=config, environ=environ, settings=settings)
    async with open_store(loaded) as runtime:
        changes = await runtime.migrate(foreign=foreign)
        await runtime.store.use(runtime.engine.all_kinds, runtime.engine.all_stages)
        await runtime.save_lifecycles()
        return changes


def embedded_settings(
    pipelines: Iterable[Pipeline],
    *,
    config: str | Path | None,
    environ: Mapping[str, str],
    settings: Mapping[str, Any],
) -> Settings:
    """The settings with these pipelines and values. Raises SettingsError with every fault."""
    if unknown := sorted(settings.keys() - Settings.model_fields.keys()):
        raise TypeError(f"esclusa.open: {', '.join(unknown)} is not a setting of Esclusa")
    apps = {p.name if isinstance(p, App) else p: p for p in pipelines}

    def find(name: str) -> App:
        app = apps.get(name, name)
        return app if isinstance(app, App) else load_app(app)

    overrides = dict(settings)
    if apps:
        overrides["pipelines"] = tuple(apps)
    return load(path=config, environ=environ, overrides=overrides, apps=find)


def _cycles(runtime: Runtime, names: Iterable[str]) -> frozenset[str]:
    return frozenset(runtime.engine.cycle(name).name for name in names)


@asynccontextmanager
async def _working(runtime: Runtime, names: frozenset[str] | None) -> AsyncIterator[None]:
    """Run the cycles meanwhile; at the end claim nothing more and give handlers their grace."""
    scheduler = runtime.engine.scheduler()
    serving = asyncio.create_task(scheduler.serve(names), name="esclusa worker")
    try:
        yield
    finally:
        scheduler.stop("the end of the application")
        await serving
