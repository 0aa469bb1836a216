"""Growth: what each operation costs as the tables grow, and a drain beside very many finished rows.

The cost is measured twice: in time, and in pages of the database that the operation touches, which
do not depend on what else the machine does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

import asyncpg
from support.postgres import PostgresServer

from bench.driver import OURS, Driver
from bench.measures import Scale, progress
from bench.report import Report, Row, rates
from esclusa import App, Attempt, Lifecycle, Outcome, Record, To
from esclusa.model.kind import Ref
from esclusa.model.plan import NoSettings
from esclusa.model.query import query
from esclusa.model.settlement import ClaimRequest, Leased, Settlement
from esclusa.stores.postgres import PostgresStore

# Finished rows of the kind, and moves in its history, at the beginning; ten times as many then.
FIRST_ROWS = 10_000
# How much more an operation may cost on ten times as many rows.
GOAL = 1.2
BATCH = 500
REPEATS = 5


_GROW = """INSERT INTO grown SELECT (jsonb_populate_record(g, jsonb_build_object(
    'id', s::text, 'number', s, 'updated_at', g.updated_at - s * interval '1 s'))).*
FROM grown g, generate_series($1::bigint, $2) s WHERE g.number = 0"""
_GROW_HISTORY = """INSERT INTO esclusa.history
    (table_name, record_id, from_state, to_state, at, who, run, attempt)
SELECT table_name, s::text, from_state, to_state, at - s * interval '1 s', who, run, attempt
FROM (SELECT * FROM esclusa.history WHERE record_id = '0') h, generate_series($1::bigint, $2) s"""


class Grown(Record, table="grown", key="number", archive=True):
    number: int
    payload: str

    lifecycle = Lifecycle("""
        ready -> working -> done | failed
        working -> ready
    """)


app = App("growth")


@app.stage(Grown, take="ready", hold="working", exhausted="failed")
async def work(record: Grown, at: Attempt) -> Outcome:
    return To("done")


async def growth(driver: Driver, report: Report, scale: Scale) -> None:
    """Each operation on ever more rows, and a drain beside very many settled records."""
    await _operations(report, scale)
    await _drains(driver, report, scale)


async def _operations(report: Report, scale: Scale) -> None:
    sizes, size = [], FIRST_ROWS
    while size <= scale.rows:
        sizes.append(size)
        size *= 10
    if sizes[-1] < scale.rows:
        sizes.append(scale.rows)
    with PostgresServer(durable=True, options={"autovacuum": "off"}) as server:
        subject = _Subject(server)
        await subject.open()
        try:
            costs = []
            for size in sizes:
                begun = time.monotonic()
                await subject.grow(size)
                progress(f"growth: {size:,} rows made in {time.monotonic() - begun:.0f} s")
                costs.append(await subject.measure())
        finally:
            await subject.close()
    report.notes.append(
        "cost of an operation: milliseconds (median), pages touched; rows of the kind: "
        + " · ".join(f"{size:,}" for size in sizes)
    )
    for name in costs[0]:
        cells = [f"{ms:.1f} ms {pages:,.0f}" for ms, pages in (cost[name] for cost in costs)]
        report.notes.append(f"{name}: {' · '.join(cells)}")
        for n in range(1, len(sizes)):
            less, more = costs[n - 1][name][1], costs[n][name][1]
            what = f"{name}, {sizes[n]:,} rows"
            beside = f"{sizes[n - 1]:,} rows"
            report.rows.append(
                Row(what, " pages", [more], beside, [less], [less / more], round(1 / GOAL, 2))
            )


class _Subject:
    """A kind whose table grows, and the operations on it."""

    def __init__(self, server: PostgresServer) -> None:
        self.url = server.create_database("growth")
        self.store = PostgresStore(self.url)
        [self.stage] = app.bind(NoSettings()).stages
        self.rows = 0
        self.next = 10**9  # the numbers of records that are inserted to be measured
        self.connection: Any = None

    async def open(self) -> None:
        await self.store.open()
        await self.store.migrate([Grown.kind], [self.stage])
        self.connection = await asyncpg.connect(self.url)
        await self._insert([0])
        await self._settle(1)

    async def close(self) -> None:
        await self.connection.close()
        await self.store.close()

    async def grow(self, rows: int) -> None:
        """Copy the settled record and its history until there are so many."""
        first, self.rows = self.rows, rows
        for statement in (_GROW, _GROW_HISTORY):
            await self.connection.execute(statement, first + 1, rows, timeout=3600)
        await self.connection.execute("VACUUM ANALYZE", timeout=3600)
        await self.connection.execute("CHECKPOINT", timeout=3600)

    async def measure(self) -> dict[str, tuple[float, float]]:
        """Milliseconds and pages of each operation."""
        page = query(Grown, {"status": "done"}, order="-updated_at", limit=50)
        last = await self.store.find(page)
        middle = str(self.rows // 2)
        costs: dict[str, tuple[float, float]] = {}
        operations: dict[str, Callable[[], Awaitable[object]]] = {
            f"insert {BATCH}, half of them known": self._insert_half,
            f"claim {BATCH}": self._claim,
            f"settle {BATCH}": self._settle_claimed,
            "count the states, as the console": lambda: self.store.tally(Grown.kind, 10_000),
            "first page of a state": lambda: self.store.find(page),
            "next page of a state": lambda: self.store.find(
                query(Grown, {"status": "done"}, order="-updated_at", limit=50, after=last.next)
            ),
            "a record": lambda: self.store.get(Grown.kind, [middle]),
            "history of a record": lambda: self.store.history(Ref(Grown.kind, middle)),
            f"archive {BATCH}": lambda: self.store.archive(
                query(Grown, {"status": "done"}, order="updated_at", limit=BATCH)
            ),
        }
        self.leases: list[Any] = []
        taken: dict[str, list[tuple[float, int]]] = {name: [] for name in operations}
        pages = 0
        for _ in range(REPEATS):
            for name, operation in operations.items():
                if operation == self._claim:  # as many as the insert left out
                    await self._insert_plain(BATCH - BATCH // 2)
                if operation == self._claim or not pages:
                    pages = await self._pages()
                begun = time.perf_counter()
                await operation()
                ms = (time.perf_counter() - begun) * 1000
                before, pages = pages, await self._pages()
                taken[name].append((ms, pages - before))
        for name, measured in taken.items():
            costs[name] = (median(ms for ms, _ in measured), median(pages for _, pages in measured))
        return costs

    async def _pages(self) -> int:
        """Pages read so far, from memory or disk. Sessions report them when they are idle."""
        await asyncio.sleep(1.2)
        await self.store.now()
        await self.connection.execute("SELECT pg_stat_clear_snapshot()")
        found: int = await self.connection.fetchval(
            "SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit, 0)"
            " + coalesce(idx_blks_read, 0)) FROM pg_statio_user_tables"
        )
        return found

    async def _insert(self, numbers: list[int]) -> None:
        await self.store.insert([Grown(number=n, payload=f"payload of {n}") for n in numbers])

    async def _insert_half(self) -> None:
        half = BATCH // 2
        new = range(self.next, self.next + half)
        self.next += half
        step = max(1, self.rows // half)
        known = [1 + n * step for n in range(half)]
        await self.store.insert(
            [Grown(number=n, payload=f"payload of {n}") for n in (*new, *known)]
        )

    async def _claim(self) -> None:
        self.leases = await self.store.claim(self._request(BATCH))

    async def _insert_plain(self, count: int) -> None:
        numbers = list(range(self.next, self.next + count))
        self.next += count
        await self._insert(numbers)

    async def _settle_claimed(self) -> None:
        await self.store.settle([_done(lease) for lease in self.leases])

    def _request(self, limit: int) -> ClaimRequest:
        stage = self.stage
        return ClaimRequest(
            kind=stage.kind,
            stage=stage.name,
            take=stage.take,
            hold=stage.hold,
            where=stage.where,
            order=stage.order,
            limit=limit,
            worker="bench",
        )

    async def _settle(self, limit: int) -> None:
        leases = await self.store.claim(self._request(limit))
        await self.store.settle([_done(lease) for lease in leases])


def _done(lease: Leased) -> Settlement:
    return Settlement(
        ref=lease.ref,
        to="done",
        frm=("working",),
        fence=lease.fence,
        who="bench",
        attempt=lease.attempt,
    )


async def _drains(driver: Driver, report: Report, scale: Scale) -> None:
    """Drain on a table with very many settled records, beside a drain on an empty table."""
    count = scale.of(20_000)
    full, empty = driver.server.create_database("full"), driver.server.create_database("empty")
    for url in (full, empty):
        driver.create_tables(OURS, url)
        await driver.drain(OURS, 1, url=url)
    start = time.monotonic()
    _multiply(driver, "full", "plain", {"id": "'old-' || s", "number": f"{count} + s"}, scale.rows)
    _multiply(driver, "full", "esclusa.history", {"record_id": "'old-' || s"}, scale.rows)
    progress(f"growth: {scale.rows:,} settled records made in {time.monotonic() - start:.0f} s")
    measured: dict[str, list[float]] = {full: [], empty: []}
    for turn in range(scale.rounds):
        for url, drained in measured.items():
            driver.server.run_sql(
                f"DELETE FROM plain WHERE number < {count}", url.rsplit("/", 1)[1]
            )
            done = await driver.drain(OURS, count, url=url)
            drained.append(done.rate)
            progress(
                f"growth {turn + 1}/{scale.rounds}"
                f"  {'full' if url == full else 'empty'}: {done.rate:,.0f}/s"
            )
    what = f"drain beside {scale.rows:,} settled"
    report.rows.append(rates(what, measured[full], "ours, empty table", measured[empty], 0.9))


def _multiply(
    driver: Driver, database: str, table: str, changed: dict[str, str], count: int
) -> None:
    """Insert many copies of a row that a real drain left behind, with these columns changed."""
    listed = driver.server.run_sql(
        "SELECT column_name FROM information_schema.columns"
        f" WHERE table_name = '{table.rpartition('.')[2]}' AND is_identity = 'NO'",
        database,
    ).split()
    values = ", ".join(changed.get(name, f'"{name}"') for name in listed)
    names = ", ".join(f'"{name}"' for name in listed)
    where = "WHERE table_name = 'plain'" if table == "esclusa.history" else ""
    driver.server.run_sql(
        f"INSERT INTO {table} ({names}) SELECT {values}"
        f" FROM (SELECT * FROM {table} {where} LIMIT 1) one, generate_series(1, {count}) s",
        database,
    )


MEASURES = {"growth": growth}
