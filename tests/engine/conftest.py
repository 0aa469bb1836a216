"""An engine on each store in turn, with short leases and a quick poll."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from esclusa.artifacts.local import LocalArtifacts
from esclusa.engine.engine import Engine
from esclusa.engine.options import Options
from esclusa.model.pipeline import App

NewEngine = Callable[..., Awaitable[Engine]]


@pytest.fixture
async def new_engine(empty_database: Any, tmp_path: Path) -> AsyncIterator[NewEngine]:
    """``await new_engine(app)`` returns a running engine; several share the same data.

    ``judge``: it judges alerts by itself, so often. ``alerts``: thresholds, as in ``Options``.
    """
    async with AsyncExitStack() as stack:

        async def new(
            app: App,
            *,
            lease: float = 30.0,
            register: bool | tuple[str, ...] = False,
            judge: float | None = None,
            offset: float = 0.0,
            **options: Any,
        ) -> Engine:
            store: Any = empty_database.store(clock_offset=offset)
            await store.open()
            stack.push_async_callback(store.close)
            knobs = Options(
                lease=lease,
                poll=options.pop("poll", 0.05),
                grace=options.pop("grace", 5.0),
                prefetch=options.pop("prefetch", 200),
                judge=judge or 15.0,
                **options.pop("alerts", {}),
            )
            engine = Engine(
                store,
                [app.bind(app.settings())],
                LocalArtifacts(tmp_path / "artifacts"),
                options=knobs,
                rng=Random(1),
                **options,
            )
            await store.migrate(engine.all_kinds, engine.all_stages)
            await store.use(engine.all_kinds, engine.all_stages)
            await stack.enter_async_context(
                engine.running(register=register, judge=judge is not None)
            )
            return engine

        yield new
