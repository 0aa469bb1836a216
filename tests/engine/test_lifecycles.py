"""A lifecycle that changes, as the engine follows it, on each store."""

from __future__ import annotations

import asyncio
from typing import Any

from conformance.helpers import insert_new, read

from esclusa.engine.clock import StoreClock
from esclusa.engine.lifecycles import StragglerRenamer
from esclusa.engine.registry import Registry
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.pipeline import App
from esclusa.model.plan import NoSettings
from esclusa.model.query import query
from esclusa.model.record import Record
from esclusa.model.system_records import Audit
from esclusa.ports.telemetry import Silent


class FirstLetter(Record, table="letters", key="name"):
    name: str
    lifecycle = Lifecycle("new -> sent")


class Letter(Record, table="letters", key="name"):
    name: str
    lifecycle = Lifecycle("pending -> sent", renamed={"new": "pending"})


async def test_a_worker_goes_on_moving_what_old_workers_write(bare_store: Any) -> None:
    old = await bare_store((FirstLetter.kind, Audit.kind))
    new = await bare_store((Letter.kind, Audit.kind))
    registry = Registry([App("letters", records=[Letter]).bind(NoSettings())])
    clock = StoreClock(new)
    await clock.sync()
    renamer = StragglerRenamer(registry, new, clock, Silent(), "w1", soon=0.05)
    renamer.start()
    try:
        for name in ("a", "b"):
            await insert_new(old, FirstLetter(name=name))
            async with asyncio.timeout(30):
                while (await read(new, Letter, name)).status != "pending":
                    await asyncio.sleep(0.02)
    finally:
        await renamer.stop()
    audits = (await new.find(query(Audit))).items
    assert [(a.who, a.verb, a.subject, a.affected) for a in audits] == [
        ("w1", "rename", "letters", 1),
        ("w1", "rename", "letters", 1),
    ]
    [step] = await new.history(Letter(name="a", id="a").ref)
    assert (step.frm, step.to, step.who) == ("new", "pending", "w1")
