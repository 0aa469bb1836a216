"""A worker's scheduler in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from esclusa.engine.engine import Engine
from esclusa.engine.scheduler import Scheduler


@asynccontextmanager
async def running_scheduler(engine: Engine) -> AsyncIterator[Scheduler]:
    """Run every cycle of the engine; stop in order at the end unless the test already did."""
    scheduler = engine.scheduler()
    task = asyncio.create_task(scheduler.serve())
    try:
        yield scheduler
    finally:
        if not scheduler.stopping:  # a second stop would abort
            scheduler.stop()
        await asyncio.wait_for(task, 20)
