"""HTTP server, API and console; and what a pipeline needs to add routes of its own.

A pipeline's ``@app.routes`` function gets the ``Runtime`` and returns a FastAPI ``APIRouter``.

Parameters: ``Limit``, ``After`` (cursor of a page), ``Who`` (name of the caller, for
``runtime.operations(who)``), ``CurrentRuntime``. ``operation_id`` as
``generate_unique_id_function`` names operations in the OpenAPI document after their functions.

Filters: ``filter_from_query`` for lists; ``strict_filter_from_query`` for calls that change
records. ``FILTER_PARAMETER`` and ``FILTER_NOTE`` document them. ``STRICT_PARAMETERS`` among the
``dependencies`` of a route refuses parameters that the route does not have;
``refuse_unknown_states`` a state that neither the lifecycle nor a record has.

Lists as files: ``accepted_format`` reads the ``Accept`` header; ``export_response`` streams rows as
CSV, NDJSON or Parquet; ``EXPORT_RESPONSES`` documents them. ``file_response`` streams any bytes.

Rows in a body: ``read_rows``, ``rows_response``, and ``rows_body`` for the OpenAPI document.

Answers: ``record_json``, ``run_json``, ``page_json`` and ``mask_fields`` mask secrets for callers
with the role read. ``ListOut``, ``RecordJson``, ``ActionOut``, ``InsertOut`` and ``RunOut`` are
response models. ``problem`` makes an RFC 9457 response, ``error_response`` that of an exception;
``problem_responses`` documents those that the OpenAPI document does not list anyway (400, 401, 403,
404, 409, 413, 422, 429, 500, 503).

Authentication: a route with ``openapi_extra=SELF_AUTHENTICATED`` is open, and checks its caller
itself. A route with ``openapi_extra=own_credentials()`` serves API tokens of every role and callers
with a credential of the pipeline's own; its parameter ``CurrentCaller`` says who calls.
``OidcVerifier`` checks OIDC tokens of Google's push services; ``bearer_secret`` reads the token
from an ``Authorization`` header.

Console pages: a pipeline's ``@app.console`` function gets a ``ConsoleExtension``.
"""

from esclusa.web.api.common import (
    FILTER_NOTE,
    FILTER_PARAMETER,
    STRICT_PARAMETERS,
    ActionOut,
    After,
    CurrentRuntime,
    Limit,
    ListOut,
    RecordJson,
    Who,
    mask_fields,
    operation_id,
    page_json,
    record_json,
    refuse_unknown_states,
    run_json,
)
from esclusa.web.api.cycles import RunOut
from esclusa.web.api.exports import (
    EXPORT_RESPONSES,
    accepted_format,
    export_response,
    file_response,
)
from esclusa.web.api.filters import filter_from_query, strict_filter_from_query
from esclusa.web.api.rows import InsertOut, read_rows, rows_body, rows_response
from esclusa.web.auth.middleware import (
    SELF_AUTHENTICATED,
    Caller,
    CurrentCaller,
    own_credentials,
)
from esclusa.web.auth.oidc import OidcVerifier
from esclusa.web.auth.tokens import bearer_secret
from esclusa.web.console.extension import ConsoleExtension
from esclusa.web.problems import error_response, problem, problem_responses

__all__ = [
    "EXPORT_RESPONSES",
    "FILTER_NOTE",
    "FILTER_PARAMETER",
    "SELF_AUTHENTICATED",
    "STRICT_PARAMETERS",
    "ActionOut",
    "After",
    "Caller",
    "ConsoleExtension",
    "CurrentCaller",
    "CurrentRuntime",
    "InsertOut",
    "Limit",
    "ListOut",
    "OidcVerifier",
    "RecordJson",
    "RunOut",
    "Who",
    "accepted_format",
    "bearer_secret",
    "error_response",
    "export_response",
    "file_response",
    "filter_from_query",
    "mask_fields",
    "operation_id",
    "own_credentials",
    "page_json",
    "problem",
    "problem_responses",
    "read_rows",
    "record_json",
    "refuse_unknown_states",
    "rows_body",
    "rows_response",
    "run_json",
    "strict_filter_from_query",
]
