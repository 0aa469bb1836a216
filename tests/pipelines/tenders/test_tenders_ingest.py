"""Ingest: each behaviour of the spec, against ChileCompra played over HTTP."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pipelines.tenders.conftest import NewYard, Yard

from esclusa.model.errors import AlreadyRunning
from esclusa.pipelines.tenders.records import RegistryEntry
from esclusa.pipelines.tenders.sources.chilecompra_api import fields_of
from esclusa.pipelines.tenders.sources.chilecompra_site import parse_page
from esclusa.pipelines.tenders.tender_fields import merge_fields, parse_time
from esclusa.simulators.chilecompra import sample_tender

API = "/servicios/v1/publico/licitaciones.json"


async def test_new_tenders_become_rows_events_and_deliveries(yard: Yard, place: Any) -> None:
    """Point 1: from the API's summary of Chile's today and from the site; the fields as they were told."""
    await yard.device("a")
    await yard.device("b", regions=["region del biobio"])
    [by_api] = await yard.publish(1)
    [by_site] = await yard.publish(1, site=True, api=False)
    run = await yard.run("ingest")
    assert run.told == {"found": 2, "known": 0, "new": 2, "deliveries": 3, "left": 0}
    assert (run.outcome, run.message) == ("ok", None)
    first, second = await yard.tender(by_api), await yard.tender(by_site)
    assert first is not None
    assert second is not None
    assert (first.codigo_externo, first.region, first.codigo_organismo, first.monto_estimado) == (
        by_api, "Región del Biobío", "7375", Decimal(1_000_000),
    )  # fmt: skip
    assert first.categorias == ["85122200"]
    assert not first.notificada
    assert second.url
    assert (
        second.organismo == "Municipalidad de Ñuñoa"
    )  # the site cuts the name, the API has it whole
    assert {r["codigo_externo"] for r in await place.rows("licitacion_registry", "id")} == {
        by_api,
        by_site,
    }
    assert len(await place.rows("notification_events", "id")) == 2
    assert {(d.installation_id, d.status, d.attempts) for d in await yard.deliveries()} == {
        ("a", "pending", 0),
        ("b", "pending", 0),
    }


async def test_running_twice_adds_nothing_and_asks_no_detail(yard: Yard) -> None:
    await yard.device("a")
    await yard.publish(5)
    await yard.run("ingest")
    calls = yard.chile.counts[f"GET {API}"]
    await yard.device("b")
    run = await yard.run("ingest")
    assert run.told == {"found": 5, "known": 5, "new": 0, "deliveries": 0, "left": 0}
    assert yard.chile.counts[f"GET {API}"] == calls + 1
    assert len(await yard.deliveries()) == 5


async def test_a_code_that_somebody_else_claims_meanwhile_gets_nothing(yard: Yard) -> None:
    """The registry decides, in the transaction that writes the tender."""
    await yard.device()
    [code] = await yard.publish()
    asked = yard.chile._answer

    def answer(said: Any) -> Any:
        if "codigo" in said:
            claims.append(asyncio.ensure_future(yard.records.insert([entry])))
        return asked(said)

    claims: list[Any] = []
    entry = RegistryEntry(codigo_externo=code, claimed_by="another", claimed_at=await yard.now())
    yard.chile._answer = answer  # type: ignore[method-assign]
    yard.chile.order(API, fault="slow", seconds=0.3, match="codigo")
    await asyncio.gather(yard.run("ingest"), *claims)
    await asyncio.gather(*claims)
    found = await yard.records.get(RegistryEntry, RegistryEntry.kind.id_of(code))
    assert found is not None
    if found.claimed_by == "another":
        assert await yard.tender(code) is None
        assert await yard.deliveries() == []


@pytest.mark.parametrize(
    ("state", "said"),
    [({"ticket": "another"}, "the ticket is not valid"), ({"quota": 0}, "daily quota is used up")],
)
async def test_a_bad_ticket_and_a_spent_quota_block_and_write_nothing(
    yard: Yard, state: dict[str, Any], said: str
) -> None:
    """203 → blocked; the message says which."""
    await yard.publish(2, site=True)
    yard.chile.ticket, yard.chile.quota = (
        state.get("ticket", yard.chile.ticket),
        state.get("quota", yard.chile.quota),
    )
    run = await yard.run("ingest")
    assert run.outcome == "blocked"
    assert said in (run.message or "")
    assert await yard.records.find(RegistryEntry) == await yard.records.find(
        RegistryEntry, {"codigo_externo": "none"}
    )


@pytest.mark.parametrize("ticket", ["", " \n"])
async def test_without_a_ticket_it_is_blocked(new_yard: NewYard, ticket: str) -> None:
    yard: Yard = await new_yard(CHILECOMPRA_TICKET=ticket)
    run = await yard.run("ingest")
    assert (run.outcome, run.message) == ("blocked", "CHILECOMPRA_TICKET is not set")


async def test_a_quota_that_runs_out_in_between_keeps_what_was_written(yard: Yard) -> None:
    await yard.publish(5)
    yard.chile.quota = 4
    run = await yard.run("ingest")
    assert (run.outcome, run.counters["new"]) == ("blocked", 3)
    yard.chile.quota = 100
    assert (await yard.run("ingest")).counters["new"] == 2


async def test_the_daily_budget_of_calls_is_kept(new_yard: NewYard) -> None:
    """CHILECOMPRA_DAILY_CALLS, by Chile's day: no call more, and on the next day it goes on."""
    yard: Yard = await new_yard(CHILECOMPRA_DAILY_CALLS="4")
    await yard.publish(5)
    run = await yard.run("ingest")
    assert (run.outcome, run.counters["new"]) == ("blocked", 3)
    assert "budget chilecompra is empty" in (run.message or "")
    assert yard.chile.answered == 4
    [budget] = await yard.runtime.read_model.budgets()
    assert (budget["windows"][0]["used"], budget["windows"][0]["left"]) == (4, 0)


def days_asked(yard: Yard) -> list[str]:
    """The days whose lists were asked for since this was last asked."""
    found = [call["query"]["fecha"] for call in yard.chile.calls if "fecha" in call["query"]]
    yard.chile.calls.clear()
    return found


async def test_what_yesterday_left_is_found_by_the_first_run_of_the_day(yard: Yard) -> None:
    """Published after the day's last run, or left by it: in yesterday's list alone, which is read once more, and once only."""
    today = f"{datetime.fromisoformat(await yard.today()):%d%m%Y}"
    await yard.publish()
    assert (await yard.run("ingest")).told["new"] == 1
    assert days_asked(yard) == [today]  # nothing ran before: it begins with today
    [late] = await yard.publish()
    await yard.later(86400)
    tomorrow = f"{datetime.fromisoformat(await yard.today()):%d%m%Y}"
    await yard.publish()
    run = await yard.run("ingest")
    assert (run.outcome, run.told["found"], run.told["known"], run.told["new"]) == ("ok", 3, 1, 2)
    assert await yard.tender(late) is not None
    assert days_asked(yard) == [tomorrow, today]
    assert (await yard.run("ingest")).told["new"] == 0
    assert days_asked(yard) == [tomorrow]


async def test_yesterdays_list_is_read_until_all_of_it_was_had(yard: Yard) -> None:
    """Its failure, or that of a detail in it, keeps nothing of today waiting."""
    await yard.run("ingest")
    today = f"{datetime.fromisoformat(await yard.today()):%d%m%Y}"
    codes = await yard.publish(2)
    await yard.later(86400)
    await yard.publish()
    days_asked(yard)
    yard.chile.order(API, times=6, status=503, match=f"fecha={today}")
    run = await yard.run("ingest")
    assert (run.outcome, run.told["new"]) == ("ok", 1)
    assert "yesterday's tenders" in (run.message or "")
    yard.chile.order(
        API,
        status=500,
        match=f"codigo={codes[1]}",
        body={"Codigo": 10300, "Mensaje": "Los parámetros no son válidos."},
    )
    assert (await yard.run("ingest")).told["new"] == 1
    days_asked(yard)
    assert (await yard.run("ingest")).told["new"] == 1
    assert today in days_asked(yard)
    await yard.run("ingest")
    assert today not in days_asked(yard)


async def test_the_site_may_fail_without_harm(yard: Yard) -> None:
    """Outcome ok, said in the message."""
    await yard.publish(2)
    yard.chile.site_up = False
    run = await yard.run("ingest")
    assert (run.outcome, run.counters["new"]) == ("ok", 2)
    assert "the public site failed: it answered HTTP 503" in (run.message or "")


@pytest.mark.parametrize(
    "fault", [{"fault": "cut"}, {"status": 200, "body": "<html><p>otra cosa</p></html>"}]
)
async def test_a_site_that_breaks_or_changes_does_no_harm(
    yard: Yard, fault: dict[str, Any]
) -> None:
    await yard.publish(1)
    yard.chile.order("/BuscarLicitacion", **fault)
    run = await yard.run("ingest")
    assert (run.outcome, run.counters["new"]) == ("ok", 1)
    assert "the public site failed" in (run.message or "")


@pytest.mark.parametrize(
    "fault",
    [
        {
            "status": 429,
            "body": {
                "Codigo": 10500,
                "Mensaje": "Lo sentimos. Hemos detectado que existen peticiones simultáneas.",
            },
        },
        {
            "status": 200,
            "body": {
                "Codigo": 10500,
                "Mensaje": "Lo sentimos. Hemos detectado que existen peticiones simultáneas.",
            },
        },
        {"status": 500, "body": {"error": {"message": "x"}, "Codigo": 10500}},
        {"fault": "html"},
        {"fault": "cut"},
        {"fault": "bad_json"},
    ],
)
async def test_a_call_that_fails_is_tried_again(yard: Yard, fault: dict[str, Any]) -> None:
    """Success is HTTP 200 with Listado, and nothing else is; transient faults are tried again."""
    await yard.publish(2)
    yard.chile.order(API, times=2, **fault)
    run = await yard.run("ingest")
    assert (run.outcome, run.counters["new"], run.counters["left"]) == ("ok", 2, 0)


async def test_a_code_whose_detail_fails_is_left_for_the_next_run_and_stops_no_other(
    yard: Yard,
) -> None:
    codes = await yard.publish(4)
    yard.chile.order(API, times=6, status=503, body="down", match=f"codigo={codes[1]}&")
    yard.chile.order(
        API,
        times=1,
        status=500,
        body={"Codigo": 10300, "Mensaje": "Los parámetros no son válidos."},
        match=f"codigo={codes[2]}&",
    )
    run = await yard.run("ingest")
    assert (run.outcome, run.counters["new"], run.counters["left"]) == ("ok", 2, 2)
    assert yard.chile.counts[f"GET {API}"] == 1 + 1 + 6 + 1 + 1  # 10300 is never tried again
    assert await yard.records.get(RegistryEntry, RegistryEntry.kind.id_of(codes[1])) is None
    run = await yard.run("ingest")
    assert (run.counters["new"], run.counters["left"]) == (2, 0)


async def test_an_outage_is_not_waited_for_again_and_again(yard: Yard) -> None:
    await yard.publish(10)
    yard.chile.order(API, times=1000, status=503, body="down", match="codigo=")
    run = await yard.run("ingest")
    assert (run.outcome, run.counters["left"]) == ("ok", 10)
    assert yard.chile.counts[f"GET {API}"] == 1 + 3 * 6 + 7


async def test_an_api_that_is_down_is_an_error_and_writes_nothing(yard: Yard) -> None:
    await yard.publish(1, site=True)
    yard.chile.order(API, times=100, status=503, body="down")
    run = await yard.run("ingest")
    assert run.outcome == "error"
    assert "today's tenders could not be read" in (run.message or "")
    assert (await yard.records.count(RegistryEntry))[0] == 0


async def test_calls_are_serial_and_paced(new_yard: NewYard) -> None:
    """CHILECOMPRA_PACE_SECONDS between calls: the simulator sees none too fast, none at once."""
    yard: Yard = await new_yard(CHILECOMPRA_PACE_SECONDS="0.05")
    yard.chile.gap = 0.04
    await yard.publish(6)
    assert (await yard.run("ingest")).counters["new"] == 6
    assert yard.chile.too_fast == 0


async def test_only_published_tenders_notify(yard: Yard) -> None:
    await yard.device()
    [closed] = await yard.publish(1, CodigoEstado=6, Estado="Cerrada")
    await yard.publish(1)
    run = await yard.run("ingest")
    assert (run.counters["new"], run.counters["deliveries"]) == (2, 1)
    assert await yard.tender(closed) is not None


async def test_the_ticket_is_in_no_message(yard: Yard, capsys: pytest.CaptureFixture[str]) -> None:
    await yard.publish(1)
    ticket = yard.chile.ticket
    yard.chile.order(API, times=100, status=500, body={"Codigo": 1, "Mensaje": f"no {ticket}"})
    run = await yard.run("ingest")
    assert ticket not in (run.message or "")
    yard.chile.reset()
    await yard.chile.stop()
    run = await yard.run("ingest")
    assert run.outcome == "error"
    assert ticket not in (run.message or "")
    said = capsys.readouterr()
    assert ticket not in said.out + said.err


async def test_it_runs_alone_and_an_overlap_is_refused(new_yard: NewYard) -> None:
    """In one process worker_already_running, across processes by its card; HTTP answers 409."""
    here, there = await new_yard(), await new_yard()
    await here.publish(1)
    here.chile.order(API, fault="slow", seconds=1.0)
    running = asyncio.create_task(here.run("ingest"))
    while not here.chile.counts:
        await asyncio.sleep(0.01)
    with pytest.raises(AlreadyRunning):
        await there.run("ingest")
    status, told = await here.call("POST", "/api/cycles/tenders.ingest/run")
    assert (status, told["type"]) == (409, "urn:esclusa:problem:already-running")
    assert (await running).counters["new"] == 1


# reading and merging


def test_the_recorded_page_of_the_site() -> None:
    first, second = parse_page(
        (Path(__file__).parent / "site_sample.html").read_text(encoding="utf-8")
    )
    assert first == {
        "codigo_externo": "1057417-445-LP26", "nombre": "Adquisición de insumos médicos & quirúrgicos",
        "descripcion": "Insumos para el Hospital Guillermo Grant Benavente, según bases.", "organismo": "Servicio de Salud Concepción",
        "region": "Región del Biobío", "estado": "Publicada", "monto_estimado": Decimal("192000000.50"),
        "fecha_publicacion": datetime(2026, 4, 16, 4, 0, tzinfo=UTC), "fecha_cierre": datetime(2026, 5, 6, 19, 30, tzinfo=UTC),
        "url": "/fichaLicitacion.html?idLicitacion=1057417-445-LP26",
    }  # fmt: skip
    assert (second["codigo_externo"], second["monto_estimado"], second["region"]) == (
        "2239-7-L126",
        None,
        None,
    )
    assert (
        len(
            parse_page(
                (Path(__file__).parent / "site_sample.html").read_text(encoding="utf-8"), count=1
            )
        )
        == 1
    )


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("2026-04-16T10:56:06.94", datetime(2026, 4, 16, 14, 56, 6, 940000, tzinfo=UTC)),
        ("2026-04-16T10:56:06.9412345", datetime(2026, 4, 16, 14, 56, 6, 941234, tzinfo=UTC)),
        ("2026-01-16T10:56:06", datetime(2026, 1, 16, 13, 56, 6, tzinfo=UTC)),
        ("2026-01-16T10:56:06.1234567Z", datetime(2026, 1, 16, 10, 56, 6, 123456, tzinfo=UTC)),
        ("2026-01-16T10:56:06-04:00", datetime(2026, 1, 16, 14, 56, 6, tzinfo=UTC)),
        (None, None), ("", None), (" ", None), ("mañana", None), (5, None),
    ],
)  # fmt: skip
def test_times_of_the_api(said: Any, meant: Any) -> None:
    assert parse_time(said) == meant


def test_the_more_complete_value_wins_field_by_field() -> None:
    api = {
        "nombre": "Corto",
        "descripcion": " ",
        "monto_estimado": None,
        "region": "Región del Biobío",
        "items": [1, 2],
    }
    page = {
        "nombre": "Corto pero más largo",
        "descripcion": "algo",
        "monto_estimado": Decimal(5),
        "region": "Biobío",
        "items": [1],
        "url": "/x",
    }
    assert merge_fields(api, page) == {
        "nombre": "Corto pero más largo", "descripcion": "algo", "monto_estimado": Decimal(5), "region": "Región del Biobío",
        "items": [1, 2], "url": "/x",
    }  # fmt: skip


def test_a_name_out_of_a_list_is_the_apis_and_not_the_longer_one() -> None:
    """A longer state is another state, and a device names regions as the API does."""
    api = {"estado": "Cerrada", "region": "Región Metropolitana", "tipo": None}
    page = {"estado": "Publicada", "region": "Región Metropolitana de Santiago", "tipo": "LE"}
    assert merge_fields(api, page) == {
        "estado": "Cerrada",
        "region": "Región Metropolitana",
        "tipo": "LE",
    }
    assert merge_fields({"estado": " ", "region": None}, page) == page


async def test_a_tender_that_was_closed_meanwhile_is_closed_whatever_the_site_still_says(
    yard: Yard,
) -> None:
    await yard.device(regions=["Región Metropolitana"])
    detail = sample_tender(0, await yard.today())
    closed = detail | {"CodigoEstado": 6, "Estado": "Cerrada"}
    opened = sample_tender(1, await yard.today())
    opened["Comprador"] = opened["Comprador"] | {"RegionUnidad": "Región Metropolitana"}
    page = (
        detail,
        opened
        | {"Comprador": opened["Comprador"] | {"RegionUnidad": "Región Metropolitana de Santiago"}},
    )
    yard.chile.add(*page, site=True)
    for told in (closed, opened):
        yard.chile.order(
            API, match=f"codigo={told['CodigoExterno']}", status=200, body={"Listado": [told]}
        )
    run = await yard.run("ingest")
    assert (run.counters["new"], run.counters["deliveries"]) == (2, 1)
    tender = await yard.tender(closed["CodigoExterno"])
    assert tender is not None
    assert (tender.codigo_estado, tender.estado) == (6, "Cerrada")


async def test_what_a_detail_lacks_is_what_the_list_says(yard: Yard) -> None:
    """A detail without a state is announced if the list says that it is published."""
    await yard.device()
    detail = sample_tender(0, await yard.today()) | {"FechaCierre": "2026-12-24T15:30:00"}
    yard.chile.add(detail)
    lacks = {
        "CodigoExterno": detail["CodigoExterno"],
        "CodigoEstado": None,
        "Nombre": " ",
        "Comprador": {"CodigoOrganismo": 7375.0},
    }
    yard.chile.order(API, match="codigo=", status=200, body={"Listado": [lacks]})
    run = await yard.run("ingest")
    assert (run.counters["new"], run.counters["deliveries"]) == (1, 1)
    tender = await yard.tender(detail["CodigoExterno"])
    assert tender is not None
    assert (tender.codigo_estado, tender.nombre, tender.codigo_organismo) == (
        5,
        detail["Nombre"],
        "7375",
    )
    assert (tender.fecha_cierre, tender.detalle) == (
        datetime(2026, 12, 24, 18, 30, tzinfo=UTC),
        lacks,
    )


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("$ 1.234.567,50", Decimal("1234567.50")), ("$1.000.-", Decimal(1000)), ("CLP 5", Decimal(5)), ("0", Decimal(0)),
        ("No disponible", None), ("", None), ("$ 100 a $ 200", None), ("100 - 1.000 UTM", None), ("1,234,567", None), ("9" * 40, None),
    ],
)  # fmt: skip
def test_amounts_of_the_site(said: str, meant: Decimal | None) -> None:
    """A range is no amount, and one that no export can hold would keep its month's file from ever being written."""
    card = f'<div class="licitacion-publicada"><span class="id-licitacion">1-1-L126</span><span class="monto">{said}</span></div>'
    assert [row["monto_estimado"] for row in parse_page(card)] == [meant]


def test_odd_details_are_read_leniently() -> None:
    odd = {
        "CodigoExterno": "1-1-L126", "Nombre": None, "CodigoEstado": "5", "Comprador": None, "Fechas": [], "Items": {"Listado": [None, {}]},
        "MontoEstimado": "1.5", "Descripcion": {"a": 1},
    }  # fmt: skip
    read = fields_of(odd)
    assert (read["nombre"], read["codigo_estado"], read["monto_estimado"], read["region"], read["categorias"]) == (
        "", 5, Decimal("1.5"), None, [],
    )  # fmt: skip
    assert read["fecha_publicacion"] is None
    assert fields_of(sample_tender(1, "2026-01-02"))["fecha_publicacion"] > datetime(
        2026, 1, 2, tzinfo=UTC
    ) + timedelta(hours=1)


async def test_the_day_of_publication_is_what_anybody_says_before_when_it_was_made(
    yard: Yard,
) -> None:
    """The API's, else the site's, else the day that the API says it was made."""
    today = await yard.today()
    dates: dict[str, Any] = {
        "FechaCreacion": "2025-01-02T03:00:00",
        "FechaPublicacion": f"{today}T10:00:00",
    }
    said, unsaid, singleton = (sample_tender(n, today) | {"Fechas": dates} for n in range(3))
    yard.chile.add(said, unsaid, site=True)
    yard.chile.add(singleton)
    for detail in unsaid, singleton:
        answer = {"Listado": [detail | {"Fechas": {**dates, "FechaPublicacion": None}}]}
        yard.chile.order(API, match=f"codigo={detail['CodigoExterno']}", status=200, body=answer)
    assert (await yard.run("ingest")).told["new"] == 3
    found = [await yard.tender(detail["CodigoExterno"]) for detail in (said, unsaid, singleton)]
    assert [tender and tender.fecha_publicacion for tender in found] == [
        parse_time(f"{today}T10:00:00"), parse_time(f"{today}T00:00:00"), parse_time("2025-01-02T03:00:00"),
    ]  # fmt: skip
