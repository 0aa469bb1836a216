"""Another client holds a Firestore document in a transaction: only what depends on it waits."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from support.scheduling import running_scheduler

from esclusa import App, Backoff, Lifecycle, Record, To

# Seconds: the lease, and the lock, which outlasts it. The emulator goes on for ten seconds with a
# commit that was given up, and holds up what that would have written; the lease is twice as long.
LEASE, LOCK = 20.0, 22.0


class Letter(Record, table="letters", key="name"):
    name: str
    lifecycle = Lifecycle("""
        new -> busy -> done
        busy -> new | bad
        bad -> new
    """)


@pytest.fixture
def provider(providers: Any) -> Any:
    return providers("firestore")


@pytest.mark.promise(12)
async def test_one_locked_document_waits_alone(new_engine: Any, empty_database: Any) -> None:
    """Its lease goes on, although it cannot be written, and its handler is called once."""
    calls: Counter[str] = Counter()
    begun, go = asyncio.Event(), asyncio.Event()
    app = App("post")

    @app.stage(
        Letter,
        take="new",
        hold="busy",
        exhausted="bad",
        retry=Backoff(tries=3, base=0, jitter=0),
        concurrency=50,
    )
    async def send(letter: Letter, at: Any) -> To:
        calls[letter.name] += 1
        if len(calls) == 20:
            begun.set()
        await go.wait()
        return To("done")

    engine, other = await new_engine(app, lease=LEASE), await new_engine(app, lease=LEASE)
    await engine.records.insert([Letter(name=f"l{n}") for n in range(20)])

    async def until_done(count: int) -> None:
        async with asyncio.timeout(60):
            while (await engine.records.count(Letter, {"status": "done"}))[0] < count:
                await asyncio.sleep(0.1)

    async with running_scheduler(engine):
        await begun.wait()
        async with running_scheduler(other):
            async with empty_database.locked("letters", "id", "l7"):
                go.set()
                await until_done(19)
                await engine.records.insert([Letter(name=f"late{n}") for n in range(5)])
                await until_done(24)
                await asyncio.sleep(LOCK)
                assert (await engine.records.get(Letter, "l7")).status == "busy"
            await until_done(25)
    assert set(calls.values()) == {1}
    letter = await engine.records.get(Letter, "l7")
    assert (letter.attempts, letter.leased_by) == (1, None)
