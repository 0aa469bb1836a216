"""Receives one delivery of 600 photos, and dies where KILL_AT says."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

from esclusa.app import open_runtime
from esclusa.pipelines.media import deliveries
from esclusa.pipelines.media.publications import Publications
from esclusa.settings import load

POINT = os.environ["KILL_AT"]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main() -> None:
    page = "101" if POINT == "in the middle" else "102"
    values = [
        {
            "item": "photo",
            "verb": "add",
            "post_id": f"{page}_{n}",
            "photo_id": str(n),
            "link": f"{os.environ['LINK']}/m/jpg/900/{n}",
        }
        for n in range(600)
    ]
    document = {
        "object": "page",
        "entry": [{"id": page, "changes": [{"field": "feed", "value": v} for v in values]}],
    }
    insert, calls = Publications._insert, 0

    async def insert_and_die(self: Any, media: Any, report: Any) -> None:
        nonlocal calls
        calls += 1
        if POINT == "before mapping" or calls > 1:
            die()
        await insert(self, media, report)

    Publications._insert = insert_and_die  # type: ignore[method-assign]
    async with open_runtime(load()) as runtime, runtime.engine.running():
        await deliveries.receive(runtime, json.dumps(document))


if __name__ == "__main__":
    asyncio.run(main())
