"""When a stage will have handled what is due: by rate, budget, pace, pauses and workers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from esclusa import App, Backoff, Lifecycle, Record, To
from esclusa.engine.forecast import Conditions, drain
from esclusa.model.budget import WindowUse
from esclusa.model.system_records import StagePause

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 11, 18, tzinfo=UTC)


class Item(Record, table="items", key="name"):
    name: str
    lifecycle = Lifecycle("new -> done")


def under(every: str | None = None, **options: Any) -> Conditions:
    app = App("try")

    async def work(item: Item, at: Any) -> To:
        return To("done")

    app.stage(Item, name="work", take="new", retry=Backoff(tries=None), every=every)(work)
    [cycle] = app.bind(app.settings()).cycles
    given = {"cycle": cycle, "paused": False, "served": True, "next_run": NOW, "pause": None}
    return Conditions(**(given | options))


def window(limit: int, used: int, **options: Any) -> WindowUse:
    return WindowUse(
        "calls", "day", limit, used, MIDNIGHT, MIDNIGHT + timedelta(days=1), {}, **options
    )


def paused(until: datetime) -> StagePause:
    return StagePause(
        stage="try.work",
        cause="breaker",
        reason="down",
        begun_at=NOW,
        due_at=until,
        status="paused",
    )


def test_the_rate_alone() -> None:
    assert drain(120, 1.0, under(), NOW).seconds == 120
    assert drain(0, 1.0, under(), NOW).note is None
    assert drain(0, 1.0, under(), NOW).seconds is None


@pytest.mark.parametrize(
    ("conditions", "note"),
    [
        ({"served": False}, "no worker runs cycle try.work"),
        ({"paused": True}, "cycle try.work is paused"),
        ({"pause": paused(NOW + timedelta(hours=1))}, "it pauses until 2026-11-18 13:00:00+00:00"),
        ({"cycle": None, "served": False}, "no worker is running; start one with 'esclusa worker'"),
        ({"windows": [window(0, 0)], "demand": 1}, "budget calls has 0 left and grants 0 per day"),
    ],
)
def test_nothing_is_promised_while_nothing_can_move(conditions: dict[str, Any], note: str) -> None:
    found = drain(120, 1.0, under(**conditions), NOW)
    assert (found.seconds, str(found.note)) == (None, note)


def test_a_spent_budget_lets_it_wait_for_the_windows_that_it_needs() -> None:
    spent = [window(100, 100)]
    assert drain(120, 1.0, under(windows=spent, demand=120), NOW).seconds == 36 * 3600
    assert drain(100, 1.0, under(windows=spent, demand=100), NOW).seconds == 12 * 3600
    assert drain(100, 0.0, under(windows=spent, demand=100), NOW).seconds == 12 * 3600
    found = drain(120, 1.0, under(windows=[window(400, 100)], demand=120), NOW)
    assert (found.seconds, found.note) == (120, None)  # enough is left


def test_a_pace_and_a_provider_that_refuses_count() -> None:
    even = WindowUse("calls", "minute", 60, 0, NOW - timedelta(minutes=1), NOW, {}, burst=1)
    found = drain(121, 10.0, under(windows=[even], demand=121), NOW)
    assert (found.seconds, str(found.note)) == (
        120,
        "budget calls has 60 left and grants 60 per minute",
    )
    barred = window(400, 1, barred=NOW + timedelta(hours=2))
    assert drain(1, 1.0, under(windows=[barred], demand=1), NOW).seconds == 7200


def test_without_a_finished_record_there_is_no_rate() -> None:
    found = drain(5, 0.0, under(), NOW)
    assert (found.seconds, str(found.note)) == (
        None,
        "no record was finished in the last 5 minutes",
    )
    later = under("1h", next_run=NOW + timedelta(minutes=20))
    assert "runs next at 2026-11-18 12:20:00" in str(drain(5, 0.0, later, NOW).note)
