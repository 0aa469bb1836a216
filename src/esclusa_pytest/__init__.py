"""The pytest plugin of Esclusa: fixtures with a worker for the pipeline under test.

It is a package of its own, so that pytest can load it without importing Esclusa: only a test that
uses a fixture does that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from esclusa import App
    from esclusa.testing import Harness, SyncHarness

# Without pytest-asyncio, another plugin for async tests (anyio) runs plain fixtures.
if TYPE_CHECKING or find_spec("pytest_asyncio") is not None:
    from pytest_asyncio import fixture as async_fixture
else:
    async_fixture = pytest.fixture


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add where the pipeline under test is, and which database its tests use."""
    parser.addini("esclusa_app", "the pipeline under test, as in ESCLUSA_PIPELINES: module:app")
    parser.addini("esclusa_store", "the database of its tests", default="memory")
    parser.getgroup("esclusa").addoption(
        "--esclusa-store",
        metavar="URL",
        help="the database of the tests: memory, postgresql://…, firestore://project (emulator)",
    )


@pytest.fixture
def esclusa_app(pytestconfig: pytest.Config) -> App:
    """The pipeline under test: of the option ``esclusa_app``, or of a fixture that overrides it."""
    name = pytestconfig.getini("esclusa_app")
    if not name:
        pytest.fail(
            "which pipeline is under test? Set esclusa_app = module:app in the pytest options, "
            "or define a fixture esclusa_app that returns the App",
            pytrace=False,
        )
    from esclusa.loading import load_app  # noqa: PLC0415 - see the module

    return load_app(name)


@pytest.fixture
def esclusa_options(pytestconfig: pytest.Config) -> dict[str, Any]:
    """The options of the harness; override it for settings, a context or a time."""
    store = pytestconfig.getoption("--esclusa-store") or pytestconfig.getini("esclusa_store")
    return {"store": store}


@async_fixture
async def esclusa_harness(
    esclusa_app: App, esclusa_options: dict[str, Any]
) -> AsyncIterator[Harness]:
    """An open ``esclusa.testing.Harness`` for an async test."""
    from esclusa.testing import Harness  # noqa: PLC0415 - see the module

    async with Harness(esclusa_app, **esclusa_options) as harness:
        yield harness


@pytest.fixture
def esclusa_sync_harness(
    esclusa_app: App, esclusa_options: dict[str, Any]
) -> Iterator[SyncHarness]:
    """An open ``esclusa.testing.SyncHarness`` for a test that is a plain function."""
    from esclusa.testing import SyncHarness  # noqa: PLC0415 - see the module

    with SyncHarness(esclusa_app, **esclusa_options) as harness:
        yield harness
