"""Handlers that mypy accepts, and handlers that it refuses where a comment names the error."""

from __future__ import annotations

from collections.abc import Sequence

from esclusa import App, Attempt, Lifecycle, Outcome, Record, Retry, RunContext, To


class Post(Record, table="posts"):
    text: str = ""
    lifecycle = Lifecycle("new -> done")


class Reply(Record, table="replies"):
    lifecycle = Lifecycle("new -> done")


app = App("typed")


@app.stage(Post, take="new")
async def handle(post: Post, at: Attempt) -> Outcome:
    return To("done", text=post.text)


@app.stage(Post, take="new", timeout="5s", concurrency=lambda settings: settings.parallel)
def handle_in_a_thread(post: Post, at: Attempt) -> To | Retry:
    return To("done")


@app.stage(Post, take="new")
async def handle_any_record(record: Record, at: object) -> To:
    return To("done")


@app.stage(Post, take="new", batch=10)
async def handle_batch(posts: Sequence[Post], at: Attempt) -> list[Outcome]:
    return [await handle(post, at) for post in posts]


@app.cycle(every="5m", stages=["handle"])
async def ingest(run: RunContext) -> None:
    await run.drain("handle")


@app.stage(Post, take="new")  # error: arg-type
async def other_record(reply: Reply, at: Attempt) -> Outcome:
    return To("done")


@app.stage(Post, take="new")  # error: arg-type
async def no_attempt(post: Post) -> Outcome:
    return To("done")


@app.stage(Post, take="new")  # error: arg-type
async def wrong_attempt(post: Post, at: int) -> Outcome:
    return To("done")


@app.stage(Post, take="new")  # error: type-var
async def wrong_answer(post: Post, at: Attempt) -> str:
    return "done"


@app.stage(Post, take="new")  # error: type-var
def no_answer(post: Post, at: Attempt) -> None:
    return None


@app.stage(Post, take="new", batch=10)  # error: arg-type
async def batch_of_one(post: Post, at: Attempt) -> list[Outcome]:
    return [To("done")]


@app.stage(Post, take="new", batch=10)  # error: type-var
async def one_answer_for_a_batch(posts: list[Post], at: Attempt) -> Outcome:
    return To("done")


@app.stage(Post, take="new", concurency=3)  # error: call-overload
async def misspelt_option(post: Post, at: Attempt) -> Outcome:
    return To("done")


@app.stage(Post, take="new", cost="1")  # error: call-overload
async def wrong_option(post: Post, at: Attempt) -> Outcome:
    return To("done")


@app.cycle(every="5m")  # error: type-var
async def cycle_without_run() -> None:
    """A cycle's function takes the run."""


@app.cycle(evry="5m")  # error: call-arg
async def misspelt_cycle_option(run: RunContext) -> None:
    """The option is called every."""
