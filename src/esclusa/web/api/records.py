"""Kinds and records over HTTP: see them, ask why, add, move, try again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from esclusa.engine.outlook import Outlook
from esclusa.imports import Report, Row
from esclusa.model.errors import BadRecord, NotFound
from esclusa.model.query import Page
from esclusa.model.record import Kind, Record
from esclusa.model.settlement import Step
from esclusa.model.system_records import SYSTEM_RECORDS
from esclusa.model.texts import Text, text
from esclusa.observability import redact
from esclusa.runtime import Runtime
from esclusa.web.api import filters, rows, schemas
from esclusa.web.auth import reads_only
from esclusa.web.problems import responses

INSERT_BATCH = 1000
_BOOKS = frozenset(book.kind.table for book in SYSTEM_RECORDS)

Table = Annotated[
    str, Path(description="The table of the kind, as `GET /api/kinds` names it", examples=["posts"])
]
Limit = Annotated[int, Query(ge=1, le=10_000, description="At most so many on a page")]
After = Annotated[str | None, Query(description="`next` of the page before")]
Id = Annotated[str, Path(description="The record's id, percent-encoded", examples=["twitter:42"])]

FILTER_NOTE = (
    "Any other parameter is a filter on a field of the kind: `?platform=twitter`, or with an operator `?attempts__gte=3` "
    f"({', '.join(f'`__{name}`' for name in filters.OPERATORS)}). A field named twice may have either value."
)
FILTER_PARAMETER = {
    "name": "filter", "in": "query", "style": "form", "explode": True, "description": FILTER_NOTE,
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
}  # fmt: skip


def by_name(route: APIRoute) -> str:
    """Our own operations are called by their short names."""
    return route.name


def who(request: Request) -> str:
    """In whose name a request acts."""
    return str(request.state.who)


Who = Annotated[str, Depends(who)]


def shown(record: Record) -> dict[str, Any]:
    """A record in JSON, as its reader may see it."""
    return told(record.kind.as_json(record))


def told(values: dict[str, Any]) -> dict[str, Any]:
    """Fields of a record; their secrets are masked for whoever may only read."""
    return redact.fields(values) if reads_only.get() else values


def plain(text: str) -> str:
    """A sentence; what looks like a secret in it is masked for whoever may only read."""
    return redact.text(text) if reads_only.get() else text


def listed(page: Page[Any]) -> dict[str, Any]:
    """One page of records, as every list answers."""
    return {"items": [shown(record) for record in page.items], "next": page.next}


def step(step: Step) -> dict[str, Any]:
    return {
        "from": step.frm, "to": step.to, "at": step.at, "who": step.who, "run": step.run, "attempt": step.attempt,
        "reason": step.reason and plain(step.reason),
        "reason_code": step.reason.code if isinstance(step.reason, Text) else None, "error": None if step.error is None else told(dict(step.error)),
    }  # fmt: skip


def reading(runtime: Runtime) -> APIRouter:
    """The routes that change nothing."""
    api = APIRouter(prefix="/api", tags=["records"], generate_unique_id_function=by_name)
    read_model, outlook = (
        runtime.read_model,
        Outlook(runtime.engine, redact.secret_name, redact.text),
    )

    @api.get(
        "/kinds",
        response_model=schemas.Listed[schemas.KindShape],
        summary="Every kind, its lifecycle and counts",
    )
    async def kinds(*, system: bool = False) -> Any:
        return {"items": await read_model.kinds(system=system), "next": None}

    @api.get(
        "/kinds/{table}",
        response_model=schemas.KindShape,
        responses=responses(404),
        summary="One kind",
    )
    async def kind(table: Table) -> Any:
        return await read_model.kind(table)

    @api.get(
        "/records/{table}",
        response_model=schemas.Listed[schemas.RecordJson],
        responses=responses(400, 404),
        summary="Records, filtered and in order",
        description=FILTER_NOTE,
        openapi_extra={"parameters": [FILTER_PARAMETER]},
    )
    async def records(
        request: Request,
        table: Table,
        limit: Limit = 100,
        after: After = None,
        order: Annotated[
            str,
            Query(
                description="Fields, separated by commas; `-` before one reverses it",
                examples=["-updated_at"],
            ),
        ] = "",
        *,
        archived: Annotated[bool, Query(description="Look in the archive instead")] = False,
    ) -> Any:
        kind = runtime.engine.kind(table)
        where = filters.from_params(kind, request.query_params.multi_items(), archived=archived)
        orders = filters.orders(kind, order)
        page = await read_model.records(
            table, where, order=orders, limit=limit, after=after, archived=archived
        )
        return listed(page)

    @api.get(
        "/records/{table}/{id}/history",
        response_model=schemas.Listed[schemas.StepShape],
        responses=responses(404),
        summary="Every move of a record, oldest first",
    )
    async def history(
        table: Table,
        id: Id,
        limit: Annotated[int, Query(ge=1, le=10_000, description="The last so many")] = 1000,
    ) -> Any:
        steps = await read_model.history(table, id, limit)
        if not steps:
            await read_model.record(table, id)  # NotFound, if it is not merely new
        return {"items": [step(s) for s in steps], "next": None}

    @api.get(
        "/records/{table}/{id}/why",
        response_model=schemas.WhyShape,
        responses=responses(404),
        summary="Why is this record not moving?",
    )
    async def why(table: Table, id: Id) -> Any:
        answer = (await read_model.why(table, id)).answer()
        reasons = [reason | {"text": plain(reason["text"])} for reason in answer["reasons"]]
        return answer | {"answer": plain(answer["answer"]), "reasons": reasons}

    @api.get(
        "/records/{table}/{id}/related",
        response_model=schemas.Listed[schemas.RelationShape],
        responses=responses(404),
        summary="The records that a record refers to, and those that refer to it",
    )
    async def related(table: Table, id: Id) -> Any:
        return {"items": await outlook.related(table, id), "next": None}

    @api.get(
        "/records/{table}/{id}",
        response_model=schemas.RecordJson,
        responses=responses(400, 404),
        summary="One record",
    )
    async def record(
        table: Table,
        id: Id,
        *,
        archived: Annotated[bool, Query(description="Look in the archive instead")] = False,
    ) -> Any:
        if not archived:
            return shown(await read_model.record(table, id))
        found = (await read_model.records(table, {"id": id}, limit=1, archived=True)).items
        if not found:
            raise NotFound(text("archived_record_not_found", id=id, table=table))
        return shown(found[0])

    return api


def writing(runtime: Runtime) -> APIRouter:
    """The routes that act."""
    api = APIRouter(prefix="/api", tags=["records"], generate_unique_id_function=by_name)

    @api.post(
        "/records/{table}/move",
        response_model=schemas.ActedShape,
        responses=responses(400, 404, 409, 422),
        summary="Move records to a state",
        description="By their ids or by a filter. If one of them cannot make that move, none is moved (409). `dry_run` only counts.",
    )
    async def move(table: Table, body: schemas.MoveBody, who: Who) -> Any:
        kind = runtime.engine.kind(table)
        where = None if body.filter is None else filters.from_json(kind, body.filter)
        fields = kind.check_fields(body.fields)
        acted = await runtime.operations(who).move(
            table,
            body.to,
            reason=body.reason,
            ids=body.ids,
            where=where,
            fields=fields,
            dry_run=body.dry_run,
        )
        return acted.answer()

    @api.post(
        "/records/{table}/retry",
        response_model=schemas.ActedShape,
        responses=responses(400, 404, 422),
        summary="Give records that used up their tries a new one",
    )
    async def retry(table: Table, body: schemas.RetryBody, who: Who) -> Any:
        where = (
            None
            if body.filter is None
            else filters.from_json(runtime.engine.kind(table), body.filter)
        )
        acted = await runtime.operations(who).retry(
            table, reason=body.reason, ids=body.ids, where=where, dry_run=body.dry_run
        )
        return acted.answer()

    @api.post(
        "/records/{table}",
        response_model=schemas.InsertedShape,
        responses=responses(400, 404, 405, 413, 422),
        openapi_extra=rows.body_of(
            {"type": "object", "additionalProperties": True},
            {"platform": "twitter", "post_id": "42"},
        ),
        summary="Add records",
        description="A JSON array, or one object per line as `application/x-ndjson`. A record whose key is there already is known and left "
        "as it is. Rows that do not fit are reported and the others added; 422 if none fits.",
    )
    async def insert(request: Request, table: Table, who: Who) -> Any:
        kind = runtime.engine.kind(table)
        if table in _BOOKS:
            raise HTTPException(
                405,
                f"{table} is one of the house's own books; only the engine writes it",
                {"Allow": "GET"},
            )
        report = await _insert(runtime, kind, await rows.sent(request))
        if report.created:
            await runtime.operations(who).note("add", table, report.created)
        return rows.answer(report, table, request.url.path)

    return api


async def _insert(runtime: Runtime, kind: Kind, sent: Iterable[Row]) -> Report:
    drafts: list[Record] = []
    report = Report()
    for count, row in enumerate(sent, 1):
        if count % INSERT_BATCH == 0:
            await asyncio.sleep(0)  # a large body must not keep others waiting
        try:
            drafts.append(rows.draft(kind, row))
        except BadRecord as error:
            report.refuse(row.number, str(error)[:500])
    async for answers in runtime.engine.records.load(drafts, size=INSERT_BATCH):
        report.count(answers)
    return report
