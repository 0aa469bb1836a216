"""``replies``: collect the replies of social posts through a metered job API, in two phases."""

from __future__ import annotations

from typing import Any

from esclusa import App, Backoff
from esclusa.pipelines.replies import checking, submitting
from esclusa.pipelines.replies.errand import office
from esclusa.pipelines.replies.records import Job, Post, post_back
from esclusa.pipelines.replies.settings import RepliesSettings, missing, quota

app = App("replies", settings=RepliesSettings, records=[Post, Job])
app.lifespan(office)
app.needs(missing)

app.stage(
    Post, take="noreplies", where={"exhausted": False}, order=("platform", "created_at"), retry=Backoff(tries=None, base="1h", cap="1d"),
    concurrency=1, budget=quota, cost=0, cycle=False,
)(submitting.submit)  # fmt: skip
app.stage(
    Job, take="pending", hold="processing", exhausted="failed", on_exhausted=post_back, order=("created_at",),
    retry=lambda s: Backoff(tries=s.max_transient, base=s.recheck_seconds, cap="1h"), concurrency=lambda s: s.check_concurrency,
    cycle=False,
)(checking.check)  # fmt: skip
app.stage(
    Job, take="quota_exceeded", order=("created_at",), retry=Backoff(tries=None), cycle=False
)(checking.resume)

app.parts("submit", *submitting.TURNS)

app.cycle(every=lambda s: s.posts_every, stages=("submit",), counters=submitting.COUNTERS)(
    submitting.process_posts
)
app.cycle(
    every=lambda s: s.jobs_every, stages=("check", "resume"), eager=True, counters=checking.COUNTERS
)(checking.process_jobs)

app.view(
    "Posts whose searches failed too often: they wait for an operator",
    es="Publicaciones cuyas búsquedas fallaron demasiadas veces: esperan a un operador",
    of=Post, where=submitting.EXHAUSTED,
)(submitting.exhausted)  # fmt: skip


@app.routes
def routes(runtime: Any) -> Any:
    from esclusa.pipelines.replies.routes import build  # noqa: PLC0415 - only a server needs them

    return build(runtime)


@app.commands
def commands() -> Any:
    from esclusa.pipelines.replies.commands import group  # noqa: PLC0415 - only the command line needs them

    return group


__all__ = ["Job", "Post", "app"]
