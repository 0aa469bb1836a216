"""A database for one test: in memory, or one of its own on a server, dropped when the test ends."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

from esclusa.model.errors import SettingsError
from esclusa.ports.store import Store
from esclusa.stores import check_url

MEMORY = "memory"


@asynccontextmanager
async def open_database(url: str = MEMORY, *, clock_offset: float = 0.0) -> AsyncIterator[Store]:
    """An open store on an empty database.

    ``memory``: SQLite in memory. ``postgresql://…``: a new database on that server, dropped at the
    end; the role needs CREATEDB. ``firestore://project``: a project of its own in the emulator that
    ``FIRESTORE_EMULATOR_HOST`` names. ``sqlite:///path``: that file, which stays.
    """
    if url == MEMORY:
        from esclusa.stores.sqlite.store import MEMORY as IN_MEMORY  # noqa: PLC0415
        from esclusa.stores.sqlite.store import SqliteStore  # noqa: PLC0415

        store: Store = SqliteStore(IN_MEMORY, clock_offset=clock_offset)
        async with _opened(store):
            yield store
        return
    try:
        check_url(url)
    except ValueError as error:
        raise SettingsError("store of the test", [f"{url!r}: {error}; or 'memory'"]) from None
    if url.startswith("sqlite:"):
        from esclusa.stores.sqlite.store import SqliteStore  # noqa: PLC0415

        async with _opened(
            SqliteStore(url.removeprefix("sqlite:///"), clock_offset=clock_offset)
        ) as store:
            yield store
    elif url.startswith("firestore:"):
        async with _firestore(url, clock_offset) as store:
            yield store
    else:
        async with _postgres(url, clock_offset) as store:
            yield store


@asynccontextmanager
async def _opened(store: Store) -> AsyncIterator[Store]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def _postgres(url: str, clock_offset: float) -> AsyncIterator[Store]:
    import asyncpg  # noqa: PLC0415

    from esclusa.stores.postgres.store import PostgresStore  # noqa: PLC0415

    name = f"esclusa_test_{secrets.token_hex(6)}"
    server = await asyncpg.connect(url)
    try:
        await server.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
        try:
            own = urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
            async with _opened(PostgresStore(own, clock_offset=clock_offset)) as store:
                yield store
        finally:
            await server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await server.close()


@asynccontextmanager
async def _firestore(url: str, clock_offset: float) -> AsyncIterator[Store]:
    if not os.environ.get("FIRESTORE_EMULATOR_HOST"):
        raise SettingsError(
            "store of the test",
            ["a test on Firestore needs an emulator; start one and set FIRESTORE_EMULATOR_HOST"],
        )
    from esclusa.stores.firestore.store import FirestoreStore  # noqa: PLC0415

    project, _, database = url.removeprefix("firestore://").partition("/")
    own = f"{project}-{secrets.token_hex(6)}"
    async with _opened(
        FirestoreStore(own, database or "(default)", clock_offset=clock_offset, adopt_every=1e-6)
    ) as store:
        yield store
