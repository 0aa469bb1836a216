"""What the status of a response means for a record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from esclusa import Failure, Permanent, Throttled
from esclusa.http import raise_for_status

URL = "https://bank.example/accounts?key=hunter22"


def answer(status: int, **headers: str) -> Any:
    return SimpleNamespace(status=status, headers=headers, url=URL)


@pytest.mark.parametrize(
    ("response", "after"),
    [
        (answer(429), 60.0),
        (answer(429, **{"Retry-After": "7"}), 7.0),
        (answer(503, **{"Retry-After": "30"}), 30.0),
        (SimpleNamespace(status_code=429, headers={}, url=URL), 60.0),  # httpx, requests
    ],
)
def test_a_provider_that_asks_for_a_pause_gets_one(response: Any, after: float) -> None:
    with pytest.raises(Throttled) as caught:
        raise_for_status(response)
    assert (caught.value.after, caught.value.stage) == (after, True)


@pytest.mark.parametrize("status", [401, 404, 500, 503])
def test_other_errors_are_retried_unless_they_are_named(status: int) -> None:
    with pytest.raises(Failure, match=f"^HTTP {status} from bank.example$") as caught:
        raise_for_status(answer(status), permanent={404})
    assert caught.value.type == "http_error"
    assert isinstance(caught.value, Permanent) == (status == 404)


def test_answers_without_error_pass() -> None:
    for status in (200, 204, 304):
        raise_for_status(answer(status))
