"""Whole lists as files: the format that a request accepts, and a response that streams the rows."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any, Final

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.datastructures import Headers

from esclusa.exports import (
    MEDIA_TYPES,
    Column,
    Format,
    Row,
    encode,
    record_columns,
    record_row,
)
from esclusa.model.kind import Kind
from esclusa.model.record import Record
from esclusa.observability import redact
from esclusa.web.security import HEAD_ONLY

_FORMATS: Final[dict[str, Format | None]] = {
    "application/json": None,
    "application/*": None,
    "*/*": None,
    "text/csv": "csv",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/vnd.apache.parquet": "parquet",
}

# The 200 response of a route whose list can be had as a file, for the OpenAPI document.
EXPORT_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {
            media_type.partition(";")[0]: {"schema": {"type": "string", "format": "binary"}}
            for media_type in MEDIA_TYPES.values()
        }
    }
}


def accepted_format(headers: Headers) -> Format | None:
    """The format of a file that the ``Accept`` header prefers; None: the usual JSON page."""
    wanted = []
    for position, part in enumerate(headers.get("accept", "").lower().split(",")):
        name, *parameters = (each.strip() for each in part.split(";"))
        if name in _FORMATS:
            wanted.append((-_quality(parameters), position, _FORMATS[name]))
    return min(wanted)[2] if wanted and min(wanted)[0] < 0 else None


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


async def export_response(
    request: Request,
    name: str,
    columns: Sequence[Column],
    rows: AsyncIterable[Row],
    form: Format,
) -> Response:
    """The rows as a file to download, see ``file_response``."""
    encoded = encode(columns, rows, form)
    answer = await file_response(request, f"{name}.{form}", encoded, encoded.media_type)
    answer.headers["Vary"] = "Accept"
    return answer


async def file_response(
    request: Request, name: str, content: AsyncIterable[bytes], media_type: str
) -> Response:
    """A file to download, streamed with bounded memory.

    Its beginning is read before the response begins, so that a refusal is a problem response. An
    error after that cuts the connection: no client takes the part for the whole.
    """
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    if HEAD_ONLY in request.scope:
        return Response(media_type=media_type, headers=headers)
    chunks = aiter(content)
    first = await anext(chunks)
    return StreamingResponse(_chained(first, chunks), media_type=media_type, headers=headers)


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


def record_rows(
    kind: Kind, records: AsyncIterable[Record], *, masked: bool, chosen: Sequence[str] = ()
) -> tuple[list[Column], AsyncIterator[Row]]:
    """The columns and rows of a list of records; ``masked``: without secrets.

    ``chosen``: the names of the columns; without any, all of them.
    """
    columns = record_columns(kind, chosen)

    async def rows() -> AsyncIterator[Row]:
        async for record in records:
            row = record_row(record, columns)
            yield _mask(columns, row) if masked else row

    return columns, rows()


def _mask(columns: Sequence[Column], row: dict[str, Any]) -> dict[str, Any]:
    """The row with secrets masked; the other values keep their types."""
    for column in columns:
        value = row[column.name]
        if column.type in ("text", "json"):
            row[column.name] = redact.fields({column.name: value})[column.name]
        elif redact.secret_name(column.name) and column.type not in ("int", "float", "bool"):
            row[column.name] = None
    return row
