"""Dead letters: what failed for good is kept with its error, corrected, and sent back.

    export ESCLUSA_PIPELINES=examples/dead_letters.py:app
    esclusa run letters.send
    esclusa dead-letters
    esclusa dead-letters redrive --error bad_address --set email=ana@example.com --reason "typo"

The dead letter of a record is written in the transaction that moves it to its exhausted state.
"""

from typing import Any

from esclusa import (
    App,
    Attempt,
    Backoff,
    Create,
    Effect,
    Lifecycle,
    Outcome,
    Permanent,
    Record,
    To,
)


class Letter(Record, table="letters", key="number"):
    number: int
    email: str
    text: str = ""

    lifecycle = Lifecycle("""
        new -> sending -> sent
        sending -> new | failed
        failed -> new
    """)


class Complaint(Record, table="letter_complaints", key="letter"):
    letter: str
    lifecycle = Lifecycle("open -> closed")


app = App("letters", records=[Complaint])  # no stage takes complaints


def without_text(letter: Letter) -> dict[str, Any]:
    """What the dead letter stores: not the text, which is private."""
    return {"number": letter.number, "email": letter.email}


def complain(letter: Letter) -> list[Effect]:
    """Somebody has to look at it: a record of another kind, in the same transaction."""
    return [Create(Complaint(letter=letter.id))]


@app.stage(
    Letter,
    take="new",
    hold="sending",
    exhausted="failed",
    retry=Backoff(tries=3),
    dead_letter=without_text,
    on_exhausted=complain,
)
async def send(letter: Letter, at: Attempt) -> Outcome:
    if "@" not in letter.email:
        raise Permanent(f"{letter.email!r} is not an address", type="bad_address")
    return To("sent")
