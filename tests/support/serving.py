"""A worker's scheduler in this process, for as long as a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from esclusa.engine.engine import Engine
from esclusa.engine.scheduler import Scheduler


@asynccontextmanager
async def serving(engine: Engine) -> AsyncIterator[Scheduler]:
    """Serve every cycle of the engine; stopped in order at the end, unless the test has stopped it already."""
    scheduler = Scheduler(engine)
    task = asyncio.create_task(scheduler.serve())
    try:
        yield scheduler
    finally:
        if not scheduler.stopping:  # a second call would abort
            scheduler.stop()
        await asyncio.wait_for(task, 20)
