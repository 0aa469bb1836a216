"""The pipelines of the steady measures, which ``esclusa worker`` runs.

A ``Turn`` goes round for ever, so that the number of records stays the same and only the history
grows. A ``Parcel`` is sent once.
"""

from __future__ import annotations

from esclusa import App, Attempt, Lifecycle, Outcome, Record, To


class Turn(Record, table="turns", key="number"):
    number: int
    payload: str

    lifecycle = Lifecycle("""
        ready -> working -> done
        working -> ready | failed
        done -> ready | failed
    """)


class Parcel(Record, table="parcels", key="number"):
    number: int
    payload: str

    lifecycle = Lifecycle("""
        ready -> working -> sent | failed
        working -> ready
    """)


soak = App("soak")
billion = App("billion")


@soak.stage(Turn, take="ready", hold="working", exhausted="failed", concurrency=200)
async def work(turn: Turn, at: Attempt) -> Outcome:
    return To("done")


@soak.stage(Turn, take="done", exhausted="failed", concurrency=200)
async def again(turn: Turn, at: Attempt) -> Outcome:
    return To("ready")


@billion.stage(Parcel, take="ready", hold="working", exhausted="failed", concurrency=500)
async def send(parcel: Parcel, at: Attempt) -> Outcome:
    return To("sent")
