"""Inserts on the caller's own connection: in its transaction, with psycopg and asyncpg."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import asyncpg
import psycopg
import pytest

import esclusa
from esclusa import App, BadRecord, Duplicate, Inserted, Lifecycle, Record, track
from esclusa.integrations import asyncpg as with_asyncpg
from esclusa.integrations import psycopg as with_psycopg

from .shop import Channel, Order, app

attached = App("attached")


class Parcel(Record, table="parcels", id="parcel_id", database_id=True, track=track("job_")):
    weight: float | None = None
    tags: list[Any] = []
    sent_at: datetime | None = None
    lifecycle = Lifecycle("new -> done")


class Customer(
    Record, table="customers", key="email", id="customer_id", database_id=True, track=track("job_")
):
    email: str
    lifecycle = Lifecycle("new -> done")


attached.records += [Parcel, Customer]

Insert = Callable[[Sequence[Record]], Awaitable[Any]]
Transaction = Callable[[str], AbstractAsyncContextManager[Insert]]


@asynccontextmanager
async def psycopg_sync(url: str) -> Any:
    with psycopg.connect(url) as connection:

        async def insert(records: Sequence[Record]) -> Any:
            return with_psycopg.insert(connection, records)

        yield insert


@asynccontextmanager
async def psycopg_async(url: str) -> Any:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield lambda records: with_psycopg.insert_async(connection, records)


@asynccontextmanager
async def plain_asyncpg(url: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield lambda records: with_asyncpg.insert(connection, records)
    finally:
        await connection.close()


class RolledBack(Exception):
    pass


@pytest.fixture(params=[psycopg_sync, psycopg_async, plain_asyncpg])
def transaction(request: pytest.FixtureRequest) -> Transaction:
    """A transaction of a driver, committed at the end; ``with`` it, insert records."""
    found: Transaction = request.param
    return found


async def roll_back(transaction: Transaction, url: str, record: Record) -> None:
    async with transaction(url) as insert:
        assert await insert([record]) == [Inserted(record.kind.identify(record, str))]
        raise RolledBack


async def test_committed_records_are_handled_and_those_rolled_back_leave_nothing(
    postgres: str, transaction: Transaction
) -> None:
    order = Order(
        number="1",
        amount=Decimal("12.50"),
        channel=Channel.STORE,
        lines=[{"sku": "a'b", "count": 2}],
        placed_at=datetime(2026, 5, 1, 12, tzinfo=UTC),
        picture=b"\x00\xff%s",
        weight=0.1,
    )
    async with esclusa.open(app, store=postgres, worker=True) as runtime:
        with pytest.raises(RolledBack):
            await roll_back(transaction, postgres, Order(number="2"))
        async with transaction(postgres) as insert:
            assert await insert([order, Order(number="1")]) == [Inserted("1"), Duplicate("1")]
            assert await runtime.records.get(Order, "1") is None  # not committed yet
        done = await runtime.wait(Order, "1", timeout=20)
        fields = {name: getattr(done, name) for name in Order.kind.by_name}
        assert fields == {name: getattr(order, name) for name in Order.kind.by_name}
        assert done.created_at is not None
        assert await runtime.records.get(Order, "2") is None
        async with transaction(postgres) as insert:
            # What cannot be stored is refused before the transaction is touched.
            with pytest.raises(BadRecord, match=r"orders\.number"):
                await insert([Order(number="nul\0")])
            with pytest.raises(BadRecord, match="'lost' is not one of its states"):
                await insert([Order(number="3", status="lost")])
            assert await insert([]) == []
            answers = await insert([Order(number="3", status="failed"), Order(number="1")])
            assert answers == [Inserted("3"), Duplicate("1")]
        failed = await runtime.records.get(Order, "3")
        assert failed is not None
        assert failed.status == "failed"


async def test_tables_of_the_host_with_ids_of_the_database(
    postgres: str, transaction: Transaction
) -> None:
    connection = await asyncpg.connect(postgres)
    await connection.execute(
        """CREATE TABLE parcels (parcel_id serial PRIMARY KEY, weight numeric(8, 2), tags text[],
            sent_at timestamp, note text NOT NULL DEFAULT 'none');
        CREATE TABLE customers (customer_id uuid PRIMARY KEY DEFAULT gen_random_uuid(), email text)
        """
    )
    with pytest.raises(esclusa.EsclusaError, match="parcels"):
        await esclusa.migrate(attached, store=postgres)
    changes = await esclusa.migrate(attached, store=postgres, foreign=True)
    assert any("parcels.job_status" in change for change in changes)
    async with esclusa.open(attached, store=postgres) as runtime:
        async with transaction(postgres) as insert:
            moment = datetime(2026, 5, 1, 12, tzinfo=UTC)
            answers = await insert(
                [
                    Parcel(weight=1.25, tags=["a", "b"], sent_at=moment),
                    Parcel(),
                    Customer(email="e"),
                ]
            )
            [again] = await insert([Customer(email="e")])
        assert all(isinstance(answer, Inserted) for answer in answers)
        assert again == Duplicate(answers[2].id)
        rows = await connection.fetch("SELECT * FROM parcels ORDER BY parcel_id")
        assert (rows[0]["tags"], rows[0]["note"]) == (["a", "b"], "none")
        assert rows[0]["sent_at"] == moment.replace(tzinfo=None)
        found = await runtime.records.get(Parcel, answers[0].id)
        assert found is not None
        assert (found.status, found.weight, found.sent_at) == ("new", 1.25, moment)
    await connection.close()
