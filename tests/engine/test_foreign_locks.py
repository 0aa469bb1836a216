"""Another program holds a lock in PostgreSQL: only what depends on that row waits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from support.scheduling import running_scheduler

from esclusa import Add, App, Backoff, Lifecycle, Record, To
from esclusa.engine import attempt
from esclusa.model import decide
from esclusa.ports.telemetry import Silent

STATES = """
    new -> busy -> done
    busy -> new | bad
    bad -> new
"""
OPTIONS: dict[str, Any] = {
    "take": "new",
    "hold": "busy",
    "exhausted": "bad",
    "retry": Backoff(tries=3, base=0, jitter=0),
}


class Order(Record, table="orders", key="name"):
    name: str
    account: str | None = None
    lifecycle = Lifecycle(STATES)


class Parcel(Record, table="parcels", key="name"):
    name: str
    lifecycle = Lifecycle(STATES)


class Account(Record, table="accounts", key="name"):
    name: str
    orders: int = 0
    lifecycle = Lifecycle("open")


class Events(Silent):
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, Any]]] = []

    def event(self, level: str, message: str, **fields: Any) -> None:
        self.seen.append((level, message, fields))

    def warnings_about(self, record: str) -> list[str]:
        return [m for level, m, f in self.seen if level == "warning" and f.get("record") == record]


@pytest.fixture
def provider(providers: Any) -> Any:
    """Row locks of another program exist only on PostgreSQL."""
    return providers("postgres")


@asynccontextmanager
async def locked(database: Any, table: str, id: str) -> AsyncIterator[None]:
    """Another program's transaction that holds a lock on one row."""
    connection = await asyncpg.connect(database.url)
    try:
        async with connection.transaction():
            await connection.execute(f"SELECT 1 FROM {table} WHERE id = $1 FOR UPDATE", id)
            yield
    finally:
        await connection.close()


class Pipeline:
    """Two stages; their handlers wait for ``go`` and count their calls."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.app = App("shop")
        self.app.records += [Account]
        self.app.stage(Order, name="order", concurrency=50, **OPTIONS)(self._order)
        self.app.stage(Parcel, name="parcel", concurrency=50, **OPTIONS)(self._parcel)

    async def _order(self, order: Order, at: Any) -> To:
        self.calls[order.name] += 1
        self.begun.set()
        await self.go.wait()
        also = [Add(Account, order.account, orders=1)] if order.account else []
        return To("done", also=also)

    async def _parcel(self, parcel: Parcel, at: Any) -> To:
        self.calls[parcel.name] += 1
        await self.go.wait()
        return To("done")


async def done(engine: Any, record: type[Record]) -> int:
    return (await engine.records.count(record, {"status": "done"}))[0]


async def until(check: Any, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not await check():
            await asyncio.sleep(0.05)


@pytest.mark.promise(12)
async def test_one_locked_record_waits_alone(new_engine: Any, empty_database: Any) -> None:
    """Its lease of 2 s goes on for the 7 s of the lock, and its handler is called once."""
    pipeline, events = Pipeline(), Events()
    engine = await new_engine(pipeline.app, lease=2.0, telemetry=events)
    other = await new_engine(pipeline.app, lease=2.0)
    orders = [Order(name=f"o{n}") for n in range(40)]
    await engine.records.insert([*orders, *(Parcel(name=f"p{n}") for n in range(10))])
    async with running_scheduler(engine):
        await pipeline.begun.wait()
        await asyncio.sleep(0.5)
        async with running_scheduler(other), locked(empty_database, "orders", "o7"):
            pipeline.go.set()

            async def others_done() -> bool:
                return (await done(engine, Order), await done(engine, Parcel)) == (39, 10)

            await until(others_done, 5)
            await engine.records.insert([Order(name=f"late{n}") for n in range(10)])
            await asyncio.sleep(7)
            assert await done(engine, Order) == 49
        await until(lambda: _all(engine, Order, 50), 5)
    assert set(pipeline.calls.values()) == {1}
    order = await engine.records.get(Order, "o7")
    assert (order.attempts, order.leased_by) == (1, None)
    assert events.warnings_about("orders o7")


async def _all(engine: Any, record: type[Record], count: int) -> bool:
    return await done(engine, record) == count


@pytest.mark.promise(12)
async def test_only_settlements_with_an_effect_on_a_locked_row_wait(
    new_engine: Any, empty_database: Any
) -> None:
    pipeline, events = Pipeline(), Events()
    engine = await new_engine(pipeline.app, lease=2.0, telemetry=events)
    await engine.records.insert([Account(name="held"), Account(name="free")])
    orders = [Order(name=f"o{n}", account="held" if n < 5 else "free") for n in range(30)]
    await engine.records.insert([*orders, *(Parcel(name=f"p{n}") for n in range(10))])
    async with running_scheduler(engine):
        await pipeline.begun.wait()
        async with locked(empty_database, "accounts", "held"):
            pipeline.go.set()

            async def others_done() -> bool:
                return (await done(engine, Order), await done(engine, Parcel)) == (25, 10)

            await until(others_done, 5)
            await asyncio.sleep(5)
            assert await done(engine, Order) == 25
        await until(lambda: _all(engine, Order, 30), 5)
    assert set(pipeline.calls.values()) == {1}
    account = await engine.records.get(Account, "held")
    assert account.orders == 5
    assert events.warnings_about("orders o0")


@pytest.mark.promise(12)
async def test_a_run_does_not_wait_for_the_lock(new_engine: Any, empty_database: Any) -> None:
    """The next run of the cycle can begin; the outcome is written when the lock is gone."""
    pipeline = Pipeline()
    pipeline.app = App("shop")
    pipeline.app.stage(Order, name="order", every="1h", **OPTIONS)(pipeline._order)
    pipeline.go.set()
    engine = await new_engine(pipeline.app, lease=2.0)
    await engine.records.insert([Order(name="o1"), Order(name="o2")])
    held = asyncio.Event()

    async def hold() -> None:
        await pipeline.begun.wait()
        async with locked(empty_database, "orders", "o1"):
            held.set()
            await asyncio.sleep(4)

    pipeline.go.clear()
    holder = asyncio.create_task(hold())
    run = asyncio.create_task(engine.run_cycle("shop.order"))
    await held.wait()
    pipeline.go.set()
    first = await asyncio.wait_for(run, 3)
    assert (first.outcome, dict(first.counters)) == ("ok", {"taken": 2, "done": 1})
    assert str(first.message) == "1 outcomes wait for a lock of another program"
    await engine.records.insert([Order(name="o3")])
    second = await asyncio.wait_for(engine.run_cycle("shop.order"), 3)
    assert dict(second.counters) == {"taken": 1, "done": 1}
    await holder
    await until(lambda: _all(engine, Order, 3), 5)
    assert set(pipeline.calls.values()) == {1}


@pytest.mark.promise(7)
async def test_an_outcome_is_settled_and_not_worked_again_after_a_long_outage(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store writes nothing for two leases; then the process claims its own records again."""
    from esclusa.model.errors import StoreUnavailable

    pipeline, events = Pipeline(), Events()
    engine = await new_engine(pipeline.app, lease=1.0, telemetry=events)
    await engine.records.insert([Order(name=f"o{n}") for n in range(20)])

    async def away(batch: Any) -> Any:
        raise StoreUnavailable("the store is away")

    async with running_scheduler(engine):
        await pipeline.begun.wait()
        await asyncio.sleep(0.3)
        with monkeypatch.context() as patch:
            for name in ("settle", "renew"):
                patch.setattr(engine.store, name, away)
            pipeline.go.set()
            await asyncio.sleep(2.5)
        await until(lambda: _all(engine, Order, 20), 20)
    assert set(pipeline.calls.values()) == {1}
    assert {order.attempts async for order in engine.records.each(Order)} == {1}
    assert events.warnings_about("orders o0")  # the lease ran out and was taken again


class SavingPipeline:
    """One stage, whose handler saves a field when ``go`` is set, and counts its calls."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.app = App("shop")
        self.app.stage(Order, name="order", **OPTIONS)(self._order)

    async def _order(self, order: Order, at: Any) -> To:
        self.numbers.append(at.number)
        self.begun.set()
        await self.go.wait()
        await at.save(account="paid")
        return To("done")


@pytest.mark.promise(7)
async def test_save_waits_for_a_lock_of_another_program(
    new_engine: Any, empty_database: Any
) -> None:
    pipeline, events = SavingPipeline(), Events()
    engine = await new_engine(pipeline.app, lease=2.0, telemetry=events)
    await engine.records.insert([Order(name="o")])
    async with running_scheduler(engine):
        await pipeline.begun.wait()
        async with locked(empty_database, "orders", "o"):
            pipeline.go.set()
            await asyncio.sleep(3)
        await until(lambda: _all(engine, Order, 1), 20)
    order = await engine.records.get(Order, "o")
    assert (order.account, order.attempts, pipeline.numbers) == ("paid", 1, [1])
    assert any("save" in warning for warning in events.warnings_about("o"))


@pytest.mark.promise(7)
async def test_save_gives_up_on_a_long_lock_and_the_attempt_does_not_count(
    new_engine: Any, empty_database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "SAVE_SECONDS", 1.0)
    monkeypatch.setattr(decide, "STORE_PAUSE", 0.1)
    pipeline = SavingPipeline()
    engine = await new_engine(pipeline.app, lease=5.0)
    await engine.records.insert([Order(name="o")])
    async with running_scheduler(engine):
        await pipeline.begun.wait()
        async with locked(empty_database, "orders", "o"):
            pipeline.go.set()
            await asyncio.sleep(3)
        await until(lambda: _all(engine, Order, 1), 20)
    order = await engine.records.get(Order, "o")
    assert (order.account, order.attempts, pipeline.numbers) == ("paid", 1, [1, 1])
