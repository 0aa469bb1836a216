"""The public site's search, newest tenders first. Only this module knows the shape of its pages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin

from esclusa import RunContext
from esclusa.pipelines.tenders.http_body import read_text
from esclusa.pipelines.tenders.sources.source import Listing, TenderSource
from esclusa.pipelines.tenders.tender_fields import STATE_CODES, parse_amount, parse_time

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

PATH = "/BuscarLicitacion/Home/Buscar"
# Where the addresses that a person opens are, whatever address the search is read from.
ORIGIN = "https://www.mercadopublico.cl"
FILE_PATH = "/Procurement/Modules/RFB/DetailsAcquisition.aspx?idlicitacion="
CARDS_PER_PAGE = 10
# Every tender in every state, the newest first. `idTipoFecha` would be a month of closing dates.
SEARCH: dict[str, Any] = {
    "textoBusqueda": "",
    "idEstado": -1,
    "codigoRegion": -1,
    "idTipoLicitacion": -1,
    "fechaInicio": None,
    "fechaFin": None,
    "registrosPorPagina": CARDS_PER_PAGE,
    "idTipoFecha": [],
    "idOrden": 3,
    "compradores": [],
    "garantias": [],
    "rubros": [],
    "proveedores": [],
    "montoEstimadoTipo": [0],
    "esPublicoMontoEstimado": [],
}
# A card may lack any of these; if all cards lack one, the page has another shape than expected.
EXPECTED = ("nombre", "tipo", "organismo", "fecha_publicacion", "fecha_cierre")
# Fewer cards may lack a field by chance.
ENOUGH_CARDS = 5

_CODE = re.compile(r"\d{1,9}-\d{1,6}-[A-Z][A-Z0-9]{1,3}\d{2}\Z")
_NUMBER = re.compile(r"\d[\d.]*(?:,\d+)?")
_RANGE = re.compile(r"utm|superior|menor|mayor|entre|desde|hasta", re.IGNORECASE)
_DATE = re.compile(r"(\d{2})/(\d{2})/(\d{4})")
_LABEL = re.compile(r"fecha\s+de\s+(publicaci[oó]n|cierre)", re.IGNORECASE)
_NOTHING = re.compile(
    r"no (se )?(encontr|exist|hay|obtuv)\w*\W.{0,60}(resultado|licitaci)|sin resultados",
    re.IGNORECASE | re.DOTALL,
)
_FILE = re.compile(r"verFicha\(\s*['\"]([^'\"]+)['\"]")
_TEXT = "-text"  # how selectolax names a node of text


class ChileCompraSite(TenderSource):
    """The site. It lists the newest tenders and has no details; runs go on without it."""

    name = "the public site"

    async def list_tenders(self, run: RunContext, day: date) -> Listing:
        """Return what the pages show. A page that fails is named, and the next one is read.

        A page that does not answer at all ends the list: the others would not either.
        """
        listing, total = Listing({}), None
        for page in range(self.settings.site_pages):
            html = await self._page(page, listing)
            if html is None:
                break
            if not html:
                continue
            found = parse_page(html)
            total = found.total if page == 0 else total
            listing.rows |= {row["codigo_externo"]: row for row in found.rows}
            if unread := found.cards - len(found.rows):
                fault = f"page {page}: {unread} of {found.cards} cards cannot be read"
                listing.report(fault, unreadable=True)
            if found.cards == 0 and found.lacks_cards(page, total):
                listing.report(f"page {page} has no card", unreadable=True)
                if page == 0:
                    break
            elif found.cards < CARDS_PER_PAGE:
                break
        if lacking := missing_fields(listing.rows.values()):
            listing.report(f"no card has {', '.join(lacking)}", unreadable=True)
        listing.unreadable = listing.unreadable or bool(listing.faults and not listing.rows)
        return listing

    async def _page(self, page: int, listing: Listing) -> str | None:
        """Return a page's HTML; empty if it is an HTTP error, None if there is no answer."""
        import aiohttp  # noqa: PLC0415 - slow to import, and only calls need it

        try:
            async with self.http.post(
                self.settings.site_url + PATH,
                json={**SEARCH, "pagina": page},
                headers={"Content-Type": "application/json; charset=utf-8"},
                timeout=aiohttp.ClientTimeout(total=self.settings.site_timeout_seconds),
            ) as response:
                if response.status == 200:
                    return await read_text(response) or " "
                fault, answer = f"page {page}: HTTP {response.status}", ""
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            fault, answer = f"page {page} did not answer: {type(error).__name__} {error}", None
        listing.report(fault)
        return answer


@dataclass(frozen=True, slots=True)
class SitePage:
    """What a page shows: its readable tenders, how many cards it has, and the search's total."""

    rows: list[dict[str, Any]]
    cards: int
    total: int | None
    is_blank: bool

    def lacks_cards(self, page: int, total: int | None) -> bool:
        """Whether a page without a card should have one. ``total``: what the first page says."""
        if total is not None:
            return total > page * CARDS_PER_PAGE
        return page == 0 or not self.is_blank


def parse_page(html: str) -> SitePage:
    """Return the tenders of a page."""
    from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415 - only ingest needs it

    tree = LexborHTMLParser(html)
    cards = tree.css('div[class^="lic-bloq-wrap"]')
    rows = [row for card in cards if (row := _parse_card(card)) is not None]
    shown, text = _text(tree.css_first("span.n-result")).replace(".", ""), _text(tree.body)
    total = int(shown) if shown.isascii() and shown.isdigit() else None
    if total is None and not cards and _NOTHING.search(text):
        total, text = 0, ""
    return SitePage(rows, len(cards), total, not text)


def missing_fields(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the fields that no card has, although there are enough cards to expect each."""
    shown = list(rows)
    if len(shown) < ENOUGH_CARDS:
        return []
    return [name for name in EXPECTED if not any(row[name] for row in shown)]


def _parse_card(card: LexborNode) -> dict[str, Any] | None:
    """Return what a card says; None if it has no code."""
    code = _text(card.css_first(".id-licitacion span.clearfix") or card.css_first("span.clearfix"))
    if not _CODE.match(code):
        return None
    strong = card.css(".estado-lic strong")
    sentence = _text(
        card.css_first(".estado-lic .estado-texto") or (strong[1] if len(strong) > 1 else None)
    )
    state = sentence.split(maxsplit=1)[0].strip(",.;").capitalize() if sentence else ""
    buyer = card.css_first(".lic-bloq-footer .col-md-4")
    amount, label = _parse_amount(card)
    published, closing = _parse_dates(card)
    return {
        "codigo_externo": code,
        "nombre": _text(card.css_first("h2.text-weight-light")),
        "descripcion": _text(card.css_first(".lic-block-body p.text-weight-light")) or None,
        "tipo": _text(card.css_first(".estado-lic strong > span")) or None,
        "estado": state or None,
        "codigo_estado": STATE_CODES.get(state.lower()),
        "organismo": _text(buyer.css_first("strong")) or None if buyer else None,
        "unidad": _text(buyer.css_first("strong ~ p")) or None if buyer else None,
        "moneda": None if amount is None else "CLP",
        "monto_estimado": amount,
        "monto_label": label,
        "fecha_publicacion": published,
        "fecha_cierre": closing,
        "url": _parse_url(card, code),
    }


def _text(node: LexborNode | None) -> str:
    return "" if node is None else " ".join(node.text().split())


def _parse_amount(card: LexborNode) -> tuple[Decimal | None, str | None]:
    """Return the amount in pesos, or the words in its place. Zero is no amount."""
    text = _text(card.css_first(".campo-numerico-punto-coma"))
    found = _NUMBER.findall(text)
    if len(found) == 1 and not _RANGE.search(text):
        number = parse_amount(found[0].replace(".", "").replace(",", "."))
        return (number or None), None
    return None, text or _text(card.css_first(".monto-no-publico")) or None


def _parse_dates(card: LexborNode) -> tuple[datetime | None, datetime | None]:
    """Return the publication and the closing date: by their labels, or else by their order."""
    names: list[str | None] = []  # of each date, in order
    days: list[datetime | None] = []
    label, leads = None, None
    for node in card.traverse(include_text=True):
        if node.tag == _TEXT and (found := _LABEL.search(node.text())) and _is_label(node):
            label = found[1].lower()
            leads = not days if leads is None else leads
            if not leads and names and names[-1] is None:
                names[-1], label = label, None
        elif (
            node.tag == "span"
            and {"highlight-text", "text-weight-light"} <= set(_classes(node))
            and (day := _DATE.search(node.text()))
        ):
            days.append(parse_time(f"{day[3]}-{day[2]}-{day[1]}T12:00:00"))
            names.append(label)
            label = None
    if not any(names):
        names = ["publicacion", "cierre", *names][: len(days)]
    dates = {name[:6]: day for name, day in zip(names, days, strict=True) if name}
    return dates.get("public"), dates.get("cierre")


def _is_label(node: LexborNode) -> bool:
    """Whether the text is none of the tender's own words."""
    parent = node.parent
    return parent is not None and "text-weight-light" not in _classes(parent)


def _classes(node: LexborNode) -> list[str]:
    return (node.attributes.get("class") or "").split()


def _parse_url(card: LexborNode, code: str) -> str:
    """Return the address of the tender's file."""
    for node in card.css("[onclick]"):
        found = _FILE.search(node.attributes.get("onclick") or "")
        if found is not None:
            url: str = urljoin(ORIGIN, found[1].strip())
            if url.startswith(("http://", "https://")):
                return url
    return ORIGIN + FILE_PATH + quote(code)
