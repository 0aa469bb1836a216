"""The traceback of an unexpected error: where it came from, bounded, without local variables."""

from __future__ import annotations

from typing import Any

import pytest

from esclusa import Failure, Permanent, Throttled
from esclusa.engine.tracebacks import LENGTH, location_of, traceback_of
from esclusa.model.errors import ArtifactError, StoreUnavailable
from esclusa.model.texts import text


def caught(raise_it: Any, *args: Any) -> BaseException:
    try:
        raise_it(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def divide(by: int) -> float:
    password = "in a local variable"  # noqa: F841
    return 1 / by


def wrapped() -> None:
    try:
        divide(0)
    except ZeroDivisionError as error:
        raise ValueError("no share") from error


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    divide(0)


def test_it_names_the_frames_and_the_error() -> None:
    found = traceback_of(caught(divide, 0))
    assert found is not None
    assert found.startswith("Traceback (most recent call last):\n")
    assert "in divide\n    return 1 / by\n" in found
    assert found.endswith("\nZeroDivisionError: division by zero")
    assert "in a local variable" not in found


def test_it_has_the_cause() -> None:
    found = traceback_of(caught(wrapped))
    assert found is not None
    first, between, last = found.split("\n\n")
    assert first.endswith("ZeroDivisionError: division by zero")
    assert "direct cause" in between
    assert last.endswith("ValueError: no share")


def group() -> None:
    raise ExceptionGroup("two", [caught(divide, 0), KeyError("k")])  # type: ignore[list-item]


def test_a_group_has_its_members() -> None:
    found = traceback_of(caught(group))
    assert found is not None
    assert "in divide" in found
    assert "KeyError: 'k'" in found


def loud() -> None:
    raise ValueError("nul \0 " + "long " * 10_000)


def chain() -> None:
    try:
        loud()
    except ValueError:
        deep(500)


def test_it_is_bounded_and_can_be_stored() -> None:
    for raising in (loud, chain, lambda: deep(500)):
        found = traceback_of(caught(raising))
        assert found is not None
        assert len(found) <= LENGTH
        assert "\0" not in found
    assert "… " in (traceback_of(caught(deep, 500)) or "")


class Own(Exception):
    error_type = "declared"


@pytest.mark.parametrize(
    "error",
    [
        Failure("x", type="y"),
        Permanent("x"),
        Throttled("x", after=1),
        ArtifactError("x"),
        StoreUnavailable("x"),
        Own("x"),
        TimeoutError(text("handler_timeout", seconds=3.0)),
        TimeoutError("no answer"),
        ConnectionResetError("gone"),
        ExceptionGroup("one", [Failure("x")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_expected_errors_have_none(error: BaseException) -> None:
    def fail() -> None:
        raise error

    assert traceback_of(caught(fail)) is None


class Mute(Exception):
    def __str__(self) -> str:
        raise AttributeError("nothing")


def test_an_error_that_cannot_be_described_is_no_second_error() -> None:
    def fail() -> None:
        raise Mute

    assert (traceback_of(caught(fail)) or "").startswith("Mute: no traceback")


def test_the_location_of_a_handler() -> None:
    assert "in divide" in location_of(divide)
    assert "partial" in location_of(__import__("functools").partial(divide, 0))
