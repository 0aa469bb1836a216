"""Schemathesis over the OpenAPI document, with the routes of the four pipelines.

No 5xx, and no answer that the document does not declare.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

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


def test_every_route_answers_as_documented(server: DemoServer) -> None:
    assert not (found := faults(server, {}, CHECKS)), "\n\n".join(found)


@pytest.mark.parametrize("token", [OPERATE, READ])
def test_with_tokens(secured: DemoServer, token: str) -> None:
    found = faults(
        secured, {"Authorization": f"Bearer {token}"}, [*CHECKS, wrong_tokens_are_refused]
    )
    assert not found, "\n\n".join(found)
