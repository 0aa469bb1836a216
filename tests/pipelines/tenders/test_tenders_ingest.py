"""Ingest: each behaviour of the specification, against a simulated ChileCompra."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pipelines.tenders.conftest import NewTrial, TendersTrial

from esclusa.model.errors import AlreadyRunning
from esclusa.pipelines.tenders.rates import CurrencyRate
from esclusa.pipelines.tenders.records import RegistryEntry
from esclusa.pipelines.tenders.sources.chilecompra_api import fields_of
from esclusa.pipelines.tenders.tender_fields import make_tender, merge_fields, parse_time
from esclusa.simulators.chilecompra import sample_tender

API = "/servicios/v1/publico/licitaciones.json"


async def test_new_tenders_become_rows_events_and_deliveries(
    trial: TendersTrial, place: Any
) -> None:
    """Point 1: tenders from the API's list of today and from the site, with their fields."""
    await trial.device("a")
    await trial.device("b", regions=["region del biobio"])
    [by_api] = await trial.publish(1)
    [by_site] = await trial.publish(1, site=True, api=False)
    run = await trial.run("ingest")
    assert run.named_counters == {"found": 2, "known": 0, "new": 2, "deliveries": 3, "left": 0}
    assert (run.outcome, run.message) == ("ok", None)
    first, second = await trial.tender(by_api), await trial.tender(by_site)
    assert first is not None
    assert second is not None
    assert (first.codigo_externo, first.region, first.codigo_organismo, first.monto_estimado) == (
        by_api,
        "Región del Biobío",
        "7375",
        Decimal(1_000_000),
    )
    assert first.categorias == ["85122200"]
    assert not first.notificada
    assert second.url
    assert second.organismo == "Municipalidad de Ñuñoa"
    assert {
        r["codigo_externo"] for r in await place.rows("licitacion_registry", "codigo_externo")
    } == {
        by_api,
        by_site,
    }
    assert len(await place.rows("notification_events", "id")) == 2
    assert {(d.installation_id, d.status, d.attempts) for d in await trial.deliveries()} == {
        ("a", "pending", 0),
        ("b", "pending", 0),
    }


async def test_a_second_run_adds_nothing_and_reads_no_detail(trial: TendersTrial) -> None:
    await trial.device("a")
    await trial.publish(5)
    await trial.run("ingest")
    calls = trial.chile.counts[f"GET {API}"]
    await trial.device("b")
    run = await trial.run("ingest")
    assert run.named_counters == {"found": 5, "known": 5, "new": 0, "deliveries": 0, "left": 0}
    assert trial.chile.counts[f"GET {API}"] == calls + 1
    assert len(await trial.deliveries()) == 5


async def test_a_code_claimed_meanwhile_is_not_written(trial: TendersTrial) -> None:
    """The registry decides, in the transaction that writes the tender."""
    await trial.device()
    [code] = await trial.publish()
    asked = trial.chile._answer

    def answer(query: Any) -> Any:
        if "codigo" in query:
            claims.append(asyncio.ensure_future(trial.records.insert([entry])))
        return asked(query)

    claims: list[Any] = []
    entry = RegistryEntry(codigo_externo=code, licitacion_id="another")
    trial.chile._answer = answer  # type: ignore[method-assign]
    trial.chile.order(API, fault="slow", seconds=0.3, match="codigo")
    await asyncio.gather(trial.run("ingest"), *claims)
    await asyncio.gather(*claims)
    found = await trial.records.get(RegistryEntry, code)
    assert found is not None
    if found.licitacion_id == "another":
        assert await trial.tender(code) is None
        assert await trial.deliveries() == []


@pytest.mark.parametrize(
    ("state", "message"),
    [({"ticket": "another"}, "the ticket is not valid"), ({"quota": 0}, "daily quota is used up")],
)
async def test_a_bad_ticket_or_used_up_quota_blocks(
    trial: TendersTrial, state: dict[str, Any], message: str
) -> None:
    """A 203 blocks the run, and the message says why."""
    await trial.publish(2, site=True)
    trial.chile.ticket, trial.chile.quota = (
        state.get("ticket", trial.chile.ticket),
        state.get("quota", trial.chile.quota),
    )
    run = await trial.run("ingest")
    assert run.outcome == "blocked"
    assert message in (run.message or "")
    assert await trial.records.find(RegistryEntry) == await trial.records.find(
        RegistryEntry, {"codigo_externo": "none"}
    )


@pytest.mark.parametrize("ticket", ["", " \n"])
async def test_a_missing_ticket_blocks(new_trial: NewTrial, ticket: str) -> None:
    trial: TendersTrial = await new_trial(CHILECOMPRA_TICKET=ticket)
    run = await trial.run("ingest")
    assert (run.outcome, run.message) == ("blocked", "CHILECOMPRA_TICKET is not set")


async def test_a_quota_that_runs_out_keeps_what_was_written(trial: TendersTrial) -> None:
    await trial.publish(5)
    trial.chile.quota = 4
    run = await trial.run("ingest")
    assert (run.outcome, run.counters["new"]) == ("blocked", 3)
    trial.chile.quota = 100
    assert (await trial.run("ingest")).counters["new"] == 2


async def test_the_daily_budget_of_calls_is_kept(new_trial: NewTrial) -> None:
    """CHILECOMPRA_DAILY_CALLS per day in Chile's time zone; the next day goes on."""
    trial: TendersTrial = await new_trial(CHILECOMPRA_DAILY_CALLS="4")
    await trial.publish(5)
    run = await trial.run("ingest")
    assert (run.outcome, run.counters["new"]) == ("blocked", 3)
    assert "budget chilecompra is empty" in (run.message or "")
    assert trial.chile.answered == 4
    [budget] = [b for b in await trial.runtime.read_model.budgets() if b["budget"] == "chilecompra"]
    assert (budget["windows"][0]["used"], budget["windows"][0]["left"]) == (4, 0)


def requested_days(trial: TendersTrial) -> list[str]:
    """Return the days whose lists were requested since the last call."""
    found = [call["query"]["fecha"] for call in trial.chile.calls if "fecha" in call["query"]]
    trial.chile.calls.clear()
    return found


async def test_the_first_run_of_a_day_reads_yesterdays_list(trial: TendersTrial) -> None:
    """Tenders published after a day's last run, or left by it, are in yesterday's list alone."""
    today = f"{datetime.fromisoformat(await trial.today()):%d%m%Y}"
    await trial.publish()
    assert (await trial.run("ingest")).named_counters["new"] == 1
    assert requested_days(trial) == [today]  # no earlier run: it begins with today
    [late] = await trial.publish()
    await trial.later(86400)
    tomorrow = f"{datetime.fromisoformat(await trial.today()):%d%m%Y}"
    await trial.publish()
    run = await trial.run("ingest")
    assert (
        run.outcome,
        run.named_counters["found"],
        run.named_counters["known"],
        run.named_counters["new"],
    ) == ("ok", 3, 1, 2)
    assert await trial.tender(late) is not None
    assert requested_days(trial) == [tomorrow, today]
    assert (await trial.run("ingest")).named_counters["new"] == 0
    assert requested_days(trial) == [tomorrow]


async def test_yesterdays_list_is_read_until_complete(trial: TendersTrial) -> None:
    """A failure of that list, or of a detail in it, does not delay today's tenders."""
    await trial.run("ingest")
    today = f"{datetime.fromisoformat(await trial.today()):%d%m%Y}"
    codes = await trial.publish(2)
    await trial.later(86400)
    await trial.publish()
    requested_days(trial)
    trial.chile.order(API, times=6, status=503, match=f"fecha={today}")
    run = await trial.run("ingest")
    assert (run.outcome, run.named_counters["new"]) == ("ok", 1)
    assert "yesterday's tenders" in (run.message or "")
    trial.chile.order(
        API,
        status=500,
        match=f"codigo={codes[1]}",
        body={"Codigo": 10300, "Mensaje": "Los parámetros no son válidos."},
    )
    assert (await trial.run("ingest")).named_counters["new"] == 1
    requested_days(trial)
    assert (await trial.run("ingest")).named_counters["new"] == 1
    assert today in requested_days(trial)
    await trial.run("ingest")
    assert today not in requested_days(trial)


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
async def test_a_failed_call_is_retried(trial: TendersTrial, fault: dict[str, Any]) -> None:
    """Only HTTP 200 with Listado is a success; transient errors are retried."""
    await trial.publish(2)
    trial.chile.order(API, times=2, **fault)
    run = await trial.run("ingest")
    assert (run.outcome, run.counters["new"], run.counters["left"]) == ("ok", 2, 0)


async def test_a_code_without_a_detail_is_left_for_the_next_run(
    trial: TendersTrial,
) -> None:
    codes = await trial.publish(4)
    trial.chile.order(API, times=6, status=503, body="down", match=f"codigo={codes[1]}&")
    trial.chile.order(
        API,
        times=1,
        status=500,
        body={"Codigo": 10300, "Mensaje": "Los parámetros no son válidos."},
        match=f"codigo={codes[2]}&",
    )
    run = await trial.run("ingest")
    assert (run.outcome, run.counters["new"], run.counters["left"]) == ("ok", 2, 2)
    assert trial.chile.counts[f"GET {API}"] == 1 + 1 + 6 + 1 + 1  # 10300 is not retried
    assert await trial.records.get(RegistryEntry, codes[1]) is None
    run = await trial.run("ingest")
    assert (run.counters["new"], run.counters["left"]) == (2, 0)


async def test_repeated_outages_are_not_waited_for(trial: TendersTrial) -> None:
    await trial.publish(10)
    trial.chile.order(API, times=1000, status=503, body="down", match="codigo=")
    run = await trial.run("ingest")
    assert (run.outcome, run.counters["left"]) == ("error", 10)
    assert "10 tenders are left for the next run" in (run.message or "")
    assert trial.chile.counts[f"GET {API}"] == 1 + 3 * 6 + 7


async def test_an_unreachable_api_is_an_error(trial: TendersTrial) -> None:
    await trial.publish(1, site=True)
    trial.chile.order(API, times=100, status=503, body="down")
    run = await trial.run("ingest")
    assert run.outcome == "error"
    assert "today's tenders could not be read" in (run.message or "")
    assert (await trial.records.count(RegistryEntry))[0] == 0


async def test_calls_are_serial_and_paced(new_trial: NewTrial) -> None:
    """CHILECOMPRA_PACE_SECONDS: no two calls at once, none too early."""
    trial: TendersTrial = await new_trial(CHILECOMPRA_PACE_SECONDS="0.05")
    trial.chile.gap = 0.04
    await trial.publish(6)
    assert (await trial.run("ingest")).counters["new"] == 6
    assert trial.chile.too_fast == 0


async def test_only_published_tenders_are_announced(trial: TendersTrial) -> None:
    await trial.device()
    [closed] = await trial.publish(1, CodigoEstado=6, Estado="Cerrada")
    await trial.publish(1)
    run = await trial.run("ingest")
    assert (run.counters["new"], run.counters["deliveries"]) == (2, 1)
    assert await trial.tender(closed) is not None


async def test_the_ticket_is_never_logged(
    trial: TendersTrial, capsys: pytest.CaptureFixture[str]
) -> None:
    await trial.publish(1)
    ticket = trial.chile.ticket
    trial.chile.order(API, times=100, status=500, body={"Codigo": 1, "Mensaje": f"no {ticket}"})
    run = await trial.run("ingest")
    assert ticket not in (run.message or "")
    trial.chile.reset()
    await trial.chile.stop()
    run = await trial.run("ingest")
    assert run.outcome == "error"
    assert ticket not in (run.message or "")
    captured = capsys.readouterr()
    assert ticket not in captured.out + captured.err


async def test_ingest_is_a_singleton(new_trial: NewTrial) -> None:
    """A second run is refused in one process and across processes; HTTP answers 409."""
    here, there = await new_trial(), await new_trial()
    await here.publish(1)
    here.chile.order(API, fault="slow", seconds=1.0)
    running = asyncio.create_task(here.run("ingest"))
    while not here.chile.counts:
        await asyncio.sleep(0.01)
    with pytest.raises(AlreadyRunning):
        await there.run("ingest")
    status, answer = await here.call("POST", "/api/cycles/tenders.ingest/run")
    assert (status, answer["type"]) == (409, "urn:esclusa:problem:already-running")
    assert (await running).counters["new"] == 1


# parsing and merging


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-04-16T10:56:06.94", datetime(2026, 4, 16, 14, 56, 6, 940000, tzinfo=UTC)),
        ("2026-04-16T10:56:06.9412345", datetime(2026, 4, 16, 14, 56, 6, 941234, tzinfo=UTC)),
        ("2026-01-16T10:56:06", datetime(2026, 1, 16, 13, 56, 6, tzinfo=UTC)),
        ("2026-01-16T10:56:06.1234567Z", datetime(2026, 1, 16, 10, 56, 6, 123456, tzinfo=UTC)),
        ("2026-01-16T10:56:06-04:00", datetime(2026, 1, 16, 14, 56, 6, tzinfo=UTC)),
        (None, None),
        ("", None),
        (" ", None),
        ("mañana", None),
        (5, None),
    ],
)
def test_times_of_the_api(value: Any, expected: Any) -> None:
    assert parse_time(value) == expected


def test_the_more_complete_value_wins() -> None:
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
        "nombre": "Corto pero más largo",
        "descripcion": "algo",
        "monto_estimado": Decimal(5),
        "region": "Región del Biobío",
        "items": [1, 2],
        "url": "/x",
    }


def test_a_longer_state_or_region_does_not_win() -> None:
    """A longer state is another state, and preferences use the API's names of regions."""
    api = {"estado": "Cerrada", "region": "Región Metropolitana", "tipo": None}
    page = {"estado": "Publicada", "region": "Región Metropolitana de Santiago", "tipo": "LE"}
    assert merge_fields(api, page) == {
        "estado": "Cerrada",
        "region": "Región Metropolitana",
        "tipo": "LE",
    }
    assert merge_fields({"estado": " ", "region": None}, page) == page


def test_the_state_and_the_amount_with_its_currency_are_of_one_source() -> None:
    """The newest source that has one, whatever another says of the other half."""
    detail = {"estado": "Cerrada", "codigo_estado": None, "monto_estimado": None, "moneda": "UTM"}
    card = {
        "estado": "Publicada",
        "codigo_estado": 5,
        "monto_estimado": Decimal(7),
        "moneda": "CLP",
    }
    assert merge_fields(detail, card) == {
        "estado": "Cerrada",
        "codigo_estado": None,
        "monto_estimado": Decimal(7),
        "moneda": "CLP",
    }
    tender = make_tender(
        {"codigo_externo": "1-1-L126", **merge_fields(detail, card)}, datetime.now(UTC)
    )
    assert tender.codigo_estado == 6


async def test_a_tender_that_is_closed_already_is_not_announced(trial: TendersTrial) -> None:
    """Although the source still calls it published."""
    await trial.device()
    now = (await trial.now()).astimezone(ZoneInfo("America/Santiago"))
    noon = now.replace(hour=12, minute=0, second=0, microsecond=0)
    closings = {
        now - timedelta(days=7): 0,
        now - timedelta(minutes=1): 0,
        now + timedelta(minutes=10): 1,
        noon: int(now < noon),
        noon - timedelta(days=1): 0,
    }
    for closing in closings:
        sample = sample_tender(len(trial.chile.details), await trial.today())
        sample["Fechas"]["FechaCierre"] = f"{closing:%Y-%m-%dT%H:%M:%S}"
        trial.chile.add(sample)
    run = await trial.run("ingest")
    assert (run.counters["new"], run.counters["deliveries"]) == (5, sum(closings.values()))


async def test_amounts_in_other_currencies_are_compared_in_pesos(new_trial: NewTrial) -> None:
    """500 UTM are 34.8 million; an amount without a rate passes, and the run says so."""
    trial: TendersTrial = await new_trial(TENDERS_RATES="UTM=69542")
    await trial.device("large", amount_min=30_000_000)
    await trial.device("small", amount_max=1_000_000)
    [by_utm] = await trial.publish(1, MontoEstimado=500.0, Moneda="UTM")
    run = await trial.run("ingest")
    assert (run.counters["deliveries"], run.message) == (1, None)
    assert (await trial.delivery("large")).status == "pending"
    assert by_utm
    await trial.publish(2, MontoEstimado=500.0, Moneda="CLF")
    run = await trial.run("ingest")
    assert (run.counters["deliveries"], run.counters["unpriced"]) == (4, 2)
    assert run.message == (
        "2 tenders passed every amount range: no rate is known of CLF; set it with: esclusa "
        "tenders rates set"
    )


async def test_rates_of_the_table_count_before_those_of_the_setting(new_trial: NewTrial) -> None:
    """From the next minute on: at ingest, and when a delivery is checked again."""
    trial: TendersTrial = await new_trial(TENDERS_RATES="UTM=1, EUR=1000")
    await trial.device("large", amount_min=30_000_000)
    await trial.records.put([CurrencyRate(currency="UTM", pesos=Decimal(69542))], who="ana")
    await trial.records.put([CurrencyRate(currency="uf", pesos=Decimal("39485.65"))], who="ana")
    await trial.publish(1, MontoEstimado=500.0, Moneda="UTM")
    await trial.publish(1, MontoEstimado=700.0, Moneda="CLF")
    run = await trial.run("ingest")
    assert (run.counters["deliveries"], run.message) == (1, None)  # 700 UF are 27.6 million
    await trial.records.put([CurrencyRate(currency="UTM", pesos=Decimal(2))], who="ana")
    await trial.later(61)
    await trial.run("dispatch")
    delivery = await trial.delivery("large")
    assert (delivery.status, delivery.last_error_code) == ("failed", "preferences_changed")


@pytest.mark.parametrize("cause", ["ticket", "lists", "details"])
async def test_a_source_that_stands_still_is_an_alert(trial: TendersTrial, cause: str) -> None:
    """A revoked ticket, a dead API, an API that has lists alone; the alert ends with the cause."""
    await trial.publish(8)
    if cause == "ticket":
        trial.chile.ticket = "revoked"
    else:
        match = "codigo=" if cause == "details" else ""
        trial.chile.order(API, times=1000, status=503, body="down", match=match)
    name = "cycle_blocked" if cause == "ticket" else "cycle_failed"
    for _ in range(2):
        await trial.run("ingest")
        status, answer = await trial.call("GET", "/api/alerts?status=raised")
        assert [(a["name"], a["subject"]) for a in answer["items"]] == [(name, "tenders.ingest")]
    trial.chile.faults.clear()
    trial.chile.ticket = "F8537A18-6766-4DEF-9E59-426B4FEE2844"
    assert (await trial.run("ingest")).counters["new"] == 8
    status, answer = await trial.call("GET", "/api/alerts?status=raised")
    assert (status, answer["items"]) == (200, [])


async def test_the_state_of_the_detail_wins_over_the_site(
    trial: TendersTrial,
) -> None:
    await trial.device(regions=["Región Metropolitana"])
    detail = sample_tender(0, await trial.today())
    closed = detail | {"CodigoEstado": 6, "Estado": "Cerrada"}
    opened = sample_tender(1, await trial.today())
    opened["Comprador"] = opened["Comprador"] | {"RegionUnidad": "Región Metropolitana"}
    page = (
        detail,
        opened
        | {"Comprador": opened["Comprador"] | {"RegionUnidad": "Región Metropolitana de Santiago"}},
    )
    trial.chile.add(*page, site=True)
    for answer in (closed, opened):
        trial.chile.order(
            API, match=f"codigo={answer['CodigoExterno']}", status=200, body={"Listado": [answer]}
        )
    run = await trial.run("ingest")
    assert (run.counters["new"], run.counters["deliveries"]) == (2, 1)
    tender = await trial.tender(closed["CodigoExterno"])
    assert tender is not None
    assert (tender.codigo_estado, tender.estado) == (6, "Cerrada")


async def test_the_list_completes_a_detail(trial: TendersTrial) -> None:
    """A detail without a state is announced if the list has the state published."""
    await trial.device()
    detail = sample_tender(0, await trial.today()) | {"FechaCierre": "2026-12-24T15:30:00"}
    trial.chile.add(detail)
    lacks = {
        "CodigoExterno": detail["CodigoExterno"],
        "CodigoEstado": None,
        "Nombre": " ",
        "Comprador": {"CodigoOrganismo": 7375.0},
    }
    trial.chile.order(API, match="codigo=", status=200, body={"Listado": [lacks]})
    run = await trial.run("ingest")
    assert (run.counters["new"], run.counters["deliveries"]) == (1, 1)
    tender = await trial.tender(detail["CodigoExterno"])
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


def test_malformed_details_are_parsed_leniently() -> None:
    malformed = {
        "CodigoExterno": "1-1-L126",
        "Nombre": None,
        "CodigoEstado": "5",
        "Comprador": None,
        "Fechas": [],
        "Items": {"Listado": [None, {}]},
        "MontoEstimado": "1.5",
        "Descripcion": {"a": 1},
    }
    read = fields_of(malformed)
    assert (
        read["nombre"],
        read["codigo_estado"],
        read["monto_estimado"],
        read["region"],
        read["categorias"],
    ) == (
        "",
        5,
        Decimal("1.5"),
        None,
        [],
    )
    assert read["fecha_publicacion"] is None
    assert fields_of(sample_tender(1, "2026-01-02"))["fecha_publicacion"] > datetime(
        2026, 1, 2, tzinfo=UTC
    ) + timedelta(hours=1)


async def test_the_publication_date_falls_back_to_the_creation_date(
    trial: TendersTrial,
) -> None:
    """The API's publication date, else the site's, else the API's creation date."""
    today = await trial.today()
    dates: dict[str, Any] = {
        "FechaCreacion": "2025-01-02T03:00:00",
        "FechaPublicacion": f"{today}T10:00:00",
    }
    dated, undated, created_only = (sample_tender(n, today) | {"Fechas": dates} for n in range(3))
    trial.chile.add(dated, undated, site=True)
    trial.chile.add(created_only)
    for detail in undated, created_only:
        answer = {"Listado": [detail | {"Fechas": {**dates, "FechaPublicacion": None}}]}
        trial.chile.order(API, match=f"codigo={detail['CodigoExterno']}", status=200, body=answer)
    assert (await trial.run("ingest")).named_counters["new"] == 3
    found = [
        await trial.tender(detail["CodigoExterno"]) for detail in (dated, undated, created_only)
    ]
    assert [tender and tender.fecha_publicacion for tender in found] == [
        parse_time(f"{today}T10:00:00"),
        parse_time(f"{today}T12:00:00"),
        parse_time("2025-01-02T03:00:00"),
    ]
