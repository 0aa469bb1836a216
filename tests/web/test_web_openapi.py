"""schemathesis over the whole OpenAPI document, the four pipelines' own routes included: no 5xx, no answer that is not told."""

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
from web.whole import OPERATE, READ, TOKENS, Whole, in_a_thread, outside

EXAMPLES = int(os.environ.get("ESCLUSA_TEST_EXAMPLES", "6"))
"""For each operation, well-formed and malformed each: more of them find more, and take longer."""
PHASES = (Phase.explicit, Phase.generate)
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance, response_headers_conformance,
    unsupported_method,
]  # fmt: skip

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
"""Headers that say how the message itself is sent: the client's own, whatever an operation is sent."""


def wrong_tokens_are_refused(*told: Any) -> bool | None:
    """schemathesis' own check, but that one who failed_attempts too often hears 429."""
    try:
        return ignored_auth(*told)
    except IgnoredAuth as error:
        if "429 Too Many Requests" in str(error):
            return None
        raise


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with outside() as found:
        yield found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, urls: dict[str, str]) -> Iterator[Whole]:
    with in_a_thread(tmp_path_factory.mktemp("whole"), urls, work=True) as made:
        yield made


@pytest.fixture
def locked(tmp_path: Path, urls: dict[str, str]) -> Iterator[Whole]:
    """The same with tokens set; a new one each time, for after many wrong tokens it lets none in that it does not know yet."""
    with in_a_thread(tmp_path, urls, tokens=TOKENS) as made:
        yield made


def operations(whole: Whole, **headers: str) -> list[schemathesis.APIOperation]:  # type: ignore[type-arg]
    schema = schemathesis.openapi.from_url(f"{whole.url}/openapi.json", headers=headers)
    return [found.ok() for found in schema.get_all_operations()]


def faults(whole: Whole, headers: dict[str, str], checks: list[object]) -> list[str]:
    """What every operation does wrong when it is called well and badly."""
    found, told = operations(whole, **headers), []
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
            continue  # nothing about it can be wrong
        except Exception as error:
            told.append(f"{operation.method.upper()} {operation.path}: {error}"[:900])
    return told


def test_every_route_answers_as_it_says(whole: Whole) -> None:
    assert not (told := faults(whole, {}, CHECKS)), "\n\n".join(told)


@pytest.mark.parametrize("token", [OPERATE, READ])
def test_with_tokens_too(locked: Whole, token: str) -> None:
    told = faults(locked, {"Authorization": f"Bearer {token}"}, [*CHECKS, wrong_tokens_are_refused])
    assert not told, "\n\n".join(told)
