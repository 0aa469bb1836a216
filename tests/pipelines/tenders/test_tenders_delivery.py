"""Dispatch and receipt: each behaviour of the spec, against Expo played over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pipelines.tenders.conftest import Yard

LADDER = [1, 2, 4, 8, 16, 32, 60]


async def test_a_delivery_is_sent_once_and_its_receipt_ends_it(yard: Yard) -> None:
    """Points 2 and 3; the message has title, body and data.codigo_externo."""
    sent = await yard.sent()
    assert (sent.status, sent.attempts, sent.sends, sent.completed_at, sent.leased_by) == (
        "sent",
        1,
        1,
        None,
        None,
    )
    assert sent.provider_ticket_id in yard.expo.sent
    assert sent.sent_at is not None
    assert sent.due_at == pytest.approx(
        sent.sent_at + timedelta(minutes=15), abs=timedelta(seconds=5)
    )
    [code] = yard.chile.details
    message = yard.expo.texts["ExponentPushToken[d1]"]
    assert message["data"] == {"codigo_externo": code}
    assert message["title"]
    assert yard.chile.details[code]["Nombre"] in message["body"]
    tender = await yard.tender(code)
    assert tender is not None
    assert tender.notificada

    assert (await yard.run("receipt")).told["ok"] == 0  # the ticket is not old enough
    await yard.later(15 * 60 + 5)
    assert (await yard.run("receipt")).told == {
        "taken": 1,
        "ok": 1,
        "retryable": 0,
        "failed": 0,
        "invalidated": 0,
    }
    done = await yard.delivery()
    assert (done.status, done.attempts, done.provider_receipt_id) == (
        "ok",
        1,
        sent.provider_ticket_id,
    )
    assert done.completed_at is not None
    assert set(yard.expo.messages.values()) == {1}


async def test_the_columns_that_a_reader_relies_on(yard: Yard, place: Any) -> None:
    """Columns: status, attempt_count, next_attempt_at, locked_at/by, completed_at, last_error_*, provider_*, sent_at."""
    yard.expo.order("/--/api/v2/push/send", status=500, body="down")
    await yard.device()
    await yard.publish()
    await yard.run("ingest")
    await yard.run("dispatch")
    [row] = await place.rows("notification_deliveries", "id")
    assert (row["status"], row["attempt_count"], row["last_error_code"], row["locked_by"], row["locked_at"], row["completed_at"]) == (
        "retryable", 1, "http_500", None, None, None,
    )  # fmt: skip
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
    [device] = await place.rows("device_installations", "id")
    assert device["active"]


async def test_the_ladder_is_1_2_4_8_16_32_60_and_then_failed(yard: Yard) -> None:
    """Backoff: after the attempt that follows the capped wait the delivery has failed; an operator's retry starts at 0."""
    token = await yard.device()
    yard.expo.devices[token] = {"ticket": "ExpoError"}
    await yard.publish()
    await yard.run("ingest")
    for n, minutes in enumerate(LADDER, 1):
        assert (await yard.run("dispatch")).told["retryable"] == 1
        delivery = await yard.delivery()
        assert (delivery.status, delivery.attempts, delivery.last_error_code) == (
            "retryable",
            n,
            "ExpoError",
        )
        assert delivery.due_at == pytest.approx(
            await yard.now() + timedelta(minutes=minutes), abs=timedelta(seconds=5)
        )
        await yard.later(minutes * 60 - 10)
        assert (await yard.run("dispatch")).counters["taken"] == 0
        await yard.later(11)
    run = await yard.run("dispatch")
    assert (run.told["failed"], run.outcome) == (1, "partial")
    delivery = await yard.delivery()
    assert (delivery.status, delivery.attempts, delivery.last_error_code) == (
        "failed",
        8,
        "ExpoError",
    )
    assert delivery.completed_at is not None

    status, told = await yard.call(
        "POST", "/deliveries/retry?last_error_code=ExpoError&reason=Expo%20is%20back"
    )
    assert (status, told["moved"]) == (200, 1)
    delivery = await yard.delivery()
    assert (delivery.status, delivery.attempts, delivery.completed_at) == ("pending", 0, None)
    yard.expo.devices.clear()
    assert (await yard.run("dispatch")).told["sent"] == 1


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
async def test_every_other_transient_counts(yard: Yard, fault: dict[str, Any], code: str) -> None:
    yard.expo.order("/--/api/v2/push/send", **fault)
    await yard.device()
    await yard.publish()
    await yard.run("ingest")
    await yard.run("dispatch")
    delivery = await yard.delivery()
    assert (delivery.status, delivery.attempts, delivery.last_error_code) == ("retryable", 1, code)


async def test_a_throttle_waits_by_retry_after_or_the_ladder_without_counting(yard: Yard) -> None:
    """HTTP 429 with and without Retry-After, and MessageRateExceeded."""
    token = await yard.device()
    await yard.publish()
    await yard.run("ingest")
    for fault, seconds in ({"headers": {"Retry-After": "7"}}, 7), ({}, 60):
        yard.expo.order(
            "/--/api/v2/push/send",
            status=429,
            body={"errors": [{"code": "TOO_MANY_REQUESTS", "message": "slow"}]},
            **fault,
        )
        assert (await yard.run("dispatch")).counters["waited"] == 1
        delivery = await yard.delivery()
        assert (delivery.status, delivery.attempts) == ("pending", 0)
        assert delivery.due_at == pytest.approx(
            await yard.now() + timedelta(seconds=seconds), abs=timedelta(seconds=3)
        )
        await yard.later(seconds + 1)
    yard.expo.devices[token] = {"ticket": "MessageRateExceeded", "times": 1}
    await yard.run("dispatch")
    assert (await yard.delivery()).attempts == 0
    await yard.later(61)
    assert (await yard.run("dispatch")).told["sent"] == 1
    assert (await yard.delivery()).attempts == 1


async def test_a_device_that_is_gone_is_deactivated_and_its_other_deliveries_end_invalid(
    yard: Yard,
) -> None:
    """DeviceNotRegistered in a ticket, with a second delivery of the device waiting."""
    token = await yard.device()
    await yard.publish(2)
    await yard.run("ingest")
    yard.expo.devices[token] = {"ticket": "DeviceNotRegistered", "times": 1}
    run = await yard.runtime.engine.run_cycle("tenders.dispatch", limit=1)
    assert run.told["invalidated"] == 1
    assert not (await yard.installation()).active
    assert (await yard.run("dispatch")).told["invalidated"] == 1
    codes = {d.last_error_code for d in await yard.deliveries()}
    assert {d.status for d in await yard.deliveries()} == {"invalid"}
    assert codes == {"DeviceNotRegistered", "installation_inactive"}
    assert yard.expo.messages.total() == 0


async def test_a_receipt_that_says_gone_deactivates_too(yard: Yard) -> None:
    token = await yard.device()
    yard.expo.devices[token] = {"receipt": "DeviceNotRegistered"}
    await yard.publish()
    await yard.run("ingest")
    await yard.run("dispatch")
    await yard.publish()
    await yard.run("ingest")
    await yard.later(901)
    assert (await yard.run("receipt")).told["invalidated"] == 1
    assert not (await yard.installation()).active
    assert (await yard.run("dispatch")).told["invalidated"] == 1
    assert {d.status for d in await yard.deliveries()} == {"invalid"}


async def test_a_device_that_registered_again_meanwhile_stays_active(yard: Yard) -> None:
    await yard.sent()
    yard.expo.devices["ExponentPushToken[d1]"] = {"receipt": "DeviceNotRegistered"}
    await yard.later(901)
    await yard.call(
        "POST", "/devices", {"installation_id": "d1", "push_token": "ExponentPushToken[new]"}
    )
    await yard.run("receipt")
    assert (await yard.delivery()).status == "invalid"
    assert (await yard.installation()).active


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
async def test_receipts_with_final_errors_fail(yard: Yard, code: str) -> None:
    token = await yard.device()
    yard.expo.devices[token] = {"receipt": code}
    await yard.publish()
    await yard.run("ingest")
    await yard.run("dispatch")
    await yard.later(901)
    run = await yard.run("receipt")
    assert (run.told["failed"], run.outcome) == (1, "partial")
    delivery = await yard.delivery()
    assert (delivery.status, delivery.attempts, delivery.last_error_code) == (
        "failed",
        1,
        code.removeprefix("fcm:"),
    )


async def test_a_receipt_with_a_passing_error_goes_on_with_the_ladder(yard: Yard) -> None:
    token = await yard.device()
    yard.expo.devices[token] = {"receipt": "ProviderError", "times": 2}
    await yard.publish()
    await yard.run("ingest")
    for n, minutes in (1, 1), (2, 2):
        assert (await yard.run("dispatch")).told["sent"] == 1
        await yard.later(901)
        assert (await yard.run("receipt")).told["retryable"] == 1
        delivery = await yard.delivery()
        assert (delivery.status, delivery.attempts, delivery.last_error_code) == (
            "retryable",
            n,
            "ProviderError",
        )
        assert delivery.due_at == pytest.approx(
            await yard.now() + timedelta(minutes=minutes), abs=timedelta(seconds=5)
        )
        await yard.later(minutes * 60 + 1)
    await yard.run("dispatch")
    await yard.later(901)
    assert (await yard.run("receipt")).told["ok"] == 1
    assert (await yard.delivery()).attempts == 3


async def test_a_receipt_that_never_comes_fails_after_a_day(yard: Yard) -> None:
    """receipt_missing; and waits for a receipt never count as attempts."""
    token = await yard.device()
    yard.expo.devices[token] = {"silent": True}
    await yard.publish()
    await yard.run("ingest")
    await yard.run("dispatch")
    for _ in range(3):
        await yard.later(901)
        assert (await yard.run("receipt")).counters["waited"] == 1
        assert ((await yard.delivery()).status, (await yard.delivery()).attempts) == ("sent", 1)
    yard.expo.order("/--/api/v2/push/getReceipts", status=500, body="down")
    await yard.later(901)
    await yard.run("receipt")
    assert ((await yard.delivery()).status, (await yard.delivery()).attempts) == ("sent", 1)
    await yard.later(24 * 3600)
    assert (await yard.run("receipt")).told["failed"] == 1
    assert ((await yard.delivery()).last_error_code, (await yard.delivery()).attempts) == (
        "receipt_missing",
        1,
    )


async def test_deleted_inactive_and_changed_preferences_end_at_dispatch(yard: Yard) -> None:
    for name in ("kept", "deleted", "changed", "off"):
        await yard.device(name)
    await yard.publish()
    await yard.run("ingest")
    assert (await yard.call("DELETE", "/devices/deleted"))[0] == 204
    await yard.device("changed", regions=["Región de Magallanes"])
    await yard.device("off", enabled=False)
    run = await yard.run("dispatch")
    assert run.told == {"taken": 4, "sent": 1, "retryable": 0, "failed": 2, "invalidated": 1}
    found = {d.installation_id: (d.status, d.last_error_code) for d in await yard.deliveries()}
    assert found == {
        "kept": ("sent", None), "deleted": ("invalid", "installation_inactive"), "changed": ("failed", "preferences_changed"),
        "off": ("failed", "preferences_changed"),
    }  # fmt: skip


async def test_quiet_hours_wait_until_they_end_without_an_attempt(yard: Yard) -> None:
    now = await yard.now()
    start, end = now - timedelta(hours=2), now + timedelta(hours=3)
    await yard.device(
        quiet_hours={"start": f"{start:%H:%M}", "end": f"{end:%H:%M}", "timezone": "UTC"}
    )
    await yard.publish()
    await yard.run("ingest")
    assert (await yard.run("dispatch")).counters["waited"] == 1
    delivery = await yard.delivery()
    assert (delivery.status, delivery.attempts, delivery.due_at) == (
        "pending",
        0,
        end.replace(second=0, microsecond=0),
    )
    assert yard.expo.messages.total() == 0
    await yard.later(3 * 3600)
    assert (await yard.run("dispatch")).told["sent"] == 1


async def test_several_projects_are_split_and_sent_again(yard: Yard) -> None:
    """PUSH_TOO_MANY_EXPERIENCE_IDS."""
    for n in range(6):
        yard.expo.devices[await yard.device(f"d{n}")] = {"project": f"@x/p{n % 3}"}
    await yard.publish()
    await yard.run("ingest")
    assert (await yard.run("dispatch")).told["sent"] == 6
    assert set(yard.expo.messages.values()) == {1}
    assert yard.expo.counts["POST /--/api/v2/push/send"] == 4


async def test_a_message_that_is_refused_does_not_take_the_others_with_it(yard: Yard) -> None:
    for n in range(5):
        await yard.device(f"d{n}")
    token = await yard.device("odd")
    fault: dict[str, Any] = {
        "status": 400,
        "body": {"errors": [{"code": "VALIDATION_ERROR", "message": "no"}]},
    }
    yard.expo.order("/--/api/v2/push/send", times=10, match=token, **fault)
    await yard.publish()
    await yard.run("ingest")
    run = await yard.run("dispatch")
    assert (run.told["sent"], run.told["failed"]) == (5, 1)
    assert (await yard.delivery("odd")).last_error_code == "VALIDATION_ERROR"


async def test_a_refused_access_token_blocks_and_burns_no_attempt(new_yard: Any) -> None:
    """EXPO_ACCESS_TOKEN: the wrong one blocks the run; the right one goes through."""
    wrong: Yard = await new_yard(EXPO_ACCESS_TOKEN="wrong")
    wrong.expo.token = "right"
    await wrong.device()
    await wrong.publish()
    await wrong.run("ingest")
    run = await wrong.run("dispatch")
    assert run.outcome == "blocked"
    assert "EXPO_ACCESS_TOKEN" in (run.message or "")
    assert ((await wrong.delivery()).status, (await wrong.delivery()).attempts) == ("pending", 0)
    right: Yard = await new_yard(EXPO_ACCESS_TOKEN="right")
    await right.later(61)
    assert (await right.run("dispatch")).told["sent"] == 1


async def test_batches_hold_at_most_100_messages_and_1000_receipts(yard: Yard) -> None:
    bodies = [
        {"installation_id": f"d{n}", "push_token": f"ExponentPushToken[d{n}]"} for n in range(230)
    ]
    from esclusa.pipelines.tenders.devices import DeviceBody

    now = await yard.now()
    await yard.records.put(
        [r for b in bodies for r in DeviceBody.model_validate(b).records(now)], who="test"
    )
    await yard.publish(5)
    assert (await yard.run("ingest")).counters["deliveries"] == 1150
    assert (await yard.run("dispatch")).told["sent"] == 1150
    assert yard.expo.largest["send"] <= 100
    await yard.later(901)
    assert (await yard.run("receipt")).told["ok"] == 1150
    assert yard.expo.largest["receipts"] <= 1000
    assert set(yard.expo.messages.values()) == {1}


async def test_notificada_is_never_taken_back(yard: Yard) -> None:
    await yard.sent()
    yard.expo.devices["ExponentPushToken[d1]"] = {"receipt": "MessageTooBig"}
    await yard.later(901)
    await yard.run("receipt")
    [code] = yard.chile.details
    tender = await yard.tender(code)
    assert tender is not None
    assert (tender.notificada, tender.status) == (True, "notificada")


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
