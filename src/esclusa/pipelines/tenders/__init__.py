"""New public tenders become push notifications, exactly once per device. See README.md beside this file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from esclusa import App, cron
from esclusa.pipelines.tenders import archive as archives
from esclusa.pipelines.tenders import delivery, ingestion
from esclusa.pipelines.tenders.outside import Outside
from esclusa.pipelines.tenders.records import RECORDS, Delivery
from esclusa.pipelines.tenders.settings import TendersSettings

app = App("tenders", settings=TendersSettings, records=list(RECORDS), budgets=[lambda s: s.calls])

app.cycle(
    every=lambda s: s.worker_interval_minutes * 60, singleton=True, counters=ingestion.COUNTERS
)(ingestion.ingest)
app.stage(
    Delivery, take=("pending", "retryable"), retry_to="retryable", exhausted="failed", retry=lambda s: s.ladder,
    every=lambda s: s.dispatch_interval_minutes * 60, concurrency=lambda s: s.expo_concurrency, batch=delivery.MOST_MESSAGES,
    counters=delivery.SENDING,
)(delivery.dispatch)  # fmt: skip
app.stage(
    Delivery, take="sent", exhausted="failed", retry=delivery.asking,
    every=lambda s: s.receipt_interval_minutes * 60, concurrency=lambda s: s.expo_concurrency, batch=delivery.MOST_RECEIPTS,
    counters=delivery.ASKING,
)(delivery.receipt)  # fmt: skip
app.cycle(
    every=lambda s: cron(s.cleanup_cron, s.timezone), singleton=True, counters=archives.CLEANING
)(archives.cleanup)
app.cycle(
    every=lambda s: cron(s.archive_export_cron, s.timezone),
    singleton=True,
    counters=archives.EXPORTING,
)(archives.archive_export)


@app.lifespan
@asynccontextmanager
async def outside(settings: TendersSettings) -> AsyncIterator[Outside]:
    async with Outside.opened(settings) as opened:
        yield opened


@app.routes
def routes(runtime: Any) -> Any:
    from esclusa.pipelines.tenders.routes import router  # noqa: PLC0415 - only a server needs it

    return router(runtime)


@app.commands
def commands() -> Any:
    from esclusa.pipelines.tenders.commands import tenders  # noqa: PLC0415 - only the command line needs it

    return tenders


@app.checks
def checks(settings: TendersSettings) -> Iterator[str]:
    if settings.ticket is None:
        yield "CHILECOMPRA_TICKET is not set: ingest is blocked; ask for a ticket at api.mercadopublico.cl"
    if settings.archive_bucket is None and (settings.archive_endpoint or settings.archive_region):
        yield "ARCHIVE_ENDPOINT or ARCHIVE_REGION is set without ARCHIVE_BUCKET: exports go to the artifact store"
