"""Firestore for the conformance suite: a project of the emulator for each database."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from conformance.kinds import KINDS, STAGES
from google.cloud.firestore import AsyncClient
from support.firestore import FirestoreEmulator

from esclusa.model.columns import ColumnType
from esclusa.ports.store import Store


class FirestoreProvider:
    """One emulator for the session, started when the first test needs it.

    The documents of the schema are copied from the first database: to migrate takes far longer.

    If it is not installed, its tests are skipped and the summary says so.
    """

    def __init__(self) -> None:
        if reason := FirestoreEmulator.missing():
            pytest.skip(reason)
        self.emulator = FirestoreEmulator()
        self.emulator.start()
        self.before = os.environ.get("FIRESTORE_EMULATOR_HOST")
        os.environ["FIRESTORE_EMULATOR_HOST"] = self.emulator.host
        self.numbers = itertools.count()
        self.schema: list[dict[str, Any]] = []

    async def database(self, *, empty: bool = False) -> FirestoreDatabase:
        database = FirestoreDatabase(self, f"esclusa-{os.getpid()}-{next(self.numbers)}")
        if not empty and self.schema:
            self.emulator.copy(self.schema, database.project)
        elif not empty:
            store = database.store()
            await store.open()
            await store.migrate(KINDS, STAGES)
            await store.close()
            self.schema = self.emulator.documents(database.project)
        return database

    def stop(self) -> None:
        if self.before is None:
            os.environ.pop("FIRESTORE_EMULATOR_HOST", None)
        self.emulator.stop()


class FirestoreDatabase:
    def __init__(self, provider: FirestoreProvider, project: str) -> None:
        self.provider, self.project = provider, project

    def store(self, **options: Any) -> Store:
        from esclusa.stores.firestore import FirestoreStore

        # Every claim looks for documents of other programs.
        return FirestoreStore(self.project, **{"adopt_every": 1e-6, **options})

    @property
    def url(self) -> str:
        return f"firestore://{self.project}/(default)"

    async def make_table(
        self,
        name: str,
        columns: Mapping[str, ColumnType],
        key: str,
        rows: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        async with self.google() as client:
            for row in rows:
                whole = dict.fromkeys(columns) | dict(row)  # as in a table
                await client.document(f"{name}/{row[key]}").set(whole)

    async def rows(self, name: str, order: str) -> list[dict[str, Any]]:
        async with self.google() as client:
            found = [
                document.to_dict() or {} async for document in client.collection(name).stream()
            ]
        rows = [{n: v for n, v in row.items() if not n.startswith("_")} for row in found]
        return sorted(rows, key=lambda row: row[order])

    async def write(self, name: str, key: str, id: Any, **values: Any) -> None:
        async with self.google() as client:
            await client.document(f"{name}/{id}").update(values)

    @asynccontextmanager
    async def google(self) -> AsyncIterator[AsyncClient]:
        """Google's own client, which other programs use."""
        client = AsyncClient(project=self.project)
        try:
            yield client
        finally:
            await client._firestore_api.transport.close()

    def locks_rows(self) -> bool:
        return True

    @asynccontextmanager
    async def locked(self, name: str, key: str, id: str) -> AsyncIterator[None]:
        from esclusa.stores.firestore.client import FirestoreClient

        other = FirestoreClient(self.project, "(default)", None)
        await other.open()
        transaction = await other.begin()
        try:
            await other.get([f"{other.root}/{name}/{id}"], "test", transaction)
            yield
        finally:
            await other.rollback(transaction)
            await other.close()

    async def refuse(self, name: str, key: str, ids: Sequence[str]) -> None:
        raise NotImplementedError("Firestore has no triggers")

    async def allow(self, name: str) -> None:
        raise NotImplementedError("Firestore has no triggers")

    async def edit_migration(self) -> None:
        from esclusa.stores.firestore.client import FirestoreClient
        from esclusa.stores.firestore.codec import Document
        from esclusa.stores.firestore.writes import put_document

        link = FirestoreClient(self.project, "(default)", None)
        await link.open()
        edited = Document()
        edited.fields["checksum"].string_value = "edited"
        await link.commit(
            [put_document(f"{link.root}/esclusa_schema/_store", edited, mask=["checksum"])], "test"
        )
        await link.close()

    async def remove(self) -> None:
        self.provider.emulator.reset(self.project)
