"""Cleanup moves old records to the archive; archive-export writes the archive to Parquet files."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta

from esclusa import (
    Artifacts,
    EsclusaError,
    Export,
    Record,
    RunContext,
    below,
    one_of,
    open_artifacts,
)
from esclusa.pipelines.tenders.records import OPEN, Delivery, Licitacion
from esclusa.pipelines.tenders.settings import TendersSettings

BATCH = 500
CLEANUP_COUNTERS = {name: name for name in ("licitaciones", "deliveries", "kept")}
EXPORT_COUNTERS = {name: name for name in ("files", "rows", "dropped")}

# The archived records, and the date that decides the month of a row.
ARCHIVED: tuple[tuple[type[Record], str], ...] = (
    (Licitacion, "fecha_publicacion"),
    (Delivery, "completed_at"),
)


async def cleanup(run: RunContext) -> None:
    """Archive old tenders without open deliveries, and deliveries completed long ago."""
    settings: TendersSettings = run.settings
    await _archive_tenders(run, months_before(run.now, settings.hot_months))
    before = run.now - timedelta(days=settings.delivery_retention_days)
    run.count(
        "deliveries",
        await run.archiver.archive(Delivery.kind, {"completed_at": below(before)}, "completed_at"),
    )


async def _archive_tenders(run: RunContext, before: datetime) -> None:
    where = {"fecha_publicacion": below(before)}
    after: str | None = None
    while not run.stopping:
        page = await run.records.find(
            Licitacion, where, order="fecha_publicacion", limit=BATCH, after=after
        )
        ids = [tender.id for tender in page.items]
        if ids:
            open_deliveries = run.records.each(
                Delivery, {"licitacion_id": one_of(*ids), "status": one_of(*OPEN)}, size=5000
            )
            busy = {delivery.licitacion_id async for delivery in open_deliveries}
            if free := [id for id in ids if id not in busy]:
                archived = await run.archiver.archive(
                    Licitacion.kind, {"id": one_of(*free)}, "fecha_publicacion", batch=BATCH
                )
                run.count("licitaciones", archived)
            run.count("kept", len(busy))
        if (after := page.next) is None:
            return


async def archive_export(run: RunContext) -> None:
    """Write archived months to Parquet files and verify each file.

    With ARCHIVE_DROP, delete exported rows that are past their date. A fault of one table does not
    stop the other.
    """
    settings: TendersSettings = run.settings
    keep = timedelta(days=settings.archive_drop_after_days)
    faults: list[str] = []

    def count_file(file: Export) -> None:
        run.count("files")
        run.count("rows", file.row_count)

    @contextmanager
    def collect_faults(record: type[Record]) -> Iterator[None]:
        try:
            yield
        except EsclusaError as error:
            faults.append(f"{record.kind.table}: {error}")

    async with open_export_target(run, settings) as target:
        for record, by in ARCHIVED:
            with collect_faults(record):
                await run.archiver.export(record.kind, by, to=target, keep=keep, proved=count_file)
            with collect_faults(record):
                if settings.archive_drop:
                    run.count("dropped", await run.archiver.drop(record.kind))
    if faults:
        run.end("error", "; ".join(faults))


@asynccontextmanager
async def open_export_target(
    run: RunContext, settings: TendersSettings
) -> AsyncIterator[Artifacts]:
    """Open the bucket of the exports if one is set, else use the artifact store."""
    if settings.archive_bucket is None:
        yield run.artifacts
        return
    overrides = {
        "AWS_REGION": settings.archive_region,
        "AWS_ENDPOINT_URL_S3": settings.archive_endpoint,
    }
    target = open_artifacts(
        f"s3://{settings.archive_bucket}",
        environ=os.environ | {name: value for name, value in overrides.items() if value},
    )
    await target.open()
    try:
        yield target
    finally:
        await target.close()


def months_before(moment: datetime, months: int) -> datetime:
    """Return the same day ``months`` earlier, or the last day of that month."""
    month = moment.year * 12 + moment.month - 1 - months
    first = moment.replace(year=month // 12, month=month % 12 + 1, day=1)
    last = (first + timedelta(days=32)).replace(day=1) - timedelta(days=1)
    return first.replace(day=min(moment.day, last.day))
