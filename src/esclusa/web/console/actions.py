"""Actions on cycles and budgets."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from esclusa.engine.operations import Operations
from esclusa.model.errors import EsclusaError
from esclusa.web.console import catalog, render
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.context import ConsoleContext
from esclusa.web.console.forms import MAX_REASON, FormRefused, local
from esclusa.web.console.run_data import was_idle

# Seconds that the page waits for a run to end; a longer run goes on without it.
RUN_WAIT = 1.5


def add_routes(api: APIRouter, console: ConsoleContext) -> None:
    """Add the routes of this module."""
    running: set[asyncio.Task[str]] = set()  # asyncio itself keeps only a weak reference

    @api.post("/console/cycles/{name}/{verb}")
    async def cycle(request: Request, name: str, verb: str) -> Response:
        form = await console.form(request)
        operations = console.operations(request)
        if verb == "run":
            task = asyncio.create_task(_run(console, operations, name))
            running.add(task)
            task.add_done_callback(running.discard)
            done, _pending = await asyncio.wait([task], timeout=RUN_WAIT)
            message = task.result() if done else _("{cycle} is running.", cycle=name)
        elif verb == "pause":
            await operations.pause(name, form.reason)
            message = _("{cycle} is paused. Work in progress continues to its end.", cycle=name)
        elif verb == "resume":
            await operations.resume(name, form.get("reason")[:MAX_REASON])
            message = _("{cycle} is resumed.", cycle=name)
        else:
            raise FormRefused(404, _("There is no such action."))
        back = render.prefix.get() + local(form.get("next", "/console/cycles"))
        return console.redirect(request, back, message)

    @api.post("/console/budgets/{name}")
    async def limit(request: Request, name: str) -> Response:
        form = await console.form(request)
        given = form.get("limit").strip().replace(" ", "")
        if not given.isdecimal() or len(given) > 12:
            raise FormRefused(422, _("The limit must be a whole number, 0 or more."))
        await console.operations(request).limit(name, form.get("per"), int(given), form.reason)
        return console.redirect(
            request,
            render.url("console", "budgets"),
            _(
                "The limit of {budget} is {n} until the window resets.",
                budget=name,
                n=catalog.number(int(given)),
            ),
        )


async def _run(console: ConsoleContext, operations: Operations, name: str) -> str:
    """Run a cycle to its end and return a message about it.

    An unexpected error is logged, because the page may no longer be waiting for it.
    """
    try:
        run = await operations.run(name)
    except EsclusaError:
        raise
    except Exception as error:
        console.runtime.engine.telemetry.event(
            "error", f"{name}: the run failed: {error}", cycle=name, exc_info=error
        )
        raise
    counters = ", ".join(
        f"{what} {catalog.number(n)}" for what, n in run.named_counters.items() if n
    )
    if not counters and was_idle(console, name, run.named_counters):
        counters = _("nothing was due")
    return f"{name}: {run.outcome} ({counters})" if counters else f"{name}: {run.outcome}"
