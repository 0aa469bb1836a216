"""Approval by a person: a claim waits for a decision with a reason, for two days at most.

    export ESCLUSA_PIPELINES=examples/approval.py:app
    esclusa worker
    esclusa move expense_claims 1 --to approved --set note="receipts checked" --reason "by Ana"

In the console, the record's page has the same form. Only a token with the role operate may decide.
"""

from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Record, To, publish


class Claim(Record, table="expense_claims", key="number"):
    number: str
    amount: int
    note: str | None = None

    lifecycle = Lifecycle("""
        new -> approved                  # small amounts need nobody
        new -> review -> approved | rejected
        review -> escalated -> approved | rejected
        approved -> paid
    """)


app = App("expenses")

# Nobody decided for two days: the claim goes to the manager, and an alert begins.
app.deadline(Claim, "review", after="2d", to="escalated")


@app.stage(Claim, take="new", retry=Backoff(tries=None))
async def sort(claim: Claim, at: Attempt) -> Outcome:
    if claim.amount < 100:
        return To("approved", note="small amount")
    return To("review", also=[publish("reviews", {"claim": claim.number})])


@app.stage(Claim, take="approved", retry=Backoff(tries=None))
async def pay(claim: Claim, at: Attempt) -> Outcome:
    return To("paid")
