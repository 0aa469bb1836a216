"""A stage with a limit per key: in one run, in a worker that serves, and in `why`."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from esclusa import App, Backoff, Lifecycle, Record, To


class Call(Record, table="calls", key="name"):
    name: str
    customer: str | None = None
    lifecycle = Lifecycle("new -> busy -> done\nbusy -> new | failed")


class Calls:
    """A pipeline that counts how many calls of one customer are under way."""

    def __init__(self, at_once: int) -> None:
        self.now: Counter[str | None] = Counter()
        self.most: Counter[str | None] = Counter()
        self.app = App("phone")
        self.free = asyncio.Event()
        self.free.set()

        @self.app.stage(
            Call,
            take="new",
            hold="busy",
            exhausted="failed",
            retry=Backoff(tries=2),
            per="customer",
            at_once=at_once,
        )
        async def call(call: Call, at: Any) -> To:
            self.now[call.customer] += 1
            self.most[call.customer] = max(self.most[call.customer], self.now[call.customer])
            await self.free.wait()
            await asyncio.sleep(0)
            self.now[call.customer] -= 1
            return To("done")


def calls(*customers: str | None) -> list[Call]:
    return [Call(name=f"{customer}-{n}", customer=customer) for n, customer in enumerate(customers)]


async def test_a_run_handles_all_records_of_a_key_a_few_at_a_time(new_engine: Any) -> None:
    phone = Calls(2)
    engine = await new_engine(phone.app)
    await engine.records.insert(calls(*"aaaaaaab", None, None, None))
    run = await engine.run_cycle("phone.call")
    assert (run.outcome, run.counters["taken"]) == ("ok", 11)
    assert phone.most == {"a": 2, "b": 1, None: 2}


async def test_a_serving_worker_goes_on_when_a_key_is_free_again(new_engine: Any) -> None:
    phone = Calls(1)
    engine = await new_engine(phone.app, poll=60.0)
    await engine.records.insert(calls(*"aaaaab"))
    scheduler = engine.scheduler()
    serving = asyncio.create_task(scheduler.serve())
    async with asyncio.timeout(30):
        while (await engine.records.count(Call, {"status": "done"}))[0] < 6:
            await asyncio.sleep(0.02)
    scheduler.stop()
    await serving
    assert phone.most == {"a": 1, "b": 1}


async def test_why_names_the_key_that_is_at_its_limit(new_engine: Any) -> None:
    phone = Calls(1)
    phone.free.clear()
    engine = await new_engine(phone.app, register=True)
    await engine.records.insert(calls("a", "a"))
    running = asyncio.create_task(engine.run_cycle("phone.call"))
    try:
        async with asyncio.timeout(30):
            while not phone.now:
                await asyncio.sleep(0.02)
        [waiting] = (await engine.records.find(Call, {"status": "new"})).items
        why = await engine.read_model().why("calls", waiting.id)
    finally:
        phone.free.set()
        await running
    assert [reason.code for reason in why.reasons] == ["key_limit"]
    assert "1 records whose customer is 'a'" in str(why.text)
