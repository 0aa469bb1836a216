"""The pipeline to read first: it greets five people. Alan answers late, Grace has moved away.

To try it:

    export ESCLUSA_PIPELINES=examples/hello.py:app
    esclusa run hello.greet
    esclusa status
    esclusa why greetings alan
"""

from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Permanent, Record, RunContext, To

PEOPLE = ("ada", "alan", "edsger", "grace", "katherine")


class Greeting(Record, table="greetings", key="name"):
    name: str
    words: str | None = None

    lifecycle = Lifecycle("""
        waiting -> greeting -> greeted
        greeting -> waiting | failed     # after an error: attempts left | none left
        failed -> waiting                # by an operator: esclusa retry greetings grace
    """)


app = App("hello")


@app.stage(
    Greeting,
    take="waiting",
    hold="greeting",
    exhausted="failed",
    retry=Backoff(tries=3, base="5s"),
    cycle=False,  # no cycle of its own: greet() below runs it
)
async def say_hello(person: Greeting, at: Attempt) -> Outcome:
    if person.name == "grace":
        # Permanent: no further attempt. The record moves to failed and leaves a dead letter.
        raise Permanent("grace has moved away", type="moved_away")
    if person.name == "alan" and at.number < 3:
        # Any other error: a new attempt after about 5 seconds, then 10. Nobody else waits.
        raise TimeoutError("alan did not answer")
    return To("greeted", words=f"Hello, {person.name.title()}!")


@app.cycle(every="5s")
async def greet(run: RunContext) -> None:
    # The key is unique, so people who are already in the table are not inserted again.
    await run.records.insert([Greeting(name=name) for name in PEOPLE])
    await run.drain("say-hello")
