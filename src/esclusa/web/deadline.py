"""Waiting no longer than one has patience for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_left: set[asyncio.Task[Any]] = set()


async def within(seconds: float, making: Coroutine[Any, Any, T]) -> T:
    """What this makes, or TimeoutError after so many seconds. It is told to stop then, and left to itself: a driver that is cut off
    from its server may take a minute to give up a question, whatever ``asyncio.timeout`` says."""
    task = asyncio.create_task(making)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            _left.add(task)
            task.add_done_callback(_ended)
    if not task.done():
        raise TimeoutError(f"no answer within {seconds:g} s")
    return task.result()


def _ended(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # nobody waits for it any more
