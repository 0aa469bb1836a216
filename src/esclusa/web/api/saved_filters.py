"""``/api/filters``: lists of records that users share by name; ``/api/suggest``: while typing."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel

from esclusa.model.system_records import SavedFilter
from esclusa.web.api.common import (
    CurrentRuntime,
    ListOut,
    RequestBody,
    Table,
    Who,
    api_router,
)
from esclusa.web.api.suggestions import suggestions

router = api_router("records")

Name = Annotated[str, Path(description="The name of a saved filter", examples=["timeouts"])]


class SavedFilterOut(BaseModel):
    """A list of records that users share by name."""

    table: str
    name: str
    filters: list[str]
    begins: str
    order: str
    columns: list[str]
    saved_by: str
    saved_at: datetime


class SavedFilterBody(RequestBody):
    """The list to save: filters as people type them, how ids begin, order and columns."""

    filters: list[str] = []
    begins: str = ""
    order: str = ""
    columns: list[str] = []


class RenameBody(RequestBody):
    """The new name of a saved filter."""

    name: str


class DeletedOut(BaseModel):
    """What was deleted."""

    deleted: str


class SuggestionsOut(BaseModel):
    """Whole filters that the typed text may become."""

    items: list[str]


@router.get(
    "/filters", response_model=ListOut[SavedFilterOut], summary="List saved filters by name"
)
async def saved_filters(
    runtime: CurrentRuntime,
    table: Annotated[str | None, Query(description="Only those of this kind")] = None,
) -> Any:
    """The saved filters of one kind, or of all."""
    found = await runtime.read_model.saved_filters(table)
    return {"items": [_shape(each) for each in found], "next": None}


@router.put("/filters/{table}/{name}", response_model=SavedFilterOut, summary="Save a filter")
async def save_filter(
    runtime: CurrentRuntime, who: Who, table: Table, name: Name, body: SavedFilterBody
) -> Any:
    """Save a list under a name. One of that name is replaced."""
    return _shape(
        await runtime.operations(who).save_filter(
            table,
            name,
            filters=body.filters,
            begins=body.begins,
            order=body.order,
            columns=body.columns,
        )
    )


@router.post(
    "/filters/{table}/{name}/rename", response_model=SavedFilterOut, summary="Rename a saved filter"
)
async def rename_filter(
    runtime: CurrentRuntime, who: Who, table: Table, name: Name, body: RenameBody
) -> Any:
    """Give a saved filter another name."""
    return _shape(await runtime.operations(who).rename_filter(table, name, body.name))


@router.delete("/filters/{table}/{name}", response_model=DeletedOut, summary="Delete a filter")
async def delete_filter(runtime: CurrentRuntime, who: Who, table: Table, name: Name) -> DeletedOut:
    """Delete a saved filter."""
    await runtime.operations(who).delete_filter(table, name)
    return DeletedOut(deleted=name)


@router.get(
    "/suggest/{table}", response_model=SuggestionsOut, summary="Suggest filters while typing"
)
async def suggest_filters(
    runtime: CurrentRuntime,
    table: Table,
    text: Annotated[str, Query(description="What is typed so far")] = "",
) -> SuggestionsOut:
    """Fields, states, and values of recent records that may come next."""
    return SuggestionsOut(items=await suggestions(runtime.read_model, table, text[-500:]))


def _shape(saved: SavedFilter) -> dict[str, Any]:
    return saved.model_dump() | {"table": saved.table_name}
