"""Limits per key and turns between keys, by real workers that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from faults import keyed_worker
from faults.keyed_worker import AT_ONCE, Visit

from esclusa.artifacts.local import LocalArtifacts
from esclusa.engine.engine import Engine

MANY, FEW, SMALL = 60, 2, ("a", "b", "c", "d", "e")


def start(url: str, log: Path) -> subprocess.Popen[bytes]:
    tests = Path(__file__).parents[1]
    with log.with_suffix(".err").open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, keyed_worker.__file__, url, str(log)],
            env=os.environ | {"PYTHONPATH": str(tests)},
            stdout=errors,
            stderr=errors,
        )


async def test_killed_workers_keep_to_the_limit_and_the_keys_take_turns(
    empty_database: Any, tmp_path: Path
) -> None:
    store = empty_database.store()
    await store.open()
    engine = Engine(
        store, [keyed_worker.app.bind(keyed_worker.app.settings())], LocalArtifacts(tmp_path)
    )
    await store.migrate(engine.all_kinds, engine.all_stages)
    await store.use(engine.all_kinds, engine.all_stages)
    await store.insert([Visit(name=f"m{n:03}", customer="m") for n in range(MANY)])
    await store.insert([Visit(name=f"{c}{n}", customer=c) for c in SMALL for n in range(FEW)])
    log = tmp_path / "visits.log"
    log.touch()
    workers = [start(empty_database.url, log) for _ in range(2)]
    try:
        for n in range(2):
            seen = len(lines(log))
            async with asyncio.timeout(120):
                while len(lines(log)) < seen + 12:
                    await asyncio.sleep(0.02)
            workers[n].send_signal(signal.SIGKILL)
            workers[n].wait()
            with log.open("a") as file:
                file.write(f"{workers[n].pid} killed - -\n")
            workers[n] = start(empty_database.url, log)
        total = MANY + FEW * len(SMALL)
        async with asyncio.timeout(180):
            while (await engine.records.count(Visit, {"status": "done"}))[0] < total:
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(log.with_suffix(".err").read_text()[-3000:]) from None
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        await store.close()
    check_limit(lines(log))
    check_turns(lines(log))


def lines(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines() if len(line.split()) == 4]


def check_limit(log: list[list[str]]) -> None:
    """At no time were there more handlers of one customer in all processes together."""
    running: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    most = 0
    for pid, what, customer, name in log:
        if what == "begin":
            running[customer].add((pid, name))
        elif what == "end":
            running[customer].discard((pid, name))
        else:
            for names in running.values():
                names -= {each for each in names if each[0] == pid}
        most = max(most, *(len(names) for names in running.values()), 0)
        assert most <= AT_ONCE, (pid, what, customer, name, dict(running))
    assert most == AT_ONCE


def check_turns(log: list[list[str]]) -> None:
    """The customers with few visits were done long before the one with many."""
    ended = [(customer, name) for _, what, customer, name in log if what == "end"]
    last = max(n for n, (customer, _) in enumerate(ended) if customer in SMALL)
    before = sum(customer == "m" for customer, _ in ended[:last])
    assert before < MANY * 0.6, f"{before} visits to m came before the last of the others"
