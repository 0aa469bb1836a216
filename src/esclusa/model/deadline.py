"""Deadlines: how long a record may be in a state that no stage takes, and where it goes then."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from esclusa.model import duration
from esclusa.model.outcome import Outcome, To, Wait
from esclusa.model.record import Record
from esclusa.model.texts import text
from esclusa.model.value import value

if TYPE_CHECKING:
    from esclusa.engine.attempt import Attempt

# The name of the alert that begins when a record has passed its deadline.
ALERT = "deadline"


@value
class Deadline:
    """So many seconds in a state; then the record goes to ``to``."""

    seconds: float
    to: str


async def pass_deadline(record: Record, at: Attempt) -> Outcome:
    """The handler of the stage that a deadline is: wait for it, then move the record."""
    deadline = at.stage.deadline
    assert deadline is not None
    values = {"to": deadline.to, "limit": duration.words(deadline.seconds)}
    until = await at.entered_at() + timedelta(seconds=deadline.seconds)
    if until > at.now:
        return Wait(until, text("deadline_waits", **values))
    values |= {"table": record.kind.table, "state": record.status}
    message = text("deadline_passed", **values, record=record.id)
    await at.run.alert(ALERT, message, record=record.id)
    reason = text("deadline_moved", **values)
    return To(deadline.to, reason=reason, attempts=max(0, at.number - 1))
