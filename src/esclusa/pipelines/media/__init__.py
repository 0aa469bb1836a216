"""Download the media of webhook publications before their links expire. See README.md."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from esclusa import App, not_null
from esclusa.http import SafeSession, safe_session
from esclusa.pipelines.media import downloads, views
from esclusa.pipelines.media.records import MediaNotice, Publication
from esclusa.pipelines.media.settings import MediaSettings

if TYPE_CHECKING:
    from esclusa import Runtime

app = App("media", settings=MediaSettings, records=[Publication, MediaNotice])

app.stage(
    Publication,
    take="pending",
    hold="downloading",
    exhausted="error",
    where={"imagen_url": not_null},
    retry=lambda s: s.backoff,
    every=lambda s: s.interval_seconds,
    concurrency=lambda s: s.concurrency,
    alert_rate=lambda s: s.alert_error_rate,
    alert_min=lambda s: s.alert_min_batch,
    dead_letter=downloads.dead_letter,
    counters={"success": "success", "retried": "retried", "error": "error"},
)(downloads.download)

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
app.declare_query(Publication, views.RETRIED, order=("-attempts", "updated_at"))


@app.lifespan
@asynccontextmanager
async def download_session(settings: MediaSettings) -> AsyncIterator[SafeSession]:
    """Open the HTTP session of the downloads."""
    async with safe_session(settings.allowed, connections=settings.concurrency) as session:
        yield session


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
    """Warn of missing webhook secrets."""
    if settings.app_secret is None:
        yield "warn", "META_APP_SECRET is not set: POST /webhooks/meta answers 503, stores nothing"
    if settings.verify_token is None:
        yield "warn", "META_VERIFY_TOKEN is not set: Meta cannot verify the webhook (answers 503)"
