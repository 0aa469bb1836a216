"""Runs examples/compare with Procrastinate, in the peers' environment; prints what happened."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "compare"))
URL = os.environ["COMPARE_URL"]


async def query(statement: str) -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as db:
        found = await db.execute(statement.encode())
        return await found.fetchall() if found.description else []


async def states(table: str) -> dict[str, int]:
    return dict(await query(f"SELECT status, count(*) FROM {table} GROUP BY 1 ORDER BY 1"))


async def drain(app: Any) -> None:
    """Handle what is due, and what becomes due when its time is moved up; periodic tasks apart."""
    for _ in range(8):
        await query("UPDATE procrastinate_jobs SET scheduled_at = now() WHERE status = 'todo'")
        await app.run_worker_async(wait=False, install_signal_handlers=False)


async def quota(m: Any) -> dict[str, Any]:
    calls: list[str] = []

    async def temperature(city: str) -> float:
        calls.append(city)
        if city == "city-07":
            raise m.UnknownCity("there is no such city")
        if len(calls) % 4 == 0:
            raise m.Busy("busy")
        return 20.0

    m.temperature = temperature
    await m.collect([f"city-{n:02}" for n in range(25)])
    await m.collect([f"city-{n:02}" for n in range(25)])
    await m.app.run_worker_async(wait=False, install_signal_handlers=False)
    first = {"calls": len(calls), "states": await states("readings")}
    for _ in range(3):
        await query("UPDATE quota SET minute = minute - interval '1 hour'")
        await drain(m.app)
    kept = await query("SELECT max(attempts) FROM procrastinate_jobs")
    return {
        "first minute": first,
        "at last": await states("readings"),
        "most attempts of a job": kept[0][0],
    }


async def join(m: Any) -> dict[str, Any]:
    missing = {("2", 1)}

    async def box(order_id: str, part: int) -> None:
        if (order_id, part) in missing:
            raise TimeoutError("no box")

    m.box = box
    for number, parcels in (("1", 3), ("2", 3), ("3", 0)):
        await m.add(number, parcels)
    await drain(m.app)
    return {
        "orders": dict(await query("SELECT number, status FROM orders")),
        "parcels of 2": dict(await query("SELECT part, status FROM parcels WHERE order_id = '2'")),
    }


async def approval(m: Any) -> dict[str, Any]:
    await m.add("small", 10)
    await m.add("decided", 500)
    await m.add("late", 500)
    await m.app.run_worker_async(wait=False, install_signal_handlers=False)
    await m.decide("decided", "approved", "ana", "receipts checked")
    try:
        await m.decide("decided", "rejected", "ana", "changed her mind")
        refused = False
    except ValueError:
        refused = True
    await drain(m.app)
    return {
        "claims": dict(await query("SELECT number, status FROM claims")),
        "an undeclared move is refused": refused,
    }


async def killed(m: Any) -> dict[str, Any]:
    """A worker dies in a handler: what is left for the next one."""

    async def temperature(city: str) -> float:
        os._exit(9)

    m.temperature = temperature
    await m.collect(["arica"])
    await m.app.run_worker_async(wait=False, install_signal_handlers=False)
    raise AssertionError("the process should have ended")


async def after_kill(m: Any) -> dict[str, Any]:
    async def temperature(city: str) -> float:
        return 20.0

    m.temperature = temperature
    await drain(m.app)
    jobs = await query("SELECT status, count(*) FROM procrastinate_jobs GROUP BY 1")
    return {"readings": await states("readings"), "jobs": dict(jobs)}


async def main(name: str) -> None:
    module = "quota" if name in ("killed", "after_kill") else name
    m = importlib.import_module(f"{module}_procrastinate")
    async with m.app.open_async():
        if name != "after_kill":
            await m.app.schema_manager.apply_schema_async()
            await query(m.SCHEMA)
        print(json.dumps(await globals()[name](m)))


if __name__ == "__main__":
    assert Counter(["quota", "join", "approval", "killed", "after_kill"])[sys.argv[1]]
    asyncio.run(main(sys.argv[1]))
