"""A worker process for the kill tests; KILL_AT in its environment names where it dies."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from esclusa.app import open_runtime, open_store
from esclusa.pipelines.media import downloads
from esclusa.pipelines.media.downloads import checked_type
from esclusa.pipelines.media.media_types import MediaType
from esclusa.settings import load

POINT = os.environ.get("KILL_AT", "")


def reached(point: str) -> None:
    if point == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


class KillPoints:
    """Wraps an object with a kill point before and after some of its calls."""

    def __init__(self, inner: Any, *names: str) -> None:
        self._inner, self._names = inner, names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._names:
            return found

        async def call(*args: Any, **options: Any) -> Any:
            reached(f"before {name}")
            answer = await found(*args, **options)
            reached(f"after {name}")
            return answer

        return call


def killing_check(head: bytes) -> MediaType:
    """A kill point in the middle of a body: the first bytes have arrived."""
    found = checked_type(head)
    reached("in the middle of the body")
    return found


async def main() -> None:
    downloads.checked_type = killing_check
    async with open_store(load()) as runtime:
        await runtime.migrate(foreign=True)
    async with open_runtime(load()) as runtime:
        engine = runtime.engine
        engine.artifacts = engine.settler._artifacts = KillPoints(engine.artifacts, "keep", "sync")
        engine.settler._store = KillPoints(runtime.store, "settle")
        async with engine.running():
            while True:
                await engine.run_cycle("media.download")
                await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main())
