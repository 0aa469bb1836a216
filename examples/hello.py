"""The pipeline to read first. It greets five people: one answers only the third time, one has moved away.

ESCLUSA_PIPELINES=examples/hello.py:app esclusa run hello.greet     (then: esclusa status, esclusa why greetings alan)
"""

from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Permanent, Record, RunContext, To


class Greeting(Record, table="greetings", key="name"):
    name: str
    words: str | None = None

    lifecycle = Lifecycle("""
        waiting -> greeting -> greeted
        greeting -> waiting | failed     # an error with tries left | the last one
        failed -> waiting                # esclusa retry greetings grace
    """)


app = App("hello")


@app.stage(
    Greeting,
    take="waiting",
    hold="greeting",
    exhausted="failed",
    retry=Backoff(tries=3, base="5s"),
    cycle=False,
)
async def say_hello(person: Greeting, at: Attempt) -> Outcome:
    if person.name == "grace":
        raise Permanent(
            "grace has moved away", type="moved_away"
        )  # failed at once, with a dead letter
    if person.name == "alan" and at.number < 3:
        raise TimeoutError(
            "alan did not answer"
        )  # a retry after 5 seconds, then 10; nobody else waits for it
    return To("greeted", words=f"Hello, {person.name.title()}!")


@app.cycle(every="5s")
async def greet(run: RunContext) -> None:
    await run.records.insert(
        [Greeting(name=name) for name in ("ada", "alan", "edsger", "grace", "katherine")]
    )  # once each
    await run.drain("say-hello")
