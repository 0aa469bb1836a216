"""Trends, leases, views, search, archives and files over HTTP."""

from __future__ import annotations

import mimetypes
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from esclusa.artifacts.paths import fault
from esclusa.engine.outlook import Outlook
from esclusa.model.errors import ArtifactMissing
from esclusa.observability import redact
from esclusa.runtime import Runtime
from esclusa.web.api import schemas
from esclusa.web.api.records import After, by_name, plain, told
from esclusa.web.problems import responses
from esclusa.web.security import HEAD_ONLY

_SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"})
"""What a browser may show; anything else is saved, for it may be somebody else's page."""


def reading(runtime: Runtime) -> APIRouter:
    """Routes that change nothing."""
    api = APIRouter(prefix="/api", tags=["work"], generate_unique_id_function=by_name)
    read_model, outlook = (
        runtime.read_model,
        Outlook(runtime.engine, redact.secret_name, redact.text),
    )

    @api.get(
        "/rates",
        response_model=schemas.Listed[schemas.SeriesShape],
        summary="What each stage did, minute by minute",
    )
    async def rates(
        minutes: Annotated[int, Query(ge=1, le=1440, description="So many minutes back")] = 60,
        *,
        system: bool = False,
    ) -> Any:
        return {"items": await outlook.rates(minutes, system=system), "next": None}

    @api.get(
        "/leases",
        response_model=schemas.Listed[schemas.LeaseShape],
        summary="Records that are held now: by whom, until when",
    )
    async def leases(*, system: bool = False) -> Any:
        return {"items": await outlook.leases(system=system), "next": None}

    @api.get(
        "/views",
        response_model=schemas.Listed[schemas.ViewShape],
        summary="The views that pipelines declare",
    )
    async def views(
        pipeline: Annotated[
            str | None, Query(description="Only of this one", examples=["media"])
        ] = None,
    ) -> Any:
        return {"items": await outlook.views(pipeline), "next": None}

    @api.get(
        "/views/{name}",
        response_model=schemas.ViewPage,
        responses=responses(400, 404),
        summary="One page of a view",
    )
    async def view(
        name: Annotated[
            str,
            Path(description="The view, as `GET /api/views` names it", examples=["media.errors"]),
        ],
        limit: Annotated[int, Query(ge=1, le=1000, description="At most so many on a page")] = 50,
        after: After = None,
    ) -> Any:
        page = await outlook.view(name, limit=limit, after=after)
        return page | {"items": [told(item) for item in page["items"]]}

    @api.get(
        "/search",
        response_model=schemas.Listed[schemas.FoundShape],
        summary="Records of every kind by their id, or how it begins",
    )
    async def search(
        q: Annotated[str, Query(min_length=1, max_length=1000, examples=["twitter:42"])],
    ) -> Any:
        return {"items": await outlook.search(q.strip()), "next": None}

    @api.get(
        "/archives",
        response_model=schemas.Listed[schemas.ArchiveShape],
        summary="The archive of each kind, and its exports",
    )
    async def archives() -> Any:
        return {"items": await outlook.archives(), "next": None}

    @api.get(
        "/dead-letters/groups",
        response_model=schemas.GroupsShape,
        summary="Open dead letters by table and error",
    )
    async def dead_letter_groups() -> Any:
        groups, exact = await read_model.dead_letter_groups()
        return {
            "items": [group | {"message": plain(group["message"])} for group in groups],
            "next": None,
            "exact": exact,
        }

    @api.get(
        "/artifacts/{path:path}",
        response_class=StreamingResponse,
        responses={
            200: {
                "content": {
                    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
                }
            },
            **responses(400, 404),
        },
        summary="A file that a pipeline keeps",
    )
    async def artifact(
        request: Request,
        path: Annotated[
            str, Path(description="Its path in the artifact store", examples=["media/7.jpg"])
        ],
    ) -> Any:
        info = await runtime.artifacts.info(path) if fault(path) is None else None
        if info is None:
            raise ArtifactMissing(f"there is no file {path}")
        media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
        headers = {
            "Content-Length": str(info.size),
            "Content-Security-Policy": "sandbox; default-src 'none'",
        }
        if media_type not in _SHOWN:
            media_type = "application/octet-stream"
            headers["Content-Disposition"] = "attachment"
        if HEAD_ONLY in request.scope:
            return Response(media_type=media_type, headers=headers)
        return StreamingResponse(
            runtime.artifacts.stream(path), media_type=media_type, headers=headers
        )

    return api
