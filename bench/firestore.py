"""Firestore on Google's emulator: reads and writes per record, and the drain beside a bare loop.

Firestore bills documents read and written, so these are counted, with eight workers that compete
for the same records. The emulator's speed says nothing about the service's; the ratio shows what
the engine adds to the necessary calls.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from support.firestore import FirestoreEmulator

from bench.contenders.common import SLEEP
from bench.contenders.ours import Held
from bench.driver import Driver
from bench.measures import Measure, Scale, progress
from bench.report import Report, rates, times
from esclusa import App, Attempt, Outcome, To
from esclusa.artifacts import open_artifacts
from esclusa.engine.engine import Engine
from esclusa.model.columns import ColumnType
from esclusa.model.plan import NoSettings
from esclusa.model.query import query

WORKERS, RECORDS = 8, 500
# The most reads, and the most writes, that we allow per moved record.
MOST = 3.0
BATCH = 250
_PROJECTS = (f"bench-{os.getpid()}-{n}" for n in itertools.count())


async def firestore(driver: Driver, report: Report, scale: Scale) -> None:
    """Reads and writes per record with 8 workers over 500, and the drain beside a bare loop."""
    if reason := FirestoreEmulator.missing():
        print(f"\033[1;31mNOT MEASURED ON FIRESTORE: {reason}\033[0m", file=sys.stderr, flush=True)
        raise RuntimeError(reason)
    competing: dict[str, list[float]] = {"reads": [], "writes": []}
    single: dict[str, list[float]] = {"reads": [], "writes": []}
    drained: dict[str, list[float]] = {"ours": [], "bare": []}
    count = scale.of(4000)
    with FirestoreEmulator() as emulator:
        os.environ[FirestoreEmulator.HOST] = emulator.host
        try:
            for turn in range(scale.rounds):
                moves, total = await _compete()
                drained["bare"].append(count / await _bare(count))
                took, spent = await _drain(count)
                drained["ours"].append(count / took)
                for name in ("reads", "writes"):
                    competing[name].append(moves[name] / RECORDS)
                    single[name].append(spent[name] / count)
                progress(
                    f"firestore {turn + 1}/{scale.rounds}  {WORKERS} workers:"
                    f" {competing['reads'][-1]:.2f} reads and"
                    f" {competing['writes'][-1]:.2f} writes per record"
                    f" ({total['reads'] / RECORDS:.2f} and {total['writes'] / RECORDS:.2f}"
                    " with run bookkeeping);"
                    f" drain: {drained['ours'][-1]:,.0f}/s beside {drained['bare'][-1]:,.0f}/s"
                )
        finally:
            os.environ.pop(FirestoreEmulator.HOST)
    limits = [MOST] * scale.rounds
    for workers, measured in (
        (f"{WORKERS} workers over {RECORDS}", competing),
        ("one worker, with run bookkeeping", single),
    ):
        for name, figures in measured.items():
            what = f"Firestore: {name} per record, {workers}"
            report.rows.append(times(what, figures, "limit we set", limits, 1.0, ""))
    report.rows.append(
        rates(
            "drain with a hold state, Firestore emulator",
            drained["ours"],
            "limit: bare loop, same client",
            drained["bare"],
        )
    )


def _pipeline(concurrency: int, work: float) -> App:
    app = App("bench")

    @app.stage(
        Held,
        take="ready",
        hold="working",
        exhausted="failed",
        concurrency=concurrency,
        name="stage",
    )
    async def stage(record: Held, at: Attempt) -> Outcome:
        if work:
            await asyncio.sleep(work)
        return To("done")

    return app


@asynccontextmanager
async def _engine(
    project: str, concurrency: int, work: float = 0.0
) -> AsyncIterator[tuple[Engine, Any]]:
    from esclusa.stores.firestore import FirestoreStore

    store = FirestoreStore(project)
    await store.open()
    try:
        plan = _pipeline(concurrency, work).bind(NoSettings())
        engine = Engine(store, [plan], open_artifacts("file:///tmp/esclusa-bench-none"))
        await store.migrate(engine.all_kinds, engine.all_stages)
        await store.use(engine.all_kinds, engine.all_stages)
        yield engine, store
    finally:
        await store.close()


def _records(count: int) -> list[Held]:
    return [Held(number=n, payload=f"payload of {n}") for n in range(count)]


def _spent(stores: list[Any], *ops: str) -> Counter[str]:
    """Count documents read and written by these operations.

    Without operations: by all except reading the clock, checking the schema, and inserting.
    """
    total: Counter[str] = Counter()
    for store in stores:
        for name, counter in (("reads", store.reads), ("writes", store.writes)):
            total[name] += sum(
                n
                for op, n in counter.items()
                if op in ops or (not ops and op not in ("clock", "schema", "insert"))
            )
    return total


async def _compete() -> tuple[Counter[str], Counter[str]]:
    """Run eight engines, each with its own connection, on the same records.

    Returns the cost of claims, renewals and settlements, and the cost of all operations.
    """
    project = next(_PROJECTS)
    async with _engine(project, 1) as (first, store):
        await first.store.insert(_records(RECORDS))

        async def work() -> tuple[int, Any]:
            async with _engine(project, 10, SLEEP) as (engine, mine), engine.running():
                run = await engine.run_cycle("bench.stage")
                return run.counters["done"], mine

        results = await asyncio.gather(*(work() for _ in range(WORKERS)))
        found = (await store.find(query(Held, limit=RECORDS + 1))).items
        done = [count for count, _ in results]
        states = {(record.status, record.fence, record.attempts) for record in found}
        if sum(done) != RECORDS or states != {("done", 1, 1)}:
            raise RuntimeError(f"not every record was settled once: {done}, {states}")
        stores = [mine for _, mine in results]
        return _spent(stores, "claim", "renew", "settle"), _spent(stores)


async def _drain(count: int) -> tuple[float, Counter[str]]:
    async with _engine(next(_PROJECTS), 500) as (engine, store), engine.running():
        for start in range(0, count, 500):
            await store.insert(_records(count)[start : start + 500])
        store.reads.clear()
        store.writes.clear()
        begun = time.perf_counter()
        run = await engine.run_cycle("bench.stage")
        took = time.perf_counter() - begun
        if run.counters["done"] != count:
            raise RuntimeError(f"not every record was settled: {run.answer()}")
        return took, _spent([store])


# the limit: the same client with only the necessary calls


async def _bare(count: int) -> float:
    """Drain in a bare loop; return the seconds.

    Query, claim under a precondition, settle under a precondition with a history document. The
    settlement of a batch overlaps the claim of the next.
    """
    from esclusa.stores.firestore.client import FirestoreClient
    from esclusa.stores.firestore.codec import Document, encode
    from esclusa.stores.firestore.writes import put_document

    client = FirestoreClient(next(_PROJECTS), "(default)", None)
    await client.open()

    def document(**values: Any) -> Any:
        out = Document()
        for name, value in values.items():
            type: ColumnType = "text"
            if isinstance(value, datetime):
                type = "time"
            elif isinstance(value, int):
                type = "int"
            out.fields[name].CopyFrom(encode(type, value))
        return out

    now = datetime.now(UTC)
    for start in range(0, count, 500):
        drafts = [
            document(
                number=n,
                payload=f"payload of {n}",
                status="ready",
                attempts=0,
                due_at=now,
                fence=0,
                leased_by=None,
                last_error=None,
                created_at=now,
                updated_at=now,
            )
            for n in range(start, min(count, start + 500))
        ]
        writes = [
            put_document(f"{client.root}/bare/{d.fields['number'].integer_value}", d, exists=False)
            for d in drafts
        ]
        await client.commit(writes, "fill")

    async def settle(names: list[str], results: list[Any]) -> None:
        now = datetime.now(UTC)
        done = document(status="done", leased_by=None, due_at=now, updated_at=now)
        step = document(from_state="ready", to_state="done", at=now, who="w", attempt=1)
        writes = [
            put_document(n, done, mask=list(done.fields), update_time=r.update_time)
            for n, r in zip(names, results, strict=True)
        ]
        writes += [
            put_document(f"{client.root}/bare_history/{n.rpartition('/')[2]}", step) for n in names
        ]
        await client.commit(writes, "settle")

    begun = time.perf_counter()
    settling: list[asyncio.Task[None]] = []
    while found := await client.query(_claim_query(datetime.now(UTC)), "claim"):
        now = datetime.now(UTC)
        held = document(
            status="working",
            leased_by="w",
            due_at=now + timedelta(seconds=60),
            attempts=1,
            fence=1,
            updated_at=now,
        )
        writes = [
            put_document(d.name, held, mask=list(held.fields), update_time=d.update_time)
            for d in found
        ]
        results = await client.commit(writes, "claim")
        await asyncio.gather(*settling)
        settling = [asyncio.create_task(settle([d.name for d in found], results))]
    await asyncio.gather(*settling)
    took = time.perf_counter() - begun
    await client.close()
    return took


def _claim_query(now: datetime) -> Any:
    """The query for records that are ready or working and due, oldest first."""
    from esclusa.stores.firestore.client import StructuredQuery
    from esclusa.stores.firestore.codec import encode

    claimable = StructuredQuery()
    claimable.from_.add().collection_id = "bare"
    claimable.where.composite_filter.op = 1
    states = claimable.where.composite_filter.filters.add().field_filter
    states.field.field_path, states.op = "status", 8
    states.value.array_value.values.extend(encode("text", state) for state in ("ready", "working"))
    due = claimable.where.composite_filter.filters.add().field_filter
    due.field.field_path, due.op = "due_at", 2
    due.value.CopyFrom(encode("time", now))
    claimable.order_by.add(direction=1).field.field_path = "due_at"
    claimable.limit.value = BATCH
    return claimable


MEASURES: dict[str, Measure] = {"firestore": firestore}
