"""Dispatch and receipt: each behaviour of the specification, against a simulated Expo."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pipelines.tenders.conftest import TendersTrial

from esclusa.pipelines.tenders.messages import describe, format_amount
from esclusa.pipelines.tenders.records import NEW_TENDER, Licitacion
from esclusa.pipelines.tenders.tender_fields import closing_end

LADDER = [1, 2, 4, 8, 16, 32, 60]


async def test_a_delivery_is_sent_once_and_ended_by_its_receipt(trial: TendersTrial) -> None:
    """Points 2 and 3; the message has buyer, amount, closing time, and the data of the app."""
    sent = await trial.sent()
    assert (sent.status, sent.attempts, sent.sends, sent.completed_at, sent.leased_by) == (
        "sent",
        1,
        1,
        None,
        None,
    )
    assert sent.provider_ticket_id in trial.expo.sent
    assert sent.sent_at is not None
    assert sent.due_at == pytest.approx(
        sent.sent_at + timedelta(minutes=15), abs=timedelta(seconds=5)
    )
    [code] = trial.chile.details
    message = trial.expo.texts["ExponentPushToken[d1]"]
    tender = await trial.tender(code)
    assert tender is not None
    assert tender.notificada
    assert message["data"] == {
        "licitacionId": tender.id,
        "codigo": code,
        "codigo_externo": code,
        "type": "new_licitacion",
        "notificationEventId": str(sent.notification_event_id),
        "notificationDeliveryId": sent.id,
        "installationId": "d1",
        "pushProvider": "expo",
    }
    assert message["title"] == "📋 Nueva Licitación"
    closing = datetime.fromisoformat(await trial.today()) + timedelta(days=20)
    assert message["body"] == (
        "Servicio de atención hospitalaria N° 0 — $1.000.000\n"
        f"Servicio de Salud Concepción · cierra {closing:%d-%m-%Y} 15:30"
    )
    assert message["collapseId"] == message["tag"] == str(sent.notification_event_id)[-64:]
    assert 19 * 86_400 < message["ttl"] < 21 * 86_400
    assert "channelId" not in message

    assert (await trial.run("receipt")).named_counters["ok"] == 0  # the ticket is not old enough
    await trial.later(15 * 60 + 5)
    assert (await trial.run("receipt")).named_counters == {
        "taken": 1,
        "ok": 1,
        "retryable": 0,
        "failed": 0,
        "invalidated": 0,
    }
    done = await trial.delivery()
    assert (done.status, done.attempts, done.provider_receipt_id) == (
        "ok",
        1,
        sent.provider_ticket_id,
    )
    assert done.completed_at is not None
    assert set(trial.expo.messages.values()) == {1}


async def test_large_requests_are_compressed_and_a_channel_is_set(new_trial: Any) -> None:
    trial: TendersTrial = await new_trial(EXPO_CHANNEL_ID="licitaciones")
    for n in range(30):
        await trial.device(f"d{n}")
    await trial.publish()
    await trial.run("ingest")
    assert (await trial.run("dispatch")).named_counters["sent"] == 30
    assert trial.expo.gzipped == trial.expo.counts["POST /--/api/v2/push/send"]
    assert trial.expo.texts["ExponentPushToken[d3]"]["channelId"] == "licitaciones"


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        (None, "CLP", ""),
        (0, "CLP", ""),
        (12_000_000, None, "$12.000.000"),
        (Decimal("1234.5"), "CLF", "1.234,5 UF"),
        (500, "UTM", "500 UTM"),
        (1000, "USD", "US$1.000"),
    ],
)
def test_amounts_are_written_as_in_chile(amount: Any, currency: str | None, text: str) -> None:
    assert format_amount(amount if amount is None else Decimal(amount), currency) == text


def test_a_closing_without_a_time_is_a_day() -> None:
    """A card's day is stored as noon. Noon in the detail is a time."""
    noon = datetime(2026, 5, 6, 16, tzinfo=UTC)
    day = Licitacion(codigo_externo="1-1-LP26", nombre="Camas", fecha_cierre=noon)
    time = day.but(detalle={"Fechas": {"FechaCierre": "2026-05-06T12:00:00"}})
    assert describe(day, NEW_TENDER) == "Camas\ncierra 06-05-2026"
    assert describe(time, NEW_TENDER) == "Camas\ncierra 06-05-2026 12:00"
    assert (closing_end(day), closing_end(time)) == (noon + timedelta(hours=12), noon)


async def test_a_refused_access_token_is_one_alert(new_trial: Any) -> None:
    """It lasts over runs that find nothing to send, and ends with a message that is accepted."""
    trial: TendersTrial = await new_trial(EXPO_ACCESS_TOKEN="revoked")
    trial.expo.token = "right"
    await trial.device()
    await trial.publish()
    await trial.run("ingest")
    for _ in range(2):
        assert (await trial.run("dispatch")).outcome == "blocked"
        assert (await trial.run("dispatch")).counters["taken"] == 0
        status, answer = await trial.call("GET", "/api/alerts")
        assert [(a["name"], a["subject"], a["status"]) for a in answer["items"]] == [
            ("cycle_blocked", "tenders.dispatch", "raised")
        ]
        await trial.later(61)
    trial.expo.token = None
    assert (await trial.run("dispatch")).named_counters["sent"] == 1
    status, answer = await trial.call("GET", "/api/alerts?status=raised")
    assert (status, answer["items"]) == (200, [])


async def test_documented_columns_of_deliveries(trial: TendersTrial, place: Any) -> None:
    """status, attempt_count, next_attempt_at, locked_*, completed_at, last_error_*, provider_*."""
    trial.expo.order("/--/api/v2/push/send", status=500, body="down")
    await trial.device()
    await trial.publish()
    await trial.run("ingest")
    await trial.run("dispatch")
    [row] = await place.rows("notification_deliveries", "id")
    assert (
        row["status"],
        row["attempt_count"],
        row["last_error_code"],
        row["locked_by"],
        row["locked_at"],
        row["completed_at"],
    ) == (
        "retryable",
        1,
        "http_500",
        None,
        None,
        None,
    )
    assert row["next_attempt_at"] is not None
    assert row["last_error_message"]
    assert {
        "notification_event_id",
        "installation_id",
        "sent_at",
        "provider_ticket_id",
        "provider_receipt_id",
        "created_at",
    } <= set(row)
    [event] = await place.rows("notification_events", "id")
    [tender] = await place.rows("licitaciones", "id")
    assert (event["licitacion_id"], row["notification_event_id"]) == (tender["id"], event["id"])
    [device] = await place.rows("device_installations", "installation_id")
    assert device["active"]


async def test_retries_after_1_2_4_8_16_32_60_minutes_then_failed(trial: TendersTrial) -> None:
    """The attempt after the longest wait is the last; an operator's retry starts at 0."""
    token = await trial.device()
    trial.expo.devices[token] = {"ticket": "ExpoError"}
    await trial.publish()
    await trial.run("ingest")
    for n, minutes in enumerate(LADDER, 1):
        assert (await trial.run("dispatch")).named_counters["retryable"] == 1
        delivery = await trial.delivery()
        assert (delivery.status, delivery.attempts, delivery.last_error_code) == (
            "retryable",
            n,
            "ExpoError",
        )
        assert delivery.due_at == pytest.approx(
            await trial.now() + timedelta(minutes=minutes), abs=timedelta(seconds=5)
        )
        await trial.later(minutes * 60 - 10)
        assert (await trial.run("dispatch")).counters["taken"] == 0
        await trial.later(11)
    run = await trial.run("dispatch")
    assert (run.named_counters["failed"], run.outcome) == (1, "partial")
    delivery = await trial.delivery()
    assert (delivery.status, delivery.attempts, delivery.last_error_code) == (
        "failed",
        8,
        "ExpoError",
    )
    assert delivery.completed_at is not None

    status, answer = await trial.call(
        "POST", "/deliveries/retry?last_error_code=ExpoError&reason=Expo%20is%20back"
    )
    assert (status, answer["moved"]) == (200, 1)
    delivery = await trial.delivery()
    assert (delivery.status, delivery.attempts, delivery.completed_at) == ("pending", 0, None)
    trial.expo.devices.clear()
    assert (await trial.run("dispatch")).named_counters["sent"] == 1


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"status": 500, "body": "down"}, "http_500"),
        ({"fault": "html"}, "http_502"),
        ({"fault": "bad_json"}, "bad_answer"),
        ({"fault": "cut"}, "connection_error"),
        ({"status": 503, "body": {"errors": [{"code": "API_ERROR", "message": "x"}]}}, "API_ERROR"),
        (
            {
                "status": 200,
                "body": {"errors": [{"code": "INTERNAL_SERVER_ERROR", "message": "x"}]},
            },
            "INTERNAL_SERVER_ERROR",
        ),
        ({"status": 200, "body": {"data": []}}, "ticket_mismatch"),
    ],
)
async def test_other_transient_errors_count_an_attempt(
    trial: TendersTrial, fault: dict[str, Any], code: str
) -> None:
    trial.expo.order("/--/api/v2/push/send", **fault)
    await trial.device()
    await trial.publish()
    await trial.run("ingest")
    await trial.run("dispatch")
    delivery = await trial.delivery()
    assert (delivery.status, delivery.attempts, delivery.last_error_code) == ("retryable", 1, code)


async def test_a_throttle_waits_without_counting(trial: TendersTrial) -> None:
    """HTTP 429 with and without Retry-After, and MessageRateExceeded."""
    token = await trial.device()
    await trial.publish()
    await trial.run("ingest")
    for fault, seconds in ({"headers": {"Retry-After": "7"}}, 7), ({}, 60):
        trial.expo.order(
            "/--/api/v2/push/send",
            status=429,
            body={"errors": [{"code": "TOO_MANY_REQUESTS", "message": "slow"}]},
            **fault,
        )
        assert (await trial.run("dispatch")).counters["waited"] == 1
        delivery = await trial.delivery()
        assert (delivery.status, delivery.attempts) == ("pending", 0)
        assert delivery.due_at == pytest.approx(
            await trial.now() + timedelta(seconds=seconds), abs=timedelta(seconds=3)
        )
        await trial.later(seconds + 1)
    trial.expo.devices[token] = {"ticket": "MessageRateExceeded", "times": 1}
    await trial.run("dispatch")
    assert (await trial.delivery()).attempts == 0
    await trial.later(61)
    assert (await trial.run("dispatch")).named_counters["sent"] == 1
    assert (await trial.delivery()).attempts == 1


async def test_an_unregistered_device_is_deactivated_and_its_deliveries_end_invalid(
    trial: TendersTrial,
) -> None:
    """DeviceNotRegistered in a ticket, while a second delivery of the device waits."""
    token = await trial.device()
    await trial.publish(2)
    await trial.run("ingest")
    trial.expo.devices[token] = {"ticket": "DeviceNotRegistered", "times": 1}
    run = await trial.runtime.engine.run_cycle("tenders.dispatch", limit=1)
    assert run.named_counters["invalidated"] == 1
    assert not (await trial.installation()).active
    assert (await trial.run("dispatch")).named_counters["invalidated"] == 1
    codes = {d.last_error_code for d in await trial.deliveries()}
    assert {d.status for d in await trial.deliveries()} == {"invalid"}
    assert codes == {"DeviceNotRegistered", "installation_inactive"}
    assert trial.expo.messages.total() == 0


async def test_an_unregistered_receipt_deactivates_the_device(trial: TendersTrial) -> None:
    token = await trial.device()
    trial.expo.devices[token] = {"receipt": "DeviceNotRegistered"}
    await trial.publish()
    await trial.run("ingest")
    await trial.run("dispatch")
    await trial.publish()
    await trial.run("ingest")
    await trial.later(901)
    assert (await trial.run("receipt")).named_counters["invalidated"] == 1
    assert not (await trial.installation()).active
    assert (await trial.run("dispatch")).named_counters["invalidated"] == 1
    assert {d.status for d in await trial.deliveries()} == {"invalid"}


async def test_a_device_that_registered_again_stays_active(trial: TendersTrial) -> None:
    await trial.sent()
    trial.expo.devices["ExponentPushToken[d1]"] = {"receipt": "DeviceNotRegistered"}
    await trial.later(901)
    await trial.call(
        "POST", "/devices", {"installation_id": "d1", "push_token": "ExponentPushToken[new]"}
    )
    await trial.run("receipt")
    assert (await trial.delivery()).status == "invalid"
    assert (await trial.installation()).active


@pytest.mark.parametrize(
    "code",
    [
        "MessageTooBig",
        "MismatchSenderId",
        "InvalidCredentials",
        "DeveloperError",
        "fcm:MismatchSenderId",
    ],
)
async def test_receipts_with_final_errors_fail(trial: TendersTrial, code: str) -> None:
    token = await trial.device()
    trial.expo.devices[token] = {"receipt": code}
    await trial.publish()
    await trial.run("ingest")
    await trial.run("dispatch")
    await trial.later(901)
    run = await trial.run("receipt")
    assert (run.named_counters["failed"], run.outcome) == (1, "partial")
    delivery = await trial.delivery()
    assert (delivery.status, delivery.attempts, delivery.last_error_code) == (
        "failed",
        1,
        code.removeprefix("fcm:"),
    )


async def test_a_transient_receipt_continues_the_retries(trial: TendersTrial) -> None:
    token = await trial.device()
    trial.expo.devices[token] = {"receipt": "ProviderError", "times": 2}
    await trial.publish()
    await trial.run("ingest")
    for n, minutes in (1, 1), (2, 2):
        assert (await trial.run("dispatch")).named_counters["sent"] == 1
        await trial.later(901)
        assert (await trial.run("receipt")).named_counters["retryable"] == 1
        delivery = await trial.delivery()
        assert (delivery.status, delivery.attempts, delivery.last_error_code) == (
            "retryable",
            n,
            "ProviderError",
        )
        assert delivery.due_at == pytest.approx(
            await trial.now() + timedelta(minutes=minutes), abs=timedelta(seconds=5)
        )
        await trial.later(minutes * 60 + 1)
    await trial.run("dispatch")
    await trial.later(901)
    assert (await trial.run("receipt")).named_counters["ok"] == 1
    assert (await trial.delivery()).attempts == 3


async def test_a_missing_receipt_fails_after_a_day(trial: TendersTrial) -> None:
    """receipt_missing; waits for a receipt count no attempts."""
    token = await trial.device()
    trial.expo.devices[token] = {"silent": True}
    await trial.publish()
    await trial.run("ingest")
    await trial.run("dispatch")
    for _ in range(3):
        await trial.later(901)
        assert (await trial.run("receipt")).counters["waited"] == 1
        assert ((await trial.delivery()).status, (await trial.delivery()).attempts) == ("sent", 1)
    trial.expo.order("/--/api/v2/push/getReceipts", status=500, body="down")
    await trial.later(901)
    await trial.run("receipt")
    assert ((await trial.delivery()).status, (await trial.delivery()).attempts) == ("sent", 1)
    await trial.later(24 * 3600)
    assert (await trial.run("receipt")).named_counters["failed"] == 1
    assert ((await trial.delivery()).last_error_code, (await trial.delivery()).attempts) == (
        "receipt_missing",
        1,
    )


async def test_deleted_inactive_and_changed_devices_end_at_dispatch(
    trial: TendersTrial, place: Any
) -> None:
    """The deliveries of a deleted device end as ``invalid``. Another program sets ``active``."""
    for name in ("kept", "deleted", "inactive", "changed", "off"):
        await trial.device(name)
    await trial.publish()
    await trial.run("ingest")
    assert (await trial.call("DELETE", "/devices/deleted"))[0] == 204
    await place.write("device_installations", "installation_id", "inactive", active=False)
    await trial.device("changed", regions=["Región de Magallanes"])
    await trial.device("off", enabled=False)
    run = await trial.run("dispatch")
    assert run.named_counters == {
        "taken": 4,
        "sent": 1,
        "retryable": 0,
        "failed": 2,
        "invalidated": 1,
    }
    found = {d.installation_id: (d.status, d.last_error_code) for d in await trial.deliveries()}
    assert found == {
        "kept": ("sent", None),
        "deleted": ("invalid", "installation_inactive"),
        "inactive": ("invalid", "installation_inactive"),
        "changed": ("failed", "preferences_changed"),
        "off": ("failed", "preferences_changed"),
    }


async def test_quiet_hours_wait_without_an_attempt(trial: TendersTrial) -> None:
    now = await trial.now()
    start, end = now - timedelta(hours=2), now + timedelta(hours=3)
    await trial.device(
        quiet_hours={"start": f"{start:%H:%M}", "end": f"{end:%H:%M}", "timezone": "UTC"}
    )
    await trial.publish()
    await trial.run("ingest")
    assert (await trial.run("dispatch")).counters["waited"] == 1
    delivery = await trial.delivery()
    assert (delivery.status, delivery.attempts, delivery.due_at) == (
        "pending",
        0,
        end.replace(second=0, microsecond=0),
    )
    assert trial.expo.messages.total() == 0
    await trial.later(3 * 3600)
    assert (await trial.run("dispatch")).named_counters["sent"] == 1


async def test_quiet_hours_that_were_removed_hold_nothing(trial: TendersTrial) -> None:
    """Changed ones hold what is inside of them; a retry's own wait is kept."""
    now = await trial.now()
    start, end = now - timedelta(hours=2), now + timedelta(hours=3)
    quiet = {"start": f"{start:%H:%M}", "end": f"{end:%H:%M}", "timezone": "UTC"}
    token = await trial.device(quiet_hours=quiet)
    await trial.publish()
    await trial.run("ingest")
    assert (await trial.run("dispatch")).counters["waited"] == 1
    later = end + timedelta(hours=1)
    await trial.device(quiet_hours=quiet | {"end": f"{later:%H:%M}"})
    assert (await trial.run("dispatch")).counters["waited"] == 1
    assert (await trial.delivery()).due_at == later.replace(second=0, microsecond=0)
    trial.expo.devices[token] = {"ticket": "ExpoError", "times": 1}
    await trial.device()
    assert (await trial.run("dispatch")).named_counters["retryable"] == 1
    await trial.device(quiet_hours=quiet)
    await trial.device()
    assert (await trial.run("dispatch")).counters["taken"] == 0
    await trial.later(61)
    assert (await trial.run("dispatch")).named_counters["sent"] == 1


async def test_a_device_gets_no_more_messages_in_a_day_than_it_wants(trial: TendersTrial) -> None:
    now = (await trial.now()).astimezone(ZoneInfo("America/Santiago"))
    await trial.later((now.replace(hour=10, minute=0) - now).total_seconds() + 86_400)
    await trial.device("some", daily_cap=3)
    await trial.device("all")
    await trial.publish(5)
    await trial.run("ingest")
    run = await trial.run("dispatch")
    assert (run.named_counters["sent"], run.named_counters["failed"]) == (8, 2)
    codes = {d.last_error_code for d in await trial.deliveries(status="failed")}
    assert codes == {"daily_cap"}
    await trial.publish(1)
    await trial.run("ingest")
    assert (await trial.run("dispatch")).named_counters["failed"] == 1
    await trial.later(15 * 3600)
    await trial.publish(1)
    await trial.run("ingest")
    assert (await trial.run("dispatch")).named_counters["sent"] == 2


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_a_429_stops_the_sends_of_all_workers(new_trial: Any) -> None:
    """Until it is over, no request is made; no attempt is counted."""
    here, there = await new_trial(), await new_trial()
    for n in range(120):
        await here.device(f"d{n}")
    await here.publish()
    await here.run("ingest")
    here.expo.order(
        "/--/api/v2/push/send", status=429, headers={"Retry-After": "30"}, body={"errors": []}
    )
    run = await here.runtime.engine.run_cycle("tenders.dispatch", limit=60)
    assert run.counters["waited"] == 60
    sends = here.expo.counts["POST /--/api/v2/push/send"]
    await here.run("dispatch")
    await there.run("dispatch")
    assert here.expo.counts["POST /--/api/v2/push/send"] == sends == 1
    for trial in here, there:
        await trial.later(31)
    assert (await there.run("dispatch")).named_counters["sent"] == 120
    assert {d.attempts for d in await here.deliveries()} == {1}


async def test_several_projects_are_split_and_sent_again(trial: TendersTrial) -> None:
    """PUSH_TOO_MANY_EXPERIENCE_IDS."""
    for n in range(6):
        trial.expo.devices[await trial.device(f"d{n}")] = {"project": f"@x/p{n % 3}"}
    await trial.publish()
    await trial.run("ingest")
    assert (await trial.run("dispatch")).named_counters["sent"] == 6
    assert set(trial.expo.messages.values()) == {1}
    assert trial.expo.counts["POST /--/api/v2/push/send"] == 4


async def test_a_refused_message_does_not_affect_the_others(trial: TendersTrial) -> None:
    for n in range(5):
        await trial.device(f"d{n}")
    token = await trial.device("odd")
    fault: dict[str, Any] = {
        "status": 400,
        "body": {"errors": [{"code": "VALIDATION_ERROR", "message": "no"}]},
    }
    trial.expo.order("/--/api/v2/push/send", times=10, match=token, **fault)
    await trial.publish()
    await trial.run("ingest")
    run = await trial.run("dispatch")
    assert (run.named_counters["sent"], run.named_counters["failed"]) == (5, 1)
    assert (await trial.delivery("odd")).last_error_code == "VALIDATION_ERROR"


async def test_a_refused_access_token_blocks_without_an_attempt(new_trial: Any) -> None:
    """EXPO_ACCESS_TOKEN: a wrong token blocks the run; the right one is accepted."""
    wrong: TendersTrial = await new_trial(EXPO_ACCESS_TOKEN="wrong")
    wrong.expo.token = "right"
    await wrong.device()
    await wrong.publish()
    await wrong.run("ingest")
    run = await wrong.run("dispatch")
    assert run.outcome == "blocked"
    assert "EXPO_ACCESS_TOKEN" in (run.message or "")
    assert ((await wrong.delivery()).status, (await wrong.delivery()).attempts) == ("pending", 0)
    _, alerts = await wrong.call("GET", "/api/alerts?status=raised")
    assert [(a["name"], a["subject"]) for a in alerts["items"]] == [
        ("cycle_blocked", "tenders.dispatch")
    ]
    right: TendersTrial = await new_trial(EXPO_ACCESS_TOKEN="right")
    await right.later(61)
    assert (await right.run("dispatch")).named_counters["sent"] == 1


async def test_batches_hold_at_most_100_messages_and_1000_receipts(trial: TendersTrial) -> None:
    bodies = [
        {"installation_id": f"d{n}", "push_token": f"ExponentPushToken[d{n}]"} for n in range(230)
    ]
    from esclusa.pipelines.tenders.devices import DeviceBody

    now = await trial.now()
    await trial.records.put(
        [r for b in bodies for r in DeviceBody.model_validate(b).records(now)], who="test"
    )
    await trial.publish(5)
    assert (await trial.run("ingest")).counters["deliveries"] == 1150
    assert (await trial.run("dispatch")).named_counters["sent"] == 1150
    assert trial.expo.largest["send"] <= 100
    await trial.later(901)
    assert (await trial.run("receipt")).named_counters["ok"] == 1150
    assert trial.expo.largest["receipts"] <= 1000
    assert set(trial.expo.messages.values()) == {1}


async def test_notificada_is_never_reset(trial: TendersTrial) -> None:
    await trial.sent()
    trial.expo.devices["ExponentPushToken[d1]"] = {"receipt": "MessageTooBig"}
    await trial.later(901)
    await trial.run("receipt")
    [code] = trial.chile.details
    tender = await trial.tender(code)
    assert tender is not None
    assert tender.notificada


def test_quiet_hours_over_midnight_and_over_a_clock_change() -> None:
    from esclusa.pipelines.tenders.targeting import quiet_until

    night = {"start": "22:00", "end": "07:00", "timezone": "America/Santiago"}
    assert quiet_until(night, datetime(2026, 6, 1, 3, 0, tzinfo=UTC)) == datetime(
        2026, 6, 1, 11, 0, tzinfo=UTC
    )  # 23:00 in Santiago
    assert quiet_until(night, datetime(2026, 6, 1, 10, 59, tzinfo=UTC)) == datetime(
        2026, 6, 1, 11, 0, tzinfo=UTC
    )
    assert quiet_until(night, datetime(2026, 6, 1, 11, 0, tzinfo=UTC)) is None
    # in the night to 6 September 2026 Chile goes from -04 to -03
    assert quiet_until(night, datetime(2026, 9, 6, 3, 0, tzinfo=UTC)) == datetime(
        2026, 9, 6, 10, 0, tzinfo=UTC
    )
    assert quiet_until(None, datetime(2026, 6, 1, tzinfo=UTC)) is None
