"""Cycles, runs, budgets, dead letters and the rest of the house over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from esclusa.model.record import Record
from esclusa.model.system_records import Alert, Audit, DeadLetter, Run
from esclusa.runtime import Runtime
from esclusa.web.api import filters, schemas
from esclusa.web.api.records import (
    FILTER_PARAMETER,
    After,
    Limit,
    Who,
    by_name,
    listed,
    shown,
    told,
)
from esclusa.web.problems import responses

CycleName = Annotated[
    str, Path(description="The cycle, as `GET /api/cycles` names it", examples=["media.download"])
]


def run_shown(run: Record) -> dict[str, Any]:
    """A run as the list shows it: its row, and the names under which a started run answers."""
    return shown(run) | {"run": run.id, "outcome": None if run.status == "running" else run.status}


def cycle_shown(cycle: dict[str, Any]) -> dict[str, Any]:
    return cycle | {"last": cycle["last"] and told(cycle["last"])}


def reading(runtime: Runtime) -> APIRouter:
    """The routes that change nothing."""
    api = APIRouter(prefix="/api", tags=["work"], generate_unique_id_function=by_name)
    read_model = runtime.read_model

    @api.get("/status", response_model=schemas.StatusShape, summary="The whole house at a glance")
    async def status() -> Any:
        answer = await read_model.status()
        return answer | {"cycles": [cycle_shown(cycle) for cycle in answer["cycles"]]}

    @api.get(
        "/stages",
        response_model=schemas.Listed[schemas.StageShape],
        summary="Every stage: due, oldest, rates",
    )
    async def stages(*, system: bool = False) -> Any:
        return {"items": await read_model.stages(system=system), "next": None}

    @api.get(
        "/cycles",
        response_model=schemas.Listed[schemas.CycleShape],
        summary="Every cycle: schedule, state, last run, next",
    )
    async def cycles(*, system: bool = False) -> Any:
        return {
            "items": [cycle_shown(cycle) for cycle in await read_model.cycles(system=system)],
            "next": None,
        }

    @api.get(
        "/runs",
        response_model=schemas.Listed[schemas.RecordJson],
        responses=responses(400),
        openapi_extra={"parameters": [FILTER_PARAMETER]},
        summary="Runs, the newest first",
    )
    async def runs(
        request: Request,
        cycle: Annotated[
            str | None, Query(description="Only of this cycle", examples=["media.download"])
        ] = None,
        status: Annotated[
            str | None,
            Query(description="running, ok, blocked, partial, error; several with commas"),
        ] = None,
        limit: Limit = 50,
        after: After = None,
    ) -> Any:
        where = filters.from_params(Run.kind, request.query_params.multi_items())
        page = await read_model.runs(where, limit=limit, after=after)
        return {"items": [run_shown(run) for run in page.items], "next": page.next}

    @api.get(
        "/runs/{id}", response_model=schemas.RecordJson, responses=responses(404), summary="One run"
    )
    async def run(id: Annotated[str, Path(description="The run's id, percent-encoded")]) -> Any:
        return run_shown(await read_model.record(Run.kind.table, id))

    @api.get(
        "/budgets",
        response_model=schemas.Listed[schemas.BudgetShape],
        summary="What is spent and left, until when, and by whom",
    )
    async def budgets() -> Any:
        return {"items": await read_model.budgets(), "next": None}

    @api.get(
        "/dead-letters",
        response_model=schemas.Listed[schemas.RecordJson],
        responses=responses(400),
        openapi_extra={"parameters": [FILTER_PARAMETER]},
        summary="Dead letters, the newest first",
    )
    async def dead_letters(request: Request, limit: Limit = 100, after: After = None) -> Any:
        where = filters.from_params(DeadLetter.kind, request.query_params.multi_items())
        page = await read_model.dead_letters(where, limit=limit, after=after)
        return listed(page)

    @api.get(
        "/alerts",
        response_model=schemas.Listed[schemas.RecordJson],
        responses=responses(400),
        openapi_extra={"parameters": [FILTER_PARAMETER]},
        summary="Alerts, the newest first",
    )
    async def alerts(request: Request, limit: Limit = 100, after: After = None) -> Any:
        where = filters.from_params(Alert.kind, request.query_params.multi_items())
        page = await read_model.alerts(where, limit=limit, after=after)
        return listed(page)

    @api.get(
        "/workers",
        response_model=schemas.Listed[schemas.RecordJson],
        summary="Worker processes, the newest first",
    )
    async def workers() -> Any:
        return {"items": await read_model.workers(), "next": None}

    @api.get(
        "/audit",
        response_model=schemas.Listed[schemas.RecordJson],
        responses=responses(400),
        openapi_extra={"parameters": [FILTER_PARAMETER]},
        summary="What operators did, the newest first",
    )
    async def audit(request: Request, limit: Limit = 100, after: After = None) -> Any:
        where = filters.from_params(Audit.kind, request.query_params.multi_items())
        page = await read_model.records(
            Audit.kind.table, where, order="-done_at", limit=limit, after=after
        )
        return listed(page)

    return api


def acting(runtime: Runtime) -> APIRouter:
    """The routes that act."""
    api = APIRouter(prefix="/api", tags=["work"], generate_unique_id_function=by_name)

    @api.post(
        "/dead-letters/redrive",
        response_model=schemas.ActedShape,
        responses=responses(400, 422),
        summary="Send dead letters back to work",
    )
    async def redrive(body: schemas.RedriveBody, who: Who) -> Any:
        where = None if body.filter is None else filters.from_json(DeadLetter.kind, body.filter)
        acted = await runtime.operations(who).redrive(
            reason=body.reason, ids=body.ids, where=where, fields=body.fields, dry_run=body.dry_run
        )
        return acted.answer()

    @api.post(
        "/dead-letters/discard",
        response_model=schemas.ActedShape,
        responses=responses(400, 422),
        summary="Close dead letters without sending them back",
    )
    async def discard(body: schemas.DiscardBody, who: Who) -> Any:
        where = None if body.filter is None else filters.from_json(DeadLetter.kind, body.filter)
        acted = await runtime.operations(who).discard(
            reason=body.reason, ids=body.ids, where=where, dry_run=body.dry_run
        )
        return acted.answer()

    @api.post(
        "/cycles/{name}/run",
        response_model=schemas.RunShape,
        responses=responses(404, 409, 422),
        summary="Run a cycle now, to its end",
        description="Answers when the run has ended. 409 if it is running already, or paused.",
    )
    async def run_cycle(name: CycleName, who: Who, body: schemas.RunBody | None = None) -> Any:
        said = body or schemas.RunBody()
        return (
            await runtime.operations(who).run(name, limit=said.limit, params=said.params)
        ).answer()

    @api.post(
        "/cycles/{name}/pause",
        response_model=schemas.CycleShape,
        responses=responses(404, 409, 422),
        summary="Pause a cycle: nothing new is started or claimed until it is resumed",
    )
    async def pause_cycle(name: CycleName, who: Who, body: schemas.SwitchBody | None = None) -> Any:
        await runtime.operations(who).pause(name, body.reason if body else "")
        return await _cycle(runtime, name)

    @api.post(
        "/cycles/{name}/resume",
        response_model=schemas.CycleShape,
        responses=responses(404, 409, 422),
        summary="Resume a paused cycle",
    )
    async def resume_cycle(
        name: CycleName, who: Who, body: schemas.SwitchBody | None = None
    ) -> Any:
        await runtime.operations(who).resume(name, body.reason if body else "")
        return await _cycle(runtime, name)

    @api.post(
        "/budgets/{name}/limit",
        response_model=schemas.BudgetShape,
        responses=responses(404, 422),
        summary="Change the limit of a budget's open window, until it resets",
    )
    async def limit_budget(
        name: Annotated[
            str,
            Path(
                description="The budget, as `GET /api/budgets` names it",
                examples=["information-tracer"],
            ),
        ],
        body: schemas.LimitBody,
        who: Who,
    ) -> Any:
        await runtime.operations(who).limit(name, body.per, body.limit, body.reason)
        return next(
            budget for budget in await runtime.read_model.budgets() if budget["budget"] == name
        )

    return api


async def _cycle(runtime: Runtime, name: str) -> dict[str, Any]:
    return next(
        cycle for cycle in await runtime.read_model.cycles(system=True) if cycle["cycle"] == name
    )
