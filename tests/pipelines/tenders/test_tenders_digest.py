"""Digests: all new tenders of a day as one message, at the time that the device wants."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pipelines.tenders.conftest import NewTrial, TendersTrial

from esclusa.pipelines.tenders.digest import last_moment
from esclusa.pipelines.tenders.records import NotificationEvent

CHILE = ZoneInfo("America/Santiago")


async def wait_for(trial: TendersTrial, clock: str) -> None:
    """Shift the store's time to just after this time of the next day."""
    now = await trial.now()
    moment = last_moment(clock, now + timedelta(days=1))
    await trial.later((moment - now).total_seconds() + 60)


async def soon(trial: TendersTrial) -> str:
    """A time of the day that comes in an hour."""
    return f"{(await trial.now()).astimezone(CHILE) + timedelta(hours=1):%H:%M}"


async def test_new_tenders_of_a_day_are_one_message(
    trial: TendersTrial, new_trial: NewTrial
) -> None:
    clock = await soon(trial)
    token = await trial.device("daily", digest=clock)
    one = await trial.device("one", digest=clock, keywords=["N° 1"])
    await trial.device("none", digest=clock, keywords=["nothing"])
    await trial.device("each")
    codes = await trial.publish(5)
    run = await trial.run("ingest")
    assert (run.counters["deliveries"], run.counters["digests"]) == (5, 0)
    assert {d.installation_id for d in await trial.deliveries()} == {"each"}
    await wait_for(trial, clock)
    run = await trial.run("ingest")
    assert run.counters["digests"] == 2
    again: TendersTrial = await new_trial()  # another process
    again.runtime.store.clock_offset = trial.runtime.store.clock_offset
    await again.runtime.engine.clock.sync()
    for each in (trial, again):
        assert (await each.run("ingest")).counters["digests"] == 0
    await trial.run("dispatch")
    message = trial.expo.texts[token]
    assert message["title"] == "📋 5 licitaciones nuevas"
    assert message["body"].splitlines()[-1] == "y 2 más"
    assert message["data"]["type"] == "digest"
    assert sorted(message["data"]["licitacionIds"]) == sorted(codes)
    assert message["data"]["licitacionId"] in codes
    assert trial.expo.texts[one]["title"] == "📋 Nueva Licitación"
    assert {d.status for d in await trial.deliveries()} == {"sent"}


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_a_digest_covers_the_days_in_which_no_worker_ran(new_trial: NewTrial) -> None:
    trial: TendersTrial = await new_trial()
    clock = await soon(trial)
    await trial.device("daily", digest=clock)
    await trial.publish(2)
    await trial.run("ingest")
    later: TendersTrial = await new_trial()
    later.runtime.store.clock_offset = 3 * 86_400
    await later.runtime.engine.clock.sync()
    await later.run("ingest")
    [event] = [e async for e in later.records.each(NotificationEvent) if "digest" in e.type]
    assert len(event.licitaciones) == 2


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_a_device_that_wants_no_digest_any_more_gets_each_tender(trial: TendersTrial) -> None:
    clock = await soon(trial)
    await trial.device("daily", digest=clock)
    await trial.publish(1)
    await trial.run("ingest")
    await trial.device("daily")
    await trial.publish(1)
    assert (await trial.run("ingest")).counters["deliveries"] == 1
    for wrong in ("8", "24:00", "08:00:00", ""):
        body = {"installation_id": "x", "push_token": "ExponentPushToken[x]"}
        answer = await trial.call("POST", "/devices", body | {"preferences": {"digest": wrong}})
        assert answer[0] == 422, wrong


@pytest.mark.parametrize(
    ("now", "clock", "moment"),
    [
        ("2026-11-18T07:59", "08:00", "2026-11-17T08:00"),
        ("2026-11-18T08:00", "08:00", "2026-11-18T08:00"),
        ("2026-04-05T00:30", "23:30", "2026-04-04T23:30"),  # the clocks went back at midnight
    ],
)
def test_the_last_moment(now: str, clock: str, moment: str) -> None:
    given: Any = datetime.fromisoformat(now).replace(tzinfo=CHILE)
    assert last_moment(clock, given) == datetime.fromisoformat(moment).replace(tzinfo=CHILE)
