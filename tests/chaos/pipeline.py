"""The pipeline that the workers run: parcels in another program's table, and metered questions.

Every handler calls the outside (``outside.py``), which keeps a log of the calls. A parcel that is
``poison`` ends the process of its handler. If the outside says so, a handler blocks its event loop.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from esclusa import (
    Add,
    App,
    Attempt,
    Backoff,
    Budget,
    Create,
    Lifecycle,
    Outcome,
    Record,
    To,
    Window,
    track,
)

OUTSIDE = os.environ.get("CHAOS_OUTSIDE", "")
CONCURRENCY = int(os.environ.get("CHAOS_CONCURRENCY", "4"))
BUDGET = int(os.environ.get("CHAOS_BUDGET", "1000"))
LEDGERS = 16
TRIES = 3
POISON_EXIT = 86


class Parcel(Record, table="parcels", track=track(prefix="send_"), database_id=True):
    """A row that another program inserts, and locks when it likes."""

    name: str
    poison: bool = False
    call: int | None = None
    lifecycle = Lifecycle("""
        ready -> sending -> sent
        sending -> ready | damaged
        damaged -> ready
    """)


class Receipt(Record, table="receipts", key="name"):
    name: str
    lifecycle = Lifecycle("kept")


class Ledger(Record, table="ledgers", key="name"):
    name: str
    sent: int = 0
    lifecycle = Lifecycle("kept")


class Question(Record, table="questions", key="name"):
    name: str
    call: int | None = None
    lifecycle = Lifecycle("""
        ready -> asking -> answered
        asking -> ready | failed
        failed -> ready
    """)


app = App("chaos")
app.records += [Receipt, Ledger]


@app.lifespan
@asynccontextmanager
async def session(settings: Any) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(base_url=OUTSIDE) as session:
        yield session


async def call(stage: str, id: str, at: Attempt) -> int:
    """Call the outside and return the number of the call."""
    asked = {"stage": stage, "record": id, "worker": at.run.worker, "attempt": at.number}
    async with at.context.post("/call", json=asked) as response:
        answer = await response.json()
    if answer["block"]:
        time.sleep(answer["block"])  # the fault: the event loop is blocked
    return int(answer["call"])


retry = Backoff(tries=TRIES, base=0.5, cap=2)


@app.stage(
    Parcel, take="ready", hold="sending", exhausted="damaged", retry=retry, concurrency=CONCURRENCY
)
async def send(parcel: Parcel, at: Attempt) -> Outcome:
    number = await call("send", parcel.id, at)
    if parcel.poison:
        os._exit(POISON_EXIT)
    ledger = f"ledger-{int(parcel.id) % LEDGERS}"
    receipt = Create(Receipt(name=parcel.id))
    return To("sent", call=number, also=[receipt, Add(Ledger, ledger, sent=1)])


@app.stage(
    Question,
    take="ready",
    hold="asking",
    exhausted="failed",
    retry=retry,
    concurrency=1,
    budget=Budget("questions", Window("month", BUDGET)),
)
async def ask(question: Question, at: Attempt) -> Outcome:
    return To("answered", call=await call("ask", question.id, at))
