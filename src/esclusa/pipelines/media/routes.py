"""The pipeline's own HTTP routes: the webhook, and the three monitoring views."""

from __future__ import annotations

import hmac
import json
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from esclusa.pipelines.media import views, webhook
from esclusa.pipelines.media.intake import Intake
from esclusa.pipelines.media.settings import MediaSettings
from esclusa.runtime import Runtime
from esclusa.web.api.records import After, by_name, told
from esclusa.web.auth import SIGNED
from esclusa.web.problems import responses

WHO = "webhook:meta"


class Refused(BaseModel):
    """A medium that the table cannot hold, counted from 1 in the order of the delivery."""

    row: int
    error: str


class Received(BaseModel):
    """What became of a delivery."""

    created: int
    updated: int
    known: int
    errors: list[Refused] | None = None


class SummaryItem(BaseModel):
    media_status: str = Field(examples=["success"])
    total: int = Field(examples=[450])
    avg_intentos: float | None = Field(examples=[1.2])


class Summary(BaseModel):
    items: list[SummaryItem]


class ErrorItem(BaseModel):
    post_id: str | None
    tipo_item: str | None
    media_attempts: int
    error_msg: str | None
    error_type: str | None
    media_updated_at: datetime | None


class Errors(BaseModel):
    items: list[ErrorItem]
    next: str | None


class RetryItem(BaseModel):
    post_id: str | None
    tipo_item: str | None
    media_attempts: int
    ultimo_error: str | None
    media_updated_at: datetime | None


class Retries(BaseModel):
    items: list[RetryItem]
    next: str | None


Limit = Annotated[int, Query(ge=1, le=1000, description="How many, at most")]


def router(runtime: Runtime) -> APIRouter:
    """The routes over an opened house."""
    api = APIRouter(tags=["media"], generate_unique_id_function=by_name)
    settings = runtime.engine.plan_of("media.").settings
    assert isinstance(settings, MediaSettings)
    records = runtime.engine.records
    _webhook(api, settings, Intake(records, WHO), runtime)

    @api.get(
        "/media/summary",
        response_model=Summary,
        summary="Publications with media by state, with the average of their attempts",
    )
    async def media_summary() -> Any:
        return await views.summary(records)

    @api.get(
        "/media/errors",
        response_model=Errors,
        responses=responses(400),
        summary="Publications that ended in an error, newest first",
    )
    async def media_errors(limit: Limit = 10, after: After = None) -> Any:
        return _shown(await views.errors(records, limit, after))

    @api.get(
        "/media/retries",
        response_model=Retries,
        responses=responses(400),
        summary="Publications that will be tried again",
    )
    async def media_retries(limit: Limit = 100, after: After = None) -> Any:
        return _shown(await views.retries(records, limit, after))

    return api


def _shown(page: dict[str, Any]) -> dict[str, Any]:
    """A page as its reader may see it: an error repeats what a server said."""
    return page | {"items": [told(item) for item in page["items"]]}


def _webhook(api: APIRouter, settings: MediaSettings, intake: Intake, runtime: Runtime) -> None:
    def refused(status: int, why: str) -> HTTPException:
        """Told in the log, too: Meta only tries again for a while, and whoever set a wrong secret would hear of nothing."""
        runtime.engine.telemetry.event(
            "warning", f"a call of Meta's webhook was refused: {why}", status=status
        )
        return HTTPException(status, why)

    @api.get(
        "/webhooks/meta",
        response_class=PlainTextResponse,
        openapi_extra=SIGNED,
        responses=responses(403, 503),
        summary="Meta's verification",
    )
    async def verify(
        mode: Annotated[str, Query(alias="hub.mode")] = "",
        challenge: Annotated[str, Query(alias="hub.challenge", max_length=1000)] = "",
        token: Annotated[str, Query(alias="hub.verify_token")] = "",
    ) -> str:
        """Answers the challenge, bare, to whoever shows the verify token."""
        if settings.verify_token is None:
            raise refused(
                503, "META_VERIFY_TOKEN is not set; without it nobody can verify the webhook"
            )
        expected = settings.verify_token.get_secret_value().encode()
        if mode != "subscribe" or not hmac.compare_digest(
            expected, token.encode("utf-8", "surrogatepass")
        ):
            raise refused(403, "the verify token is not ours, or hub.mode is not subscribe")
        return challenge

    @api.post(
        "/webhooks/meta",
        response_model=Received,
        response_model_exclude_none=True,
        openapi_extra=SIGNED,
        responses=responses(400, 403, 503),
        summary="A delivery of Meta's webhook",
    )
    async def receive(request: Request) -> Any:
        """Keeps the media of a signed delivery, each once. Comments, reactions, removals and unknown things are passed over. What
        the table cannot hold is told in ``errors`` and in the log; the answer is 200, for sending it again would not mend it."""
        if settings.app_secret is None:
            raise refused(503, "META_APP_SECRET is not set; without it nothing is accepted")
        body = await request.body()
        if not webhook.signed(
            body, request.headers.get("X-Hub-Signature-256"), settings.app_secret.get_secret_value()
        ):
            raise refused(403, "X-Hub-Signature-256 does not sign this body with our secret")
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise refused(400, f"the body is not JSON: {error}") from None
        counts = await intake.take(list(webhook.read(document)))
        level = "warning" if "errors" in counts else "info"
        runtime.engine.telemetry.event(level, "a delivery of Meta's webhook was kept", **counts)
        return counts
