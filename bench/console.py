"""Response times of every console page over very many records: ``python -m bench.console``.

Creates 20 stages with two weeks of samples, and two kinds with ``--records`` records each (default
1,000,000), most of them finished. Each page is requested once after a start and then several times
more. The limit is 100 ms for both.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from statistics import median

import aiohttp
import asyncpg
from support.postgres import PostgresServer
from web.console.world import APPS as WORLD
from web.console.world import Job, Post, fill

from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Record, To
from esclusa.app import open_runtime
from esclusa.engine.tally import floor
from esclusa.model.system_records import RateRecord, StageSample
from esclusa.runtime import Runtime
from esclusa.settings import load
from esclusa.web.server import Service, listen

LIMIT_MS = 100.0
BATCH = 20_000
STATES = ("done",) * 90 + ("verified",) * 6 + ("empty_result",) * 2 + ("pending", "failed")


async def grow(runtime: Runtime, records: int) -> None:
    """Insert this many records of each kind."""
    now = runtime.engine.clock.now()
    for start in range(0, records, BATCH):
        numbers = range(start, min(records, start + BATCH))
        posts = [
            Post(platform="twitter", post_id=f"b{n:08}", country="CL", status="done")
            for n in numbers
        ]
        jobs = [
            Job(
                job_id=f"b{n:08}",
                post_doc_id=f"twitter:b{n:08}",
                platform="twitter",
                status=STATES[n % 100],
                due_at=now,
            )
            for n in numbers
        ]
        await runtime.store.insert(posts)
        await runtime.store.insert(jobs)
        print(f"\r{start + BATCH:,} records of each kind", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


class Parcel(Record, table="parcels"):
    """What the stages take that only have a past."""

    lifecycle = Lifecycle("new -> done")


FOREVER = Backoff(tries=None)
many = App("many")
for _number in range(16):

    @many.stage(Parcel, name=f"look-{_number}", take="new", retry=FOREVER, every="1h")
    async def look(parcel: Parcel, at: Attempt) -> Outcome:
        return To("done")


async def remember(runtime: Runtime) -> None:
    """Insert two weeks of samples of every stage, and the rates of the last two hours."""
    now = runtime.engine.clock.now()
    stages = [s.name for s in runtime.engine.all_stages if not s.name.startswith("esclusa.")]
    histogram = [0, 0, 1, 4, 9, 20, 31, 22, 9, 4, *[0] * 8]
    entry = {"due": 120, "oldest": 33.5, "moved": 90, "retried": 10, "seconds": 9.0}
    for span, count in ((60, 180), (900, 200), (3600, 340)):
        rolled = entry | {"histogram": histogram} if span > 60 else {"due": 7, "oldest": 2.0}
        starts = [floor(now, span) - timedelta(seconds=span * n) for n in range(1, count)]
        await runtime.store.insert(
            [
                StageSample(span=span, start=start, stages=dict.fromkeys(stages, rolled))
                for start in starts
            ]
        )
    for back in range(1, 121):
        await runtime.store.insert(
            [
                RateRecord(
                    stage=stage,
                    minute=floor(now, 60) - timedelta(minutes=back),
                    worker="bench",
                    moved=90,
                    retried=10,
                    seconds=9.0,
                    histogram=histogram,
                )
                for stage in stages
            ]
        )


async def pages(runtime: Runtime) -> dict[str, str]:
    """The path of every page by its name in the table."""
    letter = (await runtime.read_model.dead_letters({"status": "open"}, limit=1)).items[0]
    jobs = "/console/records/pending_jobs"
    return {
        "map": "/",
        "stages": "/console/stages",
        "charts, hour": "/console/charts?over=hour",
        "charts, day": "/console/charts?over=day",
        "charts, week": "/console/charts?over=week",
        "charts, fortnight": "/console/charts?over=fortnight",
        "charts of a stage": "/console/charts?over=fortnight&of=media.download",
        "series, hour": "/api/series?over=hour&compare=true",
        "series, day": "/api/series?over=day&compare=true",
        "series, fortnight": "/api/series?over=fortnight",
        "times in states": "/console/times/pending_jobs",
        "kinds": "/console/records",
        "records": jobs,
        "records in a state": f"{jobs}?status=done",
        "records, search": f"{jobs}?q=b0001",
        "records, by reference": f"{jobs}?post_doc_id=twitter:b00000042",
        "search": "/console/search?q=b0000004",
        "record": f"{jobs}/b00000098",
        "related": "/console/records/posts/twitter:b00000042",
        "preview of 1 %": f"{jobs}/act?verb=retry&status=failed",
        "dead letters": "/console/dead-letters",
        "dead letter": f"/console/dead-letters/{letter.id}",
        "cycles": "/console/cycles",
        "runs": "/console/runs",
        "budgets": "/console/budgets",
        "workers": "/console/workers",
        "alerts": "/console/alerts",
        "audit": "/console/audit",
        "archive": "/console/archive",
        "views": "/console/views",
        "view": "/console/views/media.errors",
        "health": "/console/health",
        "trace": "/console/documents/apolo-2024/apolo-2024:balance",
    }


APPS = {**WORLD, "many": many}


async def measure(store: str, folder: Path, records: int, rounds: int) -> int:
    """Fill the store, print the table, and return the exit code: 1 if a page is over the limit."""
    environ = {
        "ESCLUSA_STORE": store,
        "ESCLUSA_ARTIFACTS": str(folder / "artifacts"),
        "ESCLUSA_PIPELINES": ",".join(APPS),
        "ESCLUSA_LOG_LEVEL": "error",
    }
    slow = 0
    settings = load(environ=environ, apps=APPS.__getitem__)
    async with open_runtime(settings) as runtime:
        await fill(runtime)
        await remember(runtime)
        await grow(runtime, records)
    if store.startswith("postgres"):  # Autovacuum would do this later.
        connection = await asyncpg.connect(store)
        await connection.execute("ANALYZE")
        await connection.close()
    async with open_runtime(settings) as runtime:  # opened again, so that nothing is cached
        service = Service(runtime, worker=False)
        listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(service.run(listen("127.0.0.1", 0), listening.set_result))
        url = f"http://127.0.0.1:{await listening}"
        async with aiohttp.ClientSession() as session:

            async def request(path: str) -> float:
                begun = time.perf_counter()
                async with session.get(url + path) as answer:
                    await answer.read()
                    assert answer.status == 200, path
                return (time.perf_counter() - begun) * 1000

            print(f"{runtime.store.url.partition(':')[0]}, {records:,} records of each kind")
            print(f"{'page':24}{'first ms':>10}{'again ms':>10}{'slowest':>10}")
            for name, path in (await pages(runtime)).items():
                first = await request(path)
                again = []
                for _ in range(rounds):
                    await asyncio.sleep(0.25)
                    again.append(await request(path))
                late = max(first, median(again)) > LIMIT_MS
                slow += late
                print(
                    f"{name:24}{first:10.1f}{median(again):10.1f}{max(again):10.1f}"
                    f"{'  over the limit' if late else ''}"
                )
        service.stop()
        await task
    return 1 if slow else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--store",
        default="sqlite",
        help="sqlite or postgres (a new store each time), or the URL of an empty store",
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.store != "postgres":
            store = f"sqlite:///{folder}/bench.db" if options.store == "sqlite" else options.store
            return asyncio.run(measure(store, folder, options.records, options.rounds))
        with PostgresServer(durable=True) as server:
            return asyncio.run(measure(server.url(), folder, options.records, options.rounds))


if __name__ == "__main__":
    sys.exit(main())
