"""What a service may say that nobody expects, and what a day may do to a clock: no answer stops what does not depend on it."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pipelines.tenders.conftest import Yard

from esclusa.pipelines.tenders import http_body
from esclusa.pipelines.tenders.records import Delivery
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


async def test_details_that_no_database_takes_are_written_without_what_it_does_not_take(
    yard: Yard,
) -> None:
    """One odd tender must not keep the others from being written, now or ever."""
    await yard.device()
    odd = {
        "Nombre": "nul \0 y medio \ud800 par", "Descripcion": "\0", "CodigoEstado": 5.0, "MontoEstimado": 1e300,
        "Profundo": nested(500), "Otro": {"\0clave": ["\udfff", 10**40, 1e308]}, "CodigoTipo": 10**30,
    }  # fmt: skip
    codes = [*await yard.publish(1, **odd), *await yard.publish(1)]
    run = await yard.run("ingest")
    assert (run.outcome, run.counters["new"], run.counters["deliveries"], run.counters["left"]) == (
        "ok",
        2,
        2,
        0,
    ), run.message
    tender = await yard.tender(codes[0])
    assert tender is not None
    assert (tender.nombre, tender.codigo_estado, tender.monto_estimado, tender.descripcion) == (
        "nul  y medio  par",
        5,
        None,
        None,
    )
    assert tender.detalle["Otro"]["clave"][1] == 10**40
    assert (await yard.run("dispatch")).told["sent"] == 2


@ONE_STORE
async def test_a_list_without_tenders_is_a_day_without_tenders(yard: Yard) -> None:
    for listed in (None, [], [None, 5, "x", {"CodigoExterno": None}, {"CodigoExterno": " "}, {}]):
        yard.chile.order(API, status=200, body={"Cantidad": 3, "Listado": listed})
        run = await yard.run("ingest")
        assert (run.outcome, run.counters["found"]) == ("ok", 0), listed
        assert yard.chile.counts.pop(f"GET {API}") == 1


@ONE_STORE
async def test_every_answer_that_is_no_success_has_its_meaning(yard: Yard) -> None:
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
        yard.chile.order(API, status=status, body=body)
        assert (await yard.run("ingest")).outcome == outcome, body
        assert yard.chile.counts.pop(f"GET {API}") == calls, body


@ONE_STORE
async def test_a_byte_order_mark_is_no_part_of_the_answer_and_a_code_is_the_lists(
    yard: Yard,
) -> None:
    detail = sample_tender(1, await yard.today())
    code = detail["CodigoExterno"]
    yard.chile.order(
        API, status=200, body="\ufeff" + json.dumps({"Listado": [{"CodigoExterno": code}]})
    )
    yard.chile.order(
        API,
        match="codigo=",
        status=200,
        body={"Listado": [detail | {"CodigoExterno": f" {code.lower()} "}]},
    )
    run = await yard.run("ingest")
    assert (run.outcome, run.counters["new"]) == ("ok", 1), run.message
    assert await yard.tender(code) is not None
    yard.chile.add(detail)
    run = await yard.run("ingest")
    assert (run.counters["known"], run.counters["new"]) == (1, 0)


@ONE_STORE
async def test_an_answer_without_end_is_a_call_that_failed(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_body, "MAX_BYTES", 10_000)
    yard.chile.order(API, status=200, body="x" * 20_000)
    await yard.publish(1)
    assert (await yard.run("ingest")).counters["new"] == 1


UNNAMED: tuple[dict[str, str], ...] = tuple(
    {"Content-Type": said}
    for said in (
        "text/html",
        "text/html; charset=hex",
        "text/html; charset=idna",
        "text/html; charset=?",
        ";;;",
    )
)
"""How gateways and plain servers name their pages: without an encoding, or with one that is none."""


@ONE_STORE
@pytest.mark.parametrize("headers", UNNAMED, ids=str)
async def test_a_page_whose_encoding_is_not_named_is_read_as_any_other(
    yard: Yard, headers: dict[str, str]
) -> None:
    """A gateway's page is an outage that is tried again, not a fault of ours; and the site's page is read."""
    detail = sample_tender(0, await yard.today())
    yard.chile.add(detail, api=False)
    card = f'<div class="licitacion-publicada"><span class="id-licitacion">{detail["CodigoExterno"]}</span></div>'
    yard.chile.order(
        "/BuscarLicitacion", status=200, headers=headers, body=f"<p>Señalética: é</p>{card}"
    )
    yard.chile.order(API, status=502, headers=headers, body="<h1>Puerta de enlace errónea</h1>")
    run = await yard.run("ingest")
    assert (run.outcome, run.message, run.counters["new"]) == ("ok", None, 1)
    assert yard.chile.counts[f"GET {API}"] == 3  # the list twice, the detail once


@ONE_STORE
async def test_a_fault_of_our_own_in_reading_the_site_does_no_harm(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RecursionError("too deep")

    monkeypatch.setattr("esclusa.pipelines.tenders.sources.chilecompra_site.parse_page", broken)
    await yard.publish(1)
    run = await yard.run("ingest")
    assert (run.outcome, run.counters["new"]) == ("ok", 1)
    assert "too deep" in (run.message or "")


@pytest.mark.parametrize(
    ("said", "meant"),
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
        ),  # an hour that comes twice: the first one
        ("/Date(1700000000000)/", None),
    ],
)
def test_times_that_are_none_and_clock_changes(said: str, meant: datetime | None) -> None:
    assert parse_time(said) == meant


@pytest.mark.parametrize(
    ("said", "meant"),
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
def test_amounts_fit_what_an_export_holds(said: Any, meant: Decimal | None) -> None:
    read = fields_of({"CodigoExterno": "1-1-L126", "MontoEstimado": said})["monto_estimado"]
    assert read == meant
    assert (
        make_tender({"codigo_externo": "1-1-L126", "monto_estimado": read}, NOW).monto_estimado
        == meant
    )


@pytest.mark.parametrize(
    ("said", "meant"),
    [(5, 5), ("5", 5), (5.0, 5), (" 5 ", 5), (5.5, None), (10**30, None), (None, None), ([], None)],
)
def test_states_in_any_writing(said: Any, meant: int | None) -> None:
    assert fields_of({"CodigoEstado": said})["codigo_estado"] == meant


# Expo


async def another(yard: Yard) -> None:
    """One more delivery for d1 that is due."""
    await yard.publish()
    assert (await yard.run("ingest")).counters["deliveries"] >= 1


@ONE_STORE
@pytest.mark.parametrize("headers", UNNAMED, ids=str)
async def test_a_gateways_page_in_expos_place_is_what_its_status_says(
    yard: Yard, headers: dict[str, str]
) -> None:
    """429 is a throttle, which counts no attempt; 502 is an outage, which does, by its own name."""
    await yard.device()
    await another(yard)
    yard.expo.order(SEND, status=429, headers=headers, body="<h1>slow down</h1>")
    await yard.run("dispatch")
    delivery = await yard.delivery()
    assert (delivery.status, delivery.attempts) == ("pending", 0)
    await yard.later(61)
    yard.expo.order(SEND, status=502, headers=headers, body="<h1>Bad Gateway</h1>")
    await yard.run("dispatch")
    delivery = await yard.delivery()
    assert (delivery.status, delivery.attempts, delivery.last_error_code) == (
        "retryable",
        1,
        "http_502",
    )
    await yard.later(61)
    assert (await yard.run("dispatch")).told["sent"] == 1
    await yard.later(16 * 60)
    yard.expo.order(RECEIPTS, status=502, headers=headers, body="<h1>Bad Gateway</h1>")
    assert (await yard.run("receipt")).told["waited"] == 1
    await yard.later(61)
    assert (await yard.run("receipt")).told["ok"] == 1


@ONE_STORE
async def test_an_answer_of_another_shape_is_tried_again_and_counts(yard: Yard) -> None:
    await yard.device()
    bodies: list[Any] = [
        "", "null", "[]", {"data": None}, {"data": []}, {"data": [None]}, {"data": [5]}, {"data": {"status": "ok"}},
        {"data": [{"status": "ok", "id": 5}]}, {"data": [{"status": "ok", "id": "a"}, {"status": "ok", "id": "b"}]}, {"errors": {}},
        {"errors": [5]}, {"errors": [{"code": {}}]}, {"data": [{"status": "error", "details": 5}]}, "[" * 100_000,
        {"data": [{"status": "error", "details": {"error": ["x"], "fault": {}, "{}": {"error": []}}}]},
    ]  # fmt: skip
    for body in bodies:
        await another(yard)
        yard.expo.order(SEND, status=200, body=body)
        assert (await yard.run("dispatch")).told["retryable"] == 1, body
        [delivery] = await yard.deliveries(status="retryable")
        assert (delivery.attempts, bool(delivery.last_error_code)) == (1, True), body
        await yard.later(61)
        assert (await yard.run("dispatch")).told["sent"] == 1
    assert set(yard.expo.messages.values()) == {1}


@ONE_STORE
async def test_a_whole_request_that_is_refused(yard: Yard) -> None:
    """400-class payload errors are final; what some gateway says may pass."""
    await yard.device()
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
        await another(yard)
        yard.expo.order(SEND, status=status, body=body)
        assert (await yard.run("dispatch")).told[ends] == 1, body
        await yard.later(61)
        await yard.run("dispatch")


@ONE_STORE
async def test_several_projects_are_split_whatever_expo_says_of_them(yard: Yard) -> None:
    for name in ("d1", "d2"):
        await yard.device(name)
    for details in (None, [], "x", {"a": 5}, {"a": [{}, None], "b": ["ExponentPushToken[d1]"]}):
        await another(yard)
        error = {"code": "PUSH_TOO_MANY_EXPERIENCE_IDS", "message": "x", "details": details}
        yard.expo.order(SEND, status=400, body={"errors": [error]})
        assert (await yard.run("dispatch")).told["sent"] == 2, details
    assert set(yard.expo.messages.values()) == {1}


@ONE_STORE
async def test_no_retry_after_holds_a_delivery_for_ever(yard: Yard) -> None:
    await yard.device()
    for after in ("1e300", "inf", "99999999999", "Fri, 31 Dec 9999 23:59:59 GMT", "soon"):
        await another(yard)
        yard.expo.order(SEND, status=429, headers={"Retry-After": after}, body="")
        await yard.run("dispatch")
        [delivery] = await yard.deliveries(status="pending")
        assert delivery.attempts == 0, after
        assert delivery.due_at is not None
        assert delivery.due_at <= await yard.now() + timedelta(days=1), after
        await yard.later(86_401)
        assert (await yard.run("dispatch")).told["sent"] == 1


@ONE_STORE
async def test_a_retry_after_that_is_no_time_leaves_it_to_the_ladder(yard: Yard) -> None:
    await yard.device()
    for after in ("-5", "nan", "-inf"):
        await another(yard)
        yard.expo.order(SEND, status=429, headers={"Retry-After": after}, body="")
        await yard.run("dispatch")
        [delivery] = await yard.deliveries(status="pending")
        assert delivery.due_at is not None
        assert (
            timedelta(seconds=30) < delivery.due_at - await yard.now() <= timedelta(seconds=60)
        ), after
        await yard.later(61)
        assert (await yard.run("dispatch")).told["sent"] == 1


@ONE_STORE
async def test_a_token_in_its_old_shape_is_sent_to(yard: Yard) -> None:
    token = "12345678-abcd-ABCD-1234-1234567890ab"
    assert (await yard.call("POST", "/devices", {"installation_id": "d1", "push_token": token}))[
        0
    ] == 200
    [code] = await yard.publish()
    await yard.run("ingest")
    assert (await yard.run("dispatch")).told["sent"] == 1
    assert yard.expo.messages == {f"{token} {code}": 1}


@ONE_STORE
async def test_a_receipt_that_cannot_be_read_sends_nothing_again(yard: Yard) -> None:
    await yard.device()
    strange = (
        "null",
        "5",
        '"ok"',
        "{}",
        '{"status": "pending"}',
        '{"status": null, "details": {"error": "DeviceNotRegistered"}}',
    )
    bodies = [f'{{"data": {{"TICKET": {told}, "other": {{"status": "ok"}}}}}}' for told in strange]
    for body in (*bodies, '{"data": []}', '{"data": null}', "{}", "null", "<html>"):
        await another(yard)
        await yard.run("dispatch")
        [sent] = await yard.deliveries(status="sent")
        await yard.later(901)
        yard.expo.order(
            RECEIPTS, status=200, body=body.replace("TICKET", sent.provider_ticket_id or "")
        )
        await yard.run("receipt")
        [still] = await yard.deliveries(status="sent")
        assert still.attempts == 1, body
        await yard.later(901)
        assert (await yard.run("receipt")).told["ok"] == 1, body
    assert set(yard.expo.messages.values()) == {1}


@ONE_STORE
async def test_a_ticket_that_expo_refuses_or_that_is_missing_keeps_no_other_waiting(
    yard: Yard,
) -> None:
    await yard.sent()
    now = await yard.now()
    common: dict[str, Any] = {
        "notification_event_id": "e",
        "licitacion_id": "x",
        "status": "sent",
        "sent_at": now,
        "due_at": now,
    }
    await yard.records.insert(
        [
            Delivery(installation_id="none", **common),
            Delivery(installation_id="bad", provider_ticket_id="refused-ticket", **common),
        ]
    )
    await yard.later(901)
    yard.expo.order(
        RECEIPTS,
        times=10,
        match="refused-ticket",
        status=400,
        body={"errors": [{"code": "VALIDATION_ERROR", "message": "x"}]},
    )
    assert (await yard.run("receipt")).told["ok"] == 1
    assert {d.installation_id for d in await yard.deliveries(status="sent")} == {"none", "bad"}
    await yard.later(86_400)
    yard.expo.faults.clear()
    assert (await yard.run("receipt")).told["failed"] == 2
    assert {d.last_error_code for d in await yard.deliveries(status="failed")} == {
        "receipt_missing"
    }


# clocks


def test_quiet_hours_in_an_hour_that_comes_twice() -> None:
    """In the night to 5 April 2026 Chile's clocks go from 24:00 back to 23:00: at the second 23:10 the end lies ahead."""
    evening = {"start": "22:00", "end": "23:30", "timezone": "America/Santiago"}
    first, second = datetime(2026, 4, 5, 2, 10, tzinfo=UTC), datetime(2026, 4, 5, 3, 10, tzinfo=UTC)
    assert quiet_until(evening, first) == datetime(2026, 4, 5, 2, 30, tzinfo=UTC)
    assert quiet_until(evening, second) == datetime(2026, 4, 5, 3, 30, tzinfo=UTC)
    assert quiet_until(evening, datetime(2026, 4, 5, 2, 40, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    "zone", ["America/Santiago", "Europe/Madrid", "Australia/Lord_Howe", "Africa/Cairo"]
)
def test_quiet_hours_always_end_ahead(zone: str) -> None:
    """Every quarter of an hour of a year, whatever the clock does."""
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
async def test_a_body_that_does_not_fit_names_its_field_and_stores_nothing(yard: Yard) -> None:
    quiet = {"start": "22:00", "end": "07:00"}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"push_token": "ExponentPushToken[\u0000]"}, "push_token"), ({"push_token": "ExponentPushToken[a\u0007]"}, "push_token"),
        ({"push_token": 5}, "push_token"), ({"installation_id": "\u0000"}, "installation_id"),
        ({"installation_id": "  "}, "installation_id"),
        ({"platform": "web"}, "platform"), ({"preferences": {"keywords": ["\u0000"]}}, "keywords"), ({"preferences": []}, "preferences"),
        ({"preferences": {"enabled": "yes"}}, "enabled"), ({"preferences": {"enabled": 1}}, "enabled"),
        ({"preferences": {"amount_min": "NaN"}}, "amount_min"), ({"preferences": {"amount_min": "1e400"}}, "amount_min"),
        ({"preferences": {"quiet_hours": quiet | {"end": "22:00"}}}, "quiet_hours"), ({"preferences": {"region": ["x"]}}, "region"),
        ({"preferences": {"quiet_hours": quiet | {"start": "24:00"}}}, "start"),
        ({"preferences": {"quiet_hours": quiet | {"timezone": "../../etc/passwd"}}}, "timezone"),
        ({"push_token": "ExponentPushToken[\ud800]"}, "push_token"), ({"preferences": {"keywords": ["\ud800"]}}, "keywords"),
    ]  # fmt: skip
    for body, field in cases:
        status, told = await yard.call(
            "POST",
            "/devices",
            {"installation_id": "d", "push_token": "ExponentPushToken[d]"} | body,
        )
        assert (status, field in json.dumps(told)) == (422, True), body
    for text in (
        "",
        "{",
        "[]",
        "null",
        '{"installation_id": "\\ud800", "push_token": "ExponentPushToken[d]"}',
        "\x00",
    ):
        async with yard.web.post(
            f"{yard.url}/devices", data=text.encode(), headers={"Content-Type": "application/json"}
        ) as answer:
            assert answer.status in (400, 422), text
    assert (await yard.call("GET", "/devices/d"))[0] == 404


async def test_a_device_that_registers_many_times_at_once_is_one_device(yard: Yard) -> None:
    body = {"installation_id": "d", "push_token": "ExponentPushToken[d]"}
    told = await asyncio.gather(
        *(
            yard.call("POST", "/devices", body | {"preferences": {"keywords": [f"k{n}"]}})
            for n in range(8)
        )
    )
    assert {status for status, _ in told} == {200}
    assert (await yard.installation("d")).active
    assert sum(answer["created"] for _, answer in told) == 1


async def test_preferences_that_another_program_wrote_are_a_matter_of_their_device_alone(
    yard: Yard, place: Any
) -> None:
    """Nothing in place of a list is no limit; hours that are none keep back their own device's messages, and nobody else's."""
    for name in ("odd", "other"):
        await yard.device(name)

    async def write(**members: Any) -> None:
        await place.write(
            "notification_preferences",
            "id",
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
    for regions, told in lists:
        await write(regions=regions)
        await yard.publish()
        run = await yard.run("ingest")
        assert (run.outcome, run.counters["deliveries"]) == ("ok", told), (regions, run.message)
        assert (await yard.run("dispatch")).told["sent"] == told, regions
    now = await yard.now()
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
        await yard.publish()
        await yard.run("ingest")
        told = (await yard.run("dispatch")).told
        assert (told["sent"], told["retryable"]) == (1, 1), quiet
        [held] = await yard.deliveries(status="retryable")
        assert (held.installation_id, held.last_error_code) == ("odd", "bad_preferences"), quiet
        await write(quiet_hours=None)
        await yard.later(61)
        assert (await yard.run("dispatch")).told["sent"] == 1
    await write(quiet_hours=opens)
    await yard.publish()
    await yard.run("ingest")
    told = (await yard.run("dispatch")).told
    assert (told["sent"], told["waited"]) == (1, 1)


def test_hours_without_a_zone_are_chiles_and_equal_ones_are_none() -> None:
    night = datetime(2026, 7, 2, 3, tzinfo=UTC)
    assert quiet_until({"start": "22:00", "end": "07:00"}, night) == datetime(
        2026, 7, 2, 11, tzinfo=UTC
    )
    for clock in ("00:00", "03:00", "22:00"):
        assert quiet_until({"start": clock, "end": clock, "timezone": "UTC"}, night) is None
