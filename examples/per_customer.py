"""Limits per key: at most two calls of one customer at once, and turns between customers.

    export ESCLUSA_PIPELINES=examples/per_customer.py:app
    esclusa worker

One customer with a hundred thousand calls does not hold up nine with ten. The limit counts in the
whole cluster.
"""

from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Record, To


class Call(Record, table="customer_calls", key=("customer_id", "number")):
    customer_id: str
    number: int

    lifecycle = Lifecycle("""
        new -> calling -> done
        calling -> new | failed
        failed -> new
    """)


app = App("calls")


@app.stage(
    Call,
    take="new",
    hold="calling",
    exhausted="failed",
    retry=Backoff(tries=3),
    per="customer_id",
    at_once=2,
    concurrency=20,
)
async def call(record: Call, at: Attempt) -> Outcome:
    return To("done")
