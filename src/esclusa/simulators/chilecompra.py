"""ChileCompra: the API with its odd success rule and errors, and the public site's search.

Control routes besides those of every simulator:

- ``POST /_tenders``: details, or ``{"count": n, "day": "2026-11-16"}`` for sample tenders. ``site``
  says whether the site lists them, ``api`` whether the lists of the API do.
- ``POST /_state``: ``ticket``, ``quota`` (calls a day), ``gap`` (seconds below which two calls are
  too fast), ``site`` (false takes the site down), ``site_shape`` (``known``, ``changed``,
  ``codeless``, ``empty``), ``site_errors`` (HTTP statuses by page, such as ``{"7": 500}``).
- ``GET /_state``: how many calls were answered, and how many came too fast or at once.
"""

from __future__ import annotations

import asyncio
import re
import time
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from aiohttp import web

from esclusa.simulators.base import Simulator
from esclusa.simulators.chilecompra_site import PATH as SITE_PATH
from esclusa.simulators.chilecompra_site import answer_search

CHILE = ZoneInfo("America/Santiago")
REGIONS = (
    "Región del Biobío ",
    "Región Metropolitana de Santiago",
    "Región de Valparaíso",
    "Región de Ñuble",
    "Región de Los Ríos",
)
BUYERS = (
    ("7375", "Servicio de Salud Concepción"),
    ("6920", "Municipalidad de Ñuñoa"),
    ("2239", "Dirección de Vialidad"),
)
WORKS = (
    ("85122200", "Servicio de atención hospitalaria"),
    ("72103300", "Mantención de caminos"),
    ("43211500", "Computadores y periféricos"),
)
# The codes of the states that the parameter ``estado`` names; no code is no limit.
STATES: dict[str, tuple[int, ...]] = {
    "publicada": (5,),
    "cerrada": (6,),
    "desierta": (7,),
    "adjudicada": (8,),
    "revocada": (18,),
    "suspendida": (19,),
    "activas": (5,),
    "todos": (),
}
_CODE = re.compile(r"\d{1,9}-\d{1,6}-[A-Z][A-Z0-9]\d{2}\Z")


def sample_tender(number: int, day: str) -> dict[str, Any]:
    """A detail in the format of the API, varied by its number."""
    buyer, name = BUYERS[number % len(BUYERS)]
    code, work = WORKS[number % len(WORKS)]
    return {
        "CodigoExterno": f"{1000 + number // 500}-{number % 500 + 1}-L{'EPQ'[number % 3]}26",
        "Nombre": f"{work} N° {number}",
        "CodigoEstado": 5,
        "Descripcion": f"Se requiere {work.lower()} para {name}.",
        "FechaCierre": None,
        "Estado": "Publicada",
        "Comprador": {
            "CodigoOrganismo": buyer,
            "NombreOrganismo": name,
            "RegionUnidad": REGIONS[number % len(REGIONS)],
            "ComunaUnidad": "Concepción",
            "NombreUnidad": "Abastecimiento",
            "RutUsuario": "",
        },
        "DiasCierreLicitacion": "20",
        "Tipo": "LE",
        "CodigoTipo": 1,
        "Moneda": "CLP",
        "Obras": "0",
        "Fechas": {
            "FechaCreacion": f"{day}T07:43:50.77",
            "FechaPublicacion": f"{day}T10:56:06.9412345",
            "FechaCierre": f"{date.fromisoformat(day) + timedelta(days=20)}T15:30:00",
        },
        "MontoEstimado": None if number % 4 == 3 else float(1_000_000 * (number % 50 + 1)),
        "Items": {
            "Cantidad": 1,
            "Listado": [
                {
                    "Correlativo": 1,
                    "CodigoProducto": int(code) + 1,
                    "CodigoCategoria": code,
                    "Categoria": work,
                    "NombreProducto": work,
                    "Cantidad": 1.0,
                }
            ],
        },
    }


class ChileCompraSimulator(Simulator):
    """The API and the site of ChileCompra."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/servicios/v1/publico/licitaciones.json", self._api),
            web.post(SITE_PATH, self._site),
            web.post("/_tenders", self._add),
            web.route("*", "/_state", self._state),
        ]

    def reset(self) -> None:
        super().reset()
        self.ticket, self.quota, self.gap, self.site_up = (
            "F8537A18-6766-4DEF-9E59-426B4FEE2844",
            10_000,
            0.0,
            True,
        )
        self.site_shape, self.site_errors = "known", dict[str, int]()
        self.details: dict[str, dict[str, Any]] = {}
        self.listed: dict[str, bool] = {}
        self.on_site: dict[str, bool] = {}
        self.answered, self.too_fast, self._busy, self._last = 0, 0, False, 0.0

    def add(self, *details: dict[str, Any], site: bool = False, api: bool = True) -> None:
        """Publish tenders."""
        for detail in details:
            code = detail["CodigoExterno"]
            self.details[code], self.listed[code], self.on_site[code] = detail, api, site

    async def _api(self, request: web.Request) -> web.Response:
        if self._busy or time.monotonic() - self._last < self.gap:
            self.too_fast += 1
            return _error(
                429, 10500, "Lo sentimos. Hemos detectado que existen peticiones simultáneas."
            )
        self._busy = True
        try:
            await asyncio.sleep(0)
            return self._answer(request.query)
        finally:
            self._busy, self._last = False, time.monotonic()

    def _answer(self, body: Any) -> web.Response:
        if body.get("ticket") != self.ticket:
            return _error(203, 203, "Ticket no válido.")
        if self.answered >= self.quota:
            return _error(203, 203, "Ticket superó la cuota diaria asignada.")
        self.answered += 1
        if (code := body.get("codigo")) is not None:
            if not _CODE.match(code):
                return _error(500, 10300, "Los parámetros no son válidos.")
            found = self.details.get(code)
            return _list_response([found] if found is not None else [])
        day = body.get("fecha", "")
        if day and not re.fullmatch(r"\d{8}", day):
            return _error(500, 10300, "El formato del parametro fechas es incorrecto")
        wanted = str(body.get("estado") or "todos").lower()
        if wanted not in STATES and not wanted.isdigit():
            return _error(500, 10300, "Los parámetros no son válidos.")
        states = STATES.get(wanted, (int(wanted) if wanted.isdigit() else 0,))
        today = "" if "estado" in body and not day else f"{datetime.now(CHILE):%d%m%Y}"
        rows = [
            _summary(detail)
            for code, detail in self.details.items()
            if self.listed[code]
            and (not states or detail.get("CodigoEstado") in states)
            and _day(detail) == (day or today or _day(detail))
        ]
        return _list_response(rows)

    async def _site(self, request: web.Request) -> web.Response:
        raw = await request.read()
        page = re.search(rb'"pagina": ?(\d+)', raw)
        status = 503 if not self.site_up else self.site_errors.get(page[1].decode() if page else "")
        if status:
            return web.Response(
                status=status,
                text="<html><body>Sitio en mantención</body></html>",
                content_type="text/html",
            )
        listed = [detail for code, detail in self.details.items() if self.on_site[code]]
        return answer_search(
            raw,
            request.content_type,
            listed,
            datetime.now(CHILE).date(),
            self.site_shape,
        )

    async def _add(self, request: web.Request) -> web.Response:
        body = await request.json()
        if isinstance(body, list):
            body = {"details": body}
        start = len(self.details)
        made = body.get("details") or [
            sample_tender(start + n, body["day"]) for n in range(body["count"])
        ]
        self.add(*made, site=body.get("site", False), api=body.get("api", True))
        return web.json_response({"codes": [detail["CodigoExterno"] for detail in made]})

    async def _state(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            body = await request.json()
            self.ticket, self.quota = body.get("ticket", self.ticket), body.get("quota", self.quota)
            self.gap, self.site_up = body.get("gap", self.gap), body.get("site", self.site_up)
            self.site_shape = body.get("site_shape", self.site_shape)
            self.site_errors = body.get("site_errors", self.site_errors)
        return web.json_response(
            {"answered": self.answered, "too_fast": self.too_fast, "tenders": len(self.details)}
        )


def _summary(detail: dict[str, Any]) -> dict[str, Any]:
    """A tender's row in a list: four members."""
    dates = detail.get("Fechas")
    closing = dates.get("FechaCierre") if isinstance(dates, dict) else None
    return {
        "CodigoExterno": detail["CodigoExterno"],
        "Nombre": detail.get("Nombre"),
        "CodigoEstado": detail.get("CodigoEstado"),
        "FechaCierre": detail.get("FechaCierre") or closing,
    }


def _day(detail: dict[str, Any]) -> str:
    year, month, day = str(detail.get("Fechas", {}).get("FechaPublicacion", ""))[:10].split("-")
    return f"{day}{month}{year}"


def _list_response(rows: list[Any]) -> web.Response:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S.1234567Z", time.gmtime())
    return web.json_response(
        {"Cantidad": len(rows), "FechaCreacion": stamp, "Version": "v1", "Listado": rows}
    )


def _error(status: int, code: int, message: str) -> web.Response:
    return web.json_response({"Codigo": code, "Mensaje": message}, status=status)
