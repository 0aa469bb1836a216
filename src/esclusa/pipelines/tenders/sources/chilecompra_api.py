"""ChileCompra's API: one call at a time, paced; no message contains the ticket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

from esclusa import EsclusaError, RunContext, Text
from esclusa.http import retry_after
from esclusa.pipelines.tenders.http_body import parse_json, read_text
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.pipelines.tenders.sources.source import (
    Listing,
    SourceBlocked,
    SourceFailed,
    TenderSource,
)
from esclusa.pipelines.tenders.tender_fields import (
    parse_amount,
    parse_integer,
    parse_object,
    parse_text,
    parse_time,
)

if TYPE_CHECKING:
    import aiohttp

PATH = "/servicios/v1/publico/licitaciones.json"
# The waits between attempts, in paces: 2, 4, 8, 16 and 30 s by default.
RETRY_PACES = (1, 2, 4, 8, 15)


class ChileCompraApi(TenderSource):
    """The API. Every call is reserved in the budget of the ticket's day."""

    name = "the API"
    required = True
    lists_past_days = True

    def __init__(self, http: aiohttp.ClientSession, settings: TendersSettings) -> None:
        super().__init__(http, settings)
        self._ticket = settings.ticket.get_secret_value() if settings.ticket else ""
        self._pace = settings.pace_seconds
        self._turn = asyncio.Lock()
        self._next_call = 0.0

    async def list_tenders(self, run: RunContext, day: date) -> Listing:
        return _listing(await self._request(run, {"fecha": f"{day:%d%m%Y}"}, RETRY_PACES))

    async def list_open(self, run: RunContext) -> Listing:
        return _listing(await self._request(run, {"estado": "activas"}, RETRY_PACES))

    async def detail(self, run: RunContext, code: str, *, retry: bool) -> dict[str, Any] | None:
        for row in await self._request(run, {"codigo": code}, RETRY_PACES if retry else ()):
            found = row.get("CodigoExterno") if isinstance(row, dict) else None
            if isinstance(found, str) and found.strip().casefold() == code.casefold():
                return row
        return None

    def fields(self, row: dict[str, Any]) -> dict[str, Any]:
        return fields_of(row)

    async def _request(
        self, run: RunContext, params: dict[str, str], waits: tuple[int, ...]
    ) -> list[dict[str, Any]]:
        """Call in turn and in pace; repeat a call that may succeed after each of the waits."""
        if not self._ticket:
            raise SourceBlocked(Text("CHILECOMPRA_TICKET is not set"))
        for paces in (*waits, None):
            try:
                async with self._turn:
                    await asyncio.sleep(max(0.0, self._next_call - time.monotonic()))
                    await run.spend(self.settings.api_budget)
                    try:
                        return await self._call(params)
                    finally:
                        self._next_call = time.monotonic() + self._pace
            except _RetryableError as error:
                if paces is None:
                    raise SourceFailed(error.message, outage=True) from None
                await asyncio.sleep(min(60.0, max(paces * self._pace, error.after)))
        raise AssertionError("unreachable")

    async def _call(self, params: dict[str, str]) -> list[dict[str, Any]]:
        import aiohttp  # noqa: PLC0415 - slow to import, and only calls need it

        try:
            async with self.http.get(
                self.settings.api_url + PATH, params={**params, "ticket": self._ticket}
            ) as response:
                status, body = response.status, parse_json(await read_text(response))
                after = retry_after(response.headers, time.time()) or 0.0
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            why = f"{type(error).__name__} {error}".replace(self._ticket, "***")
            raise _RetryableError(Text("the API did not answer: {why}", why=why)) from None
        if status == 200 and isinstance(body, dict) and "Listado" in body:
            rows = body["Listado"]
            if isinstance(rows, list | None):
                return rows or []
        raise self._fault(status, body, after)

    def _fault(self, status: int, body: Any, after: float) -> Exception:
        """Return the error that an answer without a list means."""
        answer = parse_object(body)
        message = str(
            answer.get("Mensaje") or parse_object(answer.get("error")).get("message") or ""
        )
        message = message.replace(self._ticket, "***")
        code = str(answer.get("Codigo") or "")[:20]
        where = f"HTTP {status}{f', code {code}' if code else ''}"
        detail = f"{message[:300] or 'no message'} ({where})"
        if "cuota" in message.lower():
            return SourceBlocked(
                Text("the ticket's daily quota is used up: {detail}", detail=detail)
            )
        if status == 203 or code == "203":
            return SourceBlocked(
                Text("the ticket is not valid: {detail}; check CHILECOMPRA_TICKET", detail=detail)
            )
        if code == "10300":
            return SourceFailed(Text("the API refuses the request: {detail}", detail=detail))
        return _RetryableError(Text("the API failed: {detail}", detail=detail), after)


def _listing(rows: list[Any]) -> Listing:
    found = ((row.get("CodigoExterno"), row) for row in rows if isinstance(row, dict))
    return Listing(
        {code.strip(): row for code, row in found if isinstance(code, str) and code.strip()}
    )


class _RetryableError(EsclusaError):
    """The call may succeed later."""

    def __init__(self, message: str, after: float = 0.0) -> None:
        self.after = after
        super().__init__(message)


def fields_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a list row or a detail.

    The API sends many numbers as text, and many texts blank.
    """
    buyer, dates = parse_object(row.get("Comprador")), parse_object(row.get("Fechas"))
    listed = parse_object(row.get("Items")).get("Listado")
    items = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    categories = dict.fromkeys(
        code for item in items if (code := parse_text(item.get("CodigoCategoria")))
    )
    return {
        "codigo_externo": parse_text(row.get("CodigoExterno")),
        "nombre": parse_text(row.get("Nombre")) or "",
        "descripcion": parse_text(row.get("Descripcion")),
        "codigo_estado": parse_integer(row.get("CodigoEstado")),
        "estado": parse_text(row.get("Estado")),
        "tipo": parse_text(row.get("Tipo")),
        "moneda": parse_text(row.get("Moneda")),
        "monto_estimado": parse_amount(row.get("MontoEstimado")),
        "codigo_organismo": parse_text(buyer.get("CodigoOrganismo")),
        "organismo": parse_text(buyer.get("NombreOrganismo")),
        "unidad": parse_text(buyer.get("NombreUnidad")),
        "region": parse_text(buyer.get("RegionUnidad")),
        "comuna": parse_text(buyer.get("ComunaUnidad")),
        "categorias": list(categories),
        "items": items,
        "fecha_publicacion": parse_time(dates.get("FechaPublicacion")),
        "fecha_creacion": parse_time(dates.get("FechaCreacion")),
        "fecha_cierre": parse_time(dates.get("FechaCierre")) or parse_time(row.get("FechaCierre")),
        "detalle": dict(row),
    }
