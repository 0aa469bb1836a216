"""A worker whose stage limits how many visits to one customer are under way: ``URL LOG``.

Each line of the log has the process, ``begin`` or ``end``, the customer and the visit.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from faults.worker import store_for

from esclusa import App, Attempt, Backoff, Lifecycle, Record, To
from esclusa.artifacts.local import LocalArtifacts
from esclusa.engine.engine import Engine
from esclusa.engine.options import Options

AT_ONCE = 2


class Visit(Record, table="visits", key="name"):
    name: str
    customer: str | None = None
    lifecycle = Lifecycle("""
        planned -> going -> done
        going -> planned | missed
    """)


app = App("visits")


@app.stage(
    Visit,
    take="planned",
    hold="going",
    exhausted="missed",
    retry=Backoff(tries=50, base=0.05),
    concurrency=6,
    per="customer",
    at_once=AT_ONCE,
)
async def go(visit: Visit, at: Attempt) -> To:
    note("begin", visit)
    await asyncio.sleep(0.02)
    note("end", visit)
    return To("done")


def note(what: str, visit: Visit) -> None:
    with Path(sys.argv[2]).open("a") as log:
        log.write(f"{os.getpid()} {what} {visit.customer} {visit.name}\n")


async def main(url: str) -> None:
    store: Any = store_for(url)
    folder = LocalArtifacts(Path(tempfile.gettempdir()))
    options = Options(lease=1.5, poll=0.1, grace=5.0, prefetch=6)
    engine = Engine(store, [app.bind(app.settings())], folder, options=options)
    await store.open()
    await store.use(engine.all_kinds, engine.all_stages)
    scheduler = engine.scheduler()
    scheduler.stop_on_signals()
    async with engine.running(register=True):
        await scheduler.serve()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
