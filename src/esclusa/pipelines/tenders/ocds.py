"""Tenders as releases of the Open Contracting Data Standard (OCDS) 1.1.

A release says what is known of a tender now. Values that OCDS cannot hold are left out: an amount
in UTM without a rate, a quantity that is no number, an address that is no URL.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pydantic_core import to_json

from esclusa.pipelines.tenders.rates import PESOS, Rates, currency_name, in_pesos
from esclusa.pipelines.tenders.records import Licitacion
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.pipelines.tenders.tender_fields import (
    STATE_CODES,
    parse_amount,
    parse_integer,
    parse_object,
    parse_text,
    parse_time,
)

VERSION = "1.1"
# The currencies of ChileCompra that ISO 4217 has; UTM is none.
CURRENCIES = frozenset({PESOS, "CLF", "USD", "EUR"})
# The status of a tender by its state's code.
STATUSES = {5: "active", 6: "active", 7: "unsuccessful", 8: "complete", 18: "cancelled"}
# The types of private tenders; those of public ones begin with L.
PRIVATE = frozenset({"E2", "CO", "B2", "H2", "I2"})
_URL = re.compile(r"https?://[!-~]+")


async def write_package(
    releases: AsyncIterable[Mapping[str, Any]], uri: str, published: datetime, publisher: str
) -> AsyncIterator[bytes]:
    """Yield the bytes of a release package, page by page."""
    head = {
        "uri": uri,
        "version": VERSION,
        "publishedDate": _time(published),
        "publisher": {"name": publisher},
    }
    yield to_json(head)[:-1] + b',"releases":['
    comma = b""
    async for release in releases:
        yield comma + to_json(release)
        comma = b",\n"
    yield b"]}\n"


def build_release(tender: Licitacion, settings: TendersSettings, rates: Rates) -> dict[str, Any]:
    """Return the release of a tender."""
    code, changed = tender.codigo_externo, tender.updated_at or tender.created_at
    assert changed is not None
    buyer = _buyer(tender)
    awards = _awards(tender, rates)
    suppliers = {s["id"]: s for award in awards for s in award["suppliers"]}
    state = tender.codigo_estado or STATE_CODES.get(str(tender.estado).lower())
    status = STATUSES.get(state or 0, "active")
    tag = ["tenderCancellation"] if status == "cancelled" else ["tender"]
    return _filled(
        {
            "ocid": f"{settings.ocid_prefix}-{code}",
            "id": f"{code}-{changed.astimezone(UTC):%Y%m%d%H%M%S%f}",
            "date": _time(changed),
            "language": "es",
            "tag": tag + (["award"] if awards else []),
            "initiationType": "tender",
            "parties": [
                *([buyer | {"roles": ["buyer", "procuringEntity"]}] if buyer else []),
                *(_supplier(s) for s in suppliers.values()),
            ],
            "buyer": _named(buyer),
            "tender": _tender(tender, status, buyer, rates),
            "awards": awards,
        }
    )


def _tender(
    tender: Licitacion, status: str, buyer: Mapping[str, Any], rates: Rates
) -> dict[str, Any]:
    detail = tender.detalle or {}
    dates, award = parse_object(detail.get("Fechas")), parse_object(detail.get("Adjudicacion"))
    kind = (tender.tipo or "").upper()
    return _filled(
        {
            "id": tender.codigo_externo,
            "title": tender.nombre,
            "description": tender.descripcion,
            "status": status,
            "procuringEntity": _named(buyer),
            "value": _value(tender.monto_estimado, tender.moneda, rates),
            "procurementMethod": "limited"
            if kind in PRIVATE
            else "open"
            if kind.startswith("L")
            else None,
            "procurementMethodDetails": kind,
            "mainProcurementCategory": "works" if str(detail.get("Obras")) == "2" else None,
            "tenderPeriod": _period(tender.fecha_publicacion, tender.fecha_cierre),
            "enquiryPeriod": _period(
                parse_time(dates.get("FechaInicio")), parse_time(dates.get("FechaFinal"))
            ),
            "numberOfTenderers": parse_integer(award.get("NumeroOferentes")),
            "items": [_item(item, number) for number, item in enumerate(tender.items, 1)],
            "documents": _documents(tender.codigo_externo, "tenderNotice", tender.url),
        }
    )


def _item(item: Mapping[str, Any], number: int) -> dict[str, Any]:
    category = _filled(
        {
            "scheme": "UNSPSC",
            "id": parse_text(item.get("CodigoCategoria")),
            "description": parse_text(item.get("Categoria")),
        }
    )
    product = _filled(
        {
            "scheme": "UNSPSC",
            "id": parse_text(item.get("CodigoProducto")),
            "description": parse_text(item.get("NombreProducto")),
        }
    )
    given = [given for given in (product, category) if "id" in given]
    return _filled(
        {
            "id": str(number),
            "description": parse_text(item.get("Descripcion"))
            or parse_text(item.get("NombreProducto")),
            "classification": given[0] if given else None,
            "additionalClassifications": given[1:],
            "quantity": _number(parse_amount(item.get("Cantidad"))),
            "unit": _filled({"name": parse_text(item.get("UnidadMedida"))}),
        }
    )


def _awards(tender: Licitacion, rates: Rates) -> list[dict[str, Any]]:
    """Return one award for each supplier; the amounts of its items are added up."""
    act = parse_object((tender.detalle or {}).get("Adjudicacion"))
    won: dict[str, list[tuple[dict[str, Any], Mapping[str, Any]]]] = {}
    for number, item in enumerate(tender.items, 1):
        award = parse_object(item.get("Adjudicacion"))
        if supplier := parse_text(award.get("RutProveedor")):
            won.setdefault(supplier, []).append((_item(item, number), award))
    awards = []
    for supplier, items in won.items():
        prices = [parse_amount(award.get("MontoUnitario")) for _, award in items]
        counts = [
            parse_amount(award.get("Cantidad")) or parse_amount(award.get("CantidadAdjudicada"))
            for _, award in items
        ]
        total = sum((p * n for p, n in zip(prices, counts, strict=True) if p and n), Decimal(0))
        awards.append(
            _filled(
                {
                    "id": f"{tender.codigo_externo}-{supplier}",
                    "status": "active",
                    "date": _time(parse_time(act.get("Fecha"))),
                    "value": _value(total if all(prices) else None, tender.moneda, rates),
                    "suppliers": [
                        _filled(
                            {
                                "id": f"CL-RUT-{supplier}",
                                "name": parse_text(items[0][1].get("NombreProveedor")) or supplier,
                            }
                        )
                    ],
                    "items": [
                        _filled(item | {"quantity": _number(count)})
                        for (item, _), count in zip(items, counts, strict=True)
                    ],
                    "documents": _documents(
                        f"{tender.codigo_externo}-{supplier}",
                        "awardNotice",
                        parse_text(act.get("UrlActa")),
                    ),
                }
            )
        )
    return awards


def _buyer(tender: Licitacion) -> dict[str, Any]:
    """Return the buyer with what identifies it; empty if the tender names none."""
    code, name = tender.codigo_organismo, tender.organismo
    if not code and not name:
        return {}
    unit = parse_object((tender.detalle or {}).get("Comprador"))
    return _filled(
        {
            "id": f"CL-MP-{code or name}",
            "name": name or code,
            "identifier": _identifier(parse_text(unit.get("RutUnidad")), name),
            "address": _filled(
                {
                    "streetAddress": parse_text(unit.get("DireccionUnidad")),
                    "locality": tender.comuna,
                    "region": tender.region,
                    "countryName": "Chile",
                }
            ),
        }
    )


def _supplier(supplier: Mapping[str, Any]) -> dict[str, Any]:
    rut = supplier["id"].removeprefix("CL-RUT-")
    identifier = _identifier(rut, supplier["name"])
    return {**supplier, "identifier": identifier, "roles": ["supplier"]}


def _identifier(rut: str | None, name: str | None) -> dict[str, Any] | None:
    return _filled({"scheme": "CL-RUT", "id": rut, "legalName": name}) if rut else None


def _named(party: Mapping[str, Any]) -> dict[str, Any]:
    return {name: party[name] for name in ("id", "name") if name in party}


def _value(amount: Decimal | None, currency: str | None, rates: Rates) -> dict[str, Any] | None:
    """Return an amount in its currency, or in pesos if OCDS does not have the currency."""
    name = currency_name(currency)
    if name not in CURRENCIES:
        amount, name = in_pesos(amount, currency, rates), PESOS
    return None if amount is None else {"amount": _number(amount), "currency": name}


def _documents(id: str, type: str, url: str | None) -> list[dict[str, Any]]:
    if url is None or not _URL.fullmatch(url):
        return []
    document = {"id": f"{id}-{type}", "documentType": type, "url": url, "format": "text/html"}
    return [document | {"language": "es"}]


def _period(start: datetime | None, end: datetime | None) -> dict[str, Any]:
    return _filled({"startDate": _time(start), "endDate": _time(end)})


def _time(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _number(amount: Decimal | None) -> int | float | None:
    if amount is None:
        return None
    return int(amount) if amount == amount.to_integral_value() else float(amount)


def _filled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that have a value. OCDS has neither empty lists nor empty objects."""
    empty: Iterable[Any] = (None, "", [], {})
    return {name: value for name, value in values.items() if value not in empty}
