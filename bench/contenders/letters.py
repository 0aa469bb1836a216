"""One pipeline in two versions: the second gives every state another name."""

from __future__ import annotations

import asyncio

from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Record, Retry, To

before, after = App("letters"), App("letters")
_QUICKLY = Backoff(tries=5, base=0.2, cap=1.0)


class FirstLetter(Record, table="letters", key="name"):
    name: str

    lifecycle = Lifecycle("""
        new -> writing -> sent | failed
        writing -> new
        failed -> new
    """)


class Letter(Record, table="letters", key="name"):
    name: str

    lifecycle = Lifecycle(
        """
        pending -> sending -> delivered | lost
        sending -> pending
        lost -> pending
        """,
        renamed={"new": "pending", "writing": "sending", "sent": "delivered", "failed": "lost"},
    )


@before.stage(
    FirstLetter, take="new", hold="writing", exhausted="failed", retry=_QUICKLY, concurrency=32
)
async def send(letter: FirstLetter, at: Attempt) -> Outcome:
    """Slow enough to hold leases; every tenth goes back to its own state once."""
    await asyncio.sleep(0.02)
    again = letter.name.endswith("70") and letter.attempts == 1
    return Retry("again") if again else To("sent")


@after.stage(
    Letter, take="pending", hold="sending", exhausted="lost", retry=_QUICKLY, concurrency=32
)
async def deliver(letter: Letter, at: Attempt) -> Outcome:
    await asyncio.sleep(0.02)
    return To("delivered")
