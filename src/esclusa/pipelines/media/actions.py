"""The actions of operators: retry failed media, map a webhook delivery again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from esclusa import To
from esclusa.pipelines.media.records import Publication, WebhookDelivery

if TYPE_CHECKING:
    from esclusa import ActionContext

# The types in `media_last_error`: those of the pipeline, then those of the engine.
ErrorType = Literal[
    "timeout",
    "http_error",
    "storage_error",
    "invalid_media",
    "rejected",
    "crash",
    "invalid_record",
]


class RetryParams(BaseModel):
    """Which failed media are retried."""

    model_config = ConfigDict(extra="forbid")

    type: ErrorType | None = Field(
        None,
        title="Only last errors of this type",
        json_schema_extra={"es": "Solo últimos errores de este tipo"},
    )


async def retry(publication: Publication, at: ActionContext) -> To | str:
    """Retry publications in error: back to pending, attempts at 0."""
    wanted = at.params.type
    if wanted is not None and (publication.last_error or {}).get("type") != wanted:
        return f"its last error is not of type {wanted}"
    return To("pending")


async def map_again(delivery: WebhookDelivery, at: ActionContext) -> To | str:
    """Map calls of the webhook to publications again; known media are not added twice."""
    return To("received")
