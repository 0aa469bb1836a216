"""examples/compare: the quota pipeline with Esclusa. See docs/comparison.md."""

from __future__ import annotations

from collections.abc import Sequence

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
)


class Reading(Record, table="readings", key="city"):
    city: str
    celsius: float | None = None

    lifecycle = Lifecycle("""
        waiting -> asking -> done
        asking -> waiting | failed
        failed -> waiting
    """)


app = App("weather")
calls = Budget("weather-calls", Window("minute", 20, "UTC"))
cities: Sequence[str] = ()


class UnknownCity(Permanent):
    """The service does not know the city."""


async def temperature(city: str) -> float:
    """The service. A test replaces it."""
    raise NotImplementedError


@app.cycle(every="1h")
async def collect(run: RunContext) -> None:
    await run.records.insert([Reading(city=city) for city in cities])


@app.stage(
    Reading,
    take="waiting",
    hold="asking",
    exhausted="failed",
    budget=calls,
    retry=Backoff(tries=5, base="2s"),
)
async def ask(reading: Reading, at: Attempt) -> Outcome:
    return To("done", celsius=await temperature(reading.city))
