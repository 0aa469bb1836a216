"""The public site's list of the newest tenders. Only this module knows the shape of its page."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from esclusa import RunContext
from esclusa.pipelines.tenders.http_body import read_text
from esclusa.pipelines.tenders.sources.source import SourceFailed, TenderSource
from esclusa.pipelines.tenders.tender_fields import parse_amount, parse_time

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

NEWEST = 20
PATH = "/BuscarLicitacion"
CARD = "div.licitacion-publicada"
# The place of each value inside a tender's card.
SELECTORS = {
    "codigo_externo": ".id-licitacion",
    "nombre": "h2",
    "descripcion": ".descripcion",
    "organismo": ".nombre-organismo",
    "region": ".region",
    "estado": ".estado",
    "monto": ".monto",
    "publicacion": ".fecha-publicacion",
    "cierre": ".fecha-cierre",
}

_CODE = re.compile(r"\d{1,9}-\d{1,6}-[A-Z][A-Z0-9]\d{2}\Z")
_NUMBER = re.compile(r"\d[\d.]*(?:,\d+)?")
_DATE = re.compile(r"(\d{2})[-/](\d{2})[-/](\d{4})(?:\s+(\d{2}):(\d{2}))?")


class ChileCompraSite(TenderSource):
    """The site. It lists the newest tenders and has no details; runs go on without it."""

    name = "the public site"

    async def list_tenders(self, run: RunContext, day: date) -> dict[str, dict[str, Any]]:
        import aiohttp  # noqa: PLC0415 - slow to import, and only calls need it

        try:
            async with self.http.get(
                self.settings.site_url + PATH, params={"orden": "recientes", "pagina": "1"}
            ) as response:
                if response.status != 200:
                    raise SourceFailed(f"it answered HTTP {response.status}")
                html = await read_text(response)
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            raise SourceFailed(f"it did not answer: {type(error).__name__} {error}") from None
        return {row["codigo_externo"]: row for row in parse_page(html)}


def parse_page(html: str, count: int = NEWEST) -> list[dict[str, Any]]:
    """Return the first tenders of a page. A card without a code is skipped.

    Raises SourceFailed if the page has no card and does not look like the list.
    """
    from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415 - only ingest needs it

    cards = LexborHTMLParser(html).css(CARD)
    if not cards and "licitacion" not in html.lower():
        raise SourceFailed("its page has another shape than expected")
    return [row for row in (_parse_card(card) for card in cards) if row is not None][:count]


def _parse_card(card: LexborNode) -> dict[str, Any] | None:
    nodes = {name: card.css_first(selector) for name, selector in SELECTORS.items()}
    texts = {
        name: " ".join(node.text().split()) if node is not None else ""
        for name, node in nodes.items()
    }
    if not _CODE.match(texts["codigo_externo"]):
        return None
    link = card.css_first("a[href]")
    return {
        "codigo_externo": texts["codigo_externo"],
        "nombre": texts["nombre"],
        "descripcion": texts["descripcion"] or None,
        "organismo": texts["organismo"] or None,
        "region": texts["region"] or None,
        "estado": texts["estado"] or None,
        "monto_estimado": _parse_pesos(texts["monto"]),
        "fecha_publicacion": _parse_date(texts["publicacion"]),
        "fecha_cierre": _parse_date(texts["cierre"]),
        "url": link.attributes.get("href") if link is not None else None,
    }


def _parse_pesos(text: str) -> Decimal | None:
    """Return the amount of ``$ 1.234.567,50``; None for a range, which has more than one number."""
    found = _NUMBER.findall(text)
    return parse_amount(found[0].replace(".", "").replace(",", ".")) if len(found) == 1 else None


def _parse_date(text: str) -> datetime | None:
    found = _DATE.search(text)
    if found is None:
        return None
    day, month, year, hour, minute = found.groups()
    return parse_time(f"{year}-{month}-{day}T{hour or '00'}:{minute or '00'}:00")
