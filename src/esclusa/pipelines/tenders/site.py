"""The public site's list of newest tenders. The shape of its page is known here and nowhere else.

Its failure never blocks: whatever cannot be read is a SiteFailed, which the caller tells and goes on.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from esclusa import EsclusaError
from esclusa.pipelines.tenders.answers import text_of
from esclusa.pipelines.tenders.tender import amount, chile_time

if TYPE_CHECKING:
    import aiohttp
    from selectolax.lexbor import LexborNode

PATH = "/BuscarLicitacion"
CARD = "div.licitacion-publicada"
FIELDS = {
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
"""Where each value is inside a tender's card."""

_CODE = re.compile(r"\d{1,9}-\d{1,6}-[A-Z][A-Z0-9]\d{2}\Z")
_NUMBER = re.compile(r"\d[\d.]*(?:,\d+)?")
_DATE = re.compile(r"(\d{2})[-/](\d{2})[-/](\d{4})(?:\s+(\d{2}):(\d{2}))?")


class SiteFailed(EsclusaError):
    """The site could not be read."""


async def newest(
    session: aiohttp.ClientSession, origin: str, count: int = 20
) -> list[dict[str, Any]]:
    """The newest tenders, as far as the page tells them. Raises SiteFailed."""
    import aiohttp  # noqa: PLC0415 - heavy, and only needed where something is called

    try:
        async with session.get(
            origin + PATH, params={"orden": "recientes", "pagina": "1"}
        ) as answer:
            if answer.status != 200:
                raise SiteFailed(f"it answered HTTP {answer.status}")
            html = await text_of(answer)
    except (OSError, TimeoutError, aiohttp.ClientError) as error:
        raise SiteFailed(f"it did not answer: {type(error).__name__} {error}") from None
    return parse(html, count)


def parse(html: str, count: int = 20) -> list[dict[str, Any]]:
    """The tenders on a page, the first ``count``. A card without a code is passed over; a page without any card is not ours."""
    from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415 - only ingest needs it

    cards = LexborHTMLParser(html).css(CARD)
    if not cards and "licitacion" not in html.lower():
        raise SiteFailed("its page has another shape than expected")
    found: list[dict[str, Any]] = []
    for card in cards:
        row = _row(card)
        if row is not None and len(found) < count:
            found.append(row)
    return found


def _row(card: LexborNode) -> dict[str, Any] | None:
    said: dict[str, str] = {}
    for name, where in FIELDS.items():
        node = card.css_first(where)
        said[name] = " ".join(node.text().split()) if node is not None else ""
    if not _CODE.match(said["codigo_externo"]):
        return None
    link = card.css_first("a[href]")
    return {
        "codigo_externo": said["codigo_externo"], "nombre": said["nombre"], "descripcion": said["descripcion"] or None,
        "organismo": said["organismo"] or None, "region": said["region"] or None, "estado": said["estado"] or None,
        "monto_estimado": _amount(said["monto"]), "fecha_publicacion": _moment(said["publicacion"]),
        "fecha_cierre": _moment(said["cierre"]), "url": link.attributes.get("href") if link is not None else None,
    }  # fmt: skip


def _amount(text: str) -> Decimal | None:
    """``$ 1.234.567,50``: dots group, a comma begins the decimals. More than one number is a range, which is no amount."""
    found = _NUMBER.findall(text)
    return amount(found[0].replace(".", "").replace(",", ".")) if len(found) == 1 else None


def _moment(text: str) -> Any:
    found = _DATE.search(text)
    if found is None:
        return None
    day, month, year, hour, minute = found.groups()
    return chile_time(f"{year}-{month}-{day}T{hour or '00'}:{minute or '00'}:00")
