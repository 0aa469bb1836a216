"""A pipeline on a table that another program created and fills.

    CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, email TEXT, country TEXT)

Esclusa adds its own columns (check_status, check_attempts, …) and changes nothing else.
"""

from esclusa import App, Attempt, Lifecycle, Outcome, Permanent, Record, To, not_null, track


class Customer(Record, table="customers", id="customer_id", track=track(prefix="check_")):
    email: str | None
    country: str | None = None

    lifecycle = Lifecycle("""
        new -> working -> valid | invalid
        working | invalid -> new             # after an error | by an operator
    """)


app = App("customers")


@app.stage(
    Customer, take="new", hold="working", exhausted="invalid", where={"email": not_null}, every="1m"
)
async def check(customer: Customer, at: Attempt) -> Outcome:
    if "@" not in (customer.email or ""):
        raise Permanent(f"{customer.email!r} is not an address", type="bad_email")
    return To("valid")
