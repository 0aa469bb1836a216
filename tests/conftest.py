"""Fixtures for every test that needs a store: a fresh one each time, on each store in turn.

A store whose server is missing fails; it is never skipped. The exceptions are Firestore and Pub/Sub, whose emulators are in
no package registry: where one is absent, the summary says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from conformance.places import PLACES, PrefixMiddleware, Provider, opened
from hypothesis import HealthCheck, settings
from support.firestore import FirestoreEmulator
from support.pubsub import PubSubEmulator

from esclusa.model.record import Kind
from esclusa.model.stage import Stage

settings.register_profile(
    "esclusa", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("esclusa")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if reason := FirestoreEmulator.missing():
        terminalreporter.write_line(f"NOT TESTED ON FIRESTORE: {reason}", red=True, bold=True)
    if reason := PubSubEmulator.missing():
        terminalreporter.write_line(f"NOT TESTED ON PUB/SUB: {reason}", red=True, bold=True)


NewStore = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="session")
def providers() -> Iterator[Callable[[str], Provider]]:
    """Gives the provider of a store by its name; it is started only when a test needs it, and once."""
    started: dict[str, Provider] = {}

    def provider(name: str) -> Provider:
        if name not in started:
            started[name] = PLACES[name]()
        return started[name]

    yield provider
    for each in started.values():
        each.stop()


@pytest.fixture(params=list(PLACES))
def provider(request: pytest.FixtureRequest, providers: Callable[[str], Provider]) -> Provider:
    return providers(request.param)


@pytest.fixture
async def place(provider: Provider) -> AsyncIterator[PrefixMiddleware]:
    """A new data set with the schema of the conformance kinds."""
    place = await provider.place()
    yield place
    await place.remove()


@pytest.fixture
async def bare_place(provider: Provider) -> AsyncIterator[PrefixMiddleware]:
    """A new data set without any schema."""
    place = await provider.place(empty=True)
    yield place
    await place.remove()


@pytest.fixture
async def new_store(place: PrefixMiddleware) -> AsyncIterator[NewStore]:
    """Opens one more store object on the same data, as another process would."""
    stores = []

    async def new(**options: Any) -> Any:
        store = await opened(place, **options)
        stores.append(store)
        return store

    yield new
    for store in stores:
        await store.close()


@pytest.fixture
async def bare_store(bare_place: PrefixMiddleware) -> AsyncIterator[NewStore]:
    """Opens a store object on data without a schema: ``await bare_store(kinds, stages)`` migrates it, without kinds it does not."""
    stores = []

    async def new(
        kinds: tuple[Kind, ...] = (), stages: tuple[Stage, ...] = (), **options: Any
    ) -> Any:
        store: Any = bare_place.store(**options)
        await store.open()
        stores.append(store)
        if kinds:
            await store.migrate(kinds, stages)
            await store.use(kinds, stages)
        return store

    yield new
    for store in stores:
        await store.close()


@pytest.fixture
async def store(new_store: NewStore) -> Any:
    """A fresh store, opened, with the schema of the conformance kinds."""
    return await new_store()
