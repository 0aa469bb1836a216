"""The OpenAPI document: what FastAPI knows of the routes, and the problems and tokens that it does not."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from esclusa import __version__
from esclusa.web.idempotency import KEY_PARAMETER
from esclusa.web.problems import Problem, responses

_ABOUT = """\
Records, their lifecycles and the work on them.

A list answers `{"items": […], "next": cursor or null}`; pass `next` as `after` for the following page. Errors are problems
(RFC 9457, `application/problem+json`) whose `detail` says what to do. With tokens set, send `Authorization: Bearer …`:
reading needs the role `read`, acting the role `operate`. Send `Idempotency-Key` with a call that must not act twice.
"""
_METHODS = ("get", "post", "put", "patch", "delete")


def document(app: FastAPI) -> dict[str, Any]:
    """The document, made once per app."""
    if app.openapi_schema is None:
        made = get_openapi(
            title="Esclusa", version=__version__, description=_ABOUT, routes=app.routes
        )
        _add_components(made.setdefault("components", {}))
        for path, operations in made["paths"].items():
            for method, operation in operations.items():
                if method in _METHODS:
                    _complete(operation, acts=method != "get", placed="{" in path)
        made["security"] = [{"token": []}]
        app.openapi_schema = made
    return app.openapi_schema


def _add_components(components: dict[str, Any]) -> None:
    schemas = components.setdefault("schemas", {})
    shape = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= shape.pop("$defs", {})
    schemas["Problem"] = shape
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    components["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "One of ESCLUSA_API_TOKENS, with the role read or operate",
        }
    }


def _complete(operation: dict[str, Any], *, acts: bool, placed: bool) -> None:
    """Add what holds for every operation: the key of an act, and the problems that the house answers before its route does."""
    told = operation.setdefault("responses", {})
    if "HTTPValidationError" in str(told.get("422", "")):
        told["422"] = responses(422)[422]
    statuses = [400, 500, 503]
    if placed:
        statuses.append(404)
    if acts:
        statuses.append(413)
    if operation.get("security") != []:
        statuses += [401, 403, 429]
        if acts:
            statuses += [409, 422]  # of the key
            operation["parameters"] = [*operation.get("parameters", []), KEY_PARAMETER]
    told |= {
        str(status): said
        for status, said in responses(*statuses).items()
        if str(status) not in told
    }
    operation["responses"] = dict(sorted(told.items()))
