"""Download the media of webhook publications before their links expire.

The guide is docs/pipelines/media.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from esclusa import App, Backoff, above, below, one_of
from esclusa.http import safe_session, session
from esclusa.pipelines.media import actions, deliveries, downloads, views
from esclusa.pipelines.media.downloads import MediaContext
from esclusa.pipelines.media.links import GraphApi
from esclusa.pipelines.media.paths import DEFAULT_PATH
from esclusa.pipelines.media.records import (
    FurtherPicture,
    MediaFile,
    MediaNotice,
    Publication,
    WebhookDelivery,
)
from esclusa.pipelines.media.settings import MediaSettings

if TYPE_CHECKING:
    from esclusa import Runtime

app = App(
    "media",
    settings=MediaSettings,
    records=[Publication, FurtherPicture, MediaFile, MediaNotice, WebhookDelivery],
)
app.adopt(Publication, lambda s: s.adopt)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COUNTERS = {"success": "success", "retried": "retried", "error": "error"}

app.stage(
    Publication,
    take="pending",
    hold="downloading",
    exhausted="error",
    where=lambda s: s.where,
    abandoned_after="10m",
    retry=lambda s: s.backoff,
    breaker=lambda s: s.breaker,
    concurrency=lambda s: s.concurrency,
    dead_letter=downloads.dead_letter,
    log_as=downloads.named,
    cycle=False,
)(downloads.download)
app.cycle(
    name="download",
    stages=["download", "pictures"],
    every=lambda s: s.interval_seconds,
    alert_rate=lambda s: s.alert_error_rate,
    alert_min=lambda s: s.alert_min_batch,
    counters=COUNTERS,
)(downloads.run_downloads)
app.stage(
    FurtherPicture,
    name="pictures",
    take="pending",
    hold="downloading",
    exhausted="error",
    where={"imagen_url": above("")},
    retry=lambda s: s.backoff,
    breaker=lambda s: s.breaker,
    concurrency=lambda s: s.concurrency,
    dead_letter=downloads.dead_letter,
    log_as=downloads.named,
    cycle=False,
)(downloads.download_picture)
app.stage(
    WebhookDelivery,
    name="map",
    take="received",
    exhausted="failed",
    retry=Backoff(tries=20, base=5, cap=300),
    concurrency=2,
    alert_rate=None,
    dead_letter=deliveries.dead_letter,
)(deliveries.map_delivery)

app.action(
    Publication,
    "Retry failed media",
    es="Reintentar medios fallidos",
    where={"status": "error"},
    params=actions.RetryParams,
    about={
        "en": "Retry publications in error: back to pending, attempts at 0.",
        "es": "Reintentar publicaciones con error: vuelven a pending, con 0 intentos.",
    },
)(actions.retry)
app.action(
    WebhookDelivery,
    "Map again",
    es="Procesar de nuevo",
    where={"status": one_of("mapped", "failed")},
    about={
        "en": "Map calls of the webhook to publications again; known media are not added twice.",
        "es": "Convertir de nuevo llamadas del webhook en publicaciones; los medios conocidos no se"
        " agregan otra vez.",
    },
)(actions.map_again)

app.view(
    "Media by state, with their average attempts",
    es="Medios por estado, con el promedio de intentos",
)(views.summary)
app.view(
    "Failed media, newest first",
    es="Medios fallidos, los más recientes primero",
    of=Publication,
    where=views.FAILED,
)(views.errors)
app.view(
    "Media that will be retried, most attempts first",
    es="Medios que se reintentarán, con más intentos primero",
    of=Publication,
    where=views.RETRIED,
)(views.retries)
app.declare_query(Publication, views.WITH_MEDIA, sum="attempts")
app.declare_query(WebhookDelivery, {"status": "mapped", "received_at": below(EPOCH)})
app.declare_query(Publication, views.RETRIED, order=("-attempts", "updated_at"))


@app.lifespan
@asynccontextmanager
async def context(settings: MediaSettings) -> AsyncIterator[MediaContext]:
    """Open the HTTP sessions of the downloads and of the Graph API."""
    async with (
        safe_session(settings.allowed, connections=settings.concurrency) as links,
        session(connections=settings.concurrency) as calls,
    ):
        graph = None
        if settings.access_token is not None:
            token = settings.access_token.get_secret_value()
            graph = GraphApi(calls, settings.graph_url, token)
        yield MediaContext(links, graph)


@app.routes
def routes(runtime: Runtime) -> Any:
    """Return the HTTP routes; a worker does not import them."""
    from esclusa.pipelines.media.routes import router  # noqa: PLC0415 - only a server needs it

    return router(runtime)


@app.commands
def commands() -> Any:
    """Return the group ``esclusa media``."""
    from esclusa.pipelines.media.commands import media  # noqa: PLC0415 - only the CLI needs it

    return media


@app.checks
def checks(settings: MediaSettings) -> Iterator[tuple[str, str]]:
    """Warn of missing webhook secrets, and of a team's table without a rule for its rows."""
    if settings.app_secret is None:
        yield "warn", "META_APP_SECRET is not set: POST /webhooks/meta answers 503, stores nothing"
    if settings.verify_token is None:
        yield "warn", "META_VERIFY_TOKEN is not set: Meta cannot verify the webhook (answers 503)"
    if settings.path != DEFAULT_PATH and not settings.take:
        yield "warn", "MEDIA_TAKE is not set: stories, comments and shares are downloaded too"
