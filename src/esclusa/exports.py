"""Writes rows as CSV, NDJSON or Parquet: to a file, to an artifact or as a stream of bytes.

Columns are declared once with their types. Rows are read and encoded in batches, so memory is
bounded for any number of rows. For example::

    columns = [Column("id"), Column("size", "int"), Column("made_at", "time")]
    await write_file(Path("orders.csv"), columns, rows)
    await artifacts.put("exports/orders.parquet", encode(columns, rows, "parquet"))
"""

from __future__ import annotations

import asyncio
import csv
import io
import os
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypeAlias, get_args

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from esclusa.engine import parquet
from esclusa.model.columns import Column, ColumnType
from esclusa.model.errors import BadQuery, ExportError
from esclusa.model.kind import Kind, kind_of
from esclusa.model.names import no_field
from esclusa.model.paths import is_path, split_path, text_at, value_at
from esclusa.model.record import Record

Format = Literal["csv", "ndjson", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)
MEDIA_TYPES: Mapping[Format, str] = {
    "csv": "text/csv; charset=utf-8",
    "ndjson": "application/x-ndjson",
    "parquet": parquet.MEDIA_TYPE,
}
Row: TypeAlias = Mapping[str, Any]

_BY_SUFFIX: dict[str, Format] = {
    ".csv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
}
# A batch is encoded after so many rows, or so many characters of text.
_BATCH_ROWS, _BATCH_TEXT = 1000, 4 << 20
# A row group of a Parquet file is written after so many rows, or so many bytes.
_GROUP_ROWS, _GROUP_BYTES = 100_000, 32 << 20
# A spreadsheet reads a text that begins so as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Half of a surrogate pair has no form in UTF-8.
_SURROGATE = re.compile("[\ud800-\udfff]")


class EncodedRows:
    """The bytes of a file, made while they are read. ``rows`` counts the rows so far.

    It can be read once. A value that the format cannot hold raises ExportError, which names the
    row; a missing value is empty (CSV) or null. In CSV, a text that a spreadsheet would read as a
    formula begins with an apostrophe. Half of a surrogate pair becomes U+FFFD.
    """

    def __init__(self, columns: Sequence[Column], rows: AsyncIterable[Row], form: Format) -> None:
        self.form = form
        self.media_type = MEDIA_TYPES[form]
        self.rows = 0
        self._rows = rows
        self._encoder = _ENCODERS[form](columns)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        batch: list[Row] = []
        size = 0
        async for row in self._rows:
            batch.append(row)
            size += sum(len(value) for value in row.values() if type(value) is str)
            if len(batch) >= _BATCH_ROWS or size >= _BATCH_TEXT:
                if chunk := await self._add(batch):
                    yield chunk
                batch, size = [], 0
        last = await self._add(batch) if batch else b""
        yield last + await asyncio.to_thread(self._encoder.end)

    async def _add(self, batch: list[Row]) -> bytes:
        chunk = await asyncio.to_thread(self._encoder.add, batch, self.rows)
        self.rows += len(batch)
        return chunk


def encode(columns: Sequence[Column], rows: AsyncIterable[Row], form: Format) -> EncodedRows:
    """The rows as the bytes of a file, for ``artifacts.put`` or a response.

    Raises SettingsError if Parquet is asked for and pyarrow, an extra, is not installed.
    """
    if form == "parquet":
        parquet.require_parquet()
    return EncodedRows(columns, rows, form)


async def write_file(
    path: Path, columns: Sequence[Column], rows: AsyncIterable[Row], form: Format | None = None
) -> int:
    """Write a file whole or not at all; return the number of rows.

    The format is that of the name, unless given. An existing file is replaced at the end; after an
    error it is as it was. Raises ExportError.
    """
    encoded = encode(columns, rows, form or format_of(path))
    await write_content(path, encoded)
    return encoded.rows


async def write_content(path: Path, content: AsyncIterable[bytes]) -> None:
    """Write a file of these bytes, whole or not at all, as ``write_file`` does."""
    try:
        target, is_special = await asyncio.to_thread(_target, path)
        if is_special:
            with target.open("wb") as out:
                await _copy(content, out)
        else:
            await _replace(target, content)
    except OSError as error:
        raise ExportError(f"{path} cannot be written: {error.strerror or error}") from error


def _target(path: Path) -> tuple[Path, bool]:
    """The file behind links, and whether it is a pipe or a device, which cannot be replaced."""
    target = path.resolve()
    return target, target.exists() and not target.is_file() and not target.is_dir()


async def _replace(path: Path, content: AsyncIterable[bytes]) -> None:
    part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as out:
            await _copy(content, out)
            await asyncio.to_thread(os.fsync, out.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


async def _copy(content: AsyncIterable[bytes], out: IO[bytes]) -> None:
    async for chunk in content:
        await asyncio.to_thread(out.write, chunk)


def format_of(path: Path) -> Format:
    """The format of a file, by the end of its name. Raises ExportError."""
    found = _BY_SUFFIX.get(path.suffix.lower())
    if found is None:
        raise ExportError(f"{path}: its name must end in {', '.join(_BY_SUFFIX)}")
    return found


def record_columns(kind: Kind | type[Record], chosen: Sequence[str] = ()) -> list[Column]:
    """The columns of a list of records: the members that the API shows, with their types.

    ``chosen``: only these, in this order; a value inside JSON may be one (``last_error.type``).
    Raises BadQuery for a name that the kind does not have.
    """
    kind = kind_of(kind)
    if chosen:
        fields = dict.fromkeys(map(kind.name_of, chosen))
        return [Column(name, _column_type(kind, name)) for name in fields]
    shown = ["attempts", "due_at", "last_error", "created_at", "updated_at"]
    names = ["id", "status", *(field.name for field in kind.fields), *shown]
    return [Column(name, kind.types[name]) for name in names if name in kind.types]


def record_row(record: Record, columns: Sequence[Column]) -> dict[str, Any]:
    """The values of a record by column."""
    return {column.name: _value_of(record, column.name) for column in columns}


def _column_type(kind: Kind, name: str) -> ColumnType:
    if is_path(kind.types, name):
        return "text"
    known = [each for each in kind.types if each not in ("fence", "leased_by")]
    if name not in known:
        raise BadQuery(no_field("no_field", kind.table, name, known))
    return kind.types[name]


def _value_of(record: Record, name: str) -> Any:
    if "." not in name:
        return getattr(record, name, None)
    found = value_at({(field := split_path(name)[0]): getattr(record, field, None)}, name)
    return found if found is None else text_at(found) or to_json(found).decode()


# encoders


class _Encoder(Protocol):
    def add(self, rows: Sequence[Row], before: int) -> bytes:
        """The bytes of these rows, which come after ``before`` others; may be empty."""

    def end(self) -> bytes:
        """The rest of the file."""


class _CsvEncoder:
    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = [(c.name, _CELLS.get(c.type, _cell)) for c in columns]
        self._head = [_cell(c.name) for c in columns]

    def add(self, rows: Sequence[Row], before: int) -> bytes:
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        if not before:
            writer.writerow(self._head)
        cells = [
            [None if (value := row.get(name)) is None else cell(value) for row in rows]
            for name, cell in self._columns
        ]
        writer.writerows(zip(*cells, strict=True))
        self._head = []
        return _utf8(text.getvalue())

    def end(self) -> bytes:
        return self.add([], 0) if self._head else b""


class _NdjsonEncoder:
    def __init__(self, columns: Sequence[Column]) -> None:
        self._names = [c.name for c in columns]

    def add(self, rows: Sequence[Row], before: int) -> bytes:
        names = self._names
        lines = [_json({name: row.get(name) for name in names}) for row in rows]
        return b"\n".join([*lines, b""])

    def end(self) -> bytes:
        return b""


class _ParquetEncoder:
    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = [(c.name, _VALUES.get(c.type)) for c in columns]
        self._schema = parquet.schema_of(columns)
        self._texts = [n for n, c in enumerate(columns) if c.type in ("text", "json")]
        self._out = _Outlet()
        self._writer = parquet.open_writer(self._out, self._schema)
        self._tables: list[Any] = []

    def add(self, rows: Sequence[Row], before: int) -> bytes:
        values = [
            [row.get(name) for row in rows]
            if convert is None
            else [None if (v := row.get(name)) is None else convert(v) for row in rows]
            for name, convert in self._columns
        ]
        for n in self._texts:
            if not _is_utf8(values[n]):
                values[n] = [v if v is None else _SURROGATE.sub("\ufffd", v) for v in values[n]]
        table = parquet.table_of(self._schema, values, lambda n: f"row {before + n + 1}")
        self._tables.append(table)
        if (
            sum(t.num_rows for t in self._tables) >= _GROUP_ROWS
            or sum(t.nbytes for t in self._tables) >= _GROUP_BYTES
        ):
            self._write_group()
        return self._out.take()

    def end(self) -> bytes:
        self._write_group()
        self._writer.close()
        return self._out.take()

    def _write_group(self) -> None:
        if self._tables:
            tables, self._tables = self._tables, []
            parquet.write_group(self._writer, tables)


class _Outlet(io.RawIOBase):
    """A file that holds only what was written since the last ``take``."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._size += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._size

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken


_ENCODERS: dict[Format, Callable[[Sequence[Column]], _Encoder]] = {
    "csv": _CsvEncoder,
    "ndjson": _NdjsonEncoder,
    "parquet": _ParquetEncoder,
}


# values


def _cell(value: Any) -> Any:
    """A value as text that no spreadsheet takes for a formula."""
    text = _text(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    plain = to_jsonable_python(value, bytes_mode="base64", fallback=str)
    return plain if isinstance(plain, str) else _json(plain).decode()


def _json(value: Any) -> bytes:
    try:
        return to_json(value, bytes_mode="base64", inf_nan_mode="null", fallback=str)
    except (PydanticSerializationError, UnicodeError):
        return to_json(_clean(value), bytes_mode="base64", inf_nan_mode="null", fallback=str)


def _clean(value: Any) -> Any:
    """The value without halves of surrogate pairs."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_clean(key): _clean(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(each) for each in value]
    return value


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text).encode()


def _is_utf8(texts: Sequence[str | None]) -> bool:
    try:
        "".join(filter(None, texts)).encode()
    except UnicodeEncodeError:
        return False
    return True


def _typed(type: type, write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Write values of this type so; other programs may have stored another type."""
    return lambda value: write(value) if isinstance(value, type) else _cell(value)


def _number_cell(value: Any) -> Any:
    return value if type(value) in (int, float) else _cell(value)


def _utc(value: datetime) -> str:
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")


# How a value of a type is written in CSV; other types as text.
_CELLS: dict[ColumnType, Callable[[Any], Any]] = {
    "int": _number_cell,
    "float": _number_cell,
    "bool": _typed(bool, lambda value: "true" if value else "false"),
    "time": _typed(datetime, _utc),
    "date": _typed(date, date.isoformat),
    "decimal": _typed(Decimal, lambda value: format(value, "f")),
    "json": lambda value: _json(value).decode(),
    "bytes": _typed(bytes, lambda value: urlsafe_b64encode(value).decode()),
}
# How a value of a type is written in Parquet; other types as they are.
_VALUES: dict[ColumnType, Callable[[Any], Any]] = {
    "text": lambda value: value if type(value) is str else _text(value),
    "json": lambda value: _json(value).decode(),
}


__all__ = [
    "FORMATS",
    "MEDIA_TYPES",
    "Column",
    "ColumnType",
    "EncodedRows",
    "ExportError",
    "Format",
    "Row",
    "encode",
    "format_of",
    "record_columns",
    "record_row",
    "write_file",
]
