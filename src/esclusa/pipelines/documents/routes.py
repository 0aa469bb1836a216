"""The pipeline's own HTTP: the event that a folder is ready, a document with its extractions, its pages as pictures."""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from esclusa import Permanent
from esclusa.pipelines.documents.buckets import object_name
from esclusa.pipelines.documents.desk import Desk
from esclusa.pipelines.documents.events import BadEvent, Passed, read_event
from esclusa.pipelines.documents.records import Documento, Extraccion, Folio
from esclusa.pipelines.documents.settings import DocumentsSettings
from esclusa.pipelines.documents.signals import from_event
from esclusa.runtime import Runtime
from esclusa.web import (
    SELF_AUTHENTICATED,
    OidcVerifier,
    bearer_secret,
    problem,
    problem_responses,
)

KEPT = 32
"""Pictures kept in memory, the last ones that were asked for."""


def build(runtime: Runtime) -> APIRouter:
    router = APIRouter(tags=["documents"])
    _events(router, runtime)
    _reading(router, runtime)
    _pictures(router, runtime)
    return router


def _events(router: APIRouter, runtime: Runtime) -> None:
    settings: DocumentsSettings = runtime.engine.plan_of("documents").settings  # type: ignore[assignment]
    tokens = _tokens(settings)

    @router.post(
        "/events/storage", status_code=202, responses=problem_responses(400, 401, 403), openapi_extra=SELF_AUTHENTICATED if tokens is not None else None,
        summary="An event of Cloud Storage, by Eventarc or a Pub/Sub push: an empty {folder_prefix}/is_ready starts the folder",
    )  # fmt: skip
    async def storage_event(request: Request, response: Response) -> Any:
        if tokens is not None:
            secret = bearer_secret(request.headers.get("authorization", ""))
            claims = await tokens.authenticate(secret, request.url.path)
            if isinstance(claims, Response):
                return claims
        try:
            event = read_event(request.headers, await request.body())
        except BadEvent as error:
            return problem(
                400,
                str(error),
                slug="bad-event",
                title="This event cannot be read",
                instance=request.url.path,
            )
        if isinstance(event, Passed):
            response.status_code = 200
            return {"accepted": False, "reason": event.reason}
        signal = from_event(event)
        await runtime.engine.records.insert([signal])
        return {"accepted": True, "folio_id": signal.folio_id, "eventarc_event_id": event.event_id}


def _reading(router: APIRouter, runtime: Runtime) -> None:
    @router.get(
        "/documents/{folio_id}",
        responses=problem_responses(404),
        summary="A folder and its documents, page by page",
    )
    async def folder(
        folio_id: str, limit: Annotated[int, Query(ge=1, le=1000)] = 100, after: str | None = None
    ) -> Any:
        found = await runtime.engine.records.get(Folio, folio_id)
        if found is None:
            return problem(404, f"there is no folder {folio_id!r}", slug="not-found")
        page = await runtime.engine.records.find(
            Documento, {"folio_id": folio_id}, limit=limit, after=after
        )
        items = [Documento.kind.as_json(doc) for doc in page.items]
        return {"folio": Folio.kind.as_json(found), "items": items, "next": page.next}

    @router.get(
        "/documents/{folio_id}/{documento_id}",
        responses=problem_responses(404),
        summary="A document with everything that was read in it",
    )
    async def document(folio_id: str, documento_id: str) -> Any:
        doc = await _document(runtime, folio_id, documento_id)
        if doc is None:
            return problem(
                404,
                f"there is no document {documento_id!r} in folder {folio_id!r}",
                slug="not-found",
            )
        found = runtime.engine.records.each(Extraccion, {"documento_id": doc.id}, order="position")
        kept = [Extraccion.kind.as_json(e) async for e in found if e.revision == doc.revision]
        return {**Documento.kind.as_json(doc), "extracciones": kept}


def _pictures(router: APIRouter, runtime: Runtime) -> None:
    @router.get(
        "/documents/{folio_id}/{documento_id}/text", response_class=Response, responses=problem_responses(404, 502, 503),
        summary="The text in which the spans of a document's extractions count",
    )  # fmt: skip
    async def text(folio_id: str, documento_id: str) -> Any:
        doc = await _document(runtime, folio_id, documento_id)
        if doc is None:
            return problem(
                404,
                f"there is no document {documento_id!r} in folder {folio_id!r}",
                slug="not-found",
            )
        try:
            return Response(await _text(runtime, doc), media_type="text/plain; charset=utf-8")
        except Permanent as error:
            return problem(404, str(error), slug="not-found", title="There is no such text")

    pictures: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()

    @router.get(
        "/documents/{folio_id}/{documento_id}/pages/{number}.png", response_class=Response, responses=problem_responses(404, 422, 502),
        summary="A page as a picture; pages count from 0",
    )  # fmt: skip
    async def page(
        folio_id: str,
        documento_id: str,
        number: Annotated[int, Path(ge=0)],
        width: Annotated[int, Query(ge=100, le=2400)] = 1200,
    ) -> Any:
        doc = await _document(runtime, folio_id, documento_id)
        if doc is None:
            return problem(
                404,
                f"there is no document {documento_id!r} in folder {folio_id!r}",
                slug="not-found",
            )
        key = (doc.id, number, width)
        if key not in pictures:
            try:
                picture = await _desk(runtime).viewer.picture(
                    await _content(runtime, doc), number, width
                )
            except Permanent as error:  # it went away, is no PDF after all, or has no such page
                return problem(404, str(error), slug="not-found", title="There is no such page")
            pictures[key] = picture
            while len(pictures) > KEPT:
                pictures.popitem(last=False)
        pictures.move_to_end(key)
        return Response(
            pictures[key],
            media_type="image/png",
            headers={"Cache-Control": "private, max-age=3600"},
        )


def _tokens(settings: DocumentsSettings) -> OidcVerifier | None:
    if not settings.audiences:
        return None
    names = ("EVENTARC_AUDIENCE", "EVENTARC_SERVICE_ACCOUNT")
    return OidcVerifier(
        settings.audiences,
        settings.eventarc_certs_url,
        settings.eventarc_service_account,
        settings=names,
        realm="eventarc",
    )


async def _document(runtime: Runtime, folio_id: str, documento_id: str) -> Documento | None:
    """By its whole id, or by the part after the folder's."""
    for id in (documento_id, Documento.kind.id_of(folio_id, documento_id)):
        doc = await runtime.engine.records.get(Documento, id)
        if doc is not None and doc.folio_id == folio_id:
            return doc
    return None


async def _text(runtime: Runtime, doc: Documento) -> bytes:
    """Raises Permanent if there is none."""
    if doc.text_path is not None:
        return await runtime.artifacts.get(doc.text_path)
    reader = (doc.extractor_output_summary or {}).get("processor")
    if reader not in (None, "local"):
        how = "esclusa documents process … --reprocess --force reads the folder again and keeps it"
        raise Permanent(
            f"its spans count in the text of {reader}, which was not kept when it was read; {how}",
            type="no_text",
        )
    return await _desk(runtime).viewer.text(await _content(runtime, doc))


def _desk(runtime: Runtime) -> Desk:
    desk: Desk = runtime.engine.contexts["documents"]
    return desk


async def _content(runtime: Runtime, doc: Documento) -> bytes:
    return (
        await _desk(runtime)
        .buckets[doc.bucket]
        .read(object_name(doc.bucket, doc.gcs_uri), doc.generation)
    )
