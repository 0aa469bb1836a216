"""A pipeline for the tests: orders are charged; one that is worth too much fails."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from time import monotonic
from typing import Any

from esclusa import App, Attempt, Lifecycle, Outcome, Permanent, Record, To

app = App("shop")
# When the handler began to handle each order.
handled: dict[str, float] = {}


class Channel(Enum):
    WEB = "web"
    STORE = "store"


class Order(Record, table="orders", key="number"):
    number: str
    amount: Decimal = Decimal(0)
    channel: Channel = Channel.WEB
    lines: list[Any] = []
    placed_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    picture: bytes | None = None
    weight: float | None = None
    lifecycle = Lifecycle("new -> charging -> charged | new | failed\nfailed -> new")


@app.stage(Order, take="new", hold="charging", exhausted="failed")
async def charge(order: Order, at: Attempt) -> Outcome:
    handled[order.number] = monotonic()
    if order.amount > 1000:
        raise Permanent("it is worth too much")
    return To("charged")
