"""The visitor's language, theme and time zone, kept in cookies."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from esclusa.web.console import catalog, render, zones
from esclusa.web.console.context import THEMES, ConsoleContext
from esclusa.web.console.forms import local

YEAR = 365 * 86400


def add_routes(api: APIRouter, console: ConsoleContext) -> None:
    """Add the routes of this module."""

    @api.post("/console/preferences")
    async def preferences(request: Request) -> Response:
        form = await console.form(request)
        response = RedirectResponse(render.prefix.get() + local(form.get("next", "/")), 303)
        for name, allowed in (("language", tuple(catalog.LANGUAGES)), ("theme", THEMES)):
            if form.get(name) in allowed:
                console.set_cookie(request, response, f"esclusa_{name}", form.get(name), YEAR)
        if form.get("utc") in ("on", "off"):
            value = "1" if form.get("utc") == "on" else ""
            console.set_cookie(request, response, zones.UTC_COOKIE, value, YEAR)
        if zones.find(form.get("zone")) is not None:
            console.set_cookie(request, response, zones.UTC_COOKIE, "", YEAR)
            console.set_cookie(
                request, response, zones.COOKIE, quote(form.get("zone")), YEAR, readable=True
            )
        return response

    @api.get("/console/preferences")
    async def time_zone(request: Request, next: str = "/") -> Response:
        return await console.page(
            request,
            "preferences.html",
            zones=zones.names(),
            zone=zones.name(),
            here="",
            return_to=local(next),
        )
