"""An example of each option of ``@app.stage`` and ``@app.cycle``, for the reference. Tests use it.

``Order``, ``searches`` and the functions of ``NAMES`` are what an example may refer to.
"""

from __future__ import annotations

from typing import Any

from esclusa import (
    Backoff,
    Breaker,
    Budget,
    Create,
    Effect,
    Lifecycle,
    Record,
    Window,
    above,
    cron,
    not_null,
    one_of,
)


class Order(Record, table="reference_orders", key="number"):
    """What the stages of the examples take."""

    number: str
    email: str | None = None
    country: str = "CL"
    amount: int = 0
    priority: int = 0
    given_up: bool = False

    lifecycle = Lifecycle("""
        new -> paying | later | refused | paid
        paying -> paid | new | later | refused
        later -> new | paid | refused
        refused -> new
    """)


class Complaint(Record, table="reference_complaints", key="order"):
    """What an exhausted order creates."""

    order: str
    lifecycle = Lifecycle("open -> closed")


searches = Budget("reference-searches", Window("day", 400, "UTC"))


def complain(order: Order) -> list[Effect]:
    """The effects of giving up."""
    return [Create(Complaint(order=order.id))]


NAMES: dict[str, Any] = {
    "Backoff": Backoff,
    "Breaker": Breaker,
    "above": above,
    "complain": complain,
    "cron": cron,
    "not_null": not_null,
    "one_of": one_of,
    "searches": searches,
}

# What the other arguments of an example are, if not `take="new", exhausted="refused"`.
CONTEXT: dict[str, tuple[str, ...]] = {
    "take": ('exhausted="refused"',),
    "exhausted": ('take="new"',),
    "exhausted_fields": ('take="new"', 'where={"given_up": False}'),
    "retry_to": ('take=("new", "later")', 'exhausted="refused"'),
    "abandoned_after": ('take="new"', 'hold="paying"', 'exhausted="refused"'),
    "per": ('take="new"', 'exhausted="refused"', "at_once=2"),
    "at_once": ('take="new"', 'exhausted="refused"', 'per="country"'),
    "cost": ('take="new"', 'exhausted="refused"', "budget=searches"),
    "alert_budget": ('take="new"', 'exhausted="refused"', "budget=searches"),
    "alert_min": ('take="new"', 'exhausted="refused"', "alert_rate=0.1"),
    "eager": ('take="new"', 'exhausted="refused"', 'every="5m"'),
}

EXAMPLES: dict[str, str] = {
    "take": 'take=("new", "later")',
    "hold": 'hold="paying"',
    "exhausted": 'exhausted="refused"',
    "retry_to": 'retry_to="later"',
    "where": 'where={"email": not_null, "amount": above(0), "country": one_of("CL", "PE")}',
    "order": 'order=("-priority", "due_at")',
    "since": 'since="2026-11-18"',
    "per": 'per="country"',
    "at_once": "at_once=lambda settings: settings.at_a_time",
    "retry": 'retry=Backoff(tries=5, base="2s", cap="10m")',
    "concurrency": "concurrency=lambda settings: settings.at_a_time",
    "budget": "budget=searches",
    "breaker": 'breaker=Breaker("timeout", errors=5, pause="30s")',
    "cost": "cost=5",
    "timeout": 'timeout="30s"',
    "lease": 'lease="5m"',
    "abandoned_after": 'abandoned_after="15m"',
    "extra_try": "extra_try=False",
    "exhausted_fields": 'exhausted_fields={"given_up": True}',
    "alert_backlog": 'alert_backlog="10m"',
    "alert_budget": "alert_budget=0.9",
    "alert_silence": 'alert_silence="6h"',
    "dead_letter": 'dead_letter=lambda order: {"number": order.number}',
    "dead_letter_topic": 'dead_letter_topic="refused-orders"',
    "log_as": 'log_as=lambda order: f"order {order.number}"',
    "on_exhausted": "on_exhausted=complain",
    "every": 'every=cron("30 6 * * *", "America/Santiago")',
    "eager": "eager=True",
    "alert_rate": "alert_rate=0.05",
    "alert_min": "alert_min=100",
    "processes": "processes=4",
    "counters": 'counters={"paid": "charged"}',
    "batch": "batch=100",
    "cycle": "cycle=False",
    "name": 'name="charge"',
}
