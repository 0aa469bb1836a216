"""The search of the public site: a POST with a JSON body, answered by a fragment of HTML.

It has ten cards a page. Tests order its faults: HTTP errors of single pages, cards without a code,
and a fragment of another shape.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from typing import Any

from aiohttp import web

PATH = "/BuscarLicitacion/Home/Buscar"
CARDS_PER_PAGE = 10
# What the site's own page and other clients send. A body that lacks one is an error.
MEMBERS = (
    "textoBusqueda",
    "idEstado",
    "codigoRegion",
    "idTipoLicitacion",
    "fechaInicio",
    "fechaFin",
    "registrosPorPagina",
    "idTipoFecha",
    "idOrden",
    "compradores",
    "garantias",
    "rubros",
    "proveedores",
    "montoEstimadoTipo",
    "esPublicoMontoEstimado",
    "pagina",
)
# The class of a card after `lic-bloq-wrap`, and the sentence of its state, by the state's code.
STATES = {
    5: ("cont-lic-publicada", "Publicada y disponible para ofertar"),
    6: ("cont-lic-cerrada", "Cerrada a la recepción de ofertas"),
    7: ("cont-lic-desierta", "Desierta, sin ofertas admisibles"),
    8: ("cont-lic-adjudicada", "Adjudicada a uno o más proveedores"),
    18: ("cont-lic-revocada", "Revocada por el organismo comprador"),
    19: ("cont-lic-suspendida", "Suspendida"),
}
UNPUBLISHED_AMOUNTS = {
    "L1": "Menor a 100 UTM",
    "LE": "Entre 100 y 1.000 UTM",
    "LP": "Entre 1.000 y 2.000 UTM",
    "LQ": "Entre 2.000 y 5.000 UTM",
    "LR": "Igual o superior a 5.000 UTM",
}
SHAPES = ("known", "changed", "codeless", "empty")


def answer_search(
    raw: bytes, content_type: str, details: Sequence[dict[str, Any]], today: date, shape: str
) -> web.Response:
    """Answer a search among these tenders, the newest last.

    ``shape``: ``known``, or ``changed`` (other classes), ``codeless`` (cards without a code),
    ``empty`` (a frame without cards).
    """
    if content_type != "application/json":
        return _page("<h2>415 Unsupported Media Type</h2>", 415)
    try:
        search = json.loads(raw)
    except ValueError:
        search = None
    if not isinstance(search, dict) or any(name not in search for name in MEMBERS):
        return _page("<h2>Ha ocurrido un error</h2>", 500)
    found = [detail for detail in reversed(details) if _is_wanted(detail, search, today)]
    start = int(search["pagina"]) * CARDS_PER_PAGE
    fragment = "".join(
        render_card(detail, coded=shape != "codeless")
        for detail in found[start : start + CARDS_PER_PAGE]
    )
    if shape == "empty":
        fragment = ""
    if start == 0:
        fragment = render_head(found) + fragment
    if shape == "changed":
        fragment = fragment.replace("lic-bloq-wrap", "card-licitacion").replace("n-result", "total")
    return _page(f'<div class="responsive-resultados">{fragment}</div>')


def _page(body: str, status: int = 200) -> web.Response:
    return web.Response(text=body, status=status, content_type="text/html", charset="utf-8")


def _is_wanted(detail: dict[str, Any], search: dict[str, Any], today: date) -> bool:
    if search["idEstado"] not in (-1, detail.get("CodigoEstado")):
        return False
    words = str(search["textoBusqueda"] or "").lower()
    if words not in str(detail.get("Nombre", "")).lower():
        return False
    # The closing date's month: 1 this month, 2 the next, 3 later; a list is no limit.
    bucket, closing = search["idTipoFecha"], _day(detail, "FechaCierre")
    if not isinstance(bucket, int) or closing is None:
        return True
    months = (closing.year - today.year) * 12 + closing.month - today.month
    return min(max(months, 0), 2) + 1 == bucket


def render_head(found: Sequence[dict[str, Any]]) -> str:
    """The first page begins with the total and two hidden sums."""
    sums = [sum(d.get("MontoEstimado") or 0 for d in found), 0]
    hidden = "".join(
        f'<input type="hidden" id="hdnTotalPresupuesto{name}" value="{total:.0f}" />'
        for name, total in zip(("Publico", "Privado"), sums, strict=True)
    )
    return (
        '<div class="row resultados"><p>Existen <span class="n-result">'
        f"{_dots(len(found))}</span> resultados para su b&#250;squeda</p>{hidden}</div>"
    )


def render_card(detail: dict[str, Any], *, coded: bool = True) -> str:
    """One card. What the tender lacks is missing in the card too."""
    code, kind = str(detail["CodigoExterno"]), detail.get("Tipo")
    css, sentence = STATES.get(detail.get("CodigoEstado") or 0, ("", ""))
    buyer = detail.get("Comprador") or {}
    link = (
        f"https://www.mercadopublico.cl/Procurement/Modules/RFB/DetailsAcquisition.aspx?qs={code}"
    )
    parts = [
        f'<div class="lic-bloq-wrap {css}">',
        '<div class="lic-bloq-header clearfix"><div class="id-licitacion">',
        f'Licitaci&#243;n ID: <span class="clearfix">\n  {code} </span>' if coded else "",
        '</div><div class="estado-lic"><strong>',
        f"<span>{kind}</span>" if kind else "",
        f'</strong> <strong class="estado-texto">{_entities(sentence)}</strong></div></div>',
        '<div class="lic-block-body">',
    ]
    if detail.get("Nombre"):
        parts.append(
            f'<a href="#" onclick="$.Busqueda.verFicha(\'{link}&amp;x=1\')">'
            f'<h2 class="text-weight-light">\n{_entities(detail["Nombre"])}\n</h2></a>'
        )
    if detail.get("Descripcion"):
        parts.append(f'<p class="text-weight-light">{_entities(detail["Descripcion"])}</p>')
    parts.append(f'<div class="row">{_amount(detail)}{_dates(detail)}</div></div>')
    parts.append('<div class="lic-bloq-footer row"><div class="col-md-4">')
    if buyer.get("NombreOrganismo"):
        parts.append(f"<strong>{_entities(buyer['NombreOrganismo'])}</strong>")
        parts.append(f"<p>{_entities(buyer.get('NombreUnidad') or '')}</p>")
    parts.append('</div><div class="col-md-4"><strong>100%</strong><p>pago oportuno</p></div>')
    parts.append("</div></div>")
    return "".join(parts)


def _amount(detail: dict[str, Any]) -> str:
    amount = detail.get("MontoEstimado")
    if amount and detail.get("Moneda", "CLP") == "CLP":
        whole, _, fraction = f"{amount:.2f}".partition(".")
        text = _dots(int(whole)) + (f",{fraction}" if fraction.strip("0") else "")
        return (
            "<div><p>Monto disponible</p><strong>$ "
            f'<span class="campo-numerico-punto-coma">{text}</span></strong></div>'
        )
    words = UNPUBLISHED_AMOUNTS.get(str(detail.get("Tipo")))
    return f'<div><p>Monto</p><span class="monto-no-publico">{words}</span></div>' if words else ""


def _dates(detail: dict[str, Any]) -> str:
    labels = {"FechaPublicacion": "Fecha de publicación", "FechaCierre": "Fecha de cierre"}
    return "".join(
        f"<div><p>{_entities(label)}</p>"
        f'<span class="highlight-text text-weight-light">{day:%d/%m/%Y}</span></div>'
        for name, label in labels.items()
        if (day := _day(detail, name)) is not None
    )


def _day(detail: dict[str, Any], name: str) -> date | None:
    text = str((detail.get("Fechas") or {}).get(name) or "")[:10]
    return date.fromisoformat(text) if text else None


def _dots(number: int) -> str:
    return f"{number:,}".replace(",", ".")


def _entities(text: str) -> str:
    """The text with everything but ASCII as numeric entities, as the site sends it."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.encode("ascii", "xmlcharrefreplace").decode()
