"""The console's pages about the work: the map, stages, cycles, runs, budgets, workers, alerts, audit, archive."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from starlette.exceptions import HTTPException

from esclusa.model.errors import EsclusaError
from esclusa.model.query import query
from esclusa.model.system_records import Alert, Audit, Export, Run, WorkerRecord
from esclusa.web.api import filters
from esclusa.web.console import actions, dead_letters, records, render, trace, views
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.context import Desk
from esclusa.web.console.live import Pulse
from esclusa.web.security import HEAD_ONLY

PAGE = 50
STRIP = 24
"""So many runs of a cycle are shown as a strip."""


def console(desk: Desk) -> list[APIRouter]:
    """Every router of the console, in the order in which they are asked."""
    return [
        _frame(desk),
        _map(desk),
        _views(desk),
        _cycles(desk),
        _rest(desk),
        *(part.routes(desk) for part in (actions, records, dead_letters, trace)),
        _last(desk),
    ]


def router(desk: Desk) -> APIRouter:
    return APIRouter(include_in_schema=False, route_class=desk.route())


def _frame(desk: Desk) -> APIRouter:
    api, pulse = router(desk), Pulse(desk.runtime, desk.counts)

    @api.get("/console/static/{name}")
    async def static(name: str) -> Response:
        if name not in render.STATIC:
            raise HTTPException(404)
        headers = {
            "Cache-Control": "public, max-age=31536000, immutable",
            "Content-Type": f"{render.STATIC[name]}; charset=utf-8",
        }
        return FileResponse(render.HERE / "static" / name, headers=headers)

    @api.get("/console/live")
    async def live(request: Request) -> Response:
        headers = {"X-Accel-Buffering": "no"}
        if HEAD_ONLY in request.scope:
            return Response(media_type="text/event-stream", headers=headers)
        return StreamingResponse(pulse.listen(), media_type="text/event-stream", headers=headers)

    return api


def _map(desk: Desk) -> APIRouter:
    api = router(desk)

    @api.get("/")
    @api.get("/console")
    @api.get("/console/")
    async def board(request: Request) -> Response:
        return await desk.page(request, "map.html", here="map", board=await views.board(desk))

    @api.get("/console/stages")
    async def stages(request: Request, minutes: int = 60) -> Response:
        minutes = min(1440, max(5, minutes))
        series = {s["stage"]: s for s in await desk.outlook.rates(minutes)}
        found = await desk.read_model.stages()
        plans = {s.name: s for s in desk.runtime.engine.all_stages}
        for stage in found:
            cycle = views.cycle_of(desk.runtime.engine.cycles.values(), plans[stage["stage"]])
            age = stage["oldest_due_seconds"]
            stage |= {
                "series": series[stage["stage"]], "stuck": age is not None and age > views.patience(cycle), "plan": plans[stage["stage"]],
                "roles": views.roles(plans[stage["stage"]].kind, desk.runtime.engine.all_stages),
            }  # fmt: skip
        return await desk.page(request, "stages.html", here="stages", stages=found, minutes=minutes)

    return api


def _views(desk: Desk) -> APIRouter:
    api = router(desk)

    @api.get("/console/views")
    async def named(request: Request) -> Response:
        found = await desk.kept("views", 2.0, desk.outlook.views)
        return await desk.page(request, "views.html", here="views", views=found)

    @api.get("/console/views/{name}")
    async def view(request: Request, name: str, after: str | None = None) -> Response:
        found = await desk.outlook.view(name, limit=PAGE, after=after)
        columns = [c for c in found["columns"] if c != "id"]
        rows = [{"id": item.get("id"), "cells": _cells(item, columns)} for item in found["items"]]
        return await desk.page(
            request, "view.html", here="views", view=found, rows=rows, columns=columns, after=after
        )

    return api


def _cells(item: dict[str, Any], columns: list[str]) -> list[Any]:
    """What a row of a view shows, secrets masked; moments stay moments."""
    told = render.masked(item)
    return [item[c] if isinstance(item.get(c), datetime) else told.get(c) for c in columns]


def _cycles(desk: Desk) -> APIRouter:
    api = router(desk)

    async def history(cycle: str) -> list[dict[str, Any]]:
        page = await desk.read_model.runs({"cycle": cycle}, limit=STRIP)
        return [_run(run) for run in page.items][::-1]

    @api.get("/console/cycles")
    async def cycles(request: Request, system: bool = False) -> Response:
        told = await desk.read_model.cycles(system=system)
        last = [
            c["last"] and render.masked(c["last"]) | {"message": views.said(c["last"]["message"])}
            for c in told
        ]
        found = [
            c | {"history": h, "last": run}
            for c, run, h in zip(
                told, last, await asyncio.gather(*(history(c["cycle"]) for c in told)), strict=True
            )
        ]
        return await desk.page(request, "cycles.html", here="cycles", cycles=found, system=system)

    @api.get("/console/runs")
    async def runs(
        request: Request, cycle: str = "", status: str = "", after: str | None = None
    ) -> Response:
        said = [(name, value) for name, value in (("cycle", cycle), ("status", status)) if value]
        page = await desk.read_model.runs(
            filters.filter_from_query(Run.kind, said), limit=PAGE, after=after
        )
        known = [c for c in desk.runtime.engine.cycles if not c.startswith("esclusa.")]
        values: dict[str, Any] = {
            "cycle": cycle,
            "status": status,
            "next": page.next,
            "after": after,
            "known": known,
            "states": Run.lifecycle.states,
        }
        return await desk.page(
            request, "runs.html", here="runs", runs=[_run(r) for r in page.items], **values
        )

    @api.get("/console/runs/{id}")
    async def run(request: Request, id: str) -> Response:
        found = await desk.read_model.record(Run.kind.table, id)
        return await desk.page(
            request,
            "run.html",
            here="runs",
            run=_run(found),
            raw=render.masked(found.kind.as_json(found)),
        )

    return api


def _run(run: Any) -> dict[str, Any]:
    return {
        "id": run.id, "cycle": run.cycle, "slot": run.slot, "status": run.status, "role": views.run_role(run.status), "worker": run.worker,
        "started_at": run.started_at, "finished_at": run.finished_at, "message": views.said(run.message),
        "seconds": run.duration_ms / 1000 if run.duration_ms is not None else None, "counters": run.counters or {},
    }  # fmt: skip


def _rest(desk: Desk) -> APIRouter:
    api = router(desk)
    store = desk.runtime.store

    @api.get("/console/budgets")
    async def budgets(request: Request) -> Response:
        return await desk.page(
            request, "budgets.html", here="budgets", budgets=await desk.read_model.budgets()
        )

    @api.get("/console/workers")
    async def workers(request: Request) -> Response:
        found = await desk.read_model.workers()
        series = await desk.outlook.rates(60)
        values: dict[str, Any] = {
            "leases": await desk.outlook.leases(),
            "lost": sum(s["total"]["lost"] for s in series),
        }
        states = {
            w["id"]: "lost" if w["status"] == "running" and not w["alive"] else w["status"]
            for w in found
        }
        return await desk.page(
            request,
            "workers.html",
            here="workers",
            workers=found,
            states=states,
            kind=WorkerRecord.kind.table,
            **values,
        )

    @api.get("/console/alerts")
    async def alerts(request: Request, after: str | None = None) -> Response:
        page = await desk.read_model.alerts(limit=PAGE, after=after)
        items = [
            a.model_dump() | {"details": render.masked(a.details), "said": views.alert(a)}
            for a in page.items
            if isinstance(a, Alert)
        ]
        return await desk.page(
            request, "alerts.html", here="alerts", alerts=items, next=page.next, after=after
        )

    @api.get("/console/audit")
    async def audit(
        request: Request, after: str | None = None, who: str = "", verb: str = ""
    ) -> Response:
        where = filters.filter_from_query(
            Audit.kind, [(n, v) for n, v in (("who", who), ("verb", verb)) if v]
        )
        page = await desk.read_model.records(
            Audit.kind.table, where, order="-done_at", limit=PAGE, after=after
        )
        acts = [
            render.masked({"x": a.model_dump()})["x"] | {"done_at": a.done_at}
            for a in page.items
            if isinstance(a, Audit)
        ]
        return await desk.page(
            request,
            "audit.html",
            here="audit",
            acts=acts,
            next=page.next,
            after=after,
            who=who,
            verb=verb,
        )

    @api.get("/console/health")
    async def health(request: Request) -> Response:
        checks, tables = await desk.readiness.checks(), None
        badges = desk.badges_known()
        if all(check.verdict != "fail" for check in checks if check.name in ("store", "schema")):
            with contextlib.suppress(EsclusaError):  # it went away meanwhile: the next look tells
                tables = await desk.kept("tables", 5.0, lambda: views.tables(desk))
                badges = await desk.badges()
        values: dict[str, Any] = {
            "checks": [views.check(check) for check in checks],
            "tables": tables,
            "badges": badges,
        }
        return desk.answer(request, "health.html", here="health", **values)

    @api.get("/console/archive")
    async def archive(request: Request) -> Response:
        archives = await desk.kept("archives", 5.0, desk.outlook.archives)
        page = await store.find(query(Export, order="-created_at", limit=PAGE))
        exports = [e for e in page.items if isinstance(e, Export)]
        paths = {e.id: render.url("api", "artifacts", *e.path.split("/")) for e in exports}
        return await desk.page(
            request, "archive.html", here="archive", archives=archives, exports=exports, paths=paths
        )

    return api


def _last(desk: Desk) -> APIRouter:
    api = router(desk)

    @api.get("/console/{rest:path}")
    async def nothing(rest: str) -> Response:
        raise HTTPException(404, _("There is no page {path}.", path=f"/console/{rest}"))

    return api
