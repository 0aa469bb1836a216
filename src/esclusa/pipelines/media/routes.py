"""HTTP routes of the pipeline: the webhook and the three monitoring views."""

from __future__ import annotations

import hmac
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from esclusa import Runtime
from esclusa.pipelines.media import deliveries, views, webhook
from esclusa.pipelines.media.settings import MediaSettings
from esclusa.web import (
    SELF_AUTHENTICATED,
    STRICT_PARAMETERS,
    After,
    mask_fields,
    operation_id,
    problem_responses,
)


class RefusedMedium(BaseModel):
    """A medium that the table refuses; ``row`` is its position in the delivery, from 1."""

    row: int
    error: str


class DeliveryResult(BaseModel):
    """How many media of a delivery were created, updated or known, and those refused.

    ``delivery`` and ``status`` are there if it is not mapped: its record, which is ``failed``, or
    ``received`` and will be mapped later.
    """

    created: int
    updated: int
    known: int
    errors: list[RefusedMedium] | None = None
    delivery: str | None = None
    status: Literal["received", "failed"] | None = None


class MediaSummaryItem(BaseModel):
    """Publications of one state."""

    media_status: str = Field(examples=["success"])
    total: int = Field(examples=[450])
    avg_intentos: float | None = Field(examples=[1.2])


class MediaSummary(BaseModel):
    """Publications with media, by state."""

    items: list[MediaSummaryItem]


class MediaErrorItem(BaseModel):
    """A publication in ``error``, with its last error."""

    post_id: str | None
    tipo_item: str | None
    media_attempts: int
    error_msg: str | None
    error_type: str | None
    media_updated_at: datetime | None


class MediaErrors(BaseModel):
    """A page of publications in ``error``."""

    items: list[MediaErrorItem]
    next: str | None


class MediaRetryItem(BaseModel):
    """A publication that will be retried, with its last error."""

    post_id: str | None
    tipo_item: str | None
    media_attempts: int
    ultimo_error: str | None
    media_updated_at: datetime | None


class MediaRetries(BaseModel):
    """A page of publications that will be retried."""

    items: list[MediaRetryItem]
    next: str | None


Limit = Annotated[int, Query(ge=1, le=1000, description="Items per page")]


def router(runtime: Runtime) -> APIRouter:
    """Return the routes on an opened runtime."""
    api = APIRouter(tags=["media"], generate_unique_id_function=operation_id)
    settings: MediaSettings = runtime.settings_of("media")
    _add_webhook(api, settings, runtime)

    @api.get(
        "/media/summary",
        dependencies=[STRICT_PARAMETERS],
        response_model=MediaSummary,
        responses=problem_responses(400),
        summary="Publications with media by state, with their average attempts",
    )
    async def media_summary() -> Any:
        return await views.summary(runtime.records)

    @api.get(
        "/media/errors",
        dependencies=[STRICT_PARAMETERS],
        response_model=MediaErrors,
        responses=problem_responses(400),
        summary="Publications that ended in error, newest first",
    )
    async def media_errors(limit: Limit = 10, after: After = None) -> Any:
        return _masked(await views.errors(runtime.records, limit, after))

    @api.get(
        "/media/retries",
        dependencies=[STRICT_PARAMETERS],
        response_model=MediaRetries,
        responses=problem_responses(400),
        summary="Publications that will be retried, most attempts first",
    )
    async def media_retries(limit: Limit = 100, after: After = None) -> Any:
        return _masked(await views.retries(runtime.records, limit, after))

    return api


def _masked(page: dict[str, Any]) -> dict[str, Any]:
    """Mask secrets for readers: an error message can repeat what a server sent."""
    return page | {"items": [mask_fields(item) for item in page["items"]]}


def _add_webhook(api: APIRouter, settings: MediaSettings, runtime: Runtime) -> None:
    def refused(status: int, message: str) -> HTTPException:
        """Log the refusal: Meta reports it nowhere, and stops sending after a while."""
        runtime.engine.telemetry.event(
            "warning", f"a call of Meta's webhook was refused: {message}", status=status
        )
        return HTTPException(status, message)

    @api.get(
        "/webhooks/meta",
        response_class=PlainTextResponse,
        openapi_extra=SELF_AUTHENTICATED,
        responses=problem_responses(403, 503),
        summary="Meta's verification",
    )
    async def verify(
        mode: Annotated[str, Query(alias="hub.mode")] = "",
        challenge: Annotated[str, Query(alias="hub.challenge", max_length=1000)] = "",
        token: Annotated[str, Query(alias="hub.verify_token")] = "",
    ) -> str:
        """Answer the bare challenge to a caller with the verify token."""
        if settings.verify_token is None:
            raise refused(503, "META_VERIFY_TOKEN is not set: the webhook cannot be verified")
        expected = settings.verify_token.get_secret_value().encode()
        if mode != "subscribe" or not hmac.compare_digest(
            expected, token.encode("utf-8", "surrogatepass")
        ):
            raise refused(403, "the verify token is wrong, or hub.mode is not subscribe")
        return challenge

    @api.post(
        "/webhooks/meta",
        response_model=DeliveryResult,
        response_model_exclude_none=True,
        openapi_extra=SELF_AUTHENTICATED,
        responses=problem_responses(400, 403, 503),
        summary="A delivery of Meta's webhook",
    )
    async def receive(request: Request) -> Any:
        """Store a signed delivery whole, then its media as rows, each once.

        Comments, reactions, removals and unknown changes are skipped. Media that the table refuses
        are listed in `errors`; the delivery is then `failed`, raises an alert and can be mapped
        again. The answer is still 200, because the delivery is stored.
        """
        if settings.app_secret is None:
            raise refused(503, "META_APP_SECRET is not set: every delivery is refused")
        body = await request.body()
        if not webhook.is_signed(
            body, request.headers.get("X-Hub-Signature-256"), settings.app_secret.get_secret_value()
        ):
            raise refused(403, "X-Hub-Signature-256 does not sign this body with META_APP_SECRET")
        try:
            text = body.decode()
            webhook.parse(text)
        except (ValueError, RecursionError) as error:
            raise refused(400, f"the body is not JSON: {error}") from None
        delivery = await deliveries.receive(runtime, text)
        counts = {
            "created": delivery.created,
            "updated": delivery.updated,
            "known": delivery.known,
            "errors": delivery.refused or None,
        }
        if delivery.status == "mapped":
            return counts
        return counts | {"delivery": delivery.id, "status": delivery.status}
