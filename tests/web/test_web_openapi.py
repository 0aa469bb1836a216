"""Schemathesis over the OpenAPI document, with the routes of the four pipelines.

No 5xx, and no answer that the document does not declare.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.openapi.checks import IgnoredAuth
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from web.demo_server import OPERATE, READ, TOKENS, DemoServer, in_a_thread, simulators

EXAMPLES = int(os.environ.get("ESCLUSA_TEST_EXAMPLES", "6"))
"""Valid and invalid requests per operation, each: more find more faults and take longer."""
PHASES = (Phase.explicit, Phase.generate)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    unsupported_method,
]

FRAMING = {
    "connection",
    "content-length",
    "expect",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
"""Headers of the transport: the client sets them itself."""


# Called by others, who may add parameters: probes, metrics, webhooks and their signatures.
UNREFUSED = {"/healthz", "/readyz", "/metrics", "/webhooks/meta", "/events/storage", "/tick"}


def wrong_tokens_are_refused(*args: Any) -> bool | None:
    """Schemathesis' own check, except that 429 is allowed after too many failed attempts."""
    try:
        return ignored_auth(*args)
    except IgnoredAuth as error:
        if "429 Too Many Requests" in str(error):
            return None
        raise


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with simulators() as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, urls: dict[str, str]) -> Iterator[DemoServer]:
    with in_a_thread(tmp_path_factory.mktemp("server"), urls, work=True) as made:
        yield made


@pytest.fixture
def secured(tmp_path: Path, urls: dict[str, str]) -> Iterator[DemoServer]:
    """A server with tokens; new for each test, because failed attempts block it for a while."""
    with in_a_thread(tmp_path, urls, tokens=TOKENS) as made:
        yield made


def operations(server: DemoServer, **headers: str) -> list[schemathesis.APIOperation]:  # type: ignore[type-arg]
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", headers=headers)
    return [found.ok() for found in schema.get_all_operations()]


def faults(server: DemoServer, headers: dict[str, str], checks: list[object]) -> list[str]:
    """The faults of every operation, called with valid and with invalid requests."""
    found, reports = operations(server, **headers), []
    assert len(found) > 60
    for operation, mode in product(found, GenerationMode):

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            phases=PHASES,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: schemathesis.Case) -> None:
            for name in [name for name in case.headers or () if name.lower() in FRAMING]:
                del case.headers[name]
            case.call_and_validate(checks=checks, headers=headers)

        try:
            check()
        except Unsatisfiable:
            continue  # it has no invalid request
        except Exception as error:
            reports.append(f"{operation.method.upper()} {operation.path}: {error}"[:900])
    return reports


def test_options_names_the_methods_of_every_route(server: DemoServer) -> None:
    """Each method in ``Allow`` is served at the path, and each other one is refused with 405."""
    for path, item in documented_paths(server).items():
        _, allow, _ = call(server, "OPTIONS", path)
        assert {method.upper() for method in item} <= set(allow.split(", ")), path
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} - set(allow.split(", ")):
            assert call(server, method, path)[:2] == (405, allow), (method, path)


def test_every_route_refuses_unknown_parameters(server: DemoServer) -> None:
    """A misspelt filter must not widen what is answered or changed."""
    for path, item in documented_paths(server).items():
        if path in UNREFUSED:
            continue
        for method in item:
            status, _, text = call(server, method.upper(), f"{path}?colour_=1")
            missing = status in (404, 422)  # no such record, or no body
            assert missing or (status == 400 and b"colour_" in text), (method, path, status, text)


def call(server: DemoServer, method: str, path: str) -> tuple[int, str, bytes]:
    """The status, the ``Allow`` header and the body of an answer."""
    web = HTTPConnection(urlsplit(server.url).netloc)
    try:
        web.request(method, path)
        answer = web.getresponse()
        return answer.status, answer.headers["allow"], answer.read()
    finally:
        web.close()


def documented_paths(server: DemoServer) -> dict[str, dict[str, Any]]:
    """The documented operations by path, with a value for each parameter in it."""
    paths = json.loads(call(server, "GET", "/openapi.json")[2])["paths"]
    return {
        re.sub(r"\{[^}]*\}", "1", path.replace("{table}", "posts")): item
        for path, item in paths.items()
    }


def test_every_route_answers_as_documented(server: DemoServer) -> None:
    assert not (found := faults(server, {}, CHECKS)), "\n\n".join(found)


@pytest.mark.parametrize("token", [OPERATE, READ])
def test_with_tokens(secured: DemoServer, token: str) -> None:
    found = faults(
        secured, {"Authorization": f"Bearer {token}"}, [*CHECKS, wrong_tokens_are_refused]
    )
    assert not found, "\n\n".join(found)
