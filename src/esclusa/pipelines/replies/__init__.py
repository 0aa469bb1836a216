"""``replies``: collect the replies to social posts through a metered job API, in two phases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from esclusa import App, Backoff, one_of
from esclusa.pipelines.replies import actions, process_jobs, process_posts, takeover
from esclusa.pipelines.replies.client import open_client
from esclusa.pipelines.replies.records import Job, Post, reopen_post
from esclusa.pipelines.replies.report import by_candidate
from esclusa.pipelines.replies.settings import (
    RepliesSettings,
    bucket_address,
    missing_settings,
    search_budget,
)

app = App("replies", settings=RepliesSettings, records=[Post, Job])
app.lifespan(open_client)
app.needs(missing_settings)
app.requires_artifacts(bucket_address)

app.stage(
    Post,
    take="noreplies",
    where={"exhausted": False},
    order=("platform", "created_at"),
    retry=lambda s: Backoff(tries=s.submit_tries, base="1h", cap="1d"),
    exhausted_fields={"exhausted": True},
    concurrency=1,
    budget=search_budget,
    cost=0,
    alert_backlog="2d",  # more posts than a day's quota are usual
    cycle=False,
)(process_posts.submit)
app.stage(
    Job,
    take="pending",
    hold="processing",
    exhausted="failed",
    on_exhausted=reopen_post,
    order=("created_at",),
    abandoned_after=lambda s: s.orphan_seconds,
    retry=lambda s: Backoff(tries=s.max_transient, base=s.recheck_seconds, cap="1h"),
    concurrency=lambda s: s.check_concurrency,
    cycle=False,
)(process_jobs.check)
app.stage(
    Job,
    take="quota_exceeded",
    order=("created_at",),
    retry=Backoff(tries=None),
    alert_backlog="2d",
    cycle=False,
)(process_jobs.resume)

app.declare_query(Job, takeover.abandoned(datetime(2026, 1, 1, tzinfo=UTC)))
app.parts("submit", *process_posts.PLATFORM_GROUPS)

app.cycle(every=lambda s: s.posts_every, stages=("submit",), counters=process_posts.COUNTERS)(
    process_posts.process_posts
)
app.cycle(
    every=lambda s: s.jobs_every,
    stages=("check", "resume"),
    eager=True,
    counters=process_jobs.COUNTERS,
)(process_jobs.process_jobs)

app.action(
    Post,
    "Search once more",
    es="Buscar una vez más",
    where=process_posts.EXHAUSTED,
    about={
        "en": "Allow one more search for posts whose searches failed too often.",
        "es": "Permitir una búsqueda más a publicaciones cuyas búsquedas fallaron demasiado.",
    },
)(actions.resubmit)
app.action(
    Post,
    "Collect again",
    es="Recolectar de nuevo",
    where={"status": "done"},
    about={
        "en": "Search done posts again; their files are kept as older versions.",
        "es": "Buscar de nuevo publicaciones terminadas; sus archivos quedan como versiones"
        " anteriores.",
    },
)(actions.recollect)
app.action(
    Job,
    "Check empty results again",
    es="Revisar de nuevo los resultados vacíos",
    where={"status": "empty_result"},
    about={
        "en": "Check jobs with an empty result again, with one retry more; reopen their posts.",
        "es": "Revisar de nuevo trabajos con resultado vacío, con un intento más; se reabren sus"
        " publicaciones.",
    },
)(actions.retry_empty)
app.action(
    Job,
    "Accept empty results",
    es="Aceptar los resultados vacíos",
    where={"platform": "twitter", "status": "empty_result"},
    about={
        "en": "Accept the empty results of twitter posts with few replies; finish their posts.",
        "es": "Aceptar los resultados vacíos de publicaciones de twitter con pocas respuestas, y"
        " terminarlas.",
    },
)(actions.verify_empty)
app.action(
    Job,
    "Check failed jobs again",
    es="Revisar de nuevo los trabajos fallidos",
    where={"status": one_of("failed", "quota_exceeded")},
    about={
        "en": "Check failed jobs again, unless another job of the post is done.",
        "es": "Revisar de nuevo trabajos fallidos, salvo que otro trabajo de la publicación haya"
        " terminado.",
    },
)(actions.retry_jobs)

app.view(
    "Posts whose searches failed too often: they wait for an operator",
    es="Publicaciones cuyas búsquedas fallaron demasiadas veces: esperan a un operador",
    of=Post,
    where=process_posts.EXHAUSTED,
)(process_posts.exhausted)

app.view(
    "Posts, replies and searches by country, platform and candidate",
    es="Publicaciones, respuestas y búsquedas por país, plataforma y candidato",
)(by_candidate)


@app.routes
def routes(runtime: Any) -> Any:
    """Import the routes only in a server."""
    from esclusa.pipelines.replies.routes import build  # noqa: PLC0415

    return build(runtime)


@app.commands
def commands() -> Any:
    """Import the commands only on the command line."""
    from esclusa.pipelines.replies.commands import group  # noqa: PLC0415

    return group
