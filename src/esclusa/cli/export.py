"""Writing rows to a file or to stdout: the options, and what commands of pipelines use."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from esclusa.cli.session import Session
from esclusa.model.query import check_states

if TYPE_CHECKING:
    from esclusa.exports import Column, Format, Row
    from esclusa.model.kind import Kind
    from esclusa.runtime import Runtime

format_option = click.option(
    "--format", "form", type=click.Choice(["csv", "ndjson", "parquet"]), help="Write a file."
)
output_option = click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file to write. Its name gives the format, unless --format does. Default: stdout.",
)


def write_records(
    session: Session,
    kind: Kind,
    where: Mapping[str, Any],
    order: tuple[str, ...],
    limit: int | None,
    archived: bool,
    form: Format | None,
    output: Path | None,
    chosen: tuple[str, ...],
) -> None:
    """Write the records that match as a file; ``chosen``: only these columns."""
    from esclusa.exports import record_columns, record_row

    columns = record_columns(kind, chosen)

    async def write(runtime: Runtime) -> int:
        if not (await runtime.read_model.count(kind.table, where, cap=1, archived=archived))[0]:
            check_states(kind, where, await runtime.read_model.states(kind.table))

        async def rows() -> AsyncIterator[Row]:
            async for record in runtime.read_model.each(
                kind.table, where, order=order, archived=archived, limit=limit
            ):
                yield record_row(record, columns)

        return await write_rows(columns, rows(), form, output)

    form = format_for(form, output)
    count = session.look(write)
    if output is not None:
        session.note(f"{count:,} record{'' if count == 1 else 's'} written to {output}")


def format_for(form: Format | None, output: Path | None) -> Format:
    """The format of the options. Raises UsageError; Parquet is not written to a terminal."""
    from esclusa.exports import ExportError, format_of

    if form is None and output is not None:
        try:
            return format_of(output)
        except ExportError as error:
            raise click.UsageError(f"{error}; or give --format.") from None
    if form is None or (form == "parquet" and output is None and sys.stdout.isatty()):
        raise click.UsageError("Parquet is not text: name a file with --output.")
    return form


async def write_rows(
    columns: Sequence[Column], rows: AsyncIterable[Row], form: Format | None, output: Path | None
) -> int:
    """Write rows to a file, whole or not at all, or to stdout; return how many."""
    from esclusa.exports import encode

    encoded = encode(columns, rows, format_for(form, output))
    await write_output(encoded, output)
    return encoded.rows


async def write_output(content: AsyncIterable[bytes], output: Path | None) -> None:
    """Write bytes to a file, whole or not at all, or to stdout."""
    from esclusa.exports import write_content

    if output is not None:
        await write_content(output, content)
        return
    out = sys.stdout.buffer
    try:
        async for chunk in content:
            out.write(chunk)
        out.flush()
    except BrokenPipeError:  # the reader, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
