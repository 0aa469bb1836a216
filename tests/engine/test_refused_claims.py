"""A table of another program refuses to let a record be claimed: the stage goes on."""

from __future__ import annotations

from typing import Any

import pytest
from conformance.databases import SQL

from esclusa import App, Backoff, Lifecycle, Record, To
from esclusa.ports.telemetry import Silent


class Letter(Record, table="letters", key="name"):
    name: str
    lifecycle = Lifecycle("""
        new -> busy -> done
        busy -> new | bad
        bad -> new
    """)


class Events(Silent):
    def __init__(self) -> None:
        self.warnings: list[tuple[str, dict[str, Any]]] = []

    def event(self, level: str, message: str, **fields: Any) -> None:
        if level == "warning":
            self.warnings.append((message, fields))


@pytest.mark.promise(12)
@pytest.mark.parametrize("provider", SQL, indirect=True)
async def test_the_others_are_worked_and_the_record_is_named_once(
    new_engine: Any, empty_database: Any
) -> None:
    app, events = App("post"), Events()

    @app.stage(Letter, take="new", hold="busy", exhausted="bad", retry=Backoff(tries=3))
    async def send(letter: Letter, at: Any) -> To:
        return To("done")

    engine = await new_engine(app, telemetry=events)
    await engine.records.insert([Letter(name=f"l{n}") for n in range(10)])
    await empty_database.refuse("letters", "id", ["l0", "l4"])
    run = await engine.run_cycle("post.send")
    assert (run.outcome, dict(run.counters)) == ("ok", {"taken": 8, "done": 8})
    await engine.run_cycle("post.send")
    assert sorted(fields["record"] for _, fields in events.warnings) == ["letters l0", "letters l4"]
    assert all("not allowed" in message for message, _ in events.warnings)
    await empty_database.allow("letters")
