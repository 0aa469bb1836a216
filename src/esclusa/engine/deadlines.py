"""Since when a record is in its state, and the deadline of that state."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from esclusa.model.record import Record
from esclusa.model.stage import Stage
from esclusa.ports.store import Store

# The most steps of a record's history that are read.
MAX_STEPS = 1000


async def entered_at(store: Store, record: Record, now: datetime) -> datetime:
    """When the record entered its present state, as far as its history shows.

    Another program may have moved it without a step: then since its first step there, or now.
    """
    current = record.kind.lifecycle.current
    state = current(record.status)
    steps = await store.history(record.ref, MAX_STEPS, newest=True)
    first_seen = None
    for step in reversed(steps):
        if current(step.to) != state:
            break
        first_seen = step.at
        if current(step.frm) != state:
            break
    if first_seen is not None:
        return first_seen
    return now if steps else record.created_at or now


def deadline_of(record: Record, stages: Iterable[Stage]) -> Stage | None:
    """The stage that is the deadline of the record's state, if it has one."""
    state = record.kind.lifecycle.current(record.status)
    return next((s for s in stages if s.deadline is not None and state in s.take), None)
