"""A tender out of what the API and the site say: read leniently, merged field by field, the more complete value wins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

from esclusa.pipelines.tenders.records import Licitacion
from esclusa.pipelines.tenders.settings import CHILE

PLACES, LARGEST = 10, Decimal(10) ** 27
"""The decimals of an amount that are kept, and how large it may be: as many digits as an export holds."""

CHOSEN = ("estado", "region")
"""Names out of a list: a longer one is another one, not a more complete one."""

_FRACTION = re.compile(r"\.(\d+)")


def chile_time(said: Any) -> datetime | None:
    """A moment of the API: local time of Chile unless it says otherwise, with 0 to 7 digits of a second. None if it is none."""
    if not isinstance(said, str) or not said.strip():
        return None
    text = _FRACTION.sub(lambda m: f".{m[1][:6]:0<6}", said.strip())
    try:
        moment = datetime.fromisoformat(text)
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(CHILE))).astimezone(
            UTC
        )
    except (ValueError, OverflowError):
        return None
    return (
        moment if 1900 < moment.year < 2200 else None
    )  # the first and the last moment of a calendar mean that there is none


def from_detail(detail: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a detail tells; many numbers come as text, many texts are blank."""
    buyer, dates = _object(detail.get("Comprador")), _object(detail.get("Fechas"))
    listed = _object(detail.get("Items")).get("Listado")
    items = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    categories = dict.fromkeys(
        code for item in items if (code := _text(item.get("CodigoCategoria")))
    )
    return {
        "codigo_externo": _text(detail.get("CodigoExterno")), "nombre": _text(detail.get("Nombre")) or "",
        "descripcion": _text(detail.get("Descripcion")), "codigo_estado": _whole(detail.get("CodigoEstado")),
        "estado": _text(detail.get("Estado")), "tipo": _text(detail.get("Tipo")), "moneda": _text(detail.get("Moneda")),
        "monto_estimado": amount(detail.get("MontoEstimado")), "codigo_organismo": _text(buyer.get("CodigoOrganismo")),
        "organismo": _text(buyer.get("NombreOrganismo")), "unidad": _text(buyer.get("NombreUnidad")),
        "region": _text(buyer.get("RegionUnidad")), "comuna": _text(buyer.get("ComunaUnidad")),
        "categorias": list(categories), "items": items,
        "fecha_publicacion": chile_time(dates.get("FechaPublicacion")), "fecha_creacion": chile_time(dates.get("FechaCreacion")),
        "fecha_cierre": chile_time(dates.get("FechaCierre")) or chile_time(detail.get("FechaCierre")), "detalle": dict(detail),
    }  # fmt: skip


def merge(*sources: Mapping[str, Any]) -> dict[str, Any]:
    """Field by field the more complete value: something rather than nothing, the longer text or list; else the earlier source's."""
    merged: dict[str, Any] = {}
    for source in sources:
        for name, value in source.items():
            rank = slice(1 if name in CHOSEN else None)
            if name not in merged or _completeness(value)[rank] > _completeness(merged[name])[rank]:
                merged[name] = value
    return merged


def make(merged: Mapping[str, Any], now: datetime) -> Licitacion:
    """The tender; where nobody says when it was published, it was when it was made, or now. Raises BadRecord if what was read does
    not make one."""
    published = merged.get("fecha_publicacion") or merged.get("fecha_creacion") or now
    made = Licitacion.kind.draft({**merged, "fecha_publicacion": published})
    assert isinstance(made, Licitacion)
    return made


def _completeness(value: Any) -> tuple[bool, int]:
    if value is None:
        return (False, 0)
    if isinstance(value, str):
        return (bool(value.strip()), len(value.strip()))
    return (True, 0) if not isinstance(value, list | dict) else (bool(value), len(value))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, dict | list):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 7375.0 is the code 7375
    return str(value).replace("\0", "").strip() or None


def _whole(value: Any) -> int | None:
    number = amount(value)
    return (
        int(number)
        if number is not None and number == int(number) and abs(number) < 2**31
        else None
    )


def amount(value: Any) -> Decimal | None:
    """A number that an export can hold; None if it is none."""
    if value is None or isinstance(value, bool):
        return None
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number) >= LARGEST:
        return None
    return number if Decimal(f"{number:.{PLACES}f}") == number else Decimal(f"{number:.{PLACES}f}")
