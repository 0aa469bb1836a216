"""Blocking work in threads, for stores whose files or clients know nothing of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


async def finished(threads: Executor, work: Callable[[], T]) -> T:
    """Run it in a thread. A cancelled caller waits for its end: it cannot be called back, and what follows it (closing a file,
    another request) must not run beside it."""
    task = asyncio.get_running_loop().run_in_executor(threads, work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # seen: the cancellation is what the caller hears of
        raise
