"""``/api/views``, ``/api/archives`` and ``/api/artifacts``: what pipelines show and keep."""

from __future__ import annotations

import mimetypes
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from esclusa.artifacts.paths import fault
from esclusa.model.errors import ArtifactMissing
from esclusa.web.api.common import (
    After,
    CurrentRuntime,
    ListOut,
    RecordJson,
    api_router,
    mask_fields,
)
from esclusa.web.paths import as_pasted
from esclusa.web.security import HEAD_ONLY

router = api_router("work")

# Types that a browser may display. Others are downloaded: they may be active content.
_INLINE_TYPES: Final = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"}
)


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


class ArchiveOut(BaseModel):
    """The archive of a kind. If ``exact`` is false, it has at least ``rows`` rows."""

    table: str
    rows: int
    exact: bool
    not_exported: int
    not_exported_exact: bool
    exports: int
    exported_rows: int
    bytes: int
    unverified: int
    dropped: int


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


@router.get("/archives", response_model=ListOut[ArchiveOut], summary="List archives")
async def archives(runtime: CurrentRuntime) -> Any:
    """The archive of each kind, and its exports."""
    return {"items": await runtime.read_model.archives()}


@router.get(
    "/artifacts/{path:path}",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            }
        },
    },
    summary="Download an artifact",
)
async def artifact(
    request: Request,
    runtime: CurrentRuntime,
    path: Annotated[
        str, Path(description="Its path in the artifact store", examples=["media/7.jpg"])
    ],
) -> Any:
    """A file that a pipeline keeps."""
    info = await runtime.artifacts.info(path) if fault(path) is None else None
    pasted = as_pasted(request.scope, "/artifacts/")
    if info is None and "%" in pasted and fault(pasted) is None:
        path, info = pasted, await runtime.artifacts.info(pasted)
    if info is None:
        raise ArtifactMissing(f"there is no file {path}")
    media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
    headers = {
        "Content-Length": str(info.size),
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    if media_type not in _INLINE_TYPES:
        media_type = "application/octet-stream"
        headers["Content-Disposition"] = "attachment"
    if HEAD_ONLY in request.scope:
        return Response(media_type=media_type, headers=headers)
    return StreamingResponse(runtime.artifacts.stream(path), media_type=media_type, headers=headers)
