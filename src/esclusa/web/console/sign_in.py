"""Signing in and out."""

from __future__ import annotations

import math

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from esclusa.web.auth.middleware import is_cross_site
from esclusa.web.auth.tokens import find_token
from esclusa.web.console import render
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.context import ConsoleContext
from esclusa.web.console.forms import FormRefused, local, read_form
from esclusa.web.console.session import COOKIE, LIFETIME


def add_routes(api: APIRouter, console: ConsoleContext) -> None:
    """Add the routes of this module."""

    def asked_again(request: Request, status: int, target: str, fault: str | None) -> Response:
        return console.render(request, "sign-in.html", status, next=local(target), fault=fault)

    @api.get("/console/sign-in")
    async def sign_in(request: Request, next: str = "/") -> Response:
        if not console.sessions.needed or console.visitor(request):
            return RedirectResponse(render.prefix.get() + local(next), 303)
        return asked_again(request, 200, next, None)

    @api.post("/console/sign-in")
    async def open_session(request: Request) -> Response:
        form = await read_form(request)
        if is_cross_site(request.headers):
            raise FormRefused(403, _("The sign-in form was sent from another site."))
        address = request.client.host if request.client else ""
        secret, wait = form.get("token").strip(), console.failed_attempts.wait(address)
        if wait > 0 and not console.failed_attempts.was_accepted(address, secret):
            fault = _(
                "Too many invalid tokens from this address. Try again in {time}.",
                time=render.duration(math.ceil(wait)),
            )
            return asked_again(request, 429, form.get("next"), fault)
        token = find_token(console.tokens, secret)
        if token is None:
            console.failed_attempts.add_failure(address)
            fault = _("Invalid token. Tokens are set in ESCLUSA_API_TOKENS.")
            return asked_again(request, 401, form.get("next"), fault)
        console.failed_attempts.add_success(address, secret)
        response = RedirectResponse(render.prefix.get() + local(form.get("next", "/")), 303)
        console.set_cookie(request, response, COOKIE, console.sessions.open(token), LIFETIME)
        return response

    @api.post("/console/sign-out")
    async def sign_out(request: Request) -> Response:
        await console.form(request)
        await console.end_session(request)
        response = RedirectResponse(render.url("console", "sign-in"), 303)
        response.delete_cookie(COOKIE, path=render.prefix.get() or "/")
        return response
