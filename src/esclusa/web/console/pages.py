"""Pages about the work: map, stages, views, cycles, runs, budgets, workers, alerts and more."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from esclusa.model.errors import EsclusaError, NotFound
from esclusa.model.names import unknown
from esclusa.model.results import RUN_ROLES
from esclusa.model.system_records import Audit, Run
from esclusa.web.api import filters
from esclusa.web.console import (
    actions,
    alerts,
    chart_pages,
    dead_letters,
    page_data,
    pipeline_actions,
    preferences,
    records,
    render,
    saved_filters,
    sign_in,
    translate,
)
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.context import ConsoleContext
from esclusa.web.console.live import LiveCounts
from esclusa.web.console.run_data import alert_data, folded, run_moves, was_idle
from esclusa.web.security import HEAD_ONLY

PAGE = 50
# Runs of a cycle in its strip.
RECENT_RUNS = 24
# The most minutes that the trends of the stages cover.
MAX_SPAN = 1440
# Seconds after which an open stream checks whether its visitor is signed in still.
SESSION_CHECK = 10.0


def routers(console: ConsoleContext) -> list[APIRouter]:
    """Every router of the console, in the order in which paths are matched."""
    pages, last = console.router(), console.router()
    for add in (_files, _map, _views, _cycles, _system):
        add(pages, console)
    for module in (
        *(sign_in, preferences, actions, alerts, pipeline_actions),
        *(records, saved_filters, dead_letters, chart_pages),
    ):
        module.add_routes(pages, console)
    _not_found(last)
    return [pages, *(extension.router for extension in console.extensions), last]


def _files(api: APIRouter, console: ConsoleContext) -> None:
    live_counts = LiveCounts(console.runtime, console.counts)

    @api.get("/console/static/{name:path}")
    async def static(name: str) -> Response:
        file = console.static_files.get(name)
        if file is None:
            raise HTTPException(404)
        return Response(
            render.file_content(file),
            headers={
                "Cache-Control": "public, max-age=31536000, immutable",
                "Content-Type": f"{render.MEDIA_TYPES[file.suffix]}; charset=utf-8",
                "ETag": f'"{render.file_version(file)}"',
            },
        )

    @api.get("/console/live")
    async def live(request: Request) -> Response:
        headers = {"X-Accel-Buffering": "no"}
        if HEAD_ONLY in request.scope:
            return Response(media_type="text/event-stream", headers=headers)
        return StreamingResponse(
            while_signed_in(request), media_type="text/event-stream", headers=headers
        )

    async def while_signed_in(request: Request) -> AsyncIterator[str]:
        checked_at = time.monotonic()
        async with contextlib.aclosing(live_counts.listen()) as events:
            async for event in events:
                if time.monotonic() - checked_at > SESSION_CHECK:
                    checked_at = time.monotonic()
                    if not await console.is_signed_in(request):
                        return
                yield event


def _map(api: APIRouter, console: ConsoleContext) -> None:
    @api.get("/")
    @api.get("/console")
    @api.get("/console/")
    async def overview(request: Request) -> Response:
        return await console.page(
            request, "map.html", here="map", overview=await page_data.overview(console)
        )

    @api.get("/console/pipelines/{name}")
    async def pipeline(request: Request, name: str) -> Response:
        known = [plan.name for plan in console.read_model.pipelines()]
        if name not in known:
            raise NotFound(unknown("pipeline_not_found", name, known, name=name))
        found = await page_data.overview(console, name)
        return await console.page(request, "map.html", here="map", overview=found, only=name)

    @api.get("/console/stages")
    async def stages(request: Request, minutes: int = 60) -> Response:
        minutes = min(MAX_SPAN, max(5, minutes))
        found = await console.read_model.stages()
        trends = {s["stage"]: s for s in await console.read_model.rates(minutes)}
        plans = {s.name: (p, s) for p in console.read_model.pipelines() for s in p.stages}
        for stage in found:
            plan, declared = plans[stage["stage"]]
            limit = page_data.stuck_after(page_data.cycle_of(plan.cycles, declared))
            age, pause = stage["oldest_due_seconds"], stage["pause"]
            if pause is not None:
                pause["reason"] = translate.sentence(pause["reason"])
            if stage["drain_note"] is not None:
                note = translate.sentence(stage["drain_note"])
                stage["drain_note"] = f"{note[:1].upper()}{note[1:]}."
            stage |= {
                "trend": trends[stage["stage"]],
                "stuck": age is not None and age > limit,
                "exhausted": declared.exhausted,
                "roles": console.read_model.roles(declared.kind),
            }
        return await console.page(
            request, "stages.html", here="stages", stages=found, minutes=minutes
        )


def _views(api: APIRouter, console: ConsoleContext) -> None:
    @api.get("/console/views")
    async def views(request: Request) -> Response:
        return await console.page(
            request,
            "views.html",
            here="views",
            views=await console.cache.get("views", 2.0, console.read_model.views),
        )

    @api.get("/console/views/{name}")
    async def view(request: Request, name: str, after: str | None = None) -> Response:
        found = await console.read_model.view(name, limit=PAGE, after=after)
        columns = [c for c in found["columns"] if c != "id"]
        rows = [{"id": item.get("id"), "cells": _cells(item, columns)} for item in found["items"]]
        return await console.page(
            request, "view.html", here="views", view=found, rows=rows, columns=columns, after=after
        )


def _cells(item: Mapping[str, Any], columns: list[str]) -> list[Any]:
    """The cells of a view's row, secrets masked; masking would turn times into text."""
    masked = render.masked(item)
    return [item[c] if isinstance(item.get(c), datetime) else masked.get(c) for c in columns]


def _cycles(api: APIRouter, console: ConsoleContext) -> None:
    async def with_runs(cycle: dict[str, Any]) -> dict[str, Any]:
        page = await console.read_model.runs({"cycle": cycle["cycle"]}, limit=RECENT_RUNS)
        last = cycle["last"]
        if last is not None:
            last = render.masked(last) | {"message": translate.stored(last["message"])}
        return cycle | {"last": last, "runs": [_run(console, run) for run in page.items][::-1]}

    @api.get("/console/cycles")
    async def cycles(request: Request, system: bool = False) -> Response:
        found = await asyncio.gather(
            *map(with_runs, await console.read_model.cycles(system=system))
        )
        return await console.page(
            request, "cycles.html", here="cycles", cycles=found, system=system
        )

    @api.get("/console/runs")
    async def runs(
        request: Request, cycle: str = "", status: str = "", after: str | None = None
    ) -> Response:
        where = filters.filter_from_query(Run.kind, [("cycle", cycle), ("status", status)])
        page = await console.read_model.runs(where, limit=PAGE, after=after)
        if cycle and not page.items:
            console.read_model.registry.cycle(cycle)  # raises NotFound for one that never existed
        return await console.page(
            request,
            "runs.html",
            here="runs",
            runs=folded([_run(console, run) for run in page.items]),
            cycle=cycle,
            status=status,
            next=page.next,
            after=after,
            cycles=[c.name for plan in console.read_model.pipelines() for c in plan.cycles],
            states=Run.lifecycle.states,
        )

    @api.get("/console/runs/{id}")
    async def run(request: Request, id: str) -> Response:
        found = await console.read_model.record(Run.kind.table, id)
        assert isinstance(found, Run)
        return await console.page(
            request,
            "run.html",
            here="runs",
            run=_run(console, found),
            moves=run_moves(console, found),
            usual=await console.read_model.usual_seconds(found),
            alerts=[alert_data(console, a) for a in await console.read_model.alerts_of_run(found)],
        )


def _run(console: ConsoleContext, run: Any) -> dict[str, Any]:
    return {
        "id": run.id,
        "cycle": run.cycle,
        "slot": run.slot,
        "status": run.status,
        "role": RUN_ROLES.get(run.status, "resting"),
        "worker": run.worker,
        "started_at": run.started_at,
        "seconds": run.duration_ms / 1000 if run.duration_ms is not None else None,
        "counters": run.counters or {},
        "message": translate.stored(run.message),
        "idle": run.status == "ok" and was_idle(console, run.cycle, run.counters),
    }


def _system(api: APIRouter, console: ConsoleContext) -> None:
    read_model = console.read_model

    @api.get("/console/budgets")
    async def budgets(request: Request) -> Response:
        found = await read_model.budgets()
        return await console.page(
            request,
            "budgets.html",
            here="budgets",
            budgets=found,
            uses=[
                use
                for budget in found
                if (use := await chart_pages.budget_use(console, budget)) is not None
            ],
        )

    @api.get("/console/workers")
    async def workers(request: Request) -> Response:
        found = await read_model.workers()
        states = {
            w["id"]: "lost" if w["status"] == "running" and not w["alive"] else w["status"]
            for w in found
        }
        return await console.page(
            request,
            "workers.html",
            here="workers",
            workers=found,
            states=states,
            leases=await read_model.leases(),
            lost=sum(trend["total"]["lost"] for trend in await read_model.rates(60)),
        )

    @api.get("/console/audit")
    async def audit(
        request: Request, after: str | None = None, who: str = "", verb: str = ""
    ) -> Response:
        where = filters.filter_from_query(Audit.kind, [("who", who), ("verb", verb)])
        page = await read_model.records(
            Audit.kind.table, where, order="-done_at", limit=PAGE, after=after
        )
        return await console.page(
            request,
            "audit.html",
            here="audit",
            actions=[
                render.masked({"action": entry.model_dump()})["action"]
                | {"done_at": entry.done_at, "changes": entry.changes}  # masked when written
                for entry in page.items
                if isinstance(entry, Audit)
            ],
            next=page.next,
            after=after,
            who=who,
            verb=verb,
        )

    @api.get("/console/health")
    async def health(request: Request) -> Response:
        checks = await console.readiness.checks()
        tables, badges = None, console.cache.peek("badges", {})
        if all(check.verdict != "fail" for check in checks if check.name in ("store", "schema")):
            with contextlib.suppress(EsclusaError):  # the next visit shows what failed
                tables = await console.cache.get("tables", 5.0, lambda: page_data.tables(console))
                badges = await console.badges()
        return console.render(
            request,
            "health.html",
            here="health",
            checks=[page_data.check(check) for check in checks],
            tables=tables,
            badges=badges,
        )

    @api.get("/console/keyboard")
    async def keyboard(request: Request) -> Response:
        return await console.page(request, "keyboard.html", here="")

    @api.get("/console/archive")
    async def archive(request: Request) -> Response:
        archives = await console.cache.get("archives", 5.0, read_model.archives)
        exports = await read_model.exports(limit=PAGE)
        return await console.page(
            request,
            "archive.html",
            here="archive",
            archives=archives,
            exports=exports,
            paths={e.id: render.url("api", "artifacts", *e.path.split("/")) for e in exports},
        )


def _not_found(api: APIRouter) -> None:
    @api.get("/console/{rest:path}")
    async def not_found(rest: str) -> Response:
        raise HTTPException(404, _("There is no page {path}.", path=f"/console/{rest}"))
