"""Approval by a person: a claim waits for a decision with a note, for two days at most.

    export ESCLUSA_PIPELINES=examples/approval.py:app EXPENSES_APPROVERS=cli:$USER
    esclusa worker
    esclusa act expenses.decide 1 -p to=approved -p note="receipts checked" --reason "by Ana"

In the console, the record's page has the same form.
"""

from typing import Literal

from pydantic import BaseModel, Field

from esclusa import (
    ActionContext,
    App,
    Attempt,
    Backoff,
    Lifecycle,
    Outcome,
    Record,
    To,
    option,
    publish,
)


class Settings(BaseModel):
    approvers: list[str] = option("EXPENSES_APPROVERS", [], help="Who decides, by name.")


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


app = App("expenses", settings=Settings)

# Nobody decided for two days: the claim goes to the manager, and an alert begins.
app.deadline(Claim, "review", after="2d", to="escalated")

# Others are refused, whichever way they try.
app.decision(Claim, ["review", "escalated"], by=lambda settings: settings.approvers)


class Decision(BaseModel):
    to: Literal["approved", "rejected"]
    note: str = Field(min_length=3)


@app.action(
    Claim, "Decide", es="Decidir", where={"status": ["review", "escalated"]}, params=Decision
)
async def decide(claim: Claim, at: ActionContext) -> To:
    """Approve or reject a claim."""
    return To(at.params.to, note=at.params.note)


@app.stage(Claim, take="new", retry=Backoff(tries=None))
async def sort(claim: Claim, at: Attempt) -> Outcome:
    if claim.amount < 100:
        return To("approved", note="small amount")
    return To("review", also=[publish("reviews", {"claim": claim.number})])


@app.stage(Claim, take="approved", retry=Backoff(tries=None))
async def pay(claim: Claim, at: Attempt) -> Outcome:
    return To("paid")
