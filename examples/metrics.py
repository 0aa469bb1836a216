"""Figures of one's own: gauges for Prometheus, counters of a run, an alert that is stricter.

export ESCLUSA_PIPELINES=examples/metrics.py:app
esclusa worker --port 9100    # then http://127.0.0.1:9100/metrics
"""

from collections.abc import Iterable
from typing import Any

from esclusa import App, Attempt, Backoff, Gauge, Lifecycle, Outcome, Record, To


class Order(Record, table="measured_orders", key="number"):
    number: int
    country: str
    amount: int

    lifecycle = Lifecycle("""
        new -> paid | refused
        refused -> new
    """)


app = App("orders")


@app.stage(
    Order,
    take="new",
    exhausted="refused",
    retry=Backoff(tries=2),
    counters={"paid": "charged"},  # what a run calls the records that ended in paid
    alert_rate=0.05,  # an alert if more than 5% of the attempts fail, of at least 100
    alert_min=100,
    alert_backlog="10m",
)
async def charge(order: Order, at: Attempt) -> Outcome:
    return To("paid")


@app.gauges
async def figures(records: Any) -> Iterable[Gauge]:
    """Read at most once a minute: `esclusa_orders_unpaid_amount{country="CL"} 1200`."""
    totals = await records.totals(Order, ["country"], sums=["amount"], where={"status": "new"})
    return [
        Gauge(
            "unpaid_amount",
            total.sums["amount"],
            "The amount of orders that are not paid.",
            country=total.values["country"],
        )
        for total in totals
    ]
