"""Run one cycle in a process that kills itself at the point ``KILL_AT``.

Usage: ``replies_worker.py CYCLE``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from esclusa import app as root
from esclusa.pipelines.replies.client import InformationTracerClient
from esclusa.settings import load

POINT = os.environ["KILL_AT"]


def kill_at(point: str) -> None:
    if point == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


def add_kill_points(owner: Any, name: str, point: str, *, own: Any = lambda *args: True) -> None:
    """Add kill points before, inside and after the calls of this method."""
    found = getattr(owner, name)

    async def call(*args: Any, **options: Any) -> Any:
        if not own(*args):
            return await found(*args, **options)
        kill_at(f"before {point}")
        if f"inside {point}" == POINT:
            task = asyncio.create_task(found(*args, **options))
            await asyncio.sleep(0.0015)
            kill_at(f"inside {point}")
            return await task
        answer = await found(*args, **options)
        kill_at(f"after {point}")
        return answer

    setattr(owner, name, call)


def is_of_pipeline(settlements: Any) -> bool:
    """Whether the settlements are of posts and jobs, not of system records."""
    return any(s.ref.kind.table in ("posts", "pending_jobs") for s in settlements)


async def main(cycle: str) -> None:
    for name in ("submit", "status", "result"):
        add_kill_points(InformationTracerClient, name, name)
    async with root.open_runtime(load(environ=dict(os.environ)), migrate=False) as runtime:
        if hasattr(runtime.store, "settle"):
            add_kill_points(runtime.store, "settle", "settle", own=is_of_pipeline)
        for name in ("put", "keep"):
            add_kill_points(runtime.artifacts, name, "put")
        async with runtime.engine.running():
            await runtime.engine.run_cycle(cycle)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
