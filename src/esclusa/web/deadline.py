"""A time limit that holds even if the awaited code does not react to cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_abandoned: set[asyncio.Task[Any]] = set()


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, or TimeoutError after ``seconds``.

    At the limit the work is cancelled but not awaited: a driver whose server vanished may need a
    minute to end a query, and ``asyncio.timeout`` would wait for it.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            _abandoned.add(task)
            task.add_done_callback(_finished)
    if not task.done():
        raise TimeoutError(f"no answer within {seconds:g} s")
    return task.result()


def _finished(task: asyncio.Task[Any]) -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it
