"""Parquet: the schema of columns, and tables whose faults name the row. Needs pyarrow, an extra."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from esclusa.model.columns import Column
from esclusa.model.errors import ExportError, SettingsError

if TYPE_CHECKING:
    import pyarrow as pa

MEDIA_TYPE = "application/vnd.apache.parquet"


def require_parquet() -> None:
    """Raise SettingsError if Parquet files cannot be written here."""
    if find_spec("pyarrow") is None:
        raise SettingsError(
            "Parquet files cannot be written:",
            ["pyarrow is not installed; it is an extra: pip install 'esclusa[parquet]'"],
        )


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """The Parquet schema of these columns; JSON is text."""
    import pyarrow as pa  # noqa: PLC0415 - an extra, needed only here

    types = {
        "text": pa.string(),
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
        "date": pa.date32(),
        "decimal": pa.decimal128(38, 10),
        "json": pa.string(),
        "bytes": pa.binary(),
    }
    return pa.schema(
        [pa.field(c.name, types[c.type], metadata={"esclusa": c.type}) for c in columns]
    )


def open_writer(file: Any, schema: pa.Schema) -> Any:
    """A writer to this path or file object, which is written from its beginning to its end."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra, needed only here

    return pq.ParquetWriter(file, schema, compression="zstd")


def write_group(writer: Any, tables: Sequence[pa.Table]) -> None:
    """Write these tables as one row group."""
    import pyarrow as pa  # noqa: PLC0415 - an extra, needed only here

    table = pa.concat_tables(tables)
    writer.write_table(table, row_group_size=max(1, table.num_rows))


def table_of(
    schema: pa.Schema, columns: Sequence[Sequence[Any]], row_name: Callable[[int], str]
) -> pa.Table:
    """A table of these columns. Raises ExportError that names the row whose value does not fit."""
    import pyarrow as pa  # noqa: PLC0415 - an extra, needed only here

    return pa.Table.from_arrays(
        [_array(field, values, row_name) for field, values in zip(schema, columns, strict=True)],
        schema=schema,
    )


def _array(field: pa.Field, values: Sequence[Any], row_name: Callable[[int], str]) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415 - an extra, needed only here

    faults = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError)
    try:
        return pa.array(values, field.type)
    except faults as error:
        for number, value in enumerate(values):
            try:
                pa.array([value], field.type)
            except faults as fault:
                raise ExportError(
                    f"{row_name(number)}: {field.name} does not fit a Parquet {field.type}: {fault}"
                ) from fault
        raise ExportError(f"{field.name} does not fit a Parquet {field.type}: {error}") from error
