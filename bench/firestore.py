"""Firestore on Google's emulator: what a moved record costs while eight workers race for the same ones, and the drain beside a bare loop.

Firestore is paid by documents read and written, so that is its performance. The emulator's pace says nothing about the service's; the
ratio says what the engine adds to the calls that are necessary.
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

from bench.contenders.common import SLEEP
from bench.contenders.ours import Held
from bench.driver import Driver
from bench.measures import Measure, Scale, say
from bench.report import Report, rates, times
from esclusa import App, Attempt, Outcome, To
from esclusa.artifacts import open_artifacts
from esclusa.engine.engine import Engine
from esclusa.model.pipeline import NoSettings
from esclusa.model.query import query
from tests.support.firestore import FirestoreEmulator

WORKERS, RACED = 8, 500
# Reads, and writes, that a moved record may cost.
MOST = 3.0
BATCH = 250
_PROJECTS = (f"bench-{os.getpid()}-{n}" for n in itertools.count())


async def firestore(driver: Driver, report: Report, scale: Scale) -> None:
    """Cost of a moved record when 8 workers race over 500, and the drain beside a bare loop, on Firestore's emulator."""
    if reason := FirestoreEmulator.missing():
        print(f"\033[1;31mNOT MEASURED ON FIRESTORE: {reason}\033[0m", file=sys.stderr, flush=True)
        raise RuntimeError(reason)
    cost: dict[str, list[float]] = {"reads": [], "writes": []}
    singleton: dict[str, list[float]] = {"reads": [], "writes": []}
    got: dict[str, list[float]] = {"ours": [], "bare": []}
    count = scale.of(4000)
    with FirestoreEmulator() as emulator:
        os.environ[FirestoreEmulator.HOST] = emulator.host
        try:
            for turn in range(scale.rounds):
                raced, everything = await _race()
                got["bare"].append(count / await _bare(count))
                took, spent = await _drain(count)
                got["ours"].append(count / took)
                for name in ("reads", "writes"):
                    cost[name].append(raced[name] / RACED)
                    singleton[name].append(spent[name] / count)
                say(
                    f"firestore {turn + 1}/{scale.rounds}  race: {cost['reads'][-1]:.2f} reads and {cost['writes'][-1]:.2f} writes a record"
                    f" ({everything['reads'] / RACED:.2f} and {everything['writes'] / RACED:.2f} with all that its runs keep);"
                    f" drain: {got['ours'][-1]:,.0f}/s beside {got['bare'][-1]:,.0f}/s"
                )
        finally:
            os.environ.pop(FirestoreEmulator.HOST)
    for what, found in (
        (f"{WORKERS} workers over {RACED}", cost),
        ("one worker, all that a run keeps", singleton),
    ):
        for name, figures in found.items():
            report.rows.append(
                times(
                    f"Firestore: {name} a record, {what}",
                    figures,
                    "limit we set",
                    [MOST] * scale.rounds,
                    1.0,
                    "",
                )
            )
    report.rows.append(
        rates(
            "drain with a hold state, Firestore emulator",
            got["ours"],
            "limit: bare loop, same client",
            got["bare"],
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
    """Documents read and written, for these operations, or for all but the clock's and the schema's."""
    total: Counter[str] = Counter()
    for store in stores:
        for name, counter in (("reads", store.reads), ("writes", store.writes)):
            total[name] += sum(
                n
                for op, n in counter.items()
                if op in ops or (not ops and op not in ("clock", "schema", "insert"))
            )
    return total


async def _race() -> tuple[Counter[str], Counter[str]]:
    """Eight engines, each with its own connection, on the same records: what claims and settlements cost, and all that was spent."""
    project = next(_PROJECTS)
    async with _engine(project, 1) as (first, store):
        await first.store.insert(_records(RACED))

        async def work() -> tuple[int, Any]:
            async with _engine(project, 10, SLEEP) as (engine, mine), engine.running():
                run = await engine.run_cycle("bench.stage")
                return run.counters["done"], mine

        ended = await asyncio.gather(*(work() for _ in range(WORKERS)))
        found = (await store.find(query(Held, limit=RACED + 1))).items
        if sum(done for done, _ in ended) != RACED or {
            (r.status, r.fence, r.attempts) for r in found
        } != {("done", 1, 1)}:
            raise RuntimeError(f"not each record was settled once: {[done for done, _ in ended]}")
        stores = [mine for _, mine in ended]
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
            raise RuntimeError(f"not all were settled: {run.answer()}")
        return took, _spent([store])


# the limit: the same client and the calls that are necessary, nothing else


async def _bare(count: int) -> float:
    """Query, claim under a precondition, settle with a history document under a precondition; two batches overlap."""
    from esclusa.stores.firestore.client import FirestoreClient
    from esclusa.stores.firestore.codec import Document, encode
    from esclusa.stores.firestore.writes import put_document

    link = FirestoreClient(next(_PROJECTS), "(default)", None)
    await link.open()

    def document(**values: Any) -> Any:
        out = Document()
        for name, value in values.items():
            type = (
                "time"
                if isinstance(value, datetime)
                else "int"
                if isinstance(value, int)
                else "text"
            )
            out.fields[name].CopyFrom(encode(type, value))  # type: ignore[arg-type]
        return out

    now = datetime.now(UTC)
    for start in range(0, count, 500):
        drafts = [
            document(
                number=n, payload=f"payload of {n}", status="ready", attempts=0, due_at=now, fence=0, leased_by=None, last_error=None,
                created_at=now, updated_at=now,
            )
            for n in range(start, min(count, start + 500))
        ]  # fmt: skip
        writes = [
            put_document(f"{link.root}/bare/{d.fields['number'].integer_value}", d, exists=False)
            for d in drafts
        ]
        await link.commit(writes, "fill")

    async def settle(names: list[str], results: list[Any]) -> None:
        now = datetime.now(UTC)
        done = document(status="done", leased_by=None, due_at=now, updated_at=now)
        step = document(from_state="ready", to_state="done", at=now, who="w", attempt=1)
        writes = [
            put_document(n, done, mask=list(done.fields), update_time=r.update_time)
            for n, r in zip(names, results, strict=True)
        ]
        writes += [
            put_document(f"{link.root}/bare_history/{n.rpartition('/')[2]}", step) for n in names
        ]
        await link.commit(writes, "settle")

    begun = time.perf_counter()
    settling: list[asyncio.Task[None]] = []
    while found := await link.query(_due(datetime.now(UTC)), "claim"):
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
        results = await link.commit(writes, "claim")
        await asyncio.gather(*settling)
        settling = [asyncio.create_task(settle([d.name for d in found], results))]
    await asyncio.gather(*settling)
    took = time.perf_counter() - begun
    await link.close()
    return took


def _due(now: datetime) -> Any:
    """Ready or working, due, the oldest first."""
    from esclusa.stores.firestore.client import StructuredQuery
    from esclusa.stores.firestore.codec import encode

    asked = StructuredQuery()
    asked.from_.add().collection_id = "bare"
    asked.where.composite_filter.op = 1
    states = asked.where.composite_filter.filters.add().field_filter
    states.field.field_path, states.op = "status", 8
    states.value.array_value.values.extend(encode("text", state) for state in ("ready", "working"))
    due = asked.where.composite_filter.filters.add().field_filter
    due.field.field_path, due.op = "due_at", 2
    due.value.CopyFrom(encode("time", now))
    asked.order_by.add(direction=1).field.field_path = "due_at"
    asked.limit.value = BATCH
    return asked


MEASURES: dict[str, Measure] = {"firestore": firestore}
