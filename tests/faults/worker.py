"""A real worker process for the fault tests: ``worker.py STORE_URL``.

With KILL_AT=point[:count] it sends itself SIGKILL (or KILL_WITH) when it reaches the point for the
count-th time. There are points around every call of the engine between claim and settle.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from esclusa import Add, App, Attempt, Backoff, Budget, Create, Lifecycle, Record, To, Window
from esclusa.artifacts.local import LocalArtifacts
from esclusa.engine.engine import Engine
from esclusa.engine.options import Options
from esclusa.ports.store import Store

POINT, _, COUNT = os.environ.get("KILL_AT", "").partition(":")
PAUSE = float(os.environ.get("HANDLER_SECONDS", "0.002"))
LEASE = float(os.environ.get("LEASE_SECONDS", "1.5"))
BUDGET = Budget("calls", Window("day", int(os.environ.get("BUDGET", "1000000"))))
_reached = 0


def reached(point: str) -> None:
    global _reached
    if point == POINT:
        _reached += 1
        if _reached == int(COUNT or 1):
            os.kill(os.getpid(), signal.Signals[os.environ.get("KILL_WITH", "SIGKILL")])


class Parcel(Record, table="parcels", key="name"):
    name: str
    lifecycle = Lifecycle("""
        ready -> packing -> sent
        packing -> ready | damaged
        damaged -> ready
    """)


class Receipt(Record, table="receipts", key="name"):
    name: str
    lifecycle = Lifecycle("kept")


class Ledger(Record, table="ledgers", key="name"):
    name: str
    sent: int = 0
    lifecycle = Lifecycle("kept")


app = App("post")
app.records += [Receipt, Ledger]


@app.stage(
    Parcel,
    take="ready",
    hold="packing",
    exhausted="damaged",
    retry=Backoff(tries=50, base=0.05, cap=0.2),
    concurrency=20,
    budget=BUDGET,
)
async def send(parcel: Parcel, at: Attempt) -> To:
    reached("handler begins")
    await asyncio.sleep(PAUSE)
    with Path(os.environ["CALLS"]).open("a") as calls:  # every call that was made
        calls.write(f"{parcel.name}\n")
    reached("handler ends")
    return To("sent", also=[Create(Receipt(name=parcel.name)), Add(Ledger, "total", sent=1)])


class WatchedStore:
    """The store, with a point before, inside and after each call between claim and settle."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("claim", "settle", "renew", "spend"):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            reached(f"before {name}")
            if f"inside {name}" == POINT:
                task = asyncio.create_task(found(*args, **options))
                await asyncio.sleep(0.0015)
                reached(f"inside {name}")
                return await task
            answer = await found(*args, **options)
            reached(f"after {name}")
            return answer

        return call


def store_for(url: str) -> Any:
    if url.startswith("sqlite:///"):
        from esclusa.stores.sqlite.store import SqliteStore

        return SqliteStore(url.removeprefix("sqlite:///"))
    if url.startswith("firestore://"):
        from esclusa.stores.firestore import FirestoreStore

        return FirestoreStore(*url.removeprefix("firestore://").split("/"))
    from esclusa.stores.postgres.store import PostgresStore

    return PostgresStore(url)


async def main(url: str) -> None:
    store: Any = WatchedStore(store_for(url))
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
