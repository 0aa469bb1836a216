"""A worker process whose handlers end it for some records: ``poison_worker.py STORE_URL``.

POISON has their names. CRASH is how they do it: ``exit``, ``segfault``, or ``kill``, as the system
does when memory runs out.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from faults.worker import store_for

from esclusa import App, Attempt, Backoff, Lifecycle, Record, To
from esclusa.artifacts.local import LocalArtifacts
from esclusa.engine.engine import Engine
from esclusa.engine.options import Options

POISON = os.environ.get("POISON", "").split()
CRASH = os.environ.get("CRASH", "exit")
LEASE = float(os.environ.get("LEASE_SECONDS", "1"))
TRIES = 2
SECONDS = 0.05
RETRY = Backoff(tries=TRIES, base=0.05, cap=0.2)
LIFECYCLE = """
    new -> working -> done
    working -> new | failed
    failed -> new
"""


class Image(Record, table="images", key="name"):
    name: str
    lifecycle = Lifecycle(LIFECYCLE)


class Page(Record, table="pages", key="name"):
    name: str
    lifecycle = Lifecycle(LIFECYCLE)


class Row(Record, table="rows", key="name"):
    name: str
    lifecycle = Lifecycle(LIFECYCLE)


app = App("shop")


@app.stage(Image, take="new", hold="working", exhausted="failed", retry=RETRY, concurrency=20)
async def convert(image: Image, at: Attempt) -> To:
    begin(image.name, at)
    await asyncio.sleep(SECONDS)
    crash_if_poison(image.name)
    return end(image.name)


@app.stage(Page, take="new", hold="working", exhausted="failed", retry=RETRY, concurrency=5)
def read(page: Page, at: Attempt) -> To:
    begin(page.name, at)
    time.sleep(SECONDS)
    crash_if_poison(page.name)
    return end(page.name)


@app.stage(
    Row, take="new", hold="working", exhausted="failed", retry=RETRY, concurrency=2, batch=10
)
async def load(rows: list[Row], at: Attempt) -> list[To]:
    for row in rows:
        begin(row.name, at)
    await asyncio.sleep(SECONDS)
    for row in rows:
        crash_if_poison(row.name)
    return [end(row.name) for row in rows]


def begin(name: str, at: Attempt) -> None:
    write(f"begin {name} {at.number} {os.getpid()}")


def end(name: str) -> To:
    write(f"end {name} 0 {os.getpid()}")
    return To("done")


def write(line: str) -> None:
    with Path(os.environ["CALLS"]).open("a") as calls:
        calls.write(f"{line}\n")


def crash_if_poison(name: str) -> None:
    if name in POISON:
        if CRASH == "exit":
            os._exit(3)
        if CRASH == "segfault":
            ctypes.string_at(0)
        os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str) -> None:
    store = store_for(url)
    engine = Engine(
        store,
        [app.bind(app.settings())],
        LocalArtifacts(Path(tempfile.gettempdir())),
        options=Options(lease=LEASE, poll=0.1, grace=5.0),
    )
    await store.open()
    await store.use(engine.all_kinds, engine.all_stages)
    scheduler = engine.scheduler()
    scheduler.stop_on_signals()
    async with engine.running(register=True):
        await scheduler.serve()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
