"""The roles of a contender, the body of its handlers, and how a pickup is timed.

    python -m bench.contenders.NAME setup          create the tables
    python -m bench.contenders.NAME fill WORK N    insert N records in bulk; print the seconds
    python -m bench.contenders.NAME work WORK C    work until killed, C handlers at a time
                                                   (0: the contender's best number)
    python -m bench.contenders.NAME send WORK N    insert N records one at a time for an idle
                                                   worker; print the milliseconds to each pickup

WORK is ``noop``, ``sleep`` (50 ms) or a variant of the contender's own. BENCH_URL is the database,
BENCH_TIMINGS the file of timings and BENCH_SLOTS the number of records in it. This module also runs
in the peers' environment, so it imports only the standard library and uvloop.
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

from bench.timings import Timings

URL = os.environ.get("BENCH_URL", "")
SLEEP = 0.05

Send = Callable[[int], Awaitable[object]]


class Contender(Protocol):
    """A queue under test; one method per role."""

    async def setup(self) -> None: ...

    async def fill(self, work: str, count: int) -> float:
        """Insert records in bulk, in the fastest documented way.

        Returns the seconds it took without the time to connect.
        """

    async def work(self, work: str, concurrency: int) -> None:
        """Handle records until killed."""

    def sender(self, work: str) -> AbstractAsyncContextManager[Send]:
        """A function that inserts one record."""


@cache
def timings() -> Timings:
    """The timings that the driver created."""
    return Timings(Path(os.environ["BENCH_TIMINGS"]), int(os.environ["BENCH_SLOTS"]))


async def handle(work: str, number: int) -> None:
    """The body of every asynchronous handler."""
    shared = timings()
    shared.begin(number)
    if work == "sleep":
        await asyncio.sleep(SLEEP)
    shared.end(number)


def handle_blocking(work: str, number: int) -> None:
    """The body of every handler that runs in a thread."""
    shared = timings()
    shared.begin(number)
    if work == "sleep":
        time.sleep(SLEEP)
    shared.end(number)


def chunks(count: int, size: int) -> Iterator[range]:
    return (range(start, min(count, start + size)) for start in range(0, count, size))


async def time_pickups(send: Send, count: int, seconds: float = 20.0) -> list[float]:
    """Milliseconds from just before each insert until the record's handler begins.

    If ``send`` returns a time, as of ``time.monotonic``, they count from then.
    Records are inserted one at a time, with idle gaps between them. Ends early after ``seconds``,
    or when a record was not picked up for 10 seconds.
    """
    shared, deadline = timings(), time.monotonic() + seconds
    took: list[float] = []
    for number in range(count):
        start = time.monotonic()
        since = await send(number)
        while not shared.begun(number):
            await asyncio.sleep(0.0005)
            if time.monotonic() - start > 10:
                return took
        if not isinstance(since, float):
            since = start
        took.append(max(0.0, shared.begun(number) - since) * 1000)
        await asyncio.sleep(random.uniform(0.01, 0.03))
        if time.monotonic() > deadline:
            break
    return took


async def run_role(contender: Contender, role: str, arguments: list[str]) -> object:
    """Run one role; return its result, or None."""
    match role, arguments:
        case "setup", []:
            await contender.setup()
        case "fill", [work, count]:
            return await contender.fill(work, int(count))
        case "work", [work, concurrency]:
            await contender.work(work, int(concurrency))
        case "send", [work, count]:
            async with contender.sender(work) as send:
                return await time_pickups(send, int(count))
        case _:
            sys.exit(__doc__)
    return None


def main(contender: Contender) -> None:
    """Run the role that the command line names; print its result as JSON."""
    print(json.dumps(uvloop.run(run_role(contender, sys.argv[1], sys.argv[2:]))), flush=True)
