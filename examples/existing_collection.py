"""A pipeline on a Firestore collection that another program created and fills.

    db.collection("customers").add({"email": "ana@example.com", "country": "CL"})

Esclusa adds its own fields (check_status, check_attempts, …) and changes nothing else, neither the
id nor the fields of that program. Documents that it adds later are found by the next run.
"""

from esclusa import App, Attempt, Lifecycle, Outcome, Permanent, Record, To, track


class Customer(Record, table="customers", key="email", track=track(prefix="check_")):
    email: str | None
    country: str = "unknown"  # where a document has none

    lifecycle = Lifecycle("""
        new -> working -> valid | invalid
        working | invalid -> new             # after an error | by an operator
    """)


app = App("customers")


@app.stage(Customer, take="new", hold="working", exhausted="invalid", every="1m")
async def check(customer: Customer, at: Attempt) -> Outcome:
    if "@" not in (customer.email or ""):
        raise Permanent(f"{customer.email!r} is not an address", type="bad_email")
    return To("valid")
