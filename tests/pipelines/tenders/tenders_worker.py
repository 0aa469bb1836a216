"""A worker process that runs one cycle and kills itself at the point ``KILL_AT``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from esclusa.app import open_runtime
from esclusa.pipelines.tenders.expo import ExpoClient
from esclusa.pipelines.tenders.sources.chilecompra_api import ChileCompraApi
from esclusa.settings import load

KILL_AT = os.environ.get("KILL_AT", "")


def killing(function: Any, name: str) -> Any:
    """Add kill points to a function.

    The points are ``before NAME``, ``late NAME`` (before it, after a second), ``after NAME`` and,
    for the n-th answer, ``after NAME n``.
    """
    answers = 0

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

    return marked


async def main(cycle: str) -> None:
    ExpoClient.send = killing(ExpoClient.send, "send")  # type: ignore[method-assign]
    ExpoClient.receipts = killing(ExpoClient.receipts, "receipts")  # type: ignore[method-assign]
    ChileCompraApi.detail = killing(ChileCompraApi.detail, "detail")  # type: ignore[method-assign]
    async with open_runtime(load()) as runtime, runtime.engine.running() as engine:
        engine.store.settle = killing(engine.store.settle, "settle")  # type: ignore[method-assign]
        engine.store.insert_if_new = killing(engine.store.insert_if_new, "insert")  # type: ignore[method-assign]
        await engine.run_cycle(cycle)


asyncio.run(main(sys.argv[1]))
