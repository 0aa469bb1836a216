"""``/webhooks/wake``: a signed signal from outside makes a record due now, with data."""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from esclusa.model.errors import BadQuery
from esclusa.web.api.common import (
    STRICT_PARAMETERS,
    WAKE_WAIT,
    CurrentRuntime,
    RequestBody,
    Table,
    operation_id,
)
from esclusa.web.auth.middleware import SELF_AUTHENTICATED
from esclusa.web.problems import problem_responses

# Who has changed the record, in history and audit.
WHO = "webhook"

router = APIRouter(tags=["records"], generate_unique_id_function=operation_id)


class SignalBody(RequestBody):
    """The fields that a signal sets."""

    fields: dict[str, Any] = {}


class SignalOut(BaseModel):
    """The record that was woken, and its state."""

    id: str
    status: str


def signature(secret: str, table: str, id: str, body: bytes) -> str:
    """The signature of a signal for one record: HMAC-SHA256 of ``table/id``, a new line, the body.

    The record is part of it, so that a signal for one record is worth nothing for another.
    """
    message = f"{table}/{id}\n".encode() + body
    return "sha256=" + hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


@router.post(
    "/webhooks/wake/{table}/{id:path}",
    response_model=SignalOut,
    dependencies=[STRICT_PARAMETERS],
    openapi_extra=SELF_AUTHENTICATED,
    responses=problem_responses(400, 403, 404, 503),
    summary="A signed signal for a record",
)
async def wake_signed(
    request: Request,
    runtime: CurrentRuntime,
    table: Table,
    id: str,
    signed: Annotated[str, Header(alias="X-Esclusa-Signature")] = "",
) -> SignalOut:
    """Set fields of a record and let its stage take it now. Body: `{"fields": {…}}`, or empty.

    `X-Esclusa-Signature` is `sha256=` and the hex HMAC-SHA256 of `table/id`, a line feed and the
    body, with ESCLUSA_WAKE_SECRET as the key. While a worker handles the record, the answer waits
    for its end. After five seconds it is 503 and nothing is written: send the same again.
    """
    secret = runtime.settings.wake_secret
    if secret is None:
        raise HTTPException(503, "ESCLUSA_WAKE_SECRET is not set: every signal is refused")
    body = await request.body()
    expected = signature(secret.get_secret_value(), table, id, body)
    if not hmac.compare_digest(expected.encode(), signed.encode("utf-8", "surrogateescape")):
        raise HTTPException(403, "X-Esclusa-Signature does not sign this record and body")
    try:
        given = SignalBody.model_validate_json(body or b"{}")
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise BadQuery(
            f"the body is no signal: {where} {fault['msg']}".replace("  ", " ")
        ) from None
    found = await runtime.operations(WHO).wake(
        table, id, fields=given.fields, reason="webhook", wait=WAKE_WAIT
    )
    return SignalOut(id=found.id, status=found.status)
