"""How long the server takes for each page of the console over very many records: ``python -m bench.console``.

Two kinds with ``--records`` records each (1,000,000 unless told), most of them finished, as in a house that has been at work
for a while. Each page is asked for the first time after a start, then again and again; the limit is 100 ms for either.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import aiohttp
import asyncpg
from web.console.world import APPS, Job, Post, fill

from esclusa.app import open_runtime
from esclusa.runtime import Runtime
from esclusa.settings import load
from esclusa.web.server import Service, listen

LIMIT = 100.0
BATCH = 20_000
STATES = ("done",) * 90 + ("verified",) * 6 + ("empty_result",) * 2 + ("pending", "failed")


async def grow(runtime: Runtime, records: int) -> None:
    now = runtime.engine.clock.now()
    for start in range(0, records, BATCH):
        numbers = range(start, min(records, start + BATCH))
        await runtime.store.insert(
            [
                Post(platform="twitter", post_id=f"b{n:08}", country="CL", status="done")
                for n in numbers
            ]
        )
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
        await runtime.store.insert(jobs)
        print(f"\r{start + BATCH:,} records of each kind", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


async def pages(runtime: Runtime) -> dict[str, str]:
    letter = (await runtime.read_model.dead_letters({"status": "open"}, limit=1)).items[0]
    return {
        "map": "/", "stages": "/console/stages", "kinds": "/console/records", "records": "/console/records/pending_jobs",
        "records in a state": "/console/records/pending_jobs?status=done", "records, search": "/console/records/pending_jobs?q=b0001",
        "records, by reference": "/console/records/pending_jobs?post_doc_id=twitter:b00000042", "search": "/console/search?q=b0000004",
        "record": "/console/records/pending_jobs/b00000098", "related": "/console/records/posts/twitter:b00000042",
        "preview of 1 %": "/console/records/pending_jobs/act?verb=retry&status=failed", "dead letters": "/console/dead-letters",
        "dead letter": f"/console/dead-letters/{letter.id}", "cycles": "/console/cycles", "runs": "/console/runs",
        "budgets": "/console/budgets",
        "workers": "/console/workers", "alerts": "/console/alerts", "audit": "/console/audit", "archive": "/console/archive",
        "views": "/console/views", "view": "/console/views/media.errors", "health": "/console/health",
        "trace": "/console/documents/apolo-2024/apolo-2024:balance",
    }  # fmt: skip


async def measure(store: str, folder: Path, records: int, rounds: int) -> int:
    environ = {
        "ESCLUSA_STORE": store, "ESCLUSA_ARTIFACTS": str(folder / "artifacts"), "ESCLUSA_PIPELINES": ",".join(APPS),
        "ESCLUSA_LOG_LEVEL": "error",
    }  # fmt: skip
    slow = 0
    settings = load(environ=environ, apps=APPS.__getitem__)
    async with open_runtime(settings) as runtime:
        await fill(runtime)
        await grow(runtime, records)
    if store.startswith("postgres"):  # autovacuum would do it in its time
        connection = await asyncpg.connect(store)
        await connection.execute("ANALYZE")
        await connection.close()
    async with open_runtime(settings) as runtime:  # as after a start: nothing is counted yet
        service, listening = (
            Service(runtime, worker=False),
            asyncio.get_running_loop().create_future(),
        )
        task = asyncio.create_task(service.run(listen("127.0.0.1", 0), listening.set_result))
        url = f"http://127.0.0.1:{await listening}"
        async with aiohttp.ClientSession() as session:

            async def once(path: str) -> float:
                begun = time.perf_counter()
                async with session.get(url + path) as answer:
                    await answer.read()
                    assert answer.status == 200, path
                return (time.perf_counter() - begun) * 1000

            print(f"{runtime.store.url.partition(':')[0]}, {records:,} records of each kind")
            print(f"{'page':24}{'first ms':>10}{'again ms':>10}{'slowest':>10}")
            for name, path in (await pages(runtime)).items():
                first = await once(path)
                again = []
                for _ in range(rounds):
                    await asyncio.sleep(0.25)
                    again.append(await once(path))
                late = max(first, median(again)) > LIMIT
                slow += late
                print(
                    f"{name:24}{first:10.1f}{median(again):10.1f}{max(again):10.1f}{'  over the limit' if late else ''}"
                )
        service.stop()
        await task
    return 1 if slow else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--store",
        default="sqlite",
        help="sqlite, postgres (each a new one), or the address of an empty store",
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if said.store != "postgres":
            store = f"sqlite:///{folder}/bench.db" if said.store == "sqlite" else said.store
            return asyncio.run(measure(store, Path(folder), said.records, said.rounds))
        from support.postgres import PostgresServer

        server = PostgresServer(durable=True)
        server.start()
        try:
            return asyncio.run(measure(server.url(), Path(folder), said.records, said.rounds))
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
