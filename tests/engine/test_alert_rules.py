"""Rules for alerts that operators change at run time, mutes, and the rules about records."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.item_pipeline import Item, pipeline

from esclusa import Budget, Permanent, To, Window
from esclusa.engine.alert_rules import ALL, RULES, read_threshold, written_threshold
from esclusa.engine.engine import Engine
from esclusa.model.errors import BadQuery
from esclusa.model.system_records import Alert, Audit


class Inbox:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[str] = []

    async def __call__(self, alert: Alert) -> None:
        over = "ended" if alert.ended_at else "begun"
        self.got.append(f"{alert.name}:{alert.subject} {over}")


async def done(item: Item, at: Any) -> To:
    return To("done")


async def refuse(item: Item, at: Any) -> To:
    raise Permanent("refused", type="refused")


async def open_alerts(engine: Engine) -> list[str]:
    engine.alerts._read_at = float("-inf")
    return sorted(f"{name}:{subject}" for name, subject in await engine.alerts.open())


def rule_of(answer: dict[str, Any], rule: str, subject: str) -> dict[str, Any]:
    return next(i for i in answer["items"] if (i["rule"], i["subject"]) == (rule, subject))


async def test_a_changed_threshold_counts_in_another_process(new_engine: Any) -> None:
    """It replaces what the stage declares, is audited, and is reset to it."""
    app = pipeline(done, alert_backlog="1d")
    engine = await new_engine(app)
    await engine.records.insert([Item(name="a")])
    late = await new_engine(app, offset=90, alerts={"alert_no_worker": None})
    await late.judge.judge()
    assert await open_alerts(late) == []
    await engine.operations("ana").set_alert_rule("backlog", "try.work", 60.0, reason="hot week")
    await late.alert_rules.refresh()
    await late.judge.judge()
    assert await open_alerts(late) == ["backlog:try.work"]
    rule = rule_of(await late.read_model().alert_rules(), "backlog", "try.work")
    assert (rule["declared"], rule["threshold"], rule["source"]) == (86400.0, 60.0, "code")
    assert (rule["changed"]["by"], rule["changed"]["reason"]) == ("ana", "hot week")
    audit = await engine.records.first(Audit, {"verb": "alert rule"})
    assert audit is not None
    assert audit.filter == {"subject": "try.work", "threshold": "60"}
    await engine.operations("ana").reset_alert_rule("backlog", "try.work")
    await late.alert_rules.refresh()
    await late.judge.judge()
    assert await open_alerts(late) == []
    rule = rule_of(await late.read_model().alert_rules(), "backlog", "try.work")
    assert (rule["threshold"], rule["changed"]) == (86400.0, None)


async def test_what_is_set_for_all_replaces_the_setting_only(new_engine: Any) -> None:
    budget = Budget("calls", Window("day", 100))
    engine = await new_engine(pipeline(done, alert_backlog="1d", budget=budget))
    ana = engine.operations("ana")
    await ana.set_alert_rule("backlog", ALL, 60.0, reason="r")
    await ana.set_alert_rule("silence", ALL, 600.0, reason="r")
    await ana.set_alert_rule("budget_early", "calls", 0.9, reason="r")
    answer = await engine.read_model().alert_rules()
    assert rule_of(answer, "backlog", "try.work")["threshold"] == 86400.0
    silence = rule_of(answer, "silence", "try.work")
    assert (silence["threshold"], silence["source"]) == (600.0, "all")
    assert engine.alert_rules.budget(budget, engine.all_stages) == 0.9
    await ana.set_alert_rule("backlog", "try.work", None, reason="quiet")
    assert engine.alert_rules.backlog(engine.stages["try.work"]) is None


async def test_an_alert_ends_when_its_rule_is_switched_off(new_engine: Any) -> None:
    app = pipeline(refuse)
    limits = {"alert_backlog": 60.0, "alert_dead_letters": 2, "alert_no_worker": 60.0}
    engine = await new_engine(app)
    await engine.records.insert([Item(name=f"a{n}") for n in range(6)])
    await engine.run_cycle("try.work")
    await engine.records.insert([Item(name="b")])
    late = await new_engine(app, offset=90, alerts=limits)
    await late.judge.judge()
    begun = ["backlog:try.work", "dead_letters:items", "error_rate:try.work", "no_worker:esclusa"]
    assert await open_alerts(late) == begun
    for rule in RULES:
        await late.operations("ana").set_alert_rule(rule, ALL, None, reason="off")
    await late.judge.judge()
    assert await open_alerts(late) == []


async def test_many_open_dead_letters_are_an_alert(new_engine: Any) -> None:
    engine = await new_engine(pipeline(refuse), alerts={"alert_dead_letters": 3})
    await engine.records.insert([Item(name="a"), Item(name="b")])
    await engine.run_cycle("try.work")
    await engine.judge.judge()
    assert "dead_letters:items" not in await open_alerts(engine)
    await engine.records.insert([Item(name="c")])
    await engine.run_cycle("try.work")
    await engine.judge.judge()
    assert "dead_letters:items" in await open_alerts(engine)
    await engine.operations("ana").discard(where={"table_name": "items"}, reason="known")
    await engine.judge.judge()
    assert "dead_letters:items" not in await open_alerts(engine)


async def test_a_stage_through_which_nothing_goes_is_an_alert(new_engine: Any) -> None:
    app = pipeline(done, alert_silence="1h")
    engine = await new_engine(app)
    await engine.judge.judge()
    assert await open_alerts(engine) == []  # the stage is new
    late = await new_engine(app, offset=3700, alerts={"alert_no_worker": None})
    await late.judge.judge()
    assert await open_alerts(late) == ["silence:try.work"]
    await late.records.insert([Item(name="a")])
    await late.run_cycle("try.work")
    await late.rates.flush(all=True)
    await late.judge.judge()
    assert await open_alerts(late) == []


async def test_a_muted_alert_is_listed_but_not_posted_until_the_mute_ends(new_engine: Any) -> None:
    inbox = Inbox()
    engine = await new_engine(pipeline(done), alert_sink=inbox)
    ana, until = engine.operations("ana"), engine.clock.now() + timedelta(hours=1)
    await engine.alerts.begin("test", "seen", "wrong")
    await engine.alerts.end("test", "seen")
    assert inbox.got == ["test:seen begun", "test:seen ended"]
    await ana.mute("test", ALL, until=until, note="maintenance")
    await engine.alerts.begin("test", "a", "wrong")
    await engine.alerts.begin("other", "a", "wrong")
    assert inbox.got[2:] == ["other:a begun"]
    found = [a async for a in engine.records.each(Alert, {"status": "raised"})]
    mutes = await engine.read_model().mutes(found)
    by_name = {a.name: m for a, m in zip(found, mutes, strict=True)}
    assert by_name["other"] is None
    assert (by_name["test"]["by"], by_name["test"]["note"]) == ("ana", "maintenance")
    later = await new_engine(pipeline(done), offset=3700, alert_sink=inbox)
    await later.alerts.begin("test", "a", "wrong")  # it is still wrong, and the mute has ended
    assert inbox.got[3:] == ["test:a begun"]
    await later.alerts.end("test", "a")
    assert inbox.got[4:] == ["test:a ended"]


async def test_an_alert_that_was_never_posted_ends_quietly(new_engine: Any) -> None:
    inbox = Inbox()
    engine = await new_engine(pipeline(done), alert_sink=inbox)
    until = engine.clock.now() + timedelta(hours=1)
    await engine.operations("ana").mute("budget_early", "calls", until=until, note="known")
    await engine.alerts.begin("budget_early", "calls/day", "early")
    await engine.operations("ana").unmute("budget_early", "calls")
    await engine.alerts.end("budget_early", "calls/day")
    assert inbox.got == []


async def test_a_wrong_rule_is_refused(new_engine: Any) -> None:
    engine = await new_engine(pipeline(done))
    for rule, subject, threshold, why in (
        ("backlog", "try.wrk", 60.0, "Did you mean try.work"),
        ("backlogs", ALL, 60.0, "Did you mean backlog"),
        ("error_rate", ALL, 20.0, "from 0 to 1"),
        ("dead_letters", "items", 1.5, "count"),
        ("silence", ALL, 86400.0 * 20, "from 0 to 864000"),
    ):
        with pytest.raises(BadQuery, match=why):
            await engine.operations("ana").set_alert_rule(rule, subject, threshold, reason="r")


async def test_a_change_needs_a_reason_and_a_mute_an_end(new_engine: Any) -> None:
    engine = await new_engine(pipeline(done))
    ana, now = engine.operations("ana"), engine.clock.now()
    with pytest.raises(BadQuery, match="needs a reason"):
        await ana.set_alert_rule("backlog", ALL, 60.0, reason=" ")
    with pytest.raises(BadQuery, match="needs a note"):
        await ana.mute("backlog", ALL, until=now + timedelta(hours=1), note="")
    for days in (-1, 400):
        with pytest.raises(BadQuery, match="at most a year"):
            await ana.mute("backlog", ALL, until=now + timedelta(days=days), note="n")
    with pytest.raises(BadQuery, match="no alert called cycle_faild"):
        await ana.mute("cycle_faild", ALL, until=now + timedelta(hours=1), note="n")


@pytest.mark.parametrize(
    ("written", "threshold"), [("2h", 7200.0), ("20%", 0.2), ("off", None), ("3", 3.0), (0.5, 0.5)]
)
def test_thresholds_as_people_write_them(written: Any, threshold: float | None) -> None:
    assert read_threshold(written) == threshold


@pytest.mark.parametrize("written", ["soon", "x%", "-1h"])
def test_what_is_no_threshold(written: str) -> None:
    with pytest.raises(BadQuery, match="write 2h, 20%"):
        read_threshold(written)


def test_a_threshold_is_written_as_it_is_read() -> None:
    for unit, threshold in (("seconds", 7200.0), ("share", 0.2), ("count", 5.0)):
        assert read_threshold(written_threshold(unit, threshold)) == threshold
