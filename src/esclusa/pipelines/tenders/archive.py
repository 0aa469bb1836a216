"""Cleanup moves old records to the archive; archive-export writes the archive to Parquet files."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

from esclusa import (
    Artifacts,
    EsclusaError,
    Export,
    Record,
    RunContext,
    Text,
    below,
    null,
    one_of,
    open_artifacts,
)
from esclusa.pipelines.tenders.installations import DELETED
from esclusa.pipelines.tenders.month_manifest import (
    drop_exported_rows,
    note_export,
    take_over_exports,
)
from esclusa.pipelines.tenders.records import (
    OPEN,
    Delivery,
    DeviceInstallation,
    Licitacion,
    NotificationEvent,
)
from esclusa.pipelines.tenders.settings import TendersSettings

BATCH = 500
CLEANUP_COUNTERS = {name: name for name in ("licitaciones", "deliveries", "kept")}
EXPORT_COUNTERS = {name: name for name in ("files", "rows", "dropped")}

# The archived records, and the dates that decide the month of a row: the first that it has. The
# team's own files have the months of the last.
ARCHIVED: tuple[tuple[type[Record], tuple[str, ...]], ...] = (
    (Licitacion, ("fecha_publicacion", "created_at")),
    (Delivery, ("completed_at",)),
)


async def cleanup(run: RunContext) -> None:
    """Archive old tenders without open deliveries, and deliveries completed long ago."""
    settings: TendersSettings = run.settings
    before = months_before(run.now, settings.hot_months)
    await _archive_tenders(run, {"fecha_publicacion": below(before)}, "fecha_publicacion")
    undated = {"fecha_publicacion": null, "created_at": below(before)}
    await _archive_tenders(run, undated, "created_at")
    before = run.now - timedelta(days=settings.delivery_retention_days)
    run.count(
        "deliveries",
        await run.archiver.archive(Delivery.kind, {"completed_at": below(before)}, "completed_at"),
    )
    await _remove_deleted(run)


async def _remove_deleted(run: RunContext) -> None:
    """Remove the rows of deleted devices whose deliveries are all archived."""
    deleted = {"invalid_reason": DELETED}
    async for device in run.records.each(DeviceInstallation, deleted):
        own = {"installation_id": device.installation_id}
        if await run.records.first(Delivery, own) is None:
            await run.records.purge(DeviceInstallation, own | deleted)  # unless it came back


async def _archive_tenders(run: RunContext, where: dict[str, Any], by: str) -> None:
    after: str | None = None
    while not run.stopping:
        page = await run.records.find(Licitacion, where, order=by, limit=BATCH, after=after)
        if ids := list(dict.fromkeys(tender.id for tender in page.items)):
            busy = await _with_open_deliveries(run, ids)
            if free := [id for id in ids if id not in busy]:
                archived = await run.archiver.archive(
                    Licitacion.kind, where | {"id": one_of(*free)}, by, batch=BATCH
                )
                run.count("licitaciones", archived)
            run.count("kept", len(busy))
        if (after := page.next) is None:
            return


async def _with_open_deliveries(run: RunContext, tenders: list[str]) -> set[str]:
    """Return the tenders whose deliveries are not all completed."""
    events = {
        event.id: event.licitacion_id
        async for event in run.records.each(
            NotificationEvent, {"licitacion_id": one_of(*tenders)}, size=5000
        )
    }
    if not events:
        return set()
    where = {
        "notification_event_id": one_of(*events),
        "status": one_of(*OPEN),
        "completed_at": null,
    }
    deliveries = run.records.each(Delivery, where, size=5000)
    return {events[delivery.notification_event_id] async for delivery in deliveries}


async def archive_export(run: RunContext) -> None:
    """Write archived months to Parquet files and verify each file.

    With ARCHIVE_DROP, delete exported rows that are past their date. A fault of one table does not
    stop the other.
    """
    settings: TendersSettings = run.settings
    keep = timedelta(days=settings.archive_drop_after_days)
    faults: list[Text] = []

    files: list[Export] = []

    def count_file(file: Export) -> None:
        files.append(file)
        run.count("files")
        run.count("rows", file.row_count)

    @contextmanager
    def collect_faults(record: type[Record]) -> Iterator[None]:
        try:
            yield
        except EsclusaError as error:
            faults.append(Text("{table}: {why}", table=record.kind.table, why=error))

    async with open_export_target(run.artifacts, settings) as target:
        for record, dates in ARCHIVED:
            with collect_faults(record):
                await take_over_exports(
                    run.archiver, run.records, record, dates[-1], settings.timezone
                )
            for by in dates:
                with collect_faults(record):
                    await run.archiver.export(
                        record.kind, by, to=target, keep=keep, proved=count_file
                    )
            with collect_faults(record):
                if settings.archive_drop:
                    dropped = await drop_exported_rows(
                        run.archiver, run.records, record, run.worker
                    )
                    run.count("dropped", dropped)
    for file in files:
        await note_export(run.records, file, run.worker, run.now)
    if faults:
        run.end("error", reduce(_both, faults))


def _both(message: Text, more: Text) -> Text:
    return Text("{message}; {more}", message=message, more=more)


@asynccontextmanager
async def open_export_target(
    artifacts: Artifacts, settings: TendersSettings
) -> AsyncIterator[Artifacts]:
    """Open the bucket of the exports if one is set, else use the artifact store."""
    if settings.archive_bucket is None:
        yield artifacts
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
