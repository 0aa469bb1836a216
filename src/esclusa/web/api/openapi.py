"""The OpenAPI document: FastAPI's description of the routes, completed with problems and tokens."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from esclusa import __version__
from esclusa.web.idempotency import KEY_PARAMETER
from esclusa.web.problems import Problem, problem_responses

_DESCRIPTION = """\
Records, their lifecycles and the work on them.

A list answers `{"items": […], "next": cursor or null}`; pass `next` as `after` to get the next
page. Errors are problems (RFC 9457, `application/problem+json`) whose `detail` says what to do. If
tokens are configured, send `Authorization: Bearer …`: reading needs the role `read`, changing
anything the role `operate`. Send `Idempotency-Key` with a call that must not take effect twice.
"""
_METHODS = ("get", "post", "put", "patch", "delete")


def document(app: FastAPI) -> dict[str, Any]:
    """The document, built once per app."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title="Esclusa", version=__version__, description=_DESCRIPTION, routes=app.routes
        )
        _add_components(schema.setdefault("components", {}))
        for path, operations in schema["paths"].items():
            for method, operation in operations.items():
                if method in _METHODS:
                    _complete(operation, writes=method != "get", has_id="{" in path)
        schema["security"] = [{"token": []}]
        app.openapi_schema = schema
    return app.openapi_schema


def _add_components(components: dict[str, Any]) -> None:
    schemas = components.setdefault("schemas", {})
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs", {})
    schemas["Problem"] = problem
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    components["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "A token of ESCLUSA_API_TOKENS, with the role read or operate",
        },
        "credential": {
            "type": "http",
            "scheme": "bearer",
            "description": "A credential that a pipeline gave to its caller, such as to a device",
        },
    }


def _complete(operation: dict[str, Any], *, writes: bool, has_id: bool) -> None:
    """Add what holds for every operation: the idempotency key, and the usual problems."""
    responses = operation.setdefault("responses", {})
    if "HTTPValidationError" in str(responses.get("422", "")):
        responses["422"] = problem_responses(422)[422]
    statuses = [400, 500, 503, *([404] if has_id else []), *([413] if writes else [])]
    if operation.get("security") != []:
        statuses += [401, 403, 429]
        if writes:
            statuses += [409, 422]  # problems of the idempotency key
            operation["parameters"] = [*operation.get("parameters", []), KEY_PARAMETER]
    problems = {str(status): answer for status, answer in problem_responses(*statuses).items()}
    operation["responses"] = dict(sorted((problems | responses).items()))
