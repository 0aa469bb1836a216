"""Stages and pipelines: all faults are reported at once, settings are filled in."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from conformance.kinds import Job, Note, stage
from pydantic import BaseModel

from esclusa import App, Backoff, Budget, Lifecycle, Record, To, Window, not_null, track
from esclusa.model.decide import decide
from esclusa.model.effects import Create
from esclusa.model.errors import DeclarationError
from esclusa.model.outcome import Retry
from esclusa.model.schedule import Always, Every, Manual
from esclusa.model.settlement import Leased
from esclusa.model.stage import Stage, make_stage
from esclusa.model.state_roles import roles
from esclusa.model.system_records import DeadLetter


async def handler(record: Any, at: Any) -> None:
    """Never called here."""


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"take": ()}, "it takes no state"),
        ({"take": "nope"}, "take='nope' is not a state"),
        ({"hold": "nope"}, "hold='nope' is not a state"),
        ({"exhausted": "nope"}, "exhausted='nope' is not a state"),
        ({"retry_to": "nope"}, "retry_to='nope' is not a state"),
        ({"take": "pending", "hold": "done"}, "the move pending -> done is not declared"),
        ({"take": ("pending", "working")}, "hold='working' is one of the states it takes"),
        (
            {"retry_to": "failed", "exhausted": "pending"},
            "exhausted='pending' is one of the states it takes",
        ),
        ({"exhausted": None}, "it has no exhausted state"),
        (
            {"hold": None, "exhausted": "failed"},
            "needs the move pending -> failed, which is not declared",
        ),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": "3"}, "concurrency must be a whole number, 1 or more, not '3'"),
        ({"batch": 0}, "batch"),
        ({"batch": 1.5}, "batch must be a whole number, 1 or more, not 1.5"),
        ({"cost": -1}, "cost"),
        ({"retry": 3}, "retry must be a Backoff, such as Backoff(tries=5), not 3"),
        ({"budget": "calls"}, "budget must be a Budget"),
        ({"take": None}, "it takes no state"),
        ({"take": 5}, "take=5 is not a state"),
        ({"dead_letter": "x"}, "dead_letter must be a function of the record, not 'x'"),
        ({"dead_letter": lambda: None}, "dead_letter must be a function of the record"),
        ({"on_exhausted": [1]}, "on_exhausted must be a function of the record, not [1]"),
        ({"dead_letter_topic": 5}, "dead_letter_topic must be the name of a topic, not 5"),
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"lease": 0}, "lease must be more than 0"),
        ({"timeout": "soon"}, "timeout"),
        ({"lease": "soon"}, "lease"),
        ({"order": "nope"}, "cannot be ordered by nope"),
        ({"where": {"nope": 1}}, "no field nope"),
    ],
)
def test_a_wrong_stage_is_refused(options: dict[str, Any], fault: str) -> None:
    good = {"take": "pending", "hold": "working", "exhausted": "failed"}
    with pytest.raises(DeclarationError) as caught:
        stage("x", Job.kind, **(good | options))
    assert any(fault in f for f in caught.value.faults), caught.value.faults


def test_a_right_stage() -> None:
    made = stage(
        "x",
        Job.kind,
        take="pending",
        hold="working",
        exhausted="failed",
        lease="2m",
        timeout=5,
        order="-rank",
        where={"lane": not_null},
    )
    assert (made.states, made.retry_to, made.lease, made.timeout) == (
        ("pending", "working"),
        "pending",
        120.0,
        5.0,
    )
    assert stage("y", Note.kind, take="fresh", retry=Backoff(tries=None)).states == ("fresh",)


class Knobs(BaseModel):
    wide: int = 3
    pace: str = "5m"


def test_a_pipeline_is_bound_to_its_settings() -> None:
    app = App("pipes", settings=Knobs)
    quota = Budget("q", Window("day", 5))

    @app.stage(
        Job,
        take="pending",
        hold="working",
        exhausted="failed",
        concurrency=lambda s: s.wide,
        every=lambda s: s.pace,
        budget=quota,
    )
    async def do_work(record: Any, at: Any) -> None:
        """Never called."""

    @app.stage(Job, take="failed", retry=Backoff(tries=None), cycle=False)
    async def repair(record: Any, at: Any) -> None:
        """Never called."""

    @app.cycle(stages=["repair"], singleton=True)
    async def tidy(run: Any) -> None:
        """Never called."""

    plan = app.bind(Knobs(wide=9))
    assert [s.name for s in plan.stages] == ["pipes.do-work", "pipes.repair"]
    assert [c.name for c in plan.cycles] == ["pipes.do-work", "pipes.tidy"]
    assert plan.stages[0].concurrency == 9
    assert plan.cycles[0].schedule == Every(300)
    assert plan.cycles[1].schedule == Manual()
    assert plan.cycles[1].singleton
    assert plan.kinds == (Job.kind,)
    assert plan.budgets == (quota,)
    assert "failed" in plan.stages[0].resets
    assert "pending" in plan.stages[1].resets
    assert "pending" not in plan.stages[0].resets


def test_a_stage_without_schedule_runs_whenever_a_record_is_due() -> None:
    app = App("x")
    app.stage(Job, take="pending", hold="working", exhausted="failed")(handler)
    assert app.bind(app.settings()).cycles[0].schedule == Always()


def test_faults_are_reported_when_declared_and_when_bound() -> None:
    with pytest.raises(DeclarationError, match="not a pipeline name"):
        App("Bad Name")
    app = App("x", settings=Knobs)
    with pytest.raises(DeclarationError):
        app.stage(Job, take="nope", exhausted="failed")(handler)
    with pytest.raises(DeclarationError, match="takes the record"):
        app.stage(Job, take="pending", hold="working", exhausted="failed")(lambda record: None)
    app.stage(
        Job, take="pending", hold="working", exhausted="failed", concurrency=lambda s: s.wide - 3
    )(handler)
    app.cycle(stages=["absent"], name="late")(handler)
    app.cycle(every=lambda s: "soon", name="odd")(handler)
    with pytest.raises(DeclarationError) as caught:
        app.bind(Knobs())
    message = str(caught.value)
    for word in ("concurrency", "there is no stage absent", "soon"):
        assert word in message
    twice = App("twice")
    for _ in range(2):
        twice.stage(Job, take="pending", hold="working", exhausted="failed")(handler)
    with pytest.raises(DeclarationError, match="two stages are called handler"):
        twice.bind(twice.settings())
    with pytest.raises(DeclarationError, match="'a/b' is not the name of a cycle"):
        App("x").cycle(name="a/b")(handler)
    with pytest.raises(
        DeclarationError, match=r"'<lambda>' is not the name of a stage .*; set name="
    ):
        App("x").stage(Job, take="pending", hold="working", exhausted="failed")(
            lambda record, at: None
        )


def test_all_faults_of_a_cycle_are_reported_at_once() -> None:
    app = App("try")

    @app.cycle(
        every="soon", stages=["nothing"], alert_rate="often", alert_min=1.5, counters=["taken"]
    )  # type: ignore[arg-type]
    def ingest(run: Any) -> None:
        """Not async."""

    @app.cycle(every=[5], alert_rate=20)  # type: ignore[arg-type]
    async def other(run: Any) -> None:
        """A share of 20 would never raise an alert."""

    with pytest.raises(DeclarationError) as caught:
        app.bind(app.settings())
    assert [fault.split("; ")[0] for fault in caught.value.faults] == [
        "cycle ingest: there is no stage nothing",
        "cycle ingest: its function must be async: async def name(run)",
        (
            "cycle ingest: alert_rate must be a share between 0 and 1, or None for no alert, "
            "not 'often'"
        ),
        "cycle ingest: alert_min must be a whole number, 0 or more, not 1.5",
        "cycle ingest: counters must be a mapping from the engine's names, not ['taken']",
        "cycle ingest: 'soon' is not a duration such as 30s, 5m, 2h, 1d, or a number of seconds",
        "cycle other: alert_rate must be a share between 0 and 1, or None for no alert, not 20",
        "cycle other: [5] is not a schedule",
    ]


def test_a_failing_function_of_the_settings_is_reported_with_its_option() -> None:
    app = App("x", settings=Knobs)
    app.stage(
        Job,
        take="pending",
        hold="working",
        exhausted="failed",
        every=lambda s: s.often,
        batch=lambda s: 1 // 0,
    )(handler)
    with pytest.raises(DeclarationError) as caught:
        app.bind(Knobs())
    assert caught.value.faults[0].startswith(
        "stage x.handler: batch is a function of the settings that raised ZeroDivisionError"
    )
    assert caught.value.faults[-1].startswith(
        "cycle handler: every is a function of the settings that raised AttributeError: "
    )


@pytest.mark.parametrize("given", [dict, Record, "jobs"])
def test_stages_and_views_need_a_record_with_a_table(given: Any) -> None:
    app = App("x")
    with pytest.raises(
        DeclarationError,
        match=r"stage x.handler\s+- .* is not a record with a table; write: class Order",
    ):
        app.stage(given, take="pending", exhausted="failed")(handler)
    with pytest.raises(
        DeclarationError,
        match=r"view x.handler\s+- .* is not a record with a table; write: class Order",
    ):
        app.view("Jobs", of=given)(handler)  # type: ignore[arg-type]


def test_two_records_with_the_same_table_are_refused() -> None:
    class Other(Record, table=Job.kind.table.upper()):
        lifecycle = Job.lifecycle

    app = App("x", records=[Job, Other])
    with pytest.raises(DeclarationError, match=f"two records have the table {Job.kind.table}"):
        app.bind(app.settings())


def test_a_field_that_to_cannot_set_is_refused() -> None:
    class Why(Record, table="whys"):
        reason: str = ""
        state: str = ""
        lifecycle = Lifecycle("new -> done")

    with pytest.raises(
        DeclarationError, match=r"field reason: To\(…, reason=…\) is an option of To"
    ):
        App("x").stage(Why, take="new", retry=Backoff(tries=None))(handler)
    assert To("done", state="CA").fields == {"state": "CA"}


def test_the_roles_of_states_follow_from_lifecycle_and_stages() -> None:
    class Parcel(Record, table="parcels"):
        lifecycle = Lifecycle(
            """
            new -> packing -> packed -> sent | lost
            packing -> new | broken
            packed -> returned -> packed
            broken -> new
            """,
            failed=["lost"],
            finished=["packed"],
        )

    pack = stage("x", Parcel.kind, take="new", hold="packing", exhausted="broken")
    assert roles(Parcel.kind, [pack]) == {
        "new": "waiting",
        "packing": "working",
        "packed": "finished",
        "sent": "finished",
        "lost": "failed",
        "broken": "failed",
        "returned": "resting",
    }
    assert roles(Parcel.kind, [])["broken"] == "resting"


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DeclarationError, match="there is no option colour; there are: take, hold"):
        App("x").stage(Job, take="pending", exhausted="failed", colour="red")(handler)


def test_since_is_a_time_with_a_zone() -> None:
    class Own(Record, table="own_since"):
        lifecycle = Lifecycle("new -> done | failed")

    class Guest(Record, table="guest_since", track=track(created_at=None)):
        lifecycle = Lifecycle("new -> done | failed")

    def made(record: type[Record], since: object) -> Stage:
        return make_stage("s", record.kind, handler, take="new", exhausted="failed", since=since)

    assert made(Own, "2026-11-18").since == datetime(2026, 11, 18, tzinfo=UTC)
    with pytest.raises(DeclarationError, match="is not a time, such as '2026-11-18'"):
        made(Own, "yesterday")
    with pytest.raises(DeclarationError, match="map it with track"):
        made(Guest, "2026-11-18")


class Flagged(Record, table="flagged"):
    given_up: bool = False

    lifecycle = Lifecycle("waiting -> sent")


def test_a_record_may_be_exhausted_by_its_fields() -> None:
    """It stays in its take state, gets a dead letter, and ``where`` must leave it out."""
    flags = {"given_up": True}
    retry = Backoff(tries=2)
    made = make_stage(
        "p.send",
        Flagged.kind,
        handler,
        take="waiting",
        where={"given_up": False},
        exhausted_fields=flags,
        retry=retry,
    )
    assert (made.exhausted_fields, made.renewed_fields) == (flags, {"given_up": False})
    record = Flagged(id="1", status="waiting", attempts=2, fence=1)
    assert not made.is_exhausted(record)
    assert made.is_exhausted(Flagged(id="1", status="waiting", given_up=True))
    now = datetime(2026, 5, 5, tzinfo=UTC)
    settled = decide(
        Retry("no"), Leased(record, "waiting", now), made, now=now, rng=Random(1), who="w"
    )
    assert (settled.to, settled.fields) == ("waiting", flags)
    assert any(isinstance(e, Create) and isinstance(e.record, DeadLetter) for e in settled.effects)
    for options, fault in (
        ({}, "where takes records that are exhausted"),
        ({"where": {"given_up": False}, "exhausted": "sent"}, "exclude each other"),
        ({"exhausted_fields": {"lost": True}}, "lost"),
    ):
        with pytest.raises(DeclarationError, match=fault):
            make_stage(
                "p.send",
                Flagged.kind,
                handler,
                **{"take": "waiting", "exhausted_fields": flags, "retry": retry, **options},
            )
