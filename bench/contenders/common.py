"""What all contenders share: their roles, the marks that their handlers leave, and how a pickup is timed.

    python -m bench.contenders.NAME setup            make the tables
    python -m bench.contenders.NAME fill WORK N      put N records in, in bulk; prints the seconds it took
    python -m bench.contenders.NAME work WORK C      work until killed, C at a time (0: the contender's best)
    python -m bench.contenders.NAME send WORK N      put records in one at a time into an idle worker; prints milliseconds to each pickup

WORK is ``noop`` or ``sleep`` (50 ms), or a contender's own variant of them. BENCH_URL says where the database is, BENCH_MARKS where the
marks are, BENCH_SLOTS how many. This module runs in the peers' environment too: standard library and uvloop only.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path
from typing import Protocol

import uvloop

from bench.marks import Marks

URL = os.environ.get("BENCH_URL", "")
SLEEP = 0.05

Send = Callable[[int], Awaitable[object]]


class Contender(Protocol):
    async def setup(self) -> None: ...

    async def fill(self, work: str, count: int) -> float:
        """Put records in, in bulk, by the fastest documented way; return the seconds it took, connecting not counted."""

    async def work(self, work: str, concurrency: int) -> None: ...

    def sender(self, work: str) -> AbstractAsyncContextManager[Send]: ...


@cache
def marks() -> Marks:
    return Marks(Path(os.environ["BENCH_MARKS"]), int(os.environ["BENCH_SLOTS"]))


async def handle(work: str, number: int) -> None:
    """The body of every asynchronous handler."""
    found = marks()
    found.begin(number)
    if work == "sleep":
        await asyncio.sleep(SLEEP)
    found.end(number)


def handle_blocking(work: str, number: int) -> None:
    """The body of every handler that runs in a thread."""
    found = marks()
    found.begin(number)
    if work == "sleep":
        time.sleep(SLEEP)
    found.end(number)


def chunks(count: int, size: int) -> Iterator[range]:
    return (range(start, min(count, start + size)) for start in range(0, count, size))


async def time_pickups(send: Send, count: int, seconds: float = 20.0) -> list[float]:
    """Milliseconds from just before a record is put in until its handler begins, one at a time, with idle gaps between."""
    found, taken, over = marks(), [], time.monotonic() + seconds
    for number in range(count):
        start = time.monotonic()
        await send(number)
        while not found.begun(number):
            await asyncio.sleep(0.0005)
            if time.monotonic() - start > 10:
                return taken
        taken.append((found.begun(number) - start) * 1000)
        await asyncio.sleep(random.uniform(0.01, 0.03))
        if time.monotonic() > over:
            break
    return taken


async def play(contender: Contender, role: str, arguments: list[str]) -> object:
    match role, arguments:
        case "setup", []:
            return await contender.setup()
        case "fill", [work, count]:
            return await contender.fill(work, int(count))
        case "work", [work, concurrency]:
            return await contender.work(work, int(concurrency))
        case "send", [work, count]:
            async with contender.sender(work) as send:
                return await time_pickups(send, int(count))
        case _:
            sys.exit(__doc__)


def main(contender: Contender) -> None:
    """Play the role that the command line names and print its answer as JSON."""
    print(json.dumps(uvloop.run(play(contender, sys.argv[1], sys.argv[2:]))), flush=True)
