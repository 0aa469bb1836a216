"""A migration of a large table beside a program that writes it."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import asyncpg

from bench.driver import Driver
from bench.measures import Scale, progress
from bench.report import Report, times
from esclusa import Lifecycle, Record, not_null, track
from esclusa.model.stage import Stage, make_stage
from esclusa.stores.postgres import PostgresStore

DATABASE = "migrated"
IDLE_SECONDS = 15.0


class Order(
    Record,
    table="orders",
    key="number",
    track=track(prefix="e_"),
    adopt={"done": {"paid_at": not_null}},
):
    """A table of another program, of which half the rows need no work."""

    number: str
    paid_at: str | None = None
    lifecycle = Lifecycle("""
        new -> working -> done | failed
        working -> new
    """)


async def _handle(record: Record, at: object) -> None:
    raise NotImplementedError


def _stage() -> Stage:
    return make_stage("orders", Order.kind, _handle, take="new", hold="working", exhausted="failed")


class Writer(threading.Thread):
    """Another program: updates, inserts and reads rows all the time, and times each statement."""

    def __init__(self, url: str, rows: int, first: int) -> None:
        super().__init__(daemon=True)
        self._url, self._rows, self._first = url, rows, first
        self._ended = threading.Event()
        self.seconds: list[float] = []

    def run(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        connection = await asyncpg.connect(self._url)
        number = self._first
        while not self._ended.is_set():
            number += 1
            some = random.randint(1, self._rows)
            for statement, value in (
                ("UPDATE orders SET total = total + 1 WHERE id = $1", some),
                ("INSERT INTO orders (number, total) VALUES ('n' || $1::bigint, 1)", number),
                ("SELECT total FROM orders WHERE id = $1", some),
            ):
                begun = time.perf_counter()
                await connection.execute(statement, value)
                self.seconds.append(time.perf_counter() - begun)
            await asyncio.sleep(0.002)
        await connection.close()

    def end(self) -> list[float]:
        """Stop; return the milliseconds of each statement, in ascending order."""
        self._ended.set()
        self.join()
        return sorted(1000 * each for each in self.seconds)


async def migrate(driver: Driver, report: Report, scale: Scale) -> None:
    """Migrate a table of another program while it is written: its slowest statement."""
    driver.server.drop_database(DATABASE)
    url = driver.server.create_database(DATABASE)
    progress(f"{scale.rows:,} rows are inserted")
    driver.server.run_sql(
        f"""CREATE TABLE orders (id bigserial PRIMARY KEY, number text NOT NULL, paid_at text,
            total integer, created_at timestamptz DEFAULT now());
        INSERT INTO orders (number, paid_at, total)
            SELECT 'n' || n, CASE WHEN n % 2 = 0 THEN 'yes' END, n
            FROM generate_series(1, {scale.rows}) n""",
        DATABASE,
    )
    driver.server.run_sql("VACUUM ANALYZE orders", DATABASE)
    idle = Writer(url, scale.rows, first=scale.rows)
    idle.start()
    await asyncio.sleep(IDLE_SECONDS)
    before = idle.end()
    store = PostgresStore(url)
    await store.open()
    busy = Writer(url, scale.rows, first=2 * scale.rows)
    busy.start()
    await asyncio.sleep(1)
    begun = time.monotonic()
    await store.migrate((Order.kind,), (_stage(),), foreign=True, progress=progress)
    seconds = time.monotonic() - begun
    during = busy.end()
    await store.close()
    for what, place in (("slowest", -1), ("99.9 %", -len(before) // 1000 - 1), ("median", None)):
        ours, theirs = (
            each[len(each) // 2] if place is None else each[max(-len(each), place)]
            for each in (during, before)
        )
        report.rows.append(times(f"writer's statement, {what}", [ours], "no migration", [theirs]))
    report.notes.append(
        f"{scale.rows:,} rows migrated in {seconds:.0f} s beside a writer of {len(during):,}"
        f" statements; {len(before):,} statements without a migration in {IDLE_SECONDS:.0f} s"
    )
    driver.server.drop_database(DATABASE)


MEASURES = {"migrate": migrate}
