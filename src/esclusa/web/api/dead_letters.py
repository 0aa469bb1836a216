"""``/api/dead-letters``: list, group, redrive and discard dead letters."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import Request
from pydantic import BaseModel, ConfigDict

from esclusa.model.system_records import DeadLetter
from esclusa.web.api.common import (
    FILTER_PARAMETER,
    ActionOut,
    After,
    CurrentRuntime,
    Limit,
    ListOut,
    RecordJson,
    SelectionBody,
    Who,
    api_router,
    mask_text,
    page_json,
)
from esclusa.web.api.filters import filter_from_query

router = api_router("work")


class DeadLetterGroupOut(BaseModel):
    """Open dead letters of one table with the same error."""

    table: str
    error_type: str
    count: int
    message: str
    newest: datetime | None
    oldest: datetime | None
    example: str


class DeadLetterGroupsOut(BaseModel):
    """All groups. If ``exact`` is false, only the newest dead letters were grouped."""

    items: list[DeadLetterGroupOut]
    next: None = None
    exact: bool


class RedriveBody(SelectionBody):
    """The dead letters to send back to work, and fields to change in their records."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"filter": {"error_type": "timeout"}, "reason": "the service is back"}]
        }
    )

    fields: dict[str, Any] = {}


class DiscardBody(SelectionBody):
    """The dead letters to close."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"ids": ["0199a…"], "reason": "the account was closed"}]}
    )


@router.get(
    "/dead-letters",
    response_model=ListOut[RecordJson],
    openapi_extra={"parameters": [FILTER_PARAMETER]},
    summary="List dead letters, newest first",
)
async def dead_letters(
    request: Request, runtime: CurrentRuntime, limit: Limit = 100, after: After = None
) -> Any:
    """Dead letters, filtered by any of their fields."""
    where = filter_from_query(DeadLetter.kind, request.query_params.multi_items())
    page = await runtime.read_model.dead_letters(where, limit=limit, after=after)
    table = request.query_params.get("table_name")
    if table and not page.items:
        runtime.engine.kind(table)  # raises NotFound for one that never existed
    return page_json(page)


@router.get(
    "/dead-letters/groups", response_model=DeadLetterGroupsOut, summary="Group dead letters"
)
async def dead_letter_groups(runtime: CurrentRuntime) -> Any:
    """Open dead letters by table and error."""
    groups, exact = await runtime.read_model.dead_letter_groups()
    return {
        "items": [group | {"message": mask_text(group["message"])} for group in groups],
        "exact": exact,
    }


@router.post(
    "/dead-letters/redrive",
    response_model=ActionOut,
    summary="Redrive dead letters",
)
async def redrive(runtime: CurrentRuntime, body: RedriveBody, who: Who) -> Any:
    """Send the records of dead letters back to work."""
    selection = body.selection(DeadLetter.kind)
    return (await runtime.operations(who).redrive(**selection, fields=body.fields)).answer()


@router.post(
    "/dead-letters/discard",
    response_model=ActionOut,
    summary="Discard dead letters",
)
async def discard(runtime: CurrentRuntime, body: DiscardBody, who: Who) -> Any:
    """Close dead letters without sending their records back to work."""
    return (await runtime.operations(who).discard(**body.selection(DeadLetter.kind))).answer()
