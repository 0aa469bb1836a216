"""HTTP routes of the pipeline: storage events, folders, documents, and page images."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel, Field
from starlette.background import BackgroundTask

from esclusa import NotFound, Permanent
from esclusa.pipelines.documents import origin
from esclusa.pipelines.documents.corrections import release, review_value
from esclusa.pipelines.documents.events import BadEvent, IgnoredEvent, read_event
from esclusa.pipelines.documents.exports import (
    MEDIA_TYPES,
    ExportFormat,
    encoded,
    write_export,
)
from esclusa.pipelines.documents.folder_signals import from_event, log, receive
from esclusa.pipelines.documents.processors import Processors
from esclusa.pipelines.documents.progress_log import ignored_line
from esclusa.pipelines.documents.records import Documento, Extraccion, Folio
from esclusa.pipelines.documents.settings import DocumentsSettings
from esclusa.web import (
    SELF_AUTHENTICATED,
    STRICT_PARAMETERS,
    OidcVerifier,
    Who,
    bearer_secret,
    problem,
    problem_responses,
)

if TYPE_CHECKING:
    from esclusa import Runtime

MAX_CACHED_IMAGES = 32


def router(runtime: Runtime) -> APIRouter:
    """Return the routes on an opened runtime."""
    api = APIRouter(tags=["documents"])
    _add_events(api, runtime)
    _add_exports(api, runtime)
    _add_records(api, runtime)
    _add_reviews(api, runtime)
    _add_views(api, runtime)
    return api


def _add_events(api: APIRouter, runtime: Runtime) -> None:
    settings: DocumentsSettings = runtime.settings_of("documents")
    verifier = _verifier(settings)

    @api.post(
        "/events/storage",
        status_code=202,
        responses=problem_responses(400, 401, 403),
        openapi_extra=SELF_AUTHENTICATED if verifier is not None else None,
        summary="An event of Cloud Storage, from Eventarc or a Pub/Sub push: an empty "
        "{folder_prefix}/is_ready starts the folder",
    )
    async def storage_event(request: Request, response: Response) -> Any:
        if verifier is not None:
            secret = bearer_secret(request.headers.get("authorization", ""))
            claims = await verifier.authenticate(secret, request.url.path)
            if isinstance(claims, Response):
                return claims
        try:
            event = read_event(request.headers, await request.body(), settings.flag)
        except BadEvent as error:
            return problem(
                400,
                str(error),
                slug="bad-event",
                title="Invalid event",
                instance=request.url.path,
            )
        if isinstance(event, IgnoredEvent):
            log(runtime, ignored_line(settings, event))
            response.status_code = 200
            return {"accepted": False, "reason": event.reason}
        folio_id, _ = await receive(runtime, from_event(event))
        return {"accepted": True, "folio_id": folio_id, "eventarc_event_id": event.event_id}


def _add_exports(api: APIRouter, runtime: Runtime) -> None:
    @api.get(
        "/documents/{folio_id}/export",
        dependencies=[STRICT_PARAMETERS],
        response_class=Response,
        responses=problem_responses(404),
        summary="The numbers of a folder as a file: one row per number, and its statements",
    )
    async def export(folio_id: str, format: Annotated[ExportFormat, Query()] = "csv") -> Response:
        if await runtime.records.get(Folio, folio_id) is None:
            raise NotFound(f"there is no folder {folio_id!r}")
        headers = {"Content-Disposition": f'attachment; filename="{folio_id}.{format}"'}
        if format != "xlsx":
            content = encoded(runtime.records, folio_id, format)
            return StreamingResponse(content, media_type=MEDIA_TYPES[format], headers=headers)
        folder = Path(await asyncio.to_thread(mkdtemp, prefix="esclusa-export-"))
        removed = BackgroundTask(rmtree, folder, ignore_errors=True)
        try:
            await write_export(runtime.records, folio_id, format, folder / "export.xlsx")
        except BaseException:
            await asyncio.to_thread(rmtree, folder, ignore_errors=True)
            raise
        return FileResponse(
            folder / "export.xlsx",
            media_type=MEDIA_TYPES[format],
            headers=headers,
            background=removed,
        )


def _add_records(api: APIRouter, runtime: Runtime) -> None:
    @api.get(
        "/documents/{folio_id}",
        dependencies=[STRICT_PARAMETERS],
        responses=problem_responses(404),
        summary="A folder and its documents, page by page",
    )
    async def folder(
        folio_id: str, limit: Annotated[int, Query(ge=1, le=1000)] = 100, after: str | None = None
    ) -> Any:
        folio = await runtime.records.get(Folio, folio_id)
        if folio is None:
            raise NotFound(f"there is no folder {folio_id!r}")
        page = await runtime.records.find(
            Documento, {"folio_id": folio_id}, limit=limit, after=after
        )
        items = [Documento.kind.as_json(doc) for doc in page.items]
        return {"folio": Folio.kind.as_json(folio), "items": items, "next": page.next}

    @api.get(
        "/documents/{folio_id}/{documento_id}",
        dependencies=[STRICT_PARAMETERS],
        responses=problem_responses(404),
        summary="A document with all its extractions",
    )
    async def document(folio_id: str, documento_id: str) -> Any:
        doc = await _document(runtime, folio_id, documento_id)
        found = runtime.records.each(Extraccion, {"documento_id": doc.id}, order="position")
        current = [Extraccion.kind.as_json(e) async for e in found if e.revision == doc.revision]
        old = {}
        if doc.revision is None:  # another service may have read it
            begins = origin.EXTRACTION
            old["old_extractions"] = await runtime.records.foreign_documents(
                Extraccion, doc.id, begins=begins
            )
        return {**Documento.kind.as_json(doc), "extracciones": current, **old}


class ReviewIn(BaseModel, extra="forbid"):
    """What a person decides about a value; without ``value`` it is confirmed as it was read."""

    value: str | None = Field(None, max_length=60, examples=["-812440"])
    reason: str = Field(min_length=1, max_length=1000)


class ReleaseIn(BaseModel, extra="forbid"):
    """Why a document needs no more review."""

    reason: str = Field(min_length=1, max_length=1000)


def _add_reviews(api: APIRouter, runtime: Runtime) -> None:
    @api.post(
        "/documents/{folio_id}/{documento_id}/values/{id}",
        responses=problem_responses(404),
        summary="Correct or confirm a value; what was read stays, and the history has who and why",
    )
    async def value(folio_id: str, documento_id: str, id: str, body: ReviewIn, who: Who) -> Any:
        doc = await _document(runtime, folio_id, documento_id)
        for each in (id, Extraccion.kind.id_of(doc.id, id)):
            found = await runtime.records.get(Extraccion, each)
            if found is not None and found.documento_id == doc.id:
                done = await review_value(
                    runtime, who, found.id, value=body.value, reason=body.reason
                )
                return Extraccion.kind.as_json(done)
        raise NotFound(f"there is no value {id!r} in document {doc.id!r}")

    @api.post(
        "/documents/{folio_id}/{documento_id}/review",
        responses=problem_responses(404),
        summary="Mark a document as reviewed; one in NEEDS_REVIEW becomes DONE",
    )
    async def review(folio_id: str, documento_id: str, body: ReleaseIn, who: Who) -> Any:
        doc = await _document(runtime, folio_id, documento_id)
        await release(runtime, who, doc.id, reason=body.reason)
        return Documento.kind.as_json(await _document(runtime, folio_id, doc.id))


def _add_views(api: APIRouter, runtime: Runtime) -> None:
    def processors() -> Processors:
        found: Processors = runtime.engine.contexts["documents"]
        return found

    @api.get(
        "/documents/{folio_id}/{documento_id}/text",
        response_class=Response,
        responses=problem_responses(404, 502, 503),
        summary="The text in which the spans of a document's extractions count",
    )
    async def text(folio_id: str, documento_id: str) -> Any:
        doc = await _document(runtime, folio_id, documento_id)
        try:
            body = await _text(runtime, processors(), doc)
        except Permanent as error:
            return problem(404, str(error), slug="not-found", title="No such text")
        return Response(body, media_type="text/plain; charset=utf-8")

    images: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()

    @api.get(
        "/documents/{folio_id}/{documento_id}/pages/{number}.png",
        response_class=Response,
        responses=problem_responses(404, 422, 502),
        summary="A page as an image; pages count from 0",
    )
    async def page(
        folio_id: str,
        documento_id: str,
        number: Annotated[int, PathParameter(ge=0)],
        width: Annotated[int, Query(ge=100, le=2400)] = 1200,
    ) -> Any:
        doc = await _document(runtime, folio_id, documento_id)
        key = (doc.id, number, width)
        if key not in images:
            try:
                content = await processors().content(doc)
                images[key] = await processors().viewer.picture(content, number, width)
            except Permanent as error:  # deleted, unreadable, or without such a page
                return problem(404, str(error), slug="not-found", title="No such page")
            while len(images) > MAX_CACHED_IMAGES:
                images.popitem(last=False)
        images.move_to_end(key)
        return Response(
            images[key],
            media_type="image/png",
            headers={"Cache-Control": "private, max-age=3600"},
        )


def _verifier(settings: DocumentsSettings) -> OidcVerifier | None:
    if not settings.audiences or settings.eventarc_service_account is None:
        return None
    return OidcVerifier(
        settings.audiences,
        settings.eventarc_certs_url,
        settings.eventarc_service_account,
        settings=("EVENTARC_AUDIENCE", "EVENTARC_SERVICE_ACCOUNT"),
        realm="eventarc",
    )


async def _document(runtime: Runtime, folio_id: str, documento_id: str) -> Documento:
    """Return a document by its whole id, or by the part after the folder's; raise NotFound."""
    for id in (documento_id, Documento.kind.id_of(folio_id, documento_id)):
        doc = await runtime.records.get(Documento, id)
        if doc is not None and doc.folio_id == folio_id:
            return doc
    raise NotFound(f"there is no document {documento_id!r} in folder {folio_id!r}")


async def _text(runtime: Runtime, processors: Processors, doc: Documento) -> bytes:
    """Return the text in which spans count; raise Permanent if there is none."""
    if doc.text_path is not None:
        return await runtime.artifacts.get(doc.text_path)
    reader = (doc.extractor_output_summary or {}).get("processor")
    if reader not in (None, "local"):
        raise Permanent(
            f"its spans count in the text of {reader}, which was not stored; "
            "esclusa documents process … --reprocess --force reads the folder again and stores it",
            type="no_text",
        )
    return await processors.viewer.text(await processors.content(doc))
