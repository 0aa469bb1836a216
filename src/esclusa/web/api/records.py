"""``/api/kinds``, ``/api/records`` and ``/api/search``: find, add, move and retry records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from esclusa.exports import record_columns
from esclusa.imports import ImportedRow, ImportReport
from esclusa.model.errors import BadQuery, BadRecord, NotFound
from esclusa.model.kind import Kind
from esclusa.model.record import Record
from esclusa.model.settlement import Step
from esclusa.model.state_roles import Role
from esclusa.model.texts import Text, text
from esclusa.runtime import Runtime
from esclusa.web.api import rows as request_rows
from esclusa.web.api.common import (
    FILTER_NOTE,
    FILTER_PARAMETER,
    WAKE_WAIT,
    ActionOut,
    After,
    Archived,
    CurrentRuntime,
    ListOut,
    RecordId,
    RecordJson,
    RequestBody,
    SelectionBody,
    System,
    Table,
    Who,
    api_router,
    mask_fields,
    mask_text,
    page_json,
    record_json,
    refuse_unknown_states,
)
from esclusa.web.api.exports import (
    EXPORT_RESPONSES,
    accepted_format,
    export_response,
    record_rows,
)
from esclusa.web.api.filters import check_order, chosen_columns, filter_from_query
from esclusa.web.api.rows import InsertOut
from esclusa.web.auth.tokens import read_only
from esclusa.web.problems import problem_responses

INSERT_BATCH: Final = 1000
EXPORT_NOTE: Final = (
    "With `Accept: text/csv`, `application/x-ndjson` or `application/vnd.apache.parquet` the answer"
    " is the whole list as a file, or its first `limit` records."
)
ExportLimit = Annotated[
    int | None,
    Query(ge=1, le=10_000, description="Maximum number of items on a page (100), or of a file"),
]

router = api_router("records")


class StateCountOut(BaseModel):
    """How many records are in a state. If ``exact`` is false, at least that many."""

    state: str
    count: int
    exact: bool


class LifecycleOut(BaseModel):
    """The states of a kind and the moves between them."""

    initial: str
    states: list[str]
    terminal: list[str]
    roles: dict[str, Role]
    moves: list[tuple[str, str]]


class KindOut(BaseModel):
    """A kind of record: its fields, its lifecycle, and how many records are in each state."""

    table: str
    kind: str
    pipeline: str
    key: list[str]
    fields: dict[str, str]
    lifecycle: LifecycleOut
    counts: list[StateCountOut]


class HistoryEntryOut(BaseModel):
    """One move of a record, or one attempt that left it in its state.

    ``reason`` is an English sentence. ``reason_code`` names it if Esclusa wrote it. ``changes`` has
    the old and the new value of each field that an operator changed, ``log`` the last lines that
    the handler logged, and how many earlier ones are ``omitted``; secrets are masked.
    """

    frm: Annotated[str, Field(alias="from")]
    to: str
    at: datetime
    who: str
    run: str | None
    attempt: int | None
    reason: str | None
    reason_code: str | None
    error: dict[str, Any] | None
    changes: dict[str, Any] | None
    log: dict[str, Any] | None


class ReasonOut(BaseModel):
    """One reason why a record does not move, and until when it holds (null: unknown)."""

    code: str
    text: str
    until: datetime | None


class WhyOut(BaseModel):
    """Why a record does not move, and when it can move next (null: not by itself)."""

    state: str
    answer: str
    reasons: list[ReasonOut]
    next: datetime | None


class RelatedOut(BaseModel):
    """A record in a list of related or found records."""

    id: str
    status: str
    title: str
    created_at: datetime | None


class RelationOut(BaseModel):
    """Records related by one declared reference.

    ``way`` is ``to`` if the given record refers to them, ``from`` if they refer to it.
    """

    way: Literal["to", "from"]
    field: str
    table: str
    items: list[RelatedOut]
    more: bool


class SearchOut(BaseModel):
    """Records of one kind that a search found."""

    table: str
    items: list[RelatedOut]


class MoveBody(SelectionBody):
    """The records to move, their new state, and fields to set."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "ids": ["acme:42"],
                    "to": "pending",
                    "reason": "the service is back",
                    "dry_run": False,
                },
                {
                    "filter": {"status": "error", "attempts": {"gte": 3}},
                    "to": "pending",
                    "reason": "token renewed",
                    "dry_run": True,
                },
            ]
        }
    )

    to: str
    fields: dict[str, Any] = {}


class RetryBody(SelectionBody):
    """The records to retry."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"filter": {"status": "error"}, "reason": "token renewed"}]}
    )


class WakeBody(RequestBody):
    """What a signal brings: fields to set before the record is handled."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"fields": {"answer": "paid"}, "reason": "the bank"}]}
    )

    fields: dict[str, Any] = {}
    reason: Annotated[str, Field(max_length=1000)] = ""


@router.get("/kinds", response_model=ListOut[KindOut], summary="List kinds")
async def kinds(runtime: CurrentRuntime, *, system: System = False) -> Any:
    """Every kind with its lifecycle and the number of records in each state."""
    return {"items": await runtime.read_model.kinds(system=system)}


@router.get(
    "/kinds/{table}",
    response_model=KindOut,
    summary="Get a kind",
)
async def kind(runtime: CurrentRuntime, table: Table) -> Any:
    """One kind with its lifecycle and the number of records in each state."""
    return await runtime.read_model.kind(table)


@router.get(
    "/records/{table}",
    response_model=ListOut[RecordJson],
    summary="List records",
    description=f"{FILTER_NOTE} {EXPORT_NOTE}",
    responses=EXPORT_RESPONSES,
    openapi_extra={"parameters": [FILTER_PARAMETER]},
)
async def records(
    request: Request,
    runtime: CurrentRuntime,
    table: Table,
    limit: ExportLimit = None,
    after: After = None,
    order: Annotated[
        str,
        Query(
            description="Fields, separated by commas; `-` before a field reverses its order",
            examples=["-updated_at"],
        ),
    ] = "",
    columns: Annotated[
        str,
        Query(
            description="Only these members, separated by commas; also of a file",
            examples=["id,status,last_error.type"],
        ),
    ] = "",
    *,
    archived: Archived = False,
) -> Any:
    """One page of records, filtered and in order; or the whole list as a file."""
    kind = runtime.engine.kind(table)
    where = filter_from_query(
        kind, request.query_params.multi_items(), archived=archived, any_state=True
    )
    chosen = chosen_columns(columns)
    if (form := accepted_format(request.headers)) is not None:
        if after is not None:
            raise BadQuery(text("export_after"))
        if not (await runtime.read_model.count(table, where, cap=1, archived=archived))[0]:
            await refuse_unknown_states(runtime, kind, where)
        found = runtime.read_model.each(
            table, where, order=check_order(kind, order), archived=archived, limit=limit
        )
        shown, rows = record_rows(kind, found, masked=read_only.get(), chosen=chosen)
        return await export_response(request, table, shown, rows, form)
    page = await runtime.read_model.records(
        table,
        where,
        order=check_order(kind, order),
        limit=limit or 100,
        after=after,
        archived=archived,
    )
    if not page.items:
        await refuse_unknown_states(runtime, kind, where)
    names = [column.name for column in record_columns(kind, chosen)] if chosen else ()
    return page_json(page, names)


@router.get(
    "/records/{table}/{id:path}/history",
    response_model=ListOut[HistoryEntryOut],
    summary="Get a record's history, oldest first",
)
async def history(
    runtime: CurrentRuntime,
    table: Table,
    id: RecordId,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Only the last entries")] = 1000,
) -> Any:
    """Every move of the record, and every attempt that left it in its state."""
    steps = await runtime.read_model.history(table, id, limit)
    if not steps:
        await runtime.read_model.record(table, id)  # raises NotFound; a new record has no history
    return {"items": [_history_entry(step) for step in steps]}


def _history_entry(step: Step) -> dict[str, Any]:
    return {
        "from": step.frm,
        "to": step.to,
        "at": step.at,
        "who": step.who,
        "run": step.run,
        "attempt": step.attempt,
        "reason": None if step.reason is None else mask_text(step.reason),
        "reason_code": step.reason.code or None if isinstance(step.reason, Text) else None,
        "error": None if step.error is None else mask_fields(dict(step.error)),
        "changes": None if step.changes is None else mask_fields(dict(step.changes)),
        "log": None if step.log is None else mask_fields(dict(step.log)),
    }


@router.get(
    "/records/{table}/{id:path}/why",
    response_model=WhyOut,
    summary="Explain why a record is not moving",
)
async def why(runtime: CurrentRuntime, table: Table, id: RecordId) -> Any:
    """The reasons, each with a code, and when the record can move next."""
    answer = (await runtime.read_model.why(table, id)).answer()
    return answer | {
        "answer": mask_text(answer["answer"]),
        "reasons": [reason | {"text": mask_text(reason["text"])} for reason in answer["reasons"]],
    }


@router.get(
    "/records/{table}/{id:path}/related",
    response_model=ListOut[RelationOut],
    summary="List related records",
)
async def related(runtime: CurrentRuntime, table: Table, id: RecordId) -> Any:
    """The records that this record refers to, and those that refer to it."""
    return {"items": await runtime.read_model.related(table, id)}


@router.get(
    "/records/{table}/{id:path}",
    response_model=RecordJson,
    summary="Get a record",
)
async def record(
    runtime: CurrentRuntime, table: Table, id: RecordId, *, archived: Archived = False
) -> Any:
    """One record, from its table or from the archive."""
    if not archived:
        return record_json(await runtime.read_model.record(table, id))
    found = (await runtime.read_model.records(table, {"id": id}, limit=1, archived=True)).items
    if not found:
        raise NotFound(text("archived_record_not_found", id=id, table=table))
    return record_json(found[0])


@router.get("/search", response_model=ListOut[SearchOut], summary="Search records by id")
async def search(
    runtime: CurrentRuntime,
    q: Annotated[
        str,
        Query(
            min_length=1,
            max_length=1000,
            description="An id, or the beginning of an id",
            examples=["acme:42"],
        ),
    ],
) -> Any:
    """Records of every kind whose id is, or begins with, the text."""
    return {"items": await runtime.read_model.search(q.strip())}


@router.post(
    "/records/{table}/move",
    response_model=ActionOut,
    summary="Move records to a state",
)
async def move(runtime: CurrentRuntime, table: Table, body: MoveBody, who: Who) -> Any:
    """Move records, chosen by ids or by a filter.

    If one of them cannot make that move, none is moved (409). `dry_run` only counts.
    """
    kind = runtime.engine.kind(table)
    done = await runtime.operations(who).move(
        table, body.to, **body.selection(kind), fields=kind.check_fields(body.fields)
    )
    return done.answer()


@router.post(
    "/records/{table}/{id:path}/wake",
    response_model=RecordJson,
    responses=problem_responses(503),
    summary="Make a record due now, with data",
)
async def wake(
    runtime: CurrentRuntime, table: Table, id: RecordId, body: WakeBody, who: Who
) -> Any:
    """Set fields of the record and let its stage take it now, whatever it was waiting for.

    Its state and attempts stay. While a worker handles it, the answer waits for its end. After five
    seconds it is 503 and nothing is written: send the same again.
    """
    found = await runtime.operations(who).wake(
        table, id, fields=body.fields, reason=body.reason, wait=WAKE_WAIT
    )
    return record_json(found)


@router.post(
    "/records/{table}/retry",
    response_model=ActionOut,
    summary="Retry exhausted records",
)
async def retry(runtime: CurrentRuntime, table: Table, body: RetryBody, who: Who) -> Any:
    """Give records that reached their maximum of attempts another one."""
    selection = body.selection(runtime.engine.kind(table))
    return (await runtime.operations(who).retry(table, **selection)).answer()


@router.post(
    "/records/{table}",
    response_model=InsertOut,
    responses=problem_responses(405),
    openapi_extra=request_rows.rows_body(
        {"type": "object", "additionalProperties": True},
        {"platform": "twitter", "post_id": "42"},
    ),
    summary="Add records",
)
async def insert(request: Request, runtime: CurrentRuntime, table: Table, who: Who) -> Any:
    """Add records: a JSON array, or one object per line as `application/x-ndjson`.

    A record whose key exists is counted as known and left unchanged. Invalid rows are reported by
    number and the others are added; 422 if no row is valid.
    """
    kind = runtime.engine.kind(table)
    if kind.system:
        raise HTTPException(
            405, f"{table} is a system table; only the engine writes it", {"Allow": "GET"}
        )
    report = await _insert(runtime, kind, await request_rows.read_rows(request))
    if report.created:
        await runtime.operations(who).note("add", table, report.created)
    return request_rows.rows_response(report, table, request.url.path)


async def _insert(runtime: Runtime, kind: Kind, given: Iterable[ImportedRow]) -> ImportReport:
    drafts: list[Record] = []
    report = ImportReport()
    for count, row in enumerate(given, 1):
        if count % INSERT_BATCH == 0:
            await asyncio.sleep(0)  # let other requests run during a large body
        try:
            drafts.append(request_rows.draft_record(kind, row))
        except BadRecord as error:
            report.refuse(row.number, str(error)[:500])
    async for answers in runtime.engine.records.load(drafts, size=INSERT_BATCH):
        report.count(answers)
    return report
