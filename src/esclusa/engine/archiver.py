"""The archiver: table → archive → verified Parquet files → dropped, and back into the archive.

Each step is bounded and safe to repeat.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esclusa.engine.clock import StoreClock
from esclusa.engine.foreign_exports import take_over
from esclusa.engine.parquet import (
    MEDIA_TYPE,
    open_writer,
    require_parquet,
    schema_of,
    table_of,
)
from esclusa.engine.records import Records
from esclusa.engine.restore import Restored, restore_file
from esclusa.model.columns import Column
from esclusa.model.errors import DeclarationError, ExportError, StoreConflict
from esclusa.model.kind import Kind, kind_of
from esclusa.model.query import (
    Query,
    Where,
    at_least,
    at_most,
    below,
    conditions,
    not_null,
    null,
    query,
)
from esclusa.model.record import Record
from esclusa.model.settlement import Inserted, Locked, Settled, Settlement
from esclusa.model.system_records import Export
from esclusa.ports.artifacts import Artifacts
from esclusa.ports.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[int], None]
Page = dict[str, Sequence[Any]]

# The most faults of files that an error lists.
SHOWN_FAULTS = 3


class Archiver:
    """Moves old records to the archive, and removes them only after a verified export."""

    def __init__(
        self,
        store: Store,
        records: Records,
        clock: StoreClock,
        artifacts: Artifacts,
        worker: str,
        stopping: Callable[[], bool],
    ) -> None:
        self._store = store
        self._records = records
        self._clock = clock
        self._artifacts = artifacts
        self._worker = worker
        self._stopping = stopping
        # The filling export of each table and month, and how many rows it still takes.
        self._room: dict[tuple[str, str], tuple[Export, int]] = {}

    async def archive(
        self,
        kind: Kind | type[Record],
        where: Where,
        by: str,
        *,
        batch: int = 1000,
        rows: int = 1_000_000,
        progress: Progress | None = None,
    ) -> int:
        """Move what matches to the archive, the oldest by ``by`` first; return how many.

        Each transaction moves ``batch`` rows. Rows whose ``by`` is NULL stay. Each row is assigned
        to the export of its month (UTC) as it moves, which saves a second write; an export takes at
        most ``rows``. An orderly stop ends between two batches.
        """
        kind = kind_of(kind)
        if not kind.archive:
            raise DeclarationError(
                f"record {kind.name}", ["it has no archive; declare it with archive=True"]
            )
        asked, total, idle = query(kind, where, order=by), 0, 0
        # Rows that were found but not moved were changed meanwhile, or their export was closed.
        while not self._stopping() and idle < 3:
            month = await self._oldest_month(_also(asked, {by: not_null}).but(limit=1), by)
            if month is None:
                break
            export, left = await self._filling(kind, month, rows)
            moved = await self._store.archive(
                _also(asked, {by: _during(month)}).but(limit=min(batch, left)), export.id
            )
            if moved:
                self._room[kind.table, export.month] = (export, left - moved)
            else:
                self._room.pop((kind.table, export.month))
            total, idle = total + moved, 0 if moved else idle + 1
            if progress:
                progress(total)
        return total

    async def export(
        self,
        kind: Kind | type[Record],
        by: str,
        *,
        to: Artifacts | None = None,
        keep: timedelta = timedelta(days=30),
        rows: int = 1_000_000,
        progress: Progress | None = None,
        proved: Callable[[Export], None] | None = None,
    ) -> list[Export]:
        """Write archived rows that are in no file yet to Parquet, and verify each file.

        There is one file per month of ``by`` (UTC) and part, with the table's column names. Each is
        read back, and then ``proved`` is called with it. Interrupted exports are finished first.
        Rows that were archived without an export are assigned to one, at most ``rows`` to each.

        Raises ExportError after the other files are done if a file could not be written or
        verified; its rows are written again next time. A failing target ends the export at once.
        """
        require_parquet()
        kind = kind_of(kind)
        done: list[Export] = []
        faults: list[str] = []
        async for export in self._unproved(kind, by, rows):
            try:
                file = await self._write(kind, export, to or self._artifacts, keep, progress)
            except ExportError as error:
                faults.append(str(error))
                continue
            if file is not None:
                done.append(file)
                if proved:
                    proved(file)
        if faults:
            more = f"; and {len(faults) - SHOWN_FAULTS} more files"
            shown = "; ".join(faults[:SHOWN_FAULTS])
            raise ExportError(shown + (more if len(faults) > SHOWN_FAULTS else ""))
        return done

    async def drop(
        self, kind: Kind | type[Record], *, batch: int = 1000, progress: Progress | None = None
    ) -> int:
        """Remove archived rows of verified exports past ``drop_eligible_at``; return how many."""
        kind = kind_of(kind)
        total, now = 0, await self._clock.sync()
        async for export in self._records.each(
            Export,
            {"table_name": kind.table, "status": "verified", "drop_eligible_at": at_most(now)},
        ):
            if others := await self._store.undeclared(kind):
                raise ExportError(
                    f"{kind.table}: the archive has columns that the record does not declare, so"
                    f" the files lack them ({', '.join(others)}): declare them and export again, or"
                    " remove them from the archive; nothing is dropped"
                )
            # An interrupted drop leaves fewer, which is fine.
            if await self._given(kind, export, export.row_count + 1) > export.row_count:
                raise ExportError(
                    f"{export.path}: the archive has more rows of this export than the file;"
                    " nothing is dropped"
                )
            while removed := await self._store.purge(
                query(kind, {"export_id": export.id}, limit=batch, archived=True)
            ):
                total += removed
                if progress:
                    progress(total)
            await self._settle(export, "dropped", dropped_at=now)
        return total

    async def restore(
        self,
        kind: Kind | type[Record],
        export: Export,
        *,
        source: Artifacts | None = None,
        keep: timedelta = timedelta(days=30),
    ) -> Restored:
        """Put the rows of a verified file back into the archive; see ``engine/restore.py``.

        An export that was dropped is ``verified`` again, and may be dropped after ``keep``.
        """
        kind = kind_of(kind)
        done = await restore_file(self._store, kind, export, source or self._artifacts)
        if export.status == "dropped":
            now = await self._clock.sync()
            fields = {"verified_at": now, "drop_eligible_at": now + keep, "dropped_at": None}
            await self._settle(export, "verified", **fields)
        return done

    async def take_over(
        self, kind: Kind | type[Record], by: str, file: Export, zones: Sequence[str] = ("UTC",)
    ) -> int | None:
        """Take over a file that another program exported; see ``engine/foreign_exports.py``."""
        return await take_over(self._store, kind_of(kind), by, file, zones)

    # steps

    async def _oldest_month(self, oldest: Query, by: str) -> datetime | None:
        page = await self._store.find(oldest)
        if not page.items:
            return None
        moment: datetime = getattr(page.items[0], by)
        return moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)

    async def _filling(self, kind: Kind, month: datetime, rows: int) -> tuple[Export, int]:
        """The export that takes rows of the month, and how many more it takes: at least one."""
        name = _named(month)
        found = self._room.get((kind.table, name))
        if found is None:
            where = {"table_name": kind.table, "month": name, "status": "filling"}
            export = await self._records.first(Export, where) or await self._open(
                kind, month, "filling"
            )
            found = export, rows - await self._given(kind, export, rows)
        if found[1] > 0:
            return found
        await self._settle(found[0], "written")
        return await self._open(kind, month, "filling"), rows

    async def _given(self, kind: Kind, export: Export, cap: int) -> int:
        rows = query(kind, {"export_id": export.id}, archived=True)
        return (await self._store.count(rows, cap))[0]

    async def _open(self, kind: Kind, month: datetime, status: str) -> Export:
        """Create the next part of the month; its key makes the number unique."""
        for part in itertools.count(1):
            path = (
                f"{kind.table}/year={month.year:04}/month={month.month:02}/part-{part:05d}.parquet"
            )
            export = Export(
                table_name=kind.table,
                month=_named(month),
                part=part,
                path=path,
                row_count=0,
                checksum="",
                status=status,
            )
            [answer] = await self._store.insert([export])
            if isinstance(answer, Inserted):
                break
        return export.but(id=answer.id)

    async def _unproved(self, kind: Kind, by: str, rows: int) -> AsyncIterator[Export]:
        """Yield the exports without a verified file, with rows assigned.

        Begun ones come first, then filling ones, then new ones for unassigned rows.
        """
        for state in ("written", "filling"):
            async for export in self._records.each(
                Export, {"table_name": kind.table, "status": state}
            ):
                if self._stopping():
                    return
                if state == "filling":  # close it: no more rows are added
                    await self._settle(export, "written")
                await self._fill(kind, by, export, rows)
                yield export
        free = query(kind, {"export_id": null, by: not_null}, order=by, limit=1, archived=True)
        while not self._stopping() and (month := await self._oldest_month(free, by)) is not None:
            export = await self._open(kind, month, "written")
            await self._fill(kind, by, export, rows)
            yield export

    async def _fill(self, kind: Kind, by: str, export: Export, rows: int) -> None:
        """Assign unassigned rows of its month to the export, until it has ``rows``."""
        month = datetime.fromisoformat(f"{export.month}-01T00:00:00+00:00")
        where = {"export_id": null, by: _during(month)}
        if not (await self._store.find(query(kind, where, limit=1, archived=True))).items:
            return
        left = rows - await self._given(kind, export, rows)
        while left > 0 and (
            given := await self._store.assign(
                query(kind, where, limit=min(left, 10_000), archived=True), export.id
            )
        ):
            left -= given

    async def _write(
        self,
        kind: Kind,
        export: Export,
        target: Artifacts,
        keep: timedelta,
        progress: Progress | None,
    ) -> Export | None:
        """Write and verify the file. An export without rows is deleted: None."""
        if not await self._given(kind, export, 1):
            await self._records.purge(Export, {"id": export.id})
            return None
        with tempfile.TemporaryDirectory(prefix="esclusa-export-") as folder:
            file = Path(folder) / "part.parquet"
            rows = await self._parquet(kind, export.id, file, progress)
            checksum = await asyncio.to_thread(_sha256, file)
            await target.put(export.path, file, content_type=MEDIA_TYPE)
            size = (await asyncio.to_thread(file.stat)).st_size
            await self._verify(target, export, Path(folder) / "back.parquet", checksum, rows)
        now = await self._clock.sync()
        fields = {
            "row_count": rows,
            "byte_count": size,
            "checksum": checksum,
            "verified_at": now,
            "drop_eligible_at": now + keep,
        }
        await self._settle(export, "verified", **fields)
        return export.but(**fields, status="verified")

    async def _parquet(self, kind: Kind, export: str, file: Path, progress: Progress | None) -> int:
        schema, rows = _schema(kind), 0
        writer = open_writer(file, schema)
        try:
            async for page in _ahead(
                self._store.scan_columns(query(kind, {"export_id": export}, archived=True))
            ):
                rows += await asyncio.to_thread(_write_page, writer, kind, schema, page)
                if progress:
                    progress(rows)
        finally:
            await asyncio.to_thread(writer.close)
        return rows

    async def _verify(
        self, target: Artifacts, export: Export, file: Path, checksum: str, rows: int
    ) -> None:
        """Read the file back: the same bytes, readable, the same number of rows."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - an extra, needed only here

        digest = hashlib.sha256()
        with file.open("wb") as out:
            async for chunk in target.stream(export.path):
                digest.update(chunk)
                out.write(chunk)
        if digest.hexdigest() != checksum:
            raise ExportError(
                f"{export.path}: the checksum differs after reading it back; nothing is dropped"
            )
        try:
            found = await asyncio.to_thread(lambda: pq.ParquetFile(file).metadata.num_rows)
        except Exception as error:
            raise ExportError(f"{export.path}: not a readable Parquet file: {error}") from error
        if found != rows:
            raise ExportError(
                f"{export.path}: it holds {found} rows instead of {rows}; nothing is dropped"
            )

    async def _settle(self, export: Export, to: str, **fields: Any) -> None:
        frm = Export.lifecycle.sources(to)
        [verdict] = await self._store.settle(
            [Settlement(export.ref, to, frm, None, fields, who=self._worker)]
        )
        if isinstance(verdict, Locked):
            raise StoreConflict(verdict.why)
        if not isinstance(verdict, Settled):
            raise ExportError(f"{export.path}: another process changed this export meanwhile")


def _also(asked: Query, where: Where) -> Query:
    """The query with further conditions."""
    return asked.but(where=(*asked.where, *conditions(asked.kind, where)))


def _named(month: datetime) -> str:
    return f"{month.year:04}-{month.month:02}"


def _during(month: datetime) -> tuple[Any, Any]:
    """The conditions that a time lies in the month."""
    return at_least(month), below((month + timedelta(days=32)).replace(day=1))


def _schema(kind: Kind) -> pa.Schema:
    return schema_of([Column(column, kind.types[n]) for n, column in _exported(kind).items()])


def _exported(kind: Kind) -> dict[str, str]:
    """The columns of a file, by the name of their value; the id column once."""
    return {name: column for name, column in kind.columns.items() if name != kind.id_field}


async def _ahead(pages: AsyncIterator[Page]) -> AsyncIterator[Page]:
    """Yield the same pages; the next is read while one is processed."""
    coming = asyncio.ensure_future(anext(pages, None))
    try:
        while (page := await coming) is not None:
            coming = asyncio.ensure_future(anext(pages, None))
            yield page
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        # A store's scan is a generator that holds a snapshot.
        await pages.aclose()  # type: ignore[attr-defined]


def _write_page(writer: Any, kind: Kind, schema: pa.Schema, page: Page) -> int:
    ids = page["id"]
    table = table_of(
        schema,
        [page[name] for name in _exported(kind)],
        lambda number: f"{kind.table} {ids[number]}",
    )
    writer.write_table(table)
    return int(table.num_rows)


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
