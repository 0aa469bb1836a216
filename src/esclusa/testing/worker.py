"""The worker of a test: its engine, which another one replaces when the test kills it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, cast

from pydantic import BaseModel

from esclusa.engine.engine import Engine
from esclusa.engine.options import Options
from esclusa.model.effects import Effect
from esclusa.model.pipeline import App
from esclusa.model.plan import Plan
from esclusa.ports.artifacts import Artifacts
from esclusa.ports.store import Store
from esclusa.testing.faults import FaultLog
from esclusa.testing.handlers import Handlers
from esclusa.testing.settings import settings_of
from esclusa.testing.worker_store import WorkerStore

# The lease of the test's worker: how long the records of a killed one are held.
LEASE = timedelta(seconds=60)
# Who moves records in the history.
WHO = "test"


class HarnessWorker:
    """Runs a pipeline in the event loop of the test. The options are those of the harness."""

    def __init__(
        self,
        app: App,
        *,
        settings: BaseModel | Mapping[str, Any] | None,
        context: Any,
        seed: int,
    ) -> None:
        self.effects: list[Effect] = []
        self.faults = FaultLog()
        self.handlers = Handlers(self.faults, self._die)
        self._app = app
        self._settings = settings
        self._context = context
        self._rng = Random(seed)
        self._number = 0
        self._stack = AsyncExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store: Store | None = None
        self._artifacts: Artifacts | None = None
        self._engine: Engine | None = None

    async def start(self, store: Store, artifacts: Artifacts) -> None:
        """Make the tables of the pipeline, and begin to work."""
        self._loop = asyncio.get_running_loop()
        self._store, self._artifacts = store, artifacts
        engine = self._new_engine()
        await store.migrate(engine.all_kinds, engine.all_stages, foreign=True)
        await self._run(engine)

    async def stop(self) -> None:
        await self._stack.aclose()
        self._engine = None

    @property
    def engine(self) -> Engine:
        """The engine of the worker; another one after a kill."""
        if self._engine is None:
            raise RuntimeError("the harness is not open: async with Harness(app) as h: …")
        return self._engine

    @property
    def killed(self) -> bool:
        return cast("WorkerStore", self.engine.store).dead

    async def replace_killed(self) -> None:
        """Another worker takes the place of the one that was killed."""
        if self.killed:
            await self._stack.aclose()
            await self._run(self._new_engine())

    def _die(self) -> None:
        """Kill the worker: nothing that it sends from now on is written. Called from any thread."""
        assert self._engine is not None
        assert self._loop is not None
        cast("WorkerStore", self._engine.store).dead = True
        self._loop.call_soon_threadsafe(self._engine.abort)

    async def _run(self, engine: Engine) -> None:
        self._engine, self._stack = engine, AsyncExitStack()
        await self._stack.enter_async_context(engine.running())

    def _new_engine(self) -> Engine:
        assert self._store is not None
        assert self._artifacts is not None
        self._number += 1
        worker_store = WorkerStore(self._store, self.handlers, self.faults, self.effects)
        return Engine(
            cast("Store", worker_store),
            [self._plan()],
            self._artifacts,
            options=Options(lease=LEASE.total_seconds(), grace=1.0, run_wait=0.0),
            worker=f"{WHO}-{self._number}",
            rng=self._rng,
        )

    def _plan(self) -> Plan:
        """The pipeline with its settings, and with handlers that the test controls."""
        app = self._app
        if self._context is not None:
            app = replace(app, lifespan_=self._lifespan)
        plan = app.bind(settings_of(app, self._settings))
        stages = {stage.name: self.handlers.wrapped(stage) for stage in plan.stages}
        cycles = tuple(
            replace(cycle, stages=tuple(stages[stage.name] for stage in cycle.stages))
            for cycle in plan.cycles
        )
        return replace(plan, stages=tuple(stages.values()), cycles=cycles)

    @asynccontextmanager
    async def _lifespan(self, settings: Any) -> AsyncIterator[Any]:
        yield self._context
