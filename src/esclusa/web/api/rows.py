"""Rows in a request body: new records of a kind, validated and reported one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from esclusa.imports import ImportedRow, ImportReport, format_of_body, read_bytes
from esclusa.model.columns import TRACKING
from esclusa.model.errors import BadRecord
from esclusa.model.kind import Kind
from esclusa.model.record import Record
from esclusa.model.storable import storage_fault
from esclusa.web.problems import problem


class RowErrorOut(BaseModel):
    """A row that was not added, and why. The first row is row 1."""

    row: int
    error: str


class RowWarningOut(BaseModel):
    """What is doubtful in a row that was taken. The first row is row 1."""

    row: int
    warning: str


class InsertOut(BaseModel):
    """How many rows were added, how many existed already, the invalid and the doubtful ones."""

    created: int
    known: int
    errors: list[RowErrorOut]
    warnings: list[RowWarningOut] = []


async def read_rows(request: Request) -> Iterator[ImportedRow]:
    """The rows of the body: a JSON array, one object, or one object per line. Raises BadFile."""
    body = await request.body()
    return read_bytes(body, format_of_body(body, request.headers.get("content-type", "")))


def rows_response(report: ImportReport, what: str, path: str) -> JSONResponse:
    """The response to added rows: 200 if any row was valid or there was none, else a problem."""
    if report.created or report.known or not report.errors:
        return JSONResponse(report.answer())
    return problem(
        422,
        f"none of the {len(report.errors)} rows is valid for {what};"
        f" the first: {report.errors[0]['error']}",
        slug="bad-record",
        title="No valid row",
        instance=path,
        **report.answer(),
    )


def rows_body(row: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    """``openapi_extra`` of a route that takes rows: the schema of one row, and an example."""
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"oneOf": [{"type": "array", "items": row}, row]},
                    "example": [example],
                },
                "application/x-ndjson": {
                    "schema": {"type": "string"},
                    "example": json.dumps(example) + "\n",
                },
            },
        }
    }


def draft_record(kind: Kind, row: ImportedRow) -> Record:
    """A new record from a row. Raises BadRecord with every fault of the row.

    Of the tracking fields only ``due_at`` can be set.
    """
    if row.values is None:
        raise BadRecord(row.fault or "it cannot be read")
    faults = [_fault(kind, name, value) for name, value in row.values.items()]
    if any(faults):
        raise BadRecord("; ".join(filter(None, faults)))
    record = kind.draft(row.values)
    naive = [
        f"{name}: a time needs its zone, for example 2026-11-16T12:00:00Z"
        for name in ["due_at", *(field.name for field in kind.fields if field.type == "time")]
        if (moment := getattr(record, name)) is not None and moment.tzinfo is None
    ]
    if naive:
        raise BadRecord("; ".join(naive))
    return record


def _fault(kind: Kind, name: str, value: Any) -> str | None:
    """Why a new record may not have this value; None if it may."""
    if (fault := storage_fault(name)) is not None:
        return f"the name of a field: {fault}"
    if name == "id" and kind.key:
        return f"id: it is made from the key ({', '.join(kind.key)})"
    if name == "id" and kind.database_id:
        return "id: the database generates it"
    if name == "status" and value != kind.initial:
        return f"status: a new record starts in {kind.initial}; move it afterwards"
    if name in TRACKING and name not in ("status", "due_at"):
        return f"{name}: only the engine writes it"
    if name not in kind.types:
        return (
            f"{name}: {kind.table} has no such field;"
            f" it has {', '.join(field.name for field in kind.fields)}"
        )
    return None if (fault := storage_fault(value)) is None else f"{name}: {fault}"
