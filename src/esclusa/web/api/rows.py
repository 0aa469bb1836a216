"""Rows in a request: new records of a kind, checked one by one, reported one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from esclusa.imports import Report, Row, format_of_body, read_bytes
from esclusa.model.columns import TRACKING
from esclusa.model.errors import BadRecord
from esclusa.model.record import Kind, Record
from esclusa.model.storable import storage_fault
from esclusa.web.problems import problem


async def sent(request: Request) -> Iterator[Row]:
    """The rows of a request's body: a JSON array, one object, or one object per line. Raises BadFile."""
    body = await request.body()
    return read_bytes(body, format_of_body(body, request.headers.get("content-type", "")))


def answer(report: Report, what: str, path: str) -> JSONResponse:
    """What became of the rows: 200 if any was well-formed, a problem if none was."""
    told = report.answer()
    if report.errors and not report.created and not report.known:
        detail = f"none of the {len(report.errors)} rows fits {what}; the first: {report.errors[0]['error']}"
        return problem(422, detail, slug="bad-record", title="No row fits", instance=path, **told)
    return JSONResponse(told)


def body_of(row: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    """The request body of such a route, for the OpenAPI document."""
    lines = {"schema": {"type": "string"}, "example": json.dumps(example) + "\n"}
    whole = {"schema": {"oneOf": [{"type": "array", "items": row}, row]}, "example": [example]}
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": whole, "application/x-ndjson": lines},
        }
    }


def draft(kind: Kind, row: Row) -> Record:
    """A new record from a row; BadRecord says every fault of it. The tracking is the engine's, but for when it is due."""
    if row.values is None:
        raise BadRecord(row.fault or "it cannot be read")
    faults = [
        fault
        for name, value in row.values.items()
        if (fault := _fault(kind, name, value)) is not None
    ]
    if faults:
        raise BadRecord("; ".join(faults))
    record = kind.draft(row.values)
    times = ["due_at", *(field.name for field in kind.fields if field.type == "time")]
    naive = [
        name
        for name in times
        if (moment := getattr(record, name)) is not None and moment.tzinfo is None
    ]
    if naive:
        raise BadRecord(
            "; ".join(
                f"{name}: a time needs its zone, for example 2026-11-16T12:00:00Z" for name in naive
            )
        )
    return record


def _fault(kind: Kind, name: str, value: Any) -> str | None:
    """Why a new record may not say this; None if it may."""
    if (fault := storage_fault(name)) is not None:
        return f"the name of a field: {fault}"
    if name == "id" and kind.key:
        return f"id: it is made of the key ({', '.join(kind.key)})"
    if name == "id" and kind.database_id:
        return "id: the database gives it"
    if name == "status" and value != kind.initial:
        return f"status: a new record starts in {kind.initial}; move it afterwards"
    if name in TRACKING and name not in ("status", "due_at"):
        return f"{name}: it belongs to the engine"
    if name not in kind.types:
        return f"{name}: {kind.table} has no such field; it has {', '.join(f.name for f in kind.fields)}"
    return None if (fault := storage_fault(value)) is None else f"{name}: {fault}"
