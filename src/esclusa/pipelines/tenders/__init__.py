"""``tenders``: new public tenders become push notifications, once per device."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from esclusa import App, cron, null
from esclusa.http import session
from esclusa.pipelines.tenders import actions, archive, delivery, expo, ingestion
from esclusa.pipelines.tenders.data_checks import check_data
from esclusa.pipelines.tenders.rates import CurrentRates
from esclusa.pipelines.tenders.records import RECORDS, Delivery
from esclusa.pipelines.tenders.settings import BATCH, TendersSettings
from esclusa.pipelines.tenders.sources import open_sources
from esclusa.pipelines.tenders.sources.source import TenderSource
from esclusa.pipelines.tenders.worker_runs import note_run

app = App(
    "tenders",
    settings=TendersSettings,
    records=list(RECORDS),
    budgets=[lambda s: s.api_budget, lambda s: s.expo_budget],
)
app.cycle(
    every=lambda s: s.worker_interval_minutes * 60, singleton=True, counters=ingestion.COUNTERS
)(ingestion.ingest)
app.stage(
    Delivery,
    take=("pending", "retryable"),
    where={"completed_at": null},
    retry_to="retryable",
    exhausted="failed",
    retry=lambda s: s.send_retry,
    extra_try=True,
    every=lambda s: s.dispatch_interval_minutes * 60,
    concurrency=lambda s: s.expo_concurrency,
    batch=BATCH,
    counters=delivery.DISPATCH_COUNTERS,
)(delivery.dispatch)
app.stage(
    Delivery,
    take="sent",
    where={"completed_at": null},
    exhausted="failed",
    retry=lambda s: s.receipt_retry,
    extra_try=True,
    every=lambda s: s.receipt_interval_minutes * 60,
    concurrency=lambda s: s.expo_concurrency,
    batch=expo.MAX_RECEIPTS,
    counters=delivery.RECEIPT_COUNTERS,
)(delivery.receipt)
app.cycle(
    every=lambda s: cron(s.cleanup_cron, s.timezone),
    singleton=True,
    counters=archive.CLEANUP_COUNTERS,
)(archive.cleanup)
app.cycle(
    every=lambda s: cron(s.archive_export_cron, s.timezone),
    singleton=True,
    counters=archive.EXPORT_COUNTERS,
)(archive.archive_export)


app.action(
    None,
    "Register a baseline",
    es="Registrar una línea base",
    about={
        "en": "Register what is listed now without announcing it, before the first ingest.",
        "es": "Registrar lo publicado hasta ahora sin anunciarlo, antes de la primera ingesta.",
    },
)(actions.baseline)
app.action(
    Delivery,
    "Send now",
    es="Enviar ahora",
    where={"status": "retryable"},
    about={
        "en": "Send deliveries that wait for another attempt at the next dispatch.",
        "es": "Enviar en el próximo despacho las entregas que esperan otro intento.",
    },
)(actions.retry)


@dataclass(frozen=True, slots=True)
class TenderServices:
    """The sources of tenders, and Expo; handlers get them as ``at.context``.

    ``unknown``: listed codes without a detail, and when it is requested again. ``sending``: how
    many messages of each device are under way. ``digests``: by time of the day, the last that was
    announced.
    """

    sources: list[TenderSource]
    expo: expo.ExpoClient
    rates: CurrentRates
    unknown: dict[str, datetime] = field(default_factory=dict)
    sending: Counter[str] = field(default_factory=Counter)
    digests: dict[str, datetime] = field(default_factory=dict)
    # The rows of the runs under way in the table `worker_runs`.
    run_rows: dict[str, str] = field(default_factory=dict)


@app.lifespan
@asynccontextmanager
async def open_services(settings: TendersSettings) -> AsyncIterator[TenderServices]:
    """Open the external services for the duration of the block."""
    Delivery.kind.track.abandoned_after = settings.lock_seconds
    async with (
        open_sources(settings) as sources,
        session(total=settings.expo_timeout_seconds, connections=settings.expo_concurrency) as http,
    ):
        rates = CurrentRates(settings.rates)
        yield TenderServices(sources, expo.ExpoClient(http, settings), rates)


app.on_run(note_run)


@app.routes
def routes(runtime: Any) -> Any:
    """Import the routes only in a server."""
    from esclusa.pipelines.tenders.routes import build  # noqa: PLC0415

    return build(runtime)


@app.commands
def commands() -> Any:
    """Import the commands only on the command line."""
    from esclusa.pipelines.tenders.commands import tenders  # noqa: PLC0415

    return tenders


@app.checks
def checks(settings: TendersSettings) -> Iterator[str]:
    """Yield what is missing or contradictory in the settings."""
    if settings.ticket is None:
        yield (
            "CHILECOMPRA_TICKET is not set: ingest is blocked; "
            "ask for a ticket at api.mercadopublico.cl"
        )
    if settings.archive_bucket is None and (settings.archive_endpoint or settings.archive_region):
        yield (
            "ARCHIVE_ENDPOINT or ARCHIVE_REGION is set without ARCHIVE_BUCKET: "
            "exports go to the artifact store"
        )


app.data_checks(check_data)
