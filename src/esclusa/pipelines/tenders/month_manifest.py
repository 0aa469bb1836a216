"""The table ``archive_exports``: one row for each month that was exported, by us or by the team."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from esclusa import Export, Record
from esclusa.pipelines.tenders.worker_records import ArchiveExport


async def take_over_exports(
    archiver: Any, records: Any, record: type[Record], by: str, zone: str, month: str | None = None
) -> None:
    """Take over the months that the team's own worker exported: they are not exported again."""
    where = {"entity": record.kind.as_declared.table, "status": "verified"}
    where |= {} if month is None else {"partition_month": month}
    async for row in records.each(ArchiveExport, where):
        if not _is_ours(row):
            await archiver.take_over(record, by, _as_export(record, row), zones=("UTC", zone))


def _as_export(record: type[Record], row: ArchiveExport) -> Export:
    """Return the export of a file of the team's own worker."""
    return Export(
        table_name=record.kind.table,
        month=row.partition_month,
        part=0,
        path=row.object_key,
        row_count=row.row_count,
        checksum=row.checksum,
        verified_at=row.verified_at,
        drop_eligible_at=row.drop_eligible_at,
        dropped_at=row.dropped_at,
    )


async def exported_files(records: Any, record: type[Record], month: str) -> list[Export]:
    """Return the files of a month that were verified, those of the team's own worker included."""
    where = {"table_name": record.kind.table, "month": month}
    team_where = {"entity": record.kind.as_declared.table, "partition_month": month}
    team: ArchiveExport | None = await records.first(ArchiveExport, team_where)
    if team is not None and team.status == "dropped" and not _is_ours(team):
        # The files of a month that the team's own worker dropped are not taken over otherwise.
        await records.insert([_as_export(record, team).but(status="dropped")])
    files = [file async for file in records.each(Export, where)]
    return sorted(
        (file for file in files if file.status in ("verified", "dropped")),
        key=lambda file: file.part,
    )


def _is_ours(row: ArchiveExport) -> bool:
    """Whether a row names a file of this program: its path has ``year=``."""
    return f"{row.entity}/year=" in row.object_key


async def note_export(records: Any, file: Export, who: str, now: datetime) -> None:
    """Write a verified file to the row of its month. A row of the team's own worker stays."""
    where = {"entity": file.table_name, "partition_month": file.month}
    known: ArchiveExport | None = await records.first(ArchiveExport, where)
    if known is not None and not _is_ours(known):
        return
    parts = {"table_name": file.table_name, "month": file.month}
    rows = [part.row_count async for part in records.each(Export, parts)]
    month = ArchiveExport(
        entity=file.table_name,
        partition_month=file.month,
        status="verified",
        object_key=file.path,
        row_count=sum(rows),
        checksum=file.checksum,
        exported_at=now,
        verified_at=file.verified_at,
        drop_eligible_at=file.drop_eligible_at,
    )
    await records.put([month], who=who)


async def drop_exported_rows(archiver: Any, records: Any, record: type[Record], who: str) -> int:
    """Drop the archived rows of verified exports that are past their date; return how many."""
    dropped: int = await archiver.drop(record.kind)
    table = record.kind.table
    async for row in records.each(ArchiveExport, {"entity": table, "status": "verified"}):
        parts = {"table_name": table, "month": row.partition_month}
        files = [part async for part in records.each(Export, parts)]
        if files and all(part.status == "dropped" for part in files):
            last = max((part.dropped_at for part in files if part.dropped_at), default=None)
            await records.put([row.but(status="dropped", dropped_at=last)], who=who)
    return dropped
