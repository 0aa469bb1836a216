"""Cycles, runs, budgets, dead letters and the rest of the house over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from esclusa.house import House
from esclusa.model.books import Alert, Audit, DeadLetter, Run
from esclusa.model.record import Record
from esclusa.web import filters, shapes
from esclusa.web.problems import responses
from esclusa.web.records import FILTER_PARAMETER, After, Limit, Who, by_name, listed, shown, told

CycleName = Annotated[str, Path(description="The cycle, as `GET /api/cycles` names it", examples=["media.download"])]


def run_shown(run: Record) -> dict[str, Any]:
    """A run as the list shows it: its row, and the names under which a started run answers."""
    return shown(run) | {"run": run.id, "outcome": None if run.status == "running" else run.status}


def cycle_shown(cycle: dict[str, Any]) -> dict[str, Any]:
    return cycle | {"last": cycle["last"] and told(cycle["last"])}


def reading(house: House) -> APIRouter:
    """The routes that change nothing."""
    api = APIRouter(prefix="/api", tags=["work"], generate_unique_id_function=by_name)
    insight = house.insight

    @api.get("/status", response_model=shapes.StatusShape, summary="The whole house at a glance")
    async def status() -> Any:
        answer = await insight.status()
        return answer | {"cycles": [cycle_shown(cycle) for cycle in answer["cycles"]]}

    @api.get("/stages", response_model=shapes.Listed[shapes.StageShape], summary="Every stage: due, oldest, rates")
    async def stages(*, books: bool = False) -> Any:
        return {"items": await insight.stages(books=books), "next": None}

    @api.get("/cycles", response_model=shapes.Listed[shapes.CycleShape], summary="Every cycle: schedule, state, last run, next")
    async def cycles(*, books: bool = False) -> Any:
        return {"items": [cycle_shown(cycle) for cycle in await insight.cycles(books=books)], "next": None}

    @api.get(
        "/runs",
        response_model=shapes.Listed[shapes.RecordJson],
        responses=responses(400),
        openapi_extra={"parameters": [FILTER_PARAMETER]},
        summary="Runs, the newest first",
    )
    async def runs(
        request: Request,
        cycle: Annotated[str | None, Query(description="Only of this cycle", examples=["media.download"])] = None,
        status: Annotated[str | None, Query(description="running, ok, blocked, partial, error; several with commas")] = None,
        limit: Limit = 50,
        after: After = None,
    ) -> Any:
        where = filters.from_params(Run.kind, request.query_params.multi_items())
        page = await insight.runs(where, limit=limit, after=after)
        return {"items": [run_shown(run) for run in page.items], "next": page.next}

    @api.get("/runs/{id}", response_model=shapes.RecordJson, responses=responses(404), summary="One run")
    async def run(id: Annotated[str, Path(description="The run's id, percent-encoded")]) -> Any:
        return run_shown(await insight.record(Run.kind.table, id))

    @api.get("/budgets", response_model=shapes.Listed[shapes.BudgetShape], summary="What is spent and left, until when, and by whom")
    async def budgets() -> Any:
        return {"items": await insight.budgets(), "next": None}

    @api.get(
        "/dead-letters",
        response_model=shapes.Listed[shapes.RecordJson],
        responses=responses(400),
        openapi_extra={"parameters": [FILTER_PARAMETER]},
        summary="Dead letters, the newest first",
    )
    async def dead_letters(request: Request, limit: Limit = 100, after: After = None) -> Any:
        where = filters.from_params(DeadLetter.kind, request.query_params.multi_items())
        page = await insight.dead_letters(where, limit=limit, after=after)
        return listed(page)

    @api.get(
        "/alerts",
        response_model=shapes.Listed[shapes.RecordJson],
        responses=responses(400),
        openapi_extra={"parameters": [FILTER_PARAMETER]},
        summary="Alerts, the newest first",
    )
    async def alerts(request: Request, limit: Limit = 100, after: After = None) -> Any:
        where = filters.from_params(Alert.kind, request.query_params.multi_items())
        page = await insight.alerts(where, limit=limit, after=after)
        return listed(page)

    @api.get("/workers", response_model=shapes.Listed[shapes.RecordJson], summary="Worker processes, the newest first")
    async def workers() -> Any:
        return {"items": await insight.workers(), "next": None}

    @api.get(
        "/audit",
        response_model=shapes.Listed[shapes.RecordJson],
        responses=responses(400),
        openapi_extra={"parameters": [FILTER_PARAMETER]},
        summary="What operators did, the newest first",
    )
    async def audit(request: Request, limit: Limit = 100, after: After = None) -> Any:
        where = filters.from_params(Audit.kind, request.query_params.multi_items())
        page = await insight.records(Audit.kind.table, where, order="-done_at", limit=limit, after=after)
        return listed(page)

    return api


def acting(house: House) -> APIRouter:
    """The routes that act."""
    api = APIRouter(prefix="/api", tags=["work"], generate_unique_id_function=by_name)

    @api.post(
        "/dead-letters/redrive",
        response_model=shapes.ActedShape,
        responses=responses(400, 422),
        summary="Send dead letters back to work",
    )
    async def redrive(body: shapes.RedriveBody, who: Who) -> Any:
        where = None if body.filter is None else filters.from_json(DeadLetter.kind, body.filter)
        acted = await house.operator(who).redrive(reason=body.reason, ids=body.ids, where=where, fields=body.fields, dry_run=body.dry_run)
        return acted.answer()

    @api.post(
        "/dead-letters/discard",
        response_model=shapes.ActedShape,
        responses=responses(400, 422),
        summary="Close dead letters without sending them back",
    )
    async def discard(body: shapes.DiscardBody, who: Who) -> Any:
        where = None if body.filter is None else filters.from_json(DeadLetter.kind, body.filter)
        acted = await house.operator(who).discard(reason=body.reason, ids=body.ids, where=where, dry_run=body.dry_run)
        return acted.answer()

    @api.post(
        "/cycles/{name}/run",
        response_model=shapes.RunShape,
        responses=responses(404, 409, 422),
        summary="Run a cycle now, to its end",
        description="Answers when the run has ended. 409 if it is running already, or paused.",
    )
    async def run_cycle(name: CycleName, who: Who, body: shapes.RunBody | None = None) -> Any:
        said = body or shapes.RunBody()
        return (await house.operator(who).run(name, limit=said.limit, params=said.params)).answer()

    @api.post(
        "/cycles/{name}/pause",
        response_model=shapes.CycleShape,
        responses=responses(404, 409, 422),
        summary="Pause a cycle: nothing new is started or claimed until it is resumed",
    )
    async def pause_cycle(name: CycleName, who: Who, body: shapes.SwitchBody | None = None) -> Any:
        await house.operator(who).pause(name, body.reason if body else "")
        return await _cycle(house, name)

    @api.post(
        "/cycles/{name}/resume",
        response_model=shapes.CycleShape,
        responses=responses(404, 409, 422),
        summary="Resume a paused cycle",
    )
    async def resume_cycle(name: CycleName, who: Who, body: shapes.SwitchBody | None = None) -> Any:
        await house.operator(who).resume(name, body.reason if body else "")
        return await _cycle(house, name)

    @api.post(
        "/budgets/{name}/limit",
        response_model=shapes.BudgetShape,
        responses=responses(404, 422),
        summary="Change the limit of a budget's open window, until it resets",
    )
    async def limit_budget(
        name: Annotated[str, Path(description="The budget, as `GET /api/budgets` names it", examples=["information-tracer"])],
        body: shapes.LimitBody,
        who: Who,
    ) -> Any:
        await house.operator(who).limit(name, body.per, body.limit, body.reason)
        return next(budget for budget in await house.insight.budgets() if budget["budget"] == name)

    return api


async def _cycle(house: House, name: str) -> dict[str, Any]:
    return next(cycle for cycle in await house.insight.cycles(books=True) if cycle["cycle"] == name)
