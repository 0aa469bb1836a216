"""Fixtures for tests that need a store: a new one for each test, on each store in turn.

A store whose server is missing fails; it is never skipped. The exceptions are Firestore and
Pub/Sub, whose emulators are in no package registry, PgBouncer and Tesseract, which need the rights
to install Debian's packages, and network namespaces, which need root: the summary names a missing
one.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from conformance.databases import PORTABLE, PROVIDERS, Database, DatabaseProvider, opened
from hypothesis import HealthCheck, settings
from support import tesseract
from support.firestore import FirestoreEmulator
from support.namespace import Namespace
from support.pgbouncer import PgBouncer
from support.pubsub import PubSubEmulator

from esclusa.model.kind import Kind
from esclusa.model.stage import Stage
from esclusa.ports.store import Store

settings.register_profile(
    "esclusa", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("esclusa")

_EMULATOR = pytest.StashKey[FirestoreEmulator]()


def pytest_configure(config: pytest.Config) -> None:
    """Start one Firestore emulator for all parallel test processes; each uses its own projects.

    They find it by its address in the environment. A single process starts it when it needs it.
    """
    parallel = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if parallel and not config.option.collectonly and FirestoreEmulator.missing() is None:
        config.stash[_EMULATOR] = emulator = FirestoreEmulator()
        emulator.start()
        os.environ[emulator.HOST] = emulator.host


def pytest_unconfigure(config: pytest.Config) -> None:
    if emulator := config.stash.get(_EMULATOR, None):
        emulator.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if reason := FirestoreEmulator.missing():
        terminalreporter.write_line(f"NOT TESTED ON FIRESTORE: {reason}", red=True, bold=True)
    if reason := PubSubEmulator.missing():
        terminalreporter.write_line(f"NOT TESTED ON PUB/SUB: {reason}", red=True, bold=True)
    if reason := PgBouncer.missing():
        terminalreporter.write_line(f"NOT TESTED BEHIND PGBOUNCER: {reason}", red=True, bold=True)
    if reason := Namespace.missing():
        terminalreporter.write_line(
            f"NOT TESTED IN NETWORK NAMESPACES: {reason}", red=True, bold=True
        )
    if reason := tesseract.missing():
        terminalreporter.write_line(f"NOT TESTED WITH SCANS: {reason}", red=True, bold=True)


NewStore = Callable[..., Awaitable[Store]]
"""Opens one more store object on a test's data, as another process would."""


@pytest.fixture(scope="session")
def providers() -> Iterator[Callable[[str], DatabaseProvider]]:
    """Return the provider of a store by its name, started once and only if a test needs it."""
    started: dict[str, DatabaseProvider] = {}

    def provider(name: str) -> DatabaseProvider:
        if name not in started:
            started[name] = (PROVIDERS | PORTABLE)[name]()
        return started[name]

    yield provider
    for each in started.values():
        each.stop()


@pytest.fixture(params=list(PROVIDERS))
def provider(
    request: pytest.FixtureRequest, providers: Callable[[str], DatabaseProvider]
) -> DatabaseProvider:
    return providers(request.param)


@pytest.fixture
async def database(provider: DatabaseProvider) -> AsyncIterator[Database]:
    """A new database with the schema of the conformance kinds."""
    database = await provider.database()
    yield database
    await database.remove()


@pytest.fixture
async def empty_database(provider: DatabaseProvider) -> AsyncIterator[Database]:
    """A new database without a schema."""
    database = await provider.database(empty=True)
    yield database
    await database.remove()


@pytest.fixture
async def new_store(database: Database) -> AsyncIterator[NewStore]:
    """Open store objects on the same data, with the schema of the conformance kinds."""
    stores: list[Store] = []

    async def new(**options: Any) -> Store:
        stores.append(await opened(database, **options))
        return stores[-1]

    yield new
    for store in stores:
        await store.close()


@pytest.fixture
async def bare_store(empty_database: Database) -> AsyncIterator[NewStore]:
    """Open store objects on data without a schema; migrate it first if there are ``kinds``."""
    stores: list[Store] = []

    async def new(
        kinds: tuple[Kind, ...] = (), stages: tuple[Stage, ...] = (), **options: Any
    ) -> Store:
        store = empty_database.store(**options)
        await store.open()
        stores.append(store)
        if kinds:
            await store.migrate(kinds, stages, foreign=True)
            await store.use(kinds, stages)
        return store

    yield new
    for store in stores:
        await store.close()


@pytest.fixture
async def store(new_store: NewStore) -> Store:
    """A new store, opened, with the schema of the conformance kinds."""
    return await new_store()
