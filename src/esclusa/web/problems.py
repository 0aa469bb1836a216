"""Problem responses (RFC 9457): one format for every refusal and error, with a useful detail."""

from __future__ import annotations

import http
import math
from collections.abc import Mapping, Sequence
from email.utils import format_datetime
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from esclusa.engine.idempotency import CallUnderWay, KeyReused
from esclusa.imports import BadFile
from esclusa.model import errors
from esclusa.model.budget import BudgetEmpty
from esclusa.observability import redact
from esclusa.web.paths import restore_slashes

MEDIA_TYPE: Final = "application/problem+json"


class ProblemFault(BaseModel):
    """One thing that is wrong, and where."""

    where: str
    fault: str


class Problem(BaseModel):
    """What went wrong and what to do about it.

    ``code`` and ``values`` are the parts of ``detail``, for programs and translations, if it is one
    of Esclusa's own sentences.
    """

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "example": {
                "type": "urn:esclusa:problem:not-found",
                "title": "Not found",
                "status": 404,
                "detail": "there is no record 'acme:42' in orders",
                "instance": "/api/records/orders/acme:42",
            }
        },
    )

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    instance: str | None = None
    code: str | None = None
    values: dict[str, Any] | None = None
    faults: list[ProblemFault] | None = None


# Status, slug and title of each error. Other errors are answered with 500, without a message.
_PROBLEMS: Final[dict[type[BaseException], tuple[int, str, str]]] = {
    errors.NotFound: (404, "not-found", "Not found"),
    errors.ArtifactMissing: (404, "not-found", "File not found"),
    errors.BadQuery: (400, "bad-query", "Invalid filter"),
    BadFile: (400, "bad-body", "Unreadable body"),
    errors.BadRecord: (422, "bad-record", "Invalid record"),
    errors.UndeclaredMove: (409, "undeclared-move", "Move not declared"),
    errors.UndeclaredState: (409, "undeclared-state", "State not declared"),
    errors.AlreadyRunning: (409, "already-running", "Cycle already running"),
    errors.Paused: (409, "paused", "Cycle paused"),
    errors.ArtifactExists: (409, "exists", "File already exists"),
    CallUnderWay: (409, "call-in-progress", "First call with this key still running"),
    KeyReused: (422, "key-reused", "Idempotency key used for another call"),
    BudgetEmpty: (429, "budget-empty", "Budget exhausted"),
    errors.PipelineNotReady: (503, "pipeline-not-ready", "Pipeline not ready"),
    errors.StoreUnavailable: (503, "store-unavailable", "Store unavailable"),
    errors.StoreConflict: (503, "store-conflict", "Store busy with another change"),
    errors.Throttled: (503, "throttled", "Throttled by an external service"),
    errors.ExportError: (422, "not-exportable", "List cannot be exported"),
    errors.ArtifactError: (503, "artifacts-unavailable", "Artifact store failed"),
    errors.Failure: (502, "external-failure", "External service failed"),
    errors.SettingsError: (503, "not-configured", "Setting missing or wrong"),
    errors.SchemaError: (500, "schema", "Tables do not fit"),
    errors.MigrationError: (500, "migration", "Schema not usable"),
}

_RETRY_AFTER: Final[dict[str, str]] = {
    "pipeline-not-ready": "5",
    "store-unavailable": "5",
    "store-conflict": "1",
    "call-in-progress": "1",
    "artifacts-unavailable": "5",
}
# Details of the framework that Esclusa words itself.
_DETAILS: Final[dict[tuple[int, str], str]] = {
    (400, "There was an error parsing the body"): (
        "the body is not JSON: it is not UTF-8 text, or nested too deeply"
    ),
    (404, "Not Found"): "there is no route at this path; /openapi.json lists all routes",
    (405, "Method Not Allowed"): ("this path does not accept that method; it accepts {allowed}"),
}
_INTERNAL: Final = (
    "The server failed on this request. Its log has the cause under this path and time."
)


def problem(
    status: int,
    detail: str,
    *,
    slug: str = "",
    title: str = "",
    instance: str | None = None,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> JSONResponse:
    """A problem response; ``more`` are additional members.

    Secrets in the detail are masked: it may quote an external service.
    """
    body: dict[str, Any] = {
        "type": f"urn:esclusa:problem:{slug}" if slug else "about:blank",
        "title": title or http.HTTPStatus(status).phrase,
        "status": status,
        "detail": redact.text(detail),
        "instance": None if instance is None else restore_slashes(instance),
        **more,
    }
    return JSONResponse(
        {name: value for name, value in body.items() if value is not None},
        status_code=status,
        media_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def unauthorized(
    path: str, detail: str, *, realm: str = "esclusa", error: str | None = None
) -> JSONResponse:
    """The 401 problem with its challenge; ``error`` is the code of RFC 6750 for a bad token."""
    return problem(
        401,
        detail,
        slug="unauthorized",
        title="Invalid token" if error else "Authentication required",
        instance=path,
        headers={
            "WWW-Authenticate": f'Bearer realm="{realm}"' + (f', error="{error}"' if error else "")
        },
    )


def error_response(error: Exception, instance: str | None = None) -> JSONResponse:
    """The problem response for an exception."""
    if isinstance(error, RequestValidationError):
        return _validation_response(error, instance)
    if isinstance(error, HTTPException):
        return _http_response(error, instance)
    found = next((_PROBLEMS[base] for base in type(error).__mro__ if base in _PROBLEMS), None)
    if found is None:
        return problem(500, _INTERNAL, slug="internal", title="Internal error", instance=instance)
    status, slug, title = found
    more: dict[str, Any] = {}
    if isinstance(error, errors.Refusal) and error.text.code != "plain":
        values = redact.fields(jsonable_encoder(error.text.values))
        more = {"code": error.text.code, "values": values}
        if error.text.code == "did_you_mean":
            refusal = error.text.values["refusal"]
            values = redact.fields(jsonable_encoder(refusal.values))
            more = {
                "code": refusal.code,
                "values": values,
                "did_you_mean": error.text.values["name"],
            }
    if isinstance(error, errors.UndeclaredMove):
        more |= {"from": error.frm, "to": error.to}
    elif isinstance(error, errors.FaultsError):
        more["faults"] = [
            {"where": redact.text(error.what), "fault": redact.text(f)} for f in error.faults
        ]
    return problem(
        status,
        str(error),
        slug=slug,
        title=title,
        instance=instance,
        headers=_retry_after(error, slug),
        **more,
    )


def _retry_after(error: Exception, slug: str) -> dict[str, str]:
    if isinstance(error, BudgetEmpty):
        return {"Retry-After": format_datetime(error.until, usegmt=True)}
    if isinstance(error, errors.Throttled):
        return {"Retry-After": str(math.ceil(error.after))}
    return {"Retry-After": _RETRY_AFTER[slug]} if slug in _RETRY_AFTER else {}


def _validation_response(error: RequestValidationError, instance: str | None) -> JSONResponse:
    found: Sequence[Any] = error.errors()
    if any(fault["type"] == "json_invalid" for fault in found):
        cause = found[0].get("ctx", {}).get("error", "it cannot be read")
        detail = f"the body is not JSON: {cause}, at character {found[0]['loc'][-1]}"
        return problem(400, detail, slug="bad-json", title="Body is not JSON", instance=instance)
    faults = [
        {
            "where": ".".join(map(str, fault["loc"])),
            "fault": fault["msg"].removeprefix("Value error, "),
        }
        for fault in found
    ]
    detail = "; ".join(f"{fault['where']}: {fault['fault']}" for fault in faults[:5])
    if any(fault["loc"] == ("body",) and isinstance(fault.get("input"), bytes) for fault in found):
        detail += "; send it with Content-Type: application/json"
    return problem(
        422, detail, slug="bad-request", title="Invalid request", instance=instance, faults=faults
    )


def _http_response(error: HTTPException, instance: str | None) -> JSONResponse:
    headers = dict(error.headers or {})
    allowed = headers.get("Allow") or headers.get("allow") or "other methods"
    known = _DETAILS.get((error.status_code, str(error.detail)))
    detail = str(error.detail) if known is None else known.format(allowed=allowed)
    return problem(error.status_code, detail, instance=instance, headers=headers)


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Answer expected errors of the app's routes with problems.

    ``SecurityMiddleware`` answers and logs unexpected ones.
    """

    async def answer(request: Request, error: Exception) -> JSONResponse:
        if (
            isinstance(error, HTTPException)
            and error.status_code == 405
            and error.detail == "Method Not Allowed"
        ):
            error = HTTPException(
                405, headers={"Allow": ", ".join(_methods(routes, request.scope)) or "GET, HEAD"}
            )
        return error_response(error, request.url.path)

    for kind in (errors.EsclusaError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, answer)


def _methods(routes: Sequence[BaseRoute], scope: Scope) -> list[str]:
    """The methods of all routes at a path. The router's own answer names those of one route."""
    found = {
        m
        for r in routes
        if isinstance(r, Route) and r.matches(scope)[0] != Match.NONE
        for m in r.methods or ()
    }
    return sorted(found | ({"HEAD"} if "GET" in found else set()))


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problem responses of a route, for the OpenAPI document."""
    return {
        status: {
            "description": http.HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }
