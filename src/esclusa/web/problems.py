"""Problems: every refusal and fault in one shape (RFC 9457), with a detail that a person can act on."""

from __future__ import annotations

import http
import math
from collections.abc import Mapping, Sequence
from email.utils import format_datetime
from typing import Any, Final

from fastapi import FastAPI, Request
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
from esclusa.web.paths import restore

MEDIA_TYPE: Final = "application/problem+json"


class Fault(BaseModel):
    """One thing that is wrong, and where."""

    where: str
    fault: str


class Problem(BaseModel):
    """What went wrong, and what to do about it."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "example": {
                "type": "urn:esclusa:problem:not-found",
                "title": "There is no such thing",
                "status": 404,
                "detail": "there is no record 'twitter:42' in posts",
                "instance": "/api/records/posts/twitter:42",
            }
        },
    )

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    instance: str | None = None
    faults: list[Fault] | None = None


_MEANING: dict[type[BaseException], tuple[int, str, str]] = {
    errors.NotFound: (404, "not-found", "There is no such thing"),
    errors.ArtifactMissing: (404, "not-found", "There is no such file"),
    errors.BadQuery: (400, "bad-query", "The question cannot be answered as it was put"),
    BadFile: (400, "bad-body", "The body cannot be read"),
    errors.BadRecord: (422, "bad-record", "The record does not fit its declaration"),
    errors.UndeclaredMove: (409, "undeclared-move", "The lifecycle does not have this move"),
    errors.AlreadyRunning: (409, "already-running", "The cycle is running now"),
    errors.Paused: (409, "paused", "The cycle is paused"),
    errors.ArtifactExists: (409, "exists", "There is a file of that name already"),
    CallUnderWay: (409, "call-under-way", "The first call with this key is under way"),
    KeyReused: (422, "key-reused", "The idempotency key was used for another call"),
    BudgetEmpty: (429, "budget-empty", "The budget is spent"),
    errors.StoreUnavailable: (503, "store-unavailable", "The store does not answer now"),
    errors.StoreConflict: (503, "store-conflict", "The store was busy with another change"),
    errors.Throttled: (503, "throttled", "A service outside asks to slow down"),
    errors.ArtifactError: (503, "artifacts-unavailable", "The artifact store failed"),
    errors.Failure: (502, "outside-failure", "A service outside failed"),
    errors.SettingsError: (503, "not-configured", "A setting is missing or wrong"),
    errors.SchemaError: (500, "schema", "The store's tables do not fit"),
    errors.MigrationError: (500, "migration", "The store's schema cannot be used"),
}
"""What each error means in HTTP. An error that is not here, nor its bases, is ours: 500 without its message."""

_AGAIN: dict[str, str] = {
    "store-unavailable": "5",
    "store-conflict": "1",
    "call-under-way": "1",
    "artifacts-unavailable": "5",
}
_UNTOLD = "Something went wrong inside; nothing is known to be wrong with the request. The server's log has the cause under this path and time."


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
    """A problem as a response; ``more`` are members of its own. Secrets in its detail are masked: it may quote a service outside."""
    body: dict[str, Any] = {
        "type": f"urn:esclusa:problem:{slug}" if slug else "about:blank",
        "title": title or http.HTTPStatus(status).phrase,
        "status": status,
        "detail": redact.text(detail),
    }
    if instance is not None:
        body["instance"] = restore(instance)
    body |= {name: value for name, value in more.items() if value is not None}
    return JSONResponse(
        body, status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {})
    )


def of_error(error: Exception, instance: str | None = None) -> JSONResponse:
    """The problem that an exception is to the caller."""
    if isinstance(error, RequestValidationError):
        return _of_validation(error, instance)
    if isinstance(error, HTTPException):
        return _of_http(error, instance)
    found = next((_MEANING[base] for base in type(error).__mro__ if base in _MEANING), None)
    if found is None:
        return problem(
            500, _UNTOLD, slug="internal", title="Something went wrong inside", instance=instance
        )
    status, slug, title = found
    headers = _wait(error, slug)
    more: dict[str, Any] = {}
    if isinstance(error, errors.UndeclaredMove):
        more = {"from": error.frm, "to": error.to}
    elif isinstance(error, errors.FaultsError):
        more = {
            "faults": [
                {"where": redact.text(error.what), "fault": redact.text(fault)}
                for fault in error.faults
            ]
        }
    return problem(
        status, str(error), slug=slug, title=title, instance=instance, headers=headers, **more
    )


def _wait(error: Exception, slug: str) -> dict[str, str]:
    """When it is worth trying again."""
    if isinstance(error, BudgetEmpty):
        return {"Retry-After": format_datetime(error.until, usegmt=True)}
    if isinstance(error, errors.Throttled):
        return {"Retry-After": str(math.ceil(error.after))}
    return {"Retry-After": _AGAIN[slug]} if slug in _AGAIN else {}


def _of_validation(error: RequestValidationError, instance: str | None) -> JSONResponse:
    found: Sequence[Any] = error.errors()
    if any(fault["type"] == "json_invalid" for fault in found):
        fault = found[0]
        why = f"{fault.get('ctx', {}).get('error', 'it cannot be read')}, at character {fault['loc'][-1]}"
        return problem(
            400,
            f"the body is not JSON: {why}",
            slug="bad-json",
            title="The body is not JSON",
            instance=instance,
        )
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
        422,
        detail,
        slug="bad-request",
        title="The request does not fit",
        instance=instance,
        faults=faults,
    )


def _of_http(error: HTTPException, instance: str | None) -> JSONResponse:
    headers = dict(error.headers or {})
    detail = str(error.detail)
    if error.status_code == 404 and detail == "Not Found":
        detail = "there is nothing at this path; /openapi.json lists what there is"
    elif error.status_code == 400 and detail == "There was an error parsing the body":
        detail = "the body is not JSON: it is not UTF-8 text, or nested too deeply"
    elif error.status_code == 405 and detail == "Method Not Allowed":
        detail = f"this path does not take that method; it takes {headers.get('Allow') or headers.get('allow') or 'others'}"
    return problem(error.status_code, detail, instance=instance, headers=headers)


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Answer every expected error of the app, which has these routes, with its problem. The unexpected is answered, and told, at
    the border."""

    async def answer(request: Request, error: Exception) -> JSONResponse:
        if (
            isinstance(error, HTTPException)
            and error.status_code == 405
            and error.detail == "Method Not Allowed"
        ):
            error = HTTPException(
                405, headers={"Allow": ", ".join(_methods(routes, request.scope)) or "GET, HEAD"}
            )
        return of_error(error, request.url.path)

    for kind in (errors.EsclusaError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, answer)


def _methods(routes: Sequence[BaseRoute], scope: Scope) -> list[str]:
    """What the routes of a path take together; the one that refused knows only of itself."""
    found = {
        m
        for r in routes
        if isinstance(r, Route) and r.matches(scope)[0] != Match.NONE
        for m in r.methods or ()
    }
    return sorted(found | ({"HEAD"} if "GET" in found else set()))


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problem responses of a route, for the OpenAPI document."""
    return {
        status: {
            "description": http.HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }
