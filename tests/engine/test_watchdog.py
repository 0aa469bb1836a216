"""The watchdog: what blocks the event loop is reported, and a process that did not run is not."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from esclusa import App, Lifecycle, Record, RunContext, To
from esclusa.engine.engine import Engine
from esclusa.engine.watchdog import place, ran
from esclusa.model.system_records import Alert
from esclusa.model.texts import load
from esclusa.ports.telemetry import Silent


class Leaf(Record, table="leaves", key="name"):
    name: str
    lifecycle = Lifecycle("new -> busy -> done\nbusy -> new | bad\nbad -> new")


class Reports(Silent):
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, dict[str, Any]]] = []

    def event(self, level: str, message: str, **fields: Any) -> None:
        self.reports.append((message, fields))


def pipeline(seconds: float) -> App:
    """A stage and a cycle that block the loop."""
    app = App("try")

    @app.stage(Leaf, take="new", hold="busy", exhausted="bad", batch=10, every="1h")
    async def read(leaves: list[Leaf], at: Any) -> list[To]:
        time.sleep(seconds)
        return [To("done")] * len(leaves)

    @app.cycle()
    async def count(run: RunContext) -> None:
        time.sleep(seconds)

    return app


async def ended_alerts(engine: Engine) -> list[Alert]:
    """All alerts, as soon as there are some and all have ended."""
    async with asyncio.timeout(30):
        while True:
            found = [alert async for alert in engine.records.each(Alert)]
            if found and all(alert.status == "ended" for alert in found):
                return found
            await asyncio.sleep(0.05)


async def test_a_batch_that_blocks_is_reported_with_its_records(new_engine: Any) -> None:
    """Without a spare store the loop begins and ends the alert when it runs again."""
    reports = Reports()
    engine = await new_engine(pipeline(2.0), lease=3.0, telemetry=reports)
    await engine.records.insert([Leaf(name=f"n{n}") for n in range(7)])
    assert (await engine.run_cycle("try.read")).outcome == "ok"
    [alert] = await ended_alerts(engine)
    assert (alert.name, alert.subject) == ("loop_blocked", "try.read")
    message = load(alert.message)
    assert message.startswith("the handler of try.read blocks the event loop: record n0, n1, n2, ")
    assert ", …, " in message
    assert message.endswith(" in read")
    [(_, fields)] = [r for r in reports.reports if r[0] == message and "stack" in r[1]]
    assert "time.sleep(seconds)" in fields["stack"]
    assert any("the event loop runs again" in report for report, _ in reports.reports)


async def test_the_function_of_a_cycle_that_blocks_is_reported(new_engine: Any) -> None:
    engine = await new_engine(pipeline(2.0), lease=3.0)
    await engine.run_cycle("try.count")
    [alert] = await ended_alerts(engine)
    assert load(alert.message).startswith("the event loop is blocked by ")
    assert load(alert.message).endswith(" in count")


async def test_a_short_block_is_not_reported(new_engine: Any) -> None:
    reports = Reports()
    engine = await new_engine(pipeline(0.4), lease=30.0, telemetry=reports)
    await engine.run_cycle("try.count")
    await asyncio.sleep(0.1)
    assert not [report for report, _ in reports.reports if "event loop" in report]


async def test_the_alert_of_a_process_that_ended_blocked_ends_when_it_is_quiet(
    new_engine: Any,
) -> None:
    engine = await new_engine(pipeline(0))
    await engine.alerts.begin("loop_blocked", "try.read", "blocked")
    await engine.judge.judge()
    assert [alert.status async for alert in engine.records.each(Alert)] == ["raised"]
    later = await new_engine(pipeline(0), offset=timedelta(minutes=11).total_seconds())
    await later.judge.judge()
    assert [a.name for a in await ended_alerts(later) if a.name == "loop_blocked"]


@pytest.mark.parametrize(
    ("elapsed", "cpu", "counted"),
    [
        (1.0, 0.0, 1.0),  # on time: the loop waits in a call, for a lock for example
        (1.9, 0.0, 1.9),
        (60.0, 0.1, 1.0),  # the process was frozen
        (60.0, 59.0, 59.0),  # a call kept the interpreter to itself
        (60.0, 120.0, 60.0),  # several threads
    ],
)
def test_time_in_which_the_process_did_not_run_is_not_counted(
    elapsed: float, cpu: float, counted: float
) -> None:
    assert ran(elapsed, cpu, 1.0) == counted


def test_the_place_is_the_innermost_one_of_a_pipeline() -> None:
    def stack(call: Callable[[], Any]) -> list[traceback.FrameSummary]:
        try:
            call()
        except ValueError as error:
            return list(traceback.extract_tb(error.__traceback__))
        raise AssertionError

    import json

    assert place(stack(lambda: json.loads("{"))).startswith("test_watchdog.py:")
    assert place([]) == "-"
