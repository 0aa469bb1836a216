"""``tenders``: new public tenders become push notifications, once per device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from esclusa import App, cron
from esclusa.pipelines.tenders import archive, delivery, expo, ingestion
from esclusa.pipelines.tenders.records import RECORDS, Delivery
from esclusa.pipelines.tenders.services import open_services
from esclusa.pipelines.tenders.settings import TendersSettings

app = App(
    "tenders", settings=TendersSettings, records=list(RECORDS), budgets=[lambda s: s.api_budget]
)
app.lifespan(open_services)

app.cycle(
    every=lambda s: s.worker_interval_minutes * 60, singleton=True, counters=ingestion.COUNTERS
)(ingestion.ingest)
app.stage(
    Delivery,
    take=("pending", "retryable"),
    retry_to="retryable",
    exhausted="failed",
    retry=lambda s: s.send_retry,
    every=lambda s: s.dispatch_interval_minutes * 60,
    concurrency=lambda s: s.expo_concurrency,
    batch=expo.MAX_MESSAGES,
    counters=delivery.DISPATCH_COUNTERS,
)(delivery.dispatch)
app.stage(
    Delivery,
    take="sent",
    exhausted="failed",
    retry=lambda s: s.receipt_retry,
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
