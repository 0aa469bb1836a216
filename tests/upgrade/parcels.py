"""The pipeline whose database was made by version 0.1.0, and which goes on with it."""

from __future__ import annotations

from datetime import UTC, datetime

from esclusa import (
    App,
    Attempt,
    Backoff,
    Budget,
    Lifecycle,
    Outcome,
    Permanent,
    Record,
    RunContext,
    To,
    Window,
    track,
)

CREATED = datetime(2026, 11, 1, 12, tzinfo=UTC)
POST = Budget("post", Window("month", 20))
STATES = """
    waiting -> sending -> sent
    sending -> waiting | failed
    failed -> waiting
"""


class Parcel(Record, table="parcels", key="number", archive=True):
    """Esclusa creates its table."""

    number: int
    weight: int = 1
    ordered_at: datetime = CREATED

    lifecycle = Lifecycle(STATES)


class Customer(Record, table="customers", id="customer_id", track=track(prefix="check_")):
    """Another program created its table, where the store has tables."""

    email: str | None

    lifecycle = Lifecycle(STATES)


app = App("post", records=[Parcel, Customer])


@app.stage(
    Parcel,
    take="waiting",
    hold="sending",
    exhausted="failed",
    retry=Backoff(tries=2, base="1s"),
    budget=POST,
    cycle=False,
)
async def send(parcel: Parcel, at: Attempt) -> Outcome:
    if parcel.weight > 100:
        raise Permanent("too heavy", type="too_heavy")
    return To("sent")


@app.cycle(every="1h")
async def deliver(run: RunContext) -> None:
    await run.drain("send")


@app.cycle(every="1d")
async def store_away(run: RunContext) -> None:
    archived = await run.archiver.archive(Parcel, {"number": 1}, "ordered_at")
    run.count("archived", archived)


@app.cycle(every="1d")
async def misfire(run: RunContext) -> None:
    raise RuntimeError("no fuel")
