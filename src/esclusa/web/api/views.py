"""``/api/views``: the views that pipelines declare."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, Field

from esclusa.web.api.requests import After, CurrentRuntime, api_router
from esclusa.web.api.responses import ListOut, RecordJson, mask_fields

router = api_router("work")


class ViewOut(BaseModel):
    """A view that a pipeline declares.

    ``count`` is the number of its records, null if it does not list records. If ``exact`` is false,
    there are at least that many.
    """

    view: str = Field(examples=["media.errors"])
    title: dict[str, str] = Field(examples=[{"en": "Failed downloads, newest first"}])
    table: str | None
    count: int | None
    exact: bool


class ViewPageOut(ViewOut):
    """One page of a view."""

    columns: list[str]
    items: list[RecordJson]
    next: str | None


@router.get("/views", response_model=ListOut[ViewOut], summary="List views")
async def views(
    runtime: CurrentRuntime,
    pipeline: Annotated[
        str | None, Query(description="Only views of this pipeline", examples=["media"])
    ] = None,
) -> Any:
    """Every view with the number of its records."""
    return {"items": await runtime.read_model.views(pipeline)}


@router.get(
    "/views/{name}",
    response_model=ViewPageOut,
    summary="Get a page of a view",
)
async def view(
    runtime: CurrentRuntime,
    name: Annotated[
        str, Path(description="The view, as listed by `GET /api/views`", examples=["media.errors"])
    ],
    limit: Annotated[
        int, Query(ge=1, le=1000, description="Maximum number of items on a page")
    ] = 50,
    after: After = None,
) -> Any:
    """One page of a view: its columns and rows."""
    page = await runtime.read_model.view(name, limit=limit, after=after)
    return page | {"items": [mask_fields(item) for item in page["items"]]}
