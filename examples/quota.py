"""A flaky service with a quota: 500 calls a day, never more than 5 in any second, shared by all.

    export ESCLUSA_PIPELINES=examples/quota.py:app
    esclusa worker
    esclusa budgets

What the quota does not allow now waits, and keeps its attempts. `docs/tutorial.md` builds a whole
pipeline of this kind.
"""

from esclusa import (
    App,
    Attempt,
    Backoff,
    Breaker,
    Budget,
    Lifecycle,
    Outcome,
    Rate,
    Record,
    Throttled,
    To,
    Window,
)


class Address(Record, table="quota_addresses", key="text"):
    text: str
    place: str | None = None

    lifecycle = Lifecycle("""
        new -> locating -> located
        locating -> new | failed
        failed -> new
    """)


app = App("geocoder")

# A calendar day in the provider's time zone, and a pace for its limit per sliding second.
calls = Budget("geocoder", Window("day", 500, "America/Santiago"), Rate(5, "second"))


class Busy(Exception):
    """The service answers 429."""


async def locate(text: str) -> str:
    """Plays the service."""
    if text == "busy":
        raise Busy
    return f"{len(text)},{-len(text)}"


@app.stage(
    Address,
    take="new",
    hold="locating",
    exhausted="failed",
    budget=calls,
    retry=Backoff(tries=4, base="1s", cap="1m"),
    breaker=Breaker("timeout", errors=5),  # an outage: pause the stage, count no attempts
    timeout="10s",
)
async def ask(address: Address, at: Attempt) -> Outcome:
    try:
        place = await locate(address.text)
    except Busy:
        # The provider counts otherwise than we do: nobody calls it for half a minute.
        raise Throttled("the service answers 429", after=30) from None
    return To("located", place=place)
