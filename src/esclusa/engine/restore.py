"""Puts the rows of an exported file back into the archive. Needs pyarrow, an extra."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from esclusa.engine.parquet import require_parquet
from esclusa.model.columns import ColumnType
from esclusa.model.errors import ExportError
from esclusa.model.kind import Kind
from esclusa.model.system_records import Export
from esclusa.ports.artifacts import Artifacts
from esclusa.ports.store import Store

# Rows that are written in one transaction.
BATCH = 1000


@dataclass(frozen=True, slots=True)
class Restored:
    """A file whose rows are in the archive: how many were put back, how many were there already."""

    path: str
    restored: int
    known: int


async def restore_file(
    store: Store, kind: Kind, export: Export, source: Artifacts, *, batch: int = BATCH
) -> Restored:
    """Put the rows of an export's file back into the archive, those that are not in it.

    Nothing is written unless the file is the one that was verified: by its checksum, and by its
    number of rows. Of a file that another program wrote (part 0), whose checksum is of another
    kind, by its number of rows. Each batch is a transaction, so a restore that is interrupted is
    continued by the next. Raises ExportError.
    """
    require_parquet()
    restored = known = 0
    async with _downloaded(export, source) as file:
        reader = await asyncio.to_thread(_open, file, export)
        columns = _columns(kind, reader.schema_arrow.names, export)
        for page in reader.iter_batches(batch):
            rows = await asyncio.to_thread(_rows, kind, columns, page, export)
            new = await store.restore(kind, rows, export.id)
            restored, known = restored + new, known + len(rows) - new
    return Restored(export.path, restored, known)


@asynccontextmanager
async def _downloaded(export: Export, source: Artifacts) -> AsyncIterator[Path]:
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(prefix="esclusa-restore-") as folder:
        file = Path(folder) / "part.parquet"
        with file.open("wb") as out:
            async for chunk in source.stream(export.path):
                digest.update(chunk)
                out.write(chunk)
        if export.part and digest.hexdigest() != export.checksum:
            raise ExportError(
                f"{export.path}: its checksum is not that of the verified file; nothing is restored"
            )
        yield file


def _open(file: Path, export: Export) -> Any:
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra, needed only here

    try:
        reader = pq.ParquetFile(file)
    except Exception as error:
        raise ExportError(f"{export.path}: not a readable Parquet file: {error}") from error
    if reader.metadata.num_rows != export.row_count:
        raise ExportError(
            f"{export.path}: it holds {reader.metadata.num_rows} rows instead of"
            f" {export.row_count}; nothing is restored"
        )
    return reader


def _columns(kind: Kind, found: list[str], export: Export) -> dict[str, str | None]:
    """The column of each field in the file; None: the file is older than the column."""
    declared = {name: c for name, c in kind.columns.items() if name != kind.id_field}
    if unknown := [name for name in found if name not in declared.values()]:
        raise ExportError(
            f"{export.path}: {kind.table} has no column {', '.join(unknown)}; nothing is restored"
        )
    return {name: column if column in found else None for name, column in declared.items()}


def _rows(
    kind: Kind, columns: Mapping[str, str | None], page: Any, export: Export
) -> list[dict[str, Any]]:
    values: dict[str, list[Any]] = {}
    for name, column in columns.items():
        if column is None:
            values[name] = [_default(kind, name)] * page.num_rows
            continue
        read = _READ[kind.types[name]]
        try:
            values[name] = [
                None if value is None else read(value) for value in page.column(column).to_pylist()
            ]
        except (ValueError, TypeError, InvalidOperation) as error:
            raise ExportError(
                f"{export.path}: {column} holds a value that is no {kind.types[name]}: {error}"
            ) from error
    names = list(values)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*values.values(), strict=True)]
    if kind.id_field is not None:
        rows = [row | {kind.id_field: row["id"]} for row in rows]
    return rows


def _default(kind: Kind, name: str) -> Any:
    """The value of a field in rows that are older than its column."""
    return kind.default_of(name) if name in kind.by_name else 0 if name == "fence" else None


def _time(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError(f"{value!r:.80}")
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _decimal(value: Any) -> Decimal:
    """A decimal without the zeros that its column in the file adds."""
    number = Decimal(str(value))
    whole = number.to_integral_value()
    return whole if whole == number else number.normalize()


def _date(value: Any) -> date:
    return value if isinstance(value, date) else date.fromisoformat(value)


def _json(value: Any) -> Any:
    return from_json(value) if isinstance(value, str | bytes) else value


_READ: dict[ColumnType, Callable[[Any], Any]] = {
    "text": str,
    "int": int,
    "float": float,
    "bool": bool,
    "time": _time,
    "date": _date,
    "decimal": _decimal,
    "json": _json,
    "bytes": bytes,
}
