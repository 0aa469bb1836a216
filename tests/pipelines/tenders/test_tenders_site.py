"""The public site: the shapes of its pages, single failing pages, and a page of another shape."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pipelines.tenders.conftest import TendersTrial

from esclusa.pipelines.tenders.sources.chilecompra_site import missing_fields, parse_page
from esclusa.simulators.chilecompra import sample_tender

SITE = "/BuscarLicitacion/Home/Buscar"
API = "/servicios/v1/publico/licitaciones.json"
ONE_STORE = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


async def open_alerts(trial: TendersTrial) -> dict[str, str]:
    """The open alerts over HTTP: name and message."""
    status, answer = await trial.call("GET", "/api/alerts?status=raised")
    assert status == 200, answer
    return {alert["name"]: alert["message"] for alert in answer["items"]}


def pages(trial: TendersTrial) -> list[int]:
    """The pages that were requested since the last call of this function."""
    requested = [json.loads(c["body"])["pagina"] for c in trial.chile.calls if c["path"] == SITE]
    trial.chile.calls.clear()
    return requested


@ONE_STORE
async def test_all_pages_are_read(trial: TendersTrial) -> None:
    """20 pages of 10 cards, newest first; a page with fewer is the last."""
    codes = await trial.publish(203, site=True)
    for page_limit, expected in (20, 200), (200, 203):
        trial.runtime.engine.contexts["tenders"].sources[1].settings.site_pages = page_limit
        run = await trial.run("ingest")
        assert run.counters["found"] == len(set(codes))
        assert (run.outcome, run.message) == ("ok", None)
        listed = await trial.runtime.engine.contexts["tenders"].sources[1].list_tenders(run, None)
        assert set(listed.rows) == set(codes[-expected:])
    assert pages(trial) == [*range(20), *range(20), *range(21), *range(21)]


@ONE_STORE
async def test_the_request_is_the_sites_own(trial: TendersTrial) -> None:
    """A JSON body with every member; tenders of every closing month are listed."""
    await trial.publish(1, site=True, api=False)
    assert (await trial.run("ingest")).counters["new"] == 1
    [body] = [json.loads(c["body"]) for c in trial.chile.calls if c["path"] == SITE]
    assert body == {
        "textoBusqueda": "",
        "idEstado": -1,
        "codigoRegion": -1,
        "idTipoLicitacion": -1,
        "fechaInicio": None,
        "fechaFin": None,
        "registrosPorPagina": 10,
        "idTipoFecha": [],
        "idOrden": 3,
        "compradores": [],
        "garantias": [],
        "rubros": [],
        "proveedores": [],
        "montoEstimadoTipo": [0],
        "esPublicoMontoEstimado": [],
        "pagina": 0,
    }


@ONE_STORE
async def test_an_http_error_on_page_7_keeps_the_other_pages(trial: TendersTrial) -> None:
    await trial.publish(95, site=True, api=False)
    trial.chile.site_errors = {"7": 500}
    run = await trial.run("ingest")
    assert (run.outcome, run.counters["new"]) == ("ok", 85)
    assert run.message == "the public site failed: page 7: HTTP 500"
    assert await open_alerts(trial) == {}
    assert pages(trial) == [*range(10)]


@ONE_STORE
async def test_a_page_that_does_not_answer_ends_the_list(trial: TendersTrial) -> None:
    await trial.publish(45, site=True, api=False)
    trial.chile.order(SITE, fault="cut", match='"pagina": 2')
    run = await trial.run("ingest")
    assert (run.outcome, run.counters["new"]) == ("ok", 20)
    assert "page 2 did not answer" in (run.message or "")
    assert await open_alerts(trial) == {}


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("changed", "page 0 has no card"),
        ("empty", "page 0 has no card"),
        ("codeless", "page 0: 10 of 10 cards cannot be read"),
    ],
)
async def test_a_page_of_another_shape_is_an_alert(
    trial: TendersTrial, shape: str, message: str
) -> None:
    """It is not an empty day. One alert begins, and ends with the first readable page."""
    await trial.publish(30, site=True)
    trial.chile.site_shape = shape
    for _ in range(2):
        run = await trial.run("ingest")
        assert run.outcome == "ok"
        assert f"the public site failed: {message}" in (run.message or "")
        assert message in (await open_alerts(trial))["source_unreadable"]
    assert run.counters["known"] == 30  # the API goes on
    trial.chile.site_shape = "known"
    assert (await trial.run("ingest")).message is None
    assert await open_alerts(trial) == {}


@ONE_STORE
async def test_a_site_that_is_down_is_an_alert(trial: TendersTrial) -> None:
    await trial.publish(2)
    trial.chile.site_up = False
    run = await trial.run("ingest")
    assert (run.outcome, run.counters["new"]) == ("ok", 2)
    assert "the public site failed: page 0: HTTP 503" in (run.message or "")
    assert "17 more" in (run.message or "")
    assert "HTTP 503" in (await open_alerts(trial))["source_unreadable"]


@ONE_STORE
async def test_an_empty_search_is_no_fault(trial: TendersTrial) -> None:
    await trial.publish(2)
    run = await trial.run("ingest")
    assert (run.message, await open_alerts(trial)) == (None, {})


@ONE_STORE
async def test_some_unreadable_cards_do_not_hide_the_others(trial: TendersTrial) -> None:
    sample = (Path(__file__).parent / "site_sample.html").read_text(encoding="utf-8")
    trial.chile.order(SITE, status=200, headers={"Content-Type": "text/html"}, body=sample)
    run = await trial.run("ingest")
    assert (run.counters["found"], run.outcome) == (4, "ok")
    assert "page 0: 2 of 6 cards cannot be read" in (run.message or "")
    assert "source_unreadable" in await open_alerts(trial)


@ONE_STORE
async def test_a_tender_that_only_the_site_has_is_written_from_its_card(
    trial: TendersTrial,
) -> None:
    """The API is asked for it twice, half an hour apart, and not in each run."""
    await trial.device()
    detail = sample_tender(3, await trial.today())
    trial.chile.add(detail, site=True, api=False)
    trial.chile.order(API, times=2, match="codigo=", status=200, body={"Listado": []})
    for _ in range(3):
        run = await trial.run("ingest")
        assert (run.outcome, run.counters["new"], run.counters["left"]) == ("ok", 0, 1)
    assert sum("codigo" in call["query"] for call in trial.chile.calls) == 1
    await trial.later(1801)
    run = await trial.run("ingest")
    assert (run.counters["new"], run.counters["deliveries"]) == (1, 1)
    tender = await trial.tender(detail["CodigoExterno"])
    assert tender is not None
    assert (tender.nombre, tender.codigo_estado, tender.tipo, tender.detalle) == (
        detail["Nombre"],
        5,
        "LE",
        {},
    )
    await trial.run("dispatch")
    closing = datetime.fromisoformat(detail["Fechas"]["FechaCierre"])
    assert trial.expo.texts["ExponentPushToken[d1]"]["body"].endswith(
        f" · cierra {closing:%d-%m-%Y}"  # a card has no time
    )


# parsing


def read_sample() -> list[dict[str, Any]]:
    page = parse_page((Path(__file__).parent / "site_sample.html").read_text(encoding="utf-8"))
    assert (page.total, page.cards) == (5214, 6)
    return page.rows


def noon(month: int, day: int) -> datetime:
    return datetime(2026, month, day, 16 if (month, day) > (4, 4) else 15, tzinfo=UTC)


def test_a_card_with_everything() -> None:
    first = read_sample()[0]
    assert first == {
        "codigo_externo": "1057417-445-LP26",
        "nombre": "Adquisición de insumos médicos & quirúrgicos “Fecha de cierre”",
        "descripcion": "Insumos para el Hospital Guillermo Grant Benavente, "
        "según bases del 01/01/2020.",
        "tipo": "LP",
        "estado": "Publicada",
        "codigo_estado": 5,
        "organismo": "Servicio de Salud Concepción",
        "unidad": "Abastecimiento Ñuñoa",
        "moneda": "CLP",
        "monto_estimado": Decimal("192000000.50"),
        "monto_label": None,
        "fecha_publicacion": noon(4, 16),
        "fecha_cierre": noon(5, 6),
        "url": "http://www.mercadopublico.cl/Procurement/Modules/RFB/DetailsAcquisition.aspx"
        "?qs=abc%2Bd==&x=1",
    }


def test_cards_that_lack_fields() -> None:
    """Dates go by their labels, before or after them, or else by their order."""
    _, closed, bare, after = read_sample()
    assert (closed["estado"], closed["codigo_estado"], closed["organismo"]) == ("Cerrada", 6, None)
    assert (closed["monto_estimado"], closed["monto_label"]) == (None, "Menor a 100 UTM")
    assert (closed["fecha_publicacion"], closed["fecha_cierre"]) == (None, noon(4, 30))
    assert (bare["nombre"], bare["tipo"], bare["estado"]) == ("", None, None)
    assert (bare["monto_estimado"], bare["monto_label"]) == (None, "Igual o superior a 5.000 UTM")
    assert (bare["fecha_publicacion"], bare["fecha_cierre"]) == (noon(4, 2), noon(4, 9))
    assert bare["url"] == (
        "https://www.mercadopublico.cl/Procurement/Modules/RFB/DetailsAcquisition.aspx"
        "?idlicitacion=621-12-CO26"
    )
    assert (after["monto_estimado"], after["monto_label"]) == (None, None)
    assert (after["fecha_publicacion"], after["fecha_cierre"]) == (noon(4, 3), noon(4, 10))


@pytest.mark.parametrize(
    ("html", "page", "total", "lacks"),
    [
        ("", 0, None, True),
        ("  <div></div>", 3, None, False),
        ("<h1>Sitio en mantención</h1>", 0, None, True),
        ("<h1>Sitio en mantención</h1>", 3, None, True),
        ("<h1>Sitio en mantención</h1>", 3, 31, True),
        ("<div></div>", 3, 30, False),
        ("<p>No se encontraron resultados para su búsqueda</p>", 3, None, False),
        ("<p>No se encontraron resultados para su búsqueda</p>", 3, 40, True),
    ],
)
def test_pages_without_cards(html: str, page: int, total: int | None, lacks: bool) -> None:
    """A page after the last is blank or says so; any other one should have cards."""
    assert parse_page(html).lacks_cards(page, total) is lacks
    assert parse_page("<p>No se encontraron resultados.</p>").total == 0


@pytest.mark.parametrize(
    ("text", "amount", "label"),
    [
        ("1.234.567,50", Decimal("1234567.50"), None),
        ("$ 1.000.-", Decimal(1000), None),
        ("5", Decimal(5), None),
        ("0", None, None),
        ("", None, None),
        ("No disponible", None, "No disponible"),
        ("Entre 100 y 1.000 UTM", None, "Entre 100 y 1.000 UTM"),
        ("500 UTM", None, "500 UTM"),
        ("Menor a 100", None, "Menor a 100"),
        ("Superior a 5.000", None, "Superior a 5.000"),
        ("9" * 40, None, None),
    ],
)
def test_amounts_of_the_site(text: str, amount: Decimal | None, label: str | None) -> None:
    """Words are not an amount, and an amount that no export can hold is dropped."""
    card = (
        '<div class="lic-bloq-wrap x"><div class="id-licitacion">'
        '<span class="clearfix">1-1-L126</span></div>'
        f'<span class="campo-numerico-punto-coma">{text}</span></div>'
    )
    [row] = parse_page(card).rows
    assert (row["monto_estimado"], row["monto_label"]) == (amount, label)


def test_a_field_that_all_cards_lack_is_a_changed_shape() -> None:
    row = read_sample()[0]
    without = [row | {"fecha_cierre": None, "organismo": ""} for _ in range(5)]
    assert missing_fields(without) == ["organismo", "fecha_cierre"]
    assert missing_fields([row, *without]) == []
    assert missing_fields(without[:4]) == []
