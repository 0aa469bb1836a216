"""Other programs on the same tables while deliveries are under way: renames and late writes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pipelines.tenders.conftest import TendersTrial, on_origin, run_statement

from esclusa.health import check_pipeline_data
from esclusa.pipelines.tenders.records import Licitacion
from esclusa.simulators.expo import SEND

RENAME = "UPDATE device_installations SET installation_id = 'renamed' WHERE installation_id = 'd1'"
# What the team's worker writes when its own send failed, also if we settled the row meanwhile.
LATE = """UPDATE notification_deliveries SET status = 'retryable',
    attempt_count = attempt_count + 1, last_error_code = 'ExpoChunkError',
    last_error_message = 'fallo', next_attempt_at = '2026-01-01 00:00:00+00:00', locked_at = NULL,
    locked_by = NULL, updated_at = CURRENT_TIMESTAMP"""


async def renamed_while_sending(trial: TendersTrial, place: Any) -> None:
    """Send the delivery of d1; the device is renamed before Expo answers."""
    trial.expo.order(SEND, fault="slow", seconds=0.5)
    dispatch = asyncio.create_task(trial.run("dispatch"))
    while not trial.expo.calls:
        await asyncio.sleep(0.01)
    await run_statement(place, RENAME)
    await dispatch


@on_origin
async def test_a_device_that_is_renamed_while_a_message_is_sent(
    trial: TendersTrial, place: Any
) -> None:
    """The delivery settles on the new id."""
    await trial.device("d1")
    await trial.publish()
    await trial.run("ingest")
    await renamed_while_sending(trial, place)
    [delivery] = await trial.deliveries()
    assert (delivery.installation_id, delivery.status) == ("renamed", "sent")
    await trial.later(1000)
    await trial.run("receipt")
    [delivery] = await trial.deliveries()
    assert (delivery.installation_id, delivery.status) == ("renamed", "ok")
    assert sorted(trial.expo.messages.values()) == [1]


@on_origin
async def test_a_renamed_device_that_expo_does_not_know_is_deactivated(
    trial: TendersTrial, place: Any
) -> None:
    token = await trial.device("d1")
    trial.expo.devices[token] = {"ticket": "DeviceNotRegistered"}
    await trial.publish()
    await trial.run("ingest")
    await renamed_while_sending(trial, place)
    [delivery] = await trial.deliveries()
    assert (delivery.installation_id, delivery.status) == ("renamed", "invalid")
    device = await trial.installation("renamed")
    assert (device.active, device.invalid_reason) == (False, "DeviceNotRegistered")


@on_origin
async def test_a_late_write_of_the_old_worker_repeats_no_push(
    trial: TendersTrial, place: Any
) -> None:
    """Its row was pushed by us: the receipt is read, and the outcome is that of the receipt."""
    await trial.sent("d1")
    await run_statement(place, LATE)
    for _ in range(2):
        await trial.run("dispatch")
        await trial.later(1000)
        await trial.run("receipt")
    assert (await trial.delivery()).status == "ok"
    assert sorted(trial.expo.messages.values()) == [1]


@on_origin
@pytest.mark.parametrize("change", ["", ", completed_at = NULL", ", provider_ticket_id = NULL"])
async def test_a_late_write_to_a_completed_delivery_changes_no_outcome(
    trial: TendersTrial, place: Any, change: str
) -> None:
    await trial.sent("d1")
    await trial.later(1000)
    await trial.run("receipt")
    assert (await trial.delivery()).status == "ok"
    await run_statement(place, LATE + change)
    for _ in range(2):
        await trial.run("dispatch")
        await trial.later(1000)
        await trial.run("receipt")
    assert sorted(trial.expo.messages.values()) == [1]
    if change == ", completed_at = NULL":
        assert (await trial.delivery()).status == "ok"


@on_origin
async def test_doctor_names_quiet_hours_that_cannot_be_read(
    trial: TendersTrial, place: Any
) -> None:
    hours = {"start": "22:00", "end": "07:00"}
    await trial.device("d1", quiet_hours=hours | {"timezone": "America/Santiago"})
    await trial.device("d2")
    assert await check_pipeline_data(trial.runtime) == []
    for name, wrong in (("d3", {"timezone": "Chile/Nowhere"}), ("d4", {"start": "25:00"})):
        await trial.device(name)
        await place.write(
            "notification_preferences", "installation_id", name, quiet_hours=hours | wrong
        )
    [found] = await check_pipeline_data(trial.runtime)
    assert (found.name, found.verdict) == ("tenders", "fail")
    assert "2 devices" in found.text
    assert "d3 (no time zone 'Chile/Nowhere')" in found.text
    assert "d4" in found.text


@pytest.mark.parametrize(("hours", "verdicts"), [(4, ["warn"]), (0.1, [])])
async def test_doctor_notices_times_of_chile_that_are_stored_as_utc(
    trial: TendersTrial, hours: float, verdicts: list[str]
) -> None:
    published = datetime.now(UTC).replace(second=1) - timedelta(hours=hours)
    rows = [
        Licitacion(id=code, codigo_externo=code, fecha_publicacion=published)
        for code in (f"{n}-1-LE26" for n in range(5))
    ]
    await trial.runtime.engine.records.insert(rows)
    assert [found.verdict for found in await check_pipeline_data(trial.runtime)] == verdicts
