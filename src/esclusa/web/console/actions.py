"""Signing in and out, language and theme, and the acts on cycles, budgets and alerts."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from esclusa.engine.operations import Operations
from esclusa.model.errors import EsclusaError
from esclusa.model.system_records import Alert
from esclusa.web.auth.tokens import find_token
from esclusa.web.console import catalog, render
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.context import THEMES, Desk, Refused, local, read_form
from esclusa.web.console.session import COOKIE, LASTS

SOON = 1.5
"""Seconds that a started run has to end before the page goes on without it."""


def routes(desk: Desk) -> APIRouter:
    api = APIRouter(include_in_schema=False, route_class=desk.route())
    _sign(api, desk)
    _switches(api, desk)
    return api


def _sign(api: APIRouter, desk: Desk) -> None:
    @api.get("/console/sign-in")
    async def sign_in(request: Request, next: str = "/") -> Response:
        if not desk.sessions.needed or desk.visitor(request):
            return RedirectResponse(render.place.get() + local(next), 303)
        return desk.answer(request, "sign-in.html", next=local(next), fault=None)

    @api.post("/console/sign-in")
    async def signed_in(request: Request) -> Response:
        form = await read_form(request)
        site = request.headers.get("sec-fetch-site", "same-origin")
        if site not in ("same-origin", "none"):
            raise Refused(403, _("Another site's page may not sign you in."))
        address = request.client.host if request.client else ""
        secret, wait = form.get("token").strip(), desk.failed_attempts.wait(address)
        if wait > 0 and not desk.failed_attempts.was_accepted(address, secret):
            fault = _(
                "Too many wrong tokens came from this address; try again in {time}.",
                time=render.duration(math.ceil(wait)),
            )
            return desk.answer(
                request, "sign-in.html", 429, next=local(form.get("next")), fault=fault
            )
        token = find_token(desk.tokens, secret)
        if token is None:
            desk.failed_attempts.add_failure(address)
            fault = _("This token is not one of ours. Tokens are set in ESCLUSA_API_TOKENS.")
            return desk.answer(
                request, "sign-in.html", 401, next=local(form.get("next")), fault=fault
            )
        desk.failed_attempts.add_success(address, secret)
        response = RedirectResponse(render.place.get() + local(form.get("next", "/")), 303)
        desk.set_cookie(request, response, COOKIE, desk.sessions.open(token), LASTS)
        return response

    @api.post("/console/sign-out")
    async def sign_out(request: Request) -> Response:
        await desk.form(request)
        response = RedirectResponse(render.url("console", "sign-in"), 303)
        response.delete_cookie(COOKIE, path=render.place.get() or "/")
        return response

    @api.post("/console/preferences")
    async def preferences(request: Request) -> Response:
        form = await desk.form(request)
        response = RedirectResponse(render.place.get() + local(form.get("next", "/")), 303)
        for name, allowed in (("language", tuple(catalog.LANGUAGES)), ("theme", THEMES)):
            if form.get(name) in allowed:
                desk.set_cookie(request, response, f"esclusa_{name}", form.get(name), 365 * 86400)
        return response


def _switches(api: APIRouter, desk: Desk) -> None:
    started: set[asyncio.Task[str]] = set()

    def operator(request: Request) -> Operations:
        return desk.runtime.operations(str(request.state.who))

    @api.post("/console/cycles/{name}/{verb}")
    async def cycle(request: Request, name: str, verb: str) -> Response:
        form = await desk.form(request)
        back = render.place.get() + local(form.get("next", "/console/cycles"))
        if verb == "run":
            task = asyncio.create_task(_run(desk, operator(request), name))
            started.add(task)
            task.add_done_callback(started.discard)
            done, _pending = await asyncio.wait([task], timeout=SOON)
            if not done:
                return desk.go(request, back, _("{cycle} is running.", cycle=name))
            return desk.go(request, back, task.result())
        if verb == "pause":
            await operator(request).pause(name, form.reason)
            return desk.go(
                request,
                back,
                _("{cycle} is paused. What is under way goes on to its end.", cycle=name),
            )
        if verb == "resume":
            await operator(request).resume(name, form.get("reason")[:1000])
            return desk.go(request, back, _("{cycle} goes on.", cycle=name))
        raise Refused(404, _("There is no such act."))

    @api.post("/console/budgets/{name}")
    async def limit(request: Request, name: str) -> Response:
        form = await desk.form(request)
        said = form.get("limit").strip().replace(" ", "")
        if not said.isdecimal() or len(said) > 12:
            raise Refused(422, _("A limit is a whole number, 0 or more."))
        await operator(request).limit(name, form.get("per"), int(said), form.reason)
        return desk.go(
            request,
            render.url("console", "budgets"),
            _(
                "The limit of {budget} is {n} until the window resets.",
                budget=name,
                n=catalog.number(int(said)),
            ),
        )

    @api.post("/console/alerts/seen")
    async def seen(request: Request) -> Response:
        form = await desk.form(request)
        chosen: dict[str, Any] = (
            {"ids": form.all("id")} if form.get("id") else {"where": {"status": "raised"}}
        )
        acted = await operator(request).move(Alert.kind.table, "seen", reason="seen", **chosen)
        return desk.go(
            request,
            render.url("console", "alerts"),
            catalog.ngettext(
                "{n} alert was marked as seen.", "{n} alerts were marked as seen.", acted.moved
            ),
        )


async def _run(desk: Desk, operator: Operations, name: str) -> str:
    """Run a cycle to its end; tell how it went. A fault that nobody waits for is told in the log."""
    language = catalog.language.get()
    try:
        run = await operator.run(name)
    except EsclusaError:
        raise
    except Exception as error:
        desk.runtime.engine.telemetry.event(
            "error", f"{name}: the run broke: {error}", cycle=name, exc_info=error
        )
        raise
    catalog.language.set(language)
    counted = ", ".join(f"{what} {catalog.number(n)}" for what, n in run.told.items() if n) or _(
        "nothing was due"
    )
    return f"{name}: {run.outcome} ({counted})"
