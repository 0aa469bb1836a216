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


class Route(Record, table="routes", key="name", archive=True):
    """Its ids have characters that version 0.1.0 escaped in another way."""

    name: str
    closed_at: datetime = CREATED

    lifecycle = Lifecycle("open -> closed")


class Stop(
    Record, table="stops", key=("route_id", "place"), within="route_id", parent=Route, archive=True
):
    """Its key has the id of another record."""

    route_id: str
    place: str
    weight: int = 1

    lifecycle = Lifecycle(STATES)


class Visit(Record, table="visits", key=("stop_id", "day"), refs={"stop_id": Stop}):
    """Its key has the id of a record whose key has an id."""

    stop_id: str
    day: str
    route_id: str | None = None

    lifecycle = Lifecycle("planned -> done")


class Remark(Record, table="remarks", key="number", refs={"about": Stop, "route_id": Route}):
    """Its own id stays; what it refers to gets another one."""

    number: int
    about: str | None = None
    route_id: str | None = None

    lifecycle = Lifecycle("noted")


ROUTES = ["norte", "sur: 1/2", "Ñuñoa ~ 100 %", "Camino " + "á é " * 60, "fin: 9"]
PLACES = ["stop-1", "Av. Perú #12", "a=b", "."]
app = App("post", records=[Parcel, Customer, Route, Stop, Visit, Remark])


@app.stage(Stop, take="waiting", hold="sending", exhausted="failed", cycle=False)
async def reach(stop: Stop, at: Attempt) -> Outcome:
    if stop.weight > 100:
        raise Permanent("too heavy", type="too_heavy")
    return To("sent")


@app.cycle(every="1h")
async def travel(run: RunContext) -> None:
    await run.drain("reach")


@app.cycle(every="1d")
async def store_routes(run: RunContext) -> None:
    await run.archiver.archive(Route, {"name": ROUTES[4]}, "closed_at")


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
