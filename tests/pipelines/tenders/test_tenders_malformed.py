"""Malformed answers of services, and clock changes: none stops unrelated work."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from pipelines.tenders.conftest import TendersTrial

from esclusa.pipelines.tenders import http_body
from esclusa.pipelines.tenders.records import AMOUNT_LIMIT, Delivery
from esclusa.pipelines.tenders.sources.chilecompra_api import fields_of
from esclusa.pipelines.tenders.targeting import quiet_until
from esclusa.pipelines.tenders.tender_fields import make_tender, parse_time
from esclusa.simulators.chilecompra import sample_tender
from esclusa.simulators.expo import RECEIPTS, SEND

API = "/servicios/v1/publico/licitaciones.json"
NOW = datetime(2026, 11, 16, tzinfo=UTC)


ONE_STORE = pytest.mark.parametrize("place", ["sqlite"], indirect=True)
"""For what never reaches the store."""


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


# ChileCompra


async def test_unstorable_values_in_details_are_removed(
    trial: TendersTrial,
) -> None:
    """One malformed tender does not prevent the others from being written."""
    await trial.device()
    malformed = {
        "Nombre": "nul \0 y medio \ud800 par",
        "Descripcion": "\0",
        "CodigoEstado": 5.0,
        "MontoEstimado": 1e300,
        "Profundo": nested(500),
        "Otro": {"\0clave": ["\udfff", 10**40, 1e308]},
        "CodigoTipo": 10**30,
    }
    codes = [*await trial.publish(1, **malformed), *await trial.publish(1)]
    run = await trial.run("ingest")
    assert (run.outcome, run.counters["new"], run.counters["deliveries"], run.counters["left"]) == (
        "ok",
        2,
        2,
        0,
    ), run.message
    tender = await trial.tender(codes[0])
    assert tender is not None
    assert (tender.nombre, tender.codigo_estado, tender.monto_estimado, tender.descripcion) == (
        "nul  y medio  par",
        5,
        None,
        None,
    )
    assert tender.detalle["Otro"]["clave"][1] == 10**40
    assert (await trial.run("dispatch")).named_counters["sent"] == 2


@ONE_STORE
async def test_an_empty_list_is_a_day_without_tenders(trial: TendersTrial) -> None:
    for listed in (None, [], [None, 5, "x", {"CodigoExterno": None}, {"CodigoExterno": " "}, {}]):
        trial.chile.order(API, status=200, body={"Cantidad": 3, "Listado": listed})
        run = await trial.run("ingest")
        assert (run.outcome, run.counters["found"]) == ("ok", 0), listed
        assert trial.chile.counts.pop(f"GET {API}") == 1


@ONE_STORE
async def test_each_error_answer_of_the_api(trial: TendersTrial) -> None:
    cases: list[tuple[int, Any, str, int]] = [
        (200, {"Codigo": "203", "Mensaje": "Ticket no válido."}, "blocked", 1),
        (500, {"Codigo": 203, "Mensaje": "Ticket superó la cuota diaria asignada."}, "blocked", 1),
        (203, "", "blocked", 1),
        (500, {"Codigo": "10300", "Mensaje": "Los parámetros no son válidos."}, "error", 1),
        (200, {"error": {"message": "x"}, "Codigo": 10500}, "ok", 2),
        (200, "[]", "ok", 2),
        (200, "null", "ok", 2),
        (200, {"Mensaje": 5, "Codigo": [1]}, "ok", 2),
        (200, {"error": "x"}, "ok", 2),
        (200, "[" * 100_000, "ok", 2),
    ]
    for status, body, outcome, calls in cases:
        trial.chile.order(API, status=status, body=body)
        assert (await trial.run("ingest")).outcome == outcome, body
        assert trial.chile.counts.pop(f"GET {API}") == calls, body


@ONE_STORE
async def test_a_byte_order_mark_and_the_case_of_a_code_are_ignored(
    trial: TendersTrial,
) -> None:
    detail = sample_tender(1, await trial.today())
    code = detail["CodigoExterno"]
    trial.chile.order(
        API, status=200, body="\ufeff" + json.dumps({"Listado": [{"CodigoExterno": code}]})
    )
    trial.chile.order(
        API,
        match="codigo=",
        status=200,
        body={"Listado": [detail | {"CodigoExterno": f" {code.lower()} "}]},
    )
    run = await trial.run("ingest")
    assert (run.outcome, run.counters["new"]) == ("ok", 1), run.message
    assert await trial.tender(code) is not None
    trial.chile.add(detail)
    run = await trial.run("ingest")
    assert (run.counters["known"], run.counters["new"]) == (1, 0)


@ONE_STORE
async def test_an_endless_answer_is_a_failed_call(
    trial: TendersTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_body, "MAX_BYTES", 10_000)
    trial.chile.order(API, status=200, body="x" * 20_000)
    await trial.publish(1)
    assert (await trial.run("ingest")).counters["new"] == 1


UNNAMED: tuple[dict[str, str], ...] = tuple(
    {"Content-Type": type}
    for type in (
        "text/html",
        "text/html; charset=hex",
        "text/html; charset=idna",
        "text/html; charset=?",
        ";;;",
    )
)
"""Content types of gateways and simple servers: without a charset, or with an unknown one."""


@ONE_STORE
@pytest.mark.parametrize("headers", UNNAMED, ids=str)
async def test_a_page_without_a_charset_is_read(
    trial: TendersTrial, headers: dict[str, str]
) -> None:
    """A gateway's error page is an outage and is retried; the site's page is read."""
    detail = sample_tender(0, await trial.today())
    trial.chile.add(detail, api=False)
    code = detail["CodigoExterno"]
    card = (
        '<div class="lic-bloq-wrap x"><div class="id-licitacion">'
        f'<span class="clearfix">{code}</span></div></div>'
    )
    trial.chile.order(
        "/BuscarLicitacion", status=200, headers=headers, body=f"<p>Señalética: é</p>{card}"
    )
    trial.chile.order(API, status=502, headers=headers, body="<h1>Puerta de enlace errónea</h1>")
    run = await trial.run("ingest")
    assert (run.outcome, run.message, run.counters["new"]) == ("ok", None, 1)
    assert trial.chile.counts[f"GET {API}"] == 3  # the list twice, the detail once


@ONE_STORE
async def test_an_exception_in_the_sites_parser_is_not_an_error(
    trial: TendersTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RecursionError("too deep")

    monkeypatch.setattr("esclusa.pipelines.tenders.sources.chilecompra_site.parse_page", broken)
    await trial.publish(1)
    run = await trial.run("ingest")
    assert (run.outcome, run.counters["new"]) == ("ok", 1)
    assert "too deep" in (run.message or "")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0001-01-01T00:00:00", None),
        ("9999-12-31T23:59:59.9999999", None),
        ("2026-13-01T00:00:00", None),
        ("2026-04-16", datetime(2026, 4, 16, 4, tzinfo=UTC)),
        (
            "2026-09-06T00:30:00",
            datetime(2026, 9, 6, 4, 30, tzinfo=UTC),
        ),  # an hour that does not exist: clocks go from 00:00 to 01:00
        (
            "2026-04-04T23:30:00",
            datetime(2026, 4, 5, 2, 30, tzinfo=UTC),
        ),  # an hour that repeats: the first one
        ("/Date(1700000000000)/", None),
    ],
)
def test_invalid_times_and_clock_changes(value: str, expected: datetime | None) -> None:
    assert parse_time(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (192000000.0, Decimal("192000000.0")),
        ("1.5", Decimal("1.5")),
        (True, None),
        ("", None),
        (1e27, None),
        (-1e27, None),
        ("NaN", None),
        ("1e999999", None),
        ("0.123456789012345", Decimal("0.1234567890")),
        (10**26, Decimal(10**26)),
        ({}, None),
        ("1.234,50", None),
    ],
)
def test_amounts_fit_what_an_export_holds(value: Any, expected: Decimal | None) -> None:
    read = fields_of({"CodigoExterno": "1-1-L126", "MontoEstimado": value})["monto_estimado"]
    assert read == expected
    stored = make_tender({"codigo_externo": "1-1-L126", "monto_estimado": read}, NOW).monto_estimado
    if expected is None or abs(expected) >= AMOUNT_LIMIT:
        assert stored is None
    else:
        assert stored == expected.to_integral_value(ROUND_HALF_UP)  # as the team's column


@pytest.mark.parametrize(
    ("value", "expected"),
    [(5, 5), ("5", 5), (5.0, 5), (" 5 ", 5), (5.5, None), (10**30, None), (None, None), ([], None)],
)
def test_states_as_numbers_or_text(value: Any, expected: int | None) -> None:
    assert fields_of({"CodigoEstado": value})["codigo_estado"] == expected


# Expo


async def add_delivery(trial: TendersTrial) -> None:
    """Add another due delivery for d1."""
    await trial.publish()
    assert (await trial.run("ingest")).counters["deliveries"] >= 1


@ONE_STORE
@pytest.mark.parametrize("headers", UNNAMED, ids=str)
async def test_a_gateways_page_instead_of_expos_answer(
    trial: TendersTrial, headers: dict[str, str]
) -> None:
    """A 429 is a throttle and counts no attempt; a 502 is an outage and counts one."""
    await trial.device()
    await add_delivery(trial)
    trial.expo.order(SEND, status=429, headers=headers, body="<h1>slow down</h1>")
    await trial.run("dispatch")
    delivery = await trial.delivery()
    assert (delivery.status, delivery.attempts) == ("pending", 0)
    await trial.later(61)
    trial.expo.order(SEND, status=502, headers=headers, body="<h1>Bad Gateway</h1>")
    await trial.run("dispatch")
    delivery = await trial.delivery()
    assert (delivery.status, delivery.attempts, delivery.last_error_code) == (
        "retryable",
        1,
        "http_502",
    )
    await trial.later(61)
    assert (await trial.run("dispatch")).named_counters["sent"] == 1
    await trial.later(16 * 60)
    trial.expo.order(RECEIPTS, status=502, headers=headers, body="<h1>Bad Gateway</h1>")
    assert (await trial.run("receipt")).named_counters["waited"] == 1
    await trial.later(61)
    assert (await trial.run("receipt")).named_counters["ok"] == 1


@ONE_STORE
async def test_an_answer_of_another_shape_counts_an_attempt(trial: TendersTrial) -> None:
    await trial.device()
    bodies: list[Any] = [
        "",
        "null",
        "[]",
        {"data": None},
        {"data": []},
        {"data": [None]},
        {"data": [5]},
        {"data": {"status": "ok"}},
        {"data": [{"status": "ok", "id": 5}]},
        {"data": [{"status": "ok", "id": "a"}, {"status": "ok", "id": "b"}]},
        {"errors": {}},
        {"errors": [5]},
        {"errors": [{"code": {}}]},
        {"data": [{"status": "error", "details": 5}]},
        "[" * 100_000,
        {
            "data": [
                {"status": "error", "details": {"error": ["x"], "fault": {}, "{}": {"error": []}}}
            ]
        },
    ]
    for body in bodies:
        await add_delivery(trial)
        trial.expo.order(SEND, status=200, body=body)
        assert (await trial.run("dispatch")).named_counters["retryable"] == 1, body
        [delivery] = await trial.deliveries(status="retryable")
        assert (delivery.attempts, bool(delivery.last_error_code)) == (1, True), body
        await trial.later(61)
        assert (await trial.run("dispatch")).named_counters["sent"] == 1
    assert set(trial.expo.messages.values()) == {1}


@ONE_STORE
async def test_a_refused_request(trial: TendersTrial) -> None:
    """Payload errors are final; errors of a gateway may pass."""
    await trial.device()
    cases: list[tuple[int, Any, str]] = [
        (400, {"errors": [{"code": "VALIDATION_ERROR", "message": "x"}]}, "failed"),
        (400, "", "failed"),
        (413, "<html>", "failed"),
        (404, {"errors": [{"code": "EXPERIENCE_NOT_FOUND"}]}, "failed"),
        (404, "<html>", "retryable"),
        (408, "", "retryable"),
        (502, "<html>", "retryable"),
        (400, {"errors": [{"code": "PUSH_TOO_MANY_EXPERIENCE_IDS", "details": [1]}]}, "retryable"),
    ]
    for status, body, ends in cases:
        await add_delivery(trial)
        trial.expo.order(SEND, status=status, body=body)
        assert (await trial.run("dispatch")).named_counters[ends] == 1, body
        await trial.later(61)
        await trial.run("dispatch")


@ONE_STORE
async def test_projects_are_split_even_without_details(trial: TendersTrial) -> None:
    for name in ("d1", "d2"):
        await trial.device(name)
    for details in (None, [], "x", {"a": 5}, {"a": [{}, None], "b": ["ExponentPushToken[d1]"]}):
        await add_delivery(trial)
        error = {"code": "PUSH_TOO_MANY_EXPERIENCE_IDS", "message": "x", "details": details}
        trial.expo.order(SEND, status=400, body={"errors": [error]})
        assert (await trial.run("dispatch")).named_counters["sent"] == 2, details
    assert set(trial.expo.messages.values()) == {1}


@ONE_STORE
async def test_retry_after_is_limited_to_a_day(trial: TendersTrial) -> None:
    await trial.device()
    for after in ("1e300", "inf", "99999999999", "Fri, 31 Dec 9999 23:59:59 GMT", "soon"):
        await add_delivery(trial)
        trial.expo.order(SEND, status=429, headers={"Retry-After": after}, body="")
        await trial.run("dispatch")
        [delivery] = await trial.deliveries(status="pending")
        assert delivery.attempts == 0, after
        assert delivery.due_at is not None
        assert delivery.due_at <= await trial.now() + timedelta(days=1), after
        await trial.later(86_401)
        assert (await trial.run("dispatch")).named_counters["sent"] == 1


@ONE_STORE
async def test_an_invalid_retry_after_is_ignored(trial: TendersTrial) -> None:
    await trial.device()
    for after in ("-5", "nan", "-inf"):
        await add_delivery(trial)
        trial.expo.order(SEND, status=429, headers={"Retry-After": after}, body="")
        await trial.run("dispatch")
        [delivery] = await trial.deliveries(status="pending")
        assert delivery.due_at is not None
        assert (
            timedelta(seconds=30) < delivery.due_at - await trial.now() <= timedelta(seconds=60)
        ), after
        await trial.later(61)
        assert (await trial.run("dispatch")).named_counters["sent"] == 1


@ONE_STORE
async def test_tokens_of_the_old_format_are_sent_to(trial: TendersTrial) -> None:
    token = "12345678-abcd-ABCD-1234-1234567890ab"
    assert (await trial.call("POST", "/devices", {"installation_id": "d1", "push_token": token}))[
        0
    ] == 200
    [code] = await trial.publish()
    await trial.run("ingest")
    assert (await trial.run("dispatch")).named_counters["sent"] == 1
    assert trial.expo.messages == {f"{token} {code}": 1}


@ONE_STORE
async def test_an_unreadable_receipt_does_not_resend(trial: TendersTrial) -> None:
    await trial.device()
    strange = (
        "null",
        "5",
        '"ok"',
        "{}",
        '{"status": "pending"}',
        '{"status": null, "details": {"error": "DeviceNotRegistered"}}',
    )
    bodies = [
        f'{{"data": {{"TICKET": {answer}, "other": {{"status": "ok"}}}}}}' for answer in strange
    ]
    for body in (*bodies, '{"data": []}', '{"data": null}', "{}", "null", "<html>"):
        await add_delivery(trial)
        await trial.run("dispatch")
        [sent] = await trial.deliveries(status="sent")
        await trial.later(901)
        trial.expo.order(
            RECEIPTS, status=200, body=body.replace("TICKET", sent.provider_ticket_id or "")
        )
        await trial.run("receipt")
        [still] = await trial.deliveries(status="sent")
        assert still.attempts == 1, body
        await trial.later(901)
        assert (await trial.run("receipt")).named_counters["ok"] == 1, body
    assert set(trial.expo.messages.values()) == {1}


@ONE_STORE
async def test_a_refused_or_missing_ticket_does_not_delay_others(
    trial: TendersTrial,
) -> None:
    await trial.sent()
    now = await trial.now()
    common: dict[str, Any] = {
        "notification_event_id": "x",
        "status": "sent",
        "sent_at": now,
        "due_at": now,
    }
    await trial.store(
        [
            Delivery(installation_id="none", **common),
            Delivery(installation_id="bad", provider_ticket_id="refused-ticket", **common),
        ]
    )
    await trial.later(901)
    trial.expo.order(
        RECEIPTS,
        times=10,
        match="refused-ticket",
        status=400,
        body={"errors": [{"code": "VALIDATION_ERROR", "message": "x"}]},
    )
    assert (await trial.run("receipt")).named_counters["ok"] == 1
    assert {d.installation_id for d in await trial.deliveries(status="sent")} == {"bad"}
    await trial.later(86_400)
    trial.expo.faults.clear()
    assert (await trial.run("receipt")).named_counters["failed"] == 1
    assert {d.last_error_code for d in await trial.deliveries(status="failed")} == {
        "receipt_missing"
    }


# clocks


def test_quiet_hours_in_a_repeated_hour() -> None:
    """On 5 April 2026 Chile's clocks go back from 24:00 to 23:00."""
    evening = {"start": "22:00", "end": "23:30", "timezone": "America/Santiago"}
    first, second = datetime(2026, 4, 5, 2, 10, tzinfo=UTC), datetime(2026, 4, 5, 3, 10, tzinfo=UTC)
    assert quiet_until(evening, first) == datetime(2026, 4, 5, 2, 30, tzinfo=UTC)
    assert quiet_until(evening, second) == datetime(2026, 4, 5, 3, 30, tzinfo=UTC)
    assert quiet_until(evening, datetime(2026, 4, 5, 2, 40, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    "zone", ["America/Santiago", "Europe/Madrid", "Australia/Lord_Howe", "Africa/Cairo"]
)
def test_quiet_hours_end_in_the_future(zone: str) -> None:
    """Every quarter of an hour of a year, through all clock changes."""
    for start, end in (
        ("22:00", "07:00"),
        ("23:00", "00:30"),
        ("01:30", "02:30"),
        ("00:00", "00:15"),
    ):
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        while moment.year == 2026:
            until = quiet_until({"start": start, "end": end, "timezone": zone}, moment)
            assert until is None or moment < until <= moment + timedelta(hours=11), (
                start,
                end,
                moment,
            )
            moment += timedelta(minutes=15)


# devices


@ONE_STORE
async def test_a_malformed_body_names_its_field_and_stores_nothing(trial: TendersTrial) -> None:
    quiet = {"start": "22:00", "end": "07:00"}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"push_token": "ExponentPushToken[\u0000]"}, "push_token"),
        ({"push_token": "ExponentPushToken[a\u0007]"}, "push_token"),
        ({"push_token": 5}, "push_token"),
        ({"installation_id": "\u0000"}, "installation_id"),
        ({"installation_id": "  "}, "installation_id"),
        ({"platform": "web"}, "platform"),
        ({"preferences": {"keywords": ["\u0000"]}}, "keywords"),
        ({"preferences": []}, "preferences"),
        ({"preferences": {"enabled": "yes"}}, "enabled"),
        ({"preferences": {"enabled": 1}}, "enabled"),
        ({"preferences": {"amount_min": "NaN"}}, "amount_min"),
        ({"preferences": {"amount_min": "1e400"}}, "amount_min"),
        ({"preferences": {"quiet_hours": quiet | {"end": "22:00"}}}, "quiet_hours"),
        ({"preferences": {"region": ["x"]}}, "region"),
        ({"preferences": {"quiet_hours": quiet | {"start": "24:00"}}}, "start"),
        ({"preferences": {"quiet_hours": quiet | {"timezone": "../../etc/passwd"}}}, "timezone"),
        ({"push_token": "ExponentPushToken[\ud800]"}, "push_token"),
        ({"preferences": {"keywords": ["\ud800"]}}, "keywords"),
    ]
    for body, field in cases:
        status, answer = await trial.call(
            "POST",
            "/devices",
            {"installation_id": "d", "push_token": "ExponentPushToken[d]"} | body,
        )
        assert (status, field in json.dumps(answer)) == (422, True), body
    for text in (
        "",
        "{",
        "[]",
        "null",
        '{"installation_id": "\\ud800", "push_token": "ExponentPushToken[d]"}',
        "\x00",
    ):
        async with trial.web.post(
            f"{trial.url}/devices", data=text.encode(), headers={"Content-Type": "application/json"}
        ) as answer:
            assert answer.status in (400, 422), text
    assert (await trial.call("GET", "/devices/d"))[0] == 404


async def test_concurrent_registrations_make_one_device(trial: TendersTrial) -> None:
    body = {"installation_id": "d", "push_token": "ExponentPushToken[d]"}
    answer = await asyncio.gather(
        *(
            trial.call("POST", "/devices", body | {"preferences": {"keywords": [f"k{n}"]}})
            for n in range(8)
        )
    )
    assert {status for status, _ in answer} == {200}
    assert (await trial.installation("d")).active
    assert sum(answer["created"] for _, answer in answer) == 1


async def test_foreign_preferences_affect_their_device_only(
    trial: TendersTrial, place: Any
) -> None:
    """Null in place of a list is no limit; unreadable hours affect their own device only."""
    for name in ("odd", "other"):
        await trial.device(name)

    async def write(**members: Any) -> None:
        await place.write(
            "notification_preferences",
            "installation_id",
            "odd",
            **{name: json.dumps(value) for name, value in members.items()},
        )

    lists: list[tuple[Any, int]] = [
        (None, 2),
        ([None, 5], 2),
        ("Región del Maule", 1),
        (["Región del Maule"], 1),
        ([], 2),
    ]
    for regions, answer in lists:
        await write(regions=regions)
        await trial.publish()
        run = await trial.run("ingest")
        assert (run.outcome, run.counters["deliveries"]) == ("ok", answer), (regions, run.message)
        assert (await trial.run("dispatch")).named_counters["sent"] == answer, regions
    now = await trial.now()
    opens = {
        "start": f"{now - timedelta(hours=5):%H:%M}",
        "end": f"{now - timedelta(hours=7):%H:%M}",
        "timezone": "UTC",
    }
    hours: list[Any] = [
        {"start": "22:00"},
        {"start": 5, "end": 7},
        {"start": "x", "end": "y"},
        opens | {"timezone": "Marte/Olympus"},
    ]
    for quiet in hours:
        await write(quiet_hours=quiet)
        await trial.publish()
        await trial.run("ingest")
        answer = (await trial.run("dispatch")).named_counters
        assert (answer["sent"], answer["retryable"]) == (1, 1), quiet
        [held] = await trial.deliveries(status="retryable")
        assert (held.installation_id, held.last_error_code) == ("odd", "bad_preferences"), quiet
        await write(quiet_hours=None)
        await trial.later(61)
        assert (await trial.run("dispatch")).named_counters["sent"] == 1
    await write(quiet_hours=opens)
    await trial.publish()
    await trial.run("ingest")
    answer = (await trial.run("dispatch")).named_counters
    assert (answer["sent"], answer["waited"]) == (1, 1)


def test_quiet_hours_without_a_zone_or_without_length() -> None:
    night = datetime(2026, 7, 2, 3, tzinfo=UTC)
    assert quiet_until({"start": "22:00", "end": "07:00"}, night) == datetime(
        2026, 7, 2, 11, tzinfo=UTC
    )
    for clock in ("00:00", "03:00", "22:00"):
        assert quiet_until({"start": clock, "end": clock, "timezone": "UTC"}, night) is None
