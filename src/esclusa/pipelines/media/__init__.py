"""Media of webhook publications, downloaded before their links die. See README.md beside this file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from esclusa import App, not_null
from esclusa.http import SafeSession, safe_session
from esclusa.pipelines.media import downloads, views
from esclusa.pipelines.media.records import RECORDS, Publication
from esclusa.pipelines.media.settings import MediaSettings

app = App("media", settings=MediaSettings, records=list(RECORDS))

app.stage(
    Publication, take="pending", hold="downloading", exhausted="error", where={"imagen_url": not_null}, retry=lambda s: s.backoff,
    every=lambda s: s.interval_seconds, concurrency=lambda s: s.concurrency, alert_rate=lambda s: s.alert_error_rate,
    alert_min=lambda s: s.alert_min_batch, dead_letter=downloads.letter, counters={"success": "success", "retried": "retried", "error": "error"},
)(downloads.download)  # fmt: skip

app.view(
    "Media by state, and how often they were tried",
    es="Medios por estado, y cuántas veces se intentaron",
)(views.summary)
app.view(
    "Media that could not be had, the newest first", es="Medios que no se pudieron obtener, los más recientes primero",
    of=Publication, where=views.FAILED,
)(views.errors)  # fmt: skip
app.view(
    "Media that will be tried again, the most tried first", es="Medios que se volverán a intentar, los más intentados primero",
    of=Publication, where=views.RETRIED,
)(views.retries)  # fmt: skip
app.asks(Publication, views.WITH_MEDIA, average="attempts")
app.asks(Publication, views.RETRIED, order=("-attempts", "updated_at"))


@app.lifespan
@asynccontextmanager
async def outside(settings: MediaSettings) -> AsyncIterator[SafeSession]:
    async with safe_session(settings.allowed, connections=settings.concurrency) as guard:
        yield guard


@app.routes
def routes(runtime: Any) -> Any:
    from esclusa.pipelines.media.routes import router  # noqa: PLC0415 - only a server needs it

    return router(runtime)


@app.commands
def commands() -> Any:
    from esclusa.pipelines.media.commands import media  # noqa: PLC0415 - only the command line needs it

    return media


@app.checks
def checks(settings: MediaSettings) -> Iterator[tuple[str, str]]:
    if settings.app_secret is None:
        yield (
            "warn",
            "META_APP_SECRET is not set: POST /webhooks/meta answers 503 and stores nothing",
        )
    if settings.verify_token is None:
        yield (
            "warn",
            "META_VERIFY_TOKEN is not set: Meta cannot verify the webhook (GET /webhooks/meta answers 503)",
        )
