"""A pipeline on a table that is already there, filled by somebody else's program:

CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, email TEXT, country TEXT)

Its rows get a lifecycle in columns of their own (check_status, check_attempts, …); nothing else in it is touched.
"""

from esclusa import App, Attempt, Lifecycle, Outcome, Permanent, Record, To, not_null, track


class Customer(Record, table="customers", id="customer_id", track=track(prefix="check_")):
    email: str | None
    country: str | None = None

    lifecycle = Lifecycle("""
        new -> checking -> valid | invalid
        checking -> new
        invalid -> new
    """)


app = App("customers")


@app.stage(
    Customer,
    take="new",
    hold="checking",
    exhausted="invalid",
    where={"email": not_null},
    every="1m",
)
async def check(customer: Customer, at: Attempt) -> Outcome:
    if "@" not in (customer.email or ""):
        raise Permanent(f"{customer.email!r} is no address", type="bad_email")
    return To("valid")
