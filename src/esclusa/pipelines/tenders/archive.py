"""Cleanup and export: old tenders and deliveries go to the archive, the archive to Parquet files that are proved."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta

from esclusa import EsclusaError, Record, RunContext, below, one_of
from esclusa.artifacts import open_artifacts
from esclusa.engine.archiver import Archiver
from esclusa.model.system_records import Export
from esclusa.pipelines.tenders.records import OPEN, Delivery, Licitacion
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.ports.artifacts import Artifacts

BATCH = 500
CLEANING = {"licitaciones": "licitaciones", "deliveries": "deliveries", "kept": "kept"}
EXPORTING = {"files": "files", "rows": "rows", "dropped": "dropped"}

ARCHIVED: tuple[tuple[type[Record], str], ...] = (
    (Licitacion, "fecha_publicacion"),
    (Delivery, "completed_at"),
)
"""What is archived, and the date by which a row belongs to its month."""


async def cleanup(run: RunContext) -> None:
    """Move old tenders, but those with open deliveries, and deliveries completed long ago to the archive, batch by batch."""
    settings: TendersSettings = run.settings
    archiver = run.archiver
    await _tenders(run, archiver, months_before(run.now, settings.hot_months))
    done = run.now - timedelta(days=settings.delivery_retention_days)
    run.count(
        "deliveries",
        await archiver.archive(Delivery.kind, {"completed_at": below(done)}, "completed_at"),
    )


async def _tenders(run: RunContext, archiver: Archiver, before: datetime) -> None:
    after: str | None = None
    while not run.stopping:
        page = await run.records.find(
            Licitacion,
            {"fecha_publicacion": below(before)},
            order="fecha_publicacion",
            limit=BATCH,
            after=after,
        )
        ids = [tender.id for tender in page.items]
        if ids:
            where = {"licitacion_id": one_of(*ids), "status": one_of(*OPEN)}
            busy = {
                delivery.licitacion_id
                async for delivery in run.records.each(Delivery, where, size=5000)
            }
            if free := [id for id in ids if id not in busy]:
                run.count(
                    "licitaciones",
                    await archiver.archive(
                        Licitacion.kind, {"id": one_of(*free)}, "fecha_publicacion", batch=BATCH
                    ),
                )
            run.count("kept", len(busy))
        after = page.next
        if after is None:
            return


async def archive_export(run: RunContext) -> None:
    """Write archived months to Parquet files and prove each; with ARCHIVE_DROP also remove what may be dropped."""
    settings: TendersSettings = run.settings
    keep = timedelta(days=settings.archive_drop_after_days)
    faults: list[str] = []

    def proved(file: Export) -> None:
        run.count("files")
        run.count("rows", file.row_count)

    @contextmanager
    def apart(record: type[Record]) -> Iterator[None]:
        """A fault is told, and keeps nothing else from being done."""
        try:
            yield
        except EsclusaError as error:
            faults.append(f"{record.kind.table}: {error}")

    async with export_target(run, settings) as target:
        for record, by in ARCHIVED:
            with apart(record):
                await run.archiver.export(record.kind, by, to=target, keep=keep, proved=proved)
            with apart(record):
                if settings.archive_drop:
                    run.count("dropped", await run.archiver.drop(record.kind))
    if faults:
        run.end("error", "; ".join(faults))


@asynccontextmanager
async def export_target(run: RunContext, settings: TendersSettings) -> AsyncIterator[Artifacts]:
    """Where exports go: the bucket, if one is set, else the artifact store."""
    if settings.archive_bucket is None:
        yield run.artifacts
        return
    where = {
        "AWS_REGION": settings.archive_region,
        "AWS_ENDPOINT_URL_S3": settings.archive_endpoint,
    }
    target = open_artifacts(
        f"s3://{settings.archive_bucket}",
        environ=os.environ | {n: v for n, v in where.items() if v},
    )
    await target.open()
    try:
        yield target
    finally:
        await target.close()


def months_before(moment: datetime, months: int) -> datetime:
    """The same day so many months ago, or the last day of that month."""
    month = moment.year * 12 + moment.month - 1 - months
    first = moment.replace(year=month // 12, month=month % 12 + 1, day=1)
    last = (first + timedelta(days=32)).replace(day=1) - timedelta(days=1)
    return first.replace(day=min(moment.day, last.day))
