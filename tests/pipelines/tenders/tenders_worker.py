"""A process that runs one cycle, or a restore, and kills itself at the point ``KILL_AT``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from esclusa.app import open_runtime
from esclusa.pipelines.tenders.expo import ExpoClient
from esclusa.pipelines.tenders.restore import restore_month
from esclusa.pipelines.tenders.sources.chilecompra_api import ChileCompraApi
from esclusa.settings import load

KILL_AT = os.environ.get("KILL_AT", "")


def add_kill_points(owner: Any, method: str, name: str = "") -> None:
    """Add kill points to a method.

    The points are ``before NAME``, ``late NAME`` (before it, after a second), ``after NAME`` and,
    for the n-th answer, ``after NAME n``.
    """
    function, name, answers = getattr(owner, method), name or method, 0

    async def marked(*args: Any, **kwargs: Any) -> Any:
        nonlocal answers
        if f"late {name}" == KILL_AT:
            await asyncio.sleep(1.0)
        if KILL_AT in (f"before {name}", f"late {name}"):
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await function(*args, **kwargs)
        answers += 1
        if KILL_AT in (f"after {name}", f"after {name} {answers}"):
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, method, marked)


async def main(cycle: str) -> None:
    add_kill_points(ExpoClient, "send")
    add_kill_points(ExpoClient, "receipts")
    add_kill_points(ChileCompraApi, "detail")
    async with open_runtime(load()) as runtime, runtime.engine.running() as engine:
        add_kill_points(engine.store, "settle")
        add_kill_points(engine.store, "insert_if_new", "insert")
        add_kill_points(engine.store, "restore")
        if cycle.startswith("restore:"):
            await restore_month(runtime, cycle.removeprefix("restore:"), (), "worker")
        else:
            await engine.run_cycle(cycle)


asyncio.run(main(sys.argv[1]))
