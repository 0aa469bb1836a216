"""``/api/cycles`` and ``/api/runs``: list, run, pause and resume cycles; list their runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from esclusa.model.results import RunOutcome
from esclusa.model.system_records import Run
from esclusa.runtime import Runtime
from esclusa.web.api.common import (
    FILTER_PARAMETER,
    After,
    CurrentRuntime,
    Limit,
    ListOut,
    RecordJson,
    RequestBody,
    System,
    Who,
    api_router,
    mask_fields,
    run_json,
)
from esclusa.web.api.filters import filter_from_query

router = api_router("work")
CycleName = Annotated[
    str,
    Path(description="The cycle, as listed by `GET /api/cycles`", examples=["media.download"]),
]


class CyclePauseOut(BaseModel):
    """Who paused a cycle, when and why; null if an earlier version paused it."""

    by: str | None
    since: datetime | None
    reason: str


class CycleOut(BaseModel):
    """A cycle: when it runs, its state, its last run and the time of its next one."""

    cycle: str
    schedule: str
    singleton: bool
    state: Literal["idle", "running", "paused"]
    pause: CyclePauseOut | None
    next: datetime | None
    last: RecordJson | None


class RunOut(BaseModel):
    """The result of a run."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "run": "media.download,2026-11-16T02:15",
                "cycle": "media.download",
                "outcome": "partial",
                "counters": {"taken": 12, "success": 11, "error": 1},
                "message": None,
                "files": [],
            }
        }
    )

    run: str
    cycle: str
    outcome: RunOutcome
    counters: dict[str, int]
    message: str | None
    files: list[str]


class RunBody(RequestBody):
    """Options of a run: at most ``limit`` records; ``params`` for cycles that take parameters."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"limit": 100}]})

    limit: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    params: dict[str, Any] = {}


class ReasonBody(RequestBody):
    """Why an operator acts; kept in the audit."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"reason": "maintenance at the provider"}]}
    )

    reason: Annotated[str, Field(max_length=1000)] = ""


def cycle_json(cycle: dict[str, Any]) -> dict[str, Any]:
    """A cycle of the read model, with secrets in its last run masked."""
    return cycle | {"last": cycle["last"] and mask_fields(cycle["last"])}


@router.get("/cycles", response_model=ListOut[CycleOut], summary="List cycles")
async def cycles(runtime: CurrentRuntime, *, system: System = False) -> Any:
    """Every cycle with its schedule, state, last run and next run."""
    return {"items": [cycle_json(c) for c in await runtime.read_model.cycles(system=system)]}


@router.post(
    "/cycles/{name}/run",
    response_model=RunOut,
    summary="Run a cycle now",
)
async def run_cycle(
    runtime: CurrentRuntime, name: CycleName, who: Who, body: RunBody | None = None
) -> Any:
    """Run the cycle and answer when the run has ended.

    409 if the cycle is running already, or paused.
    """
    options = body or RunBody()
    run = await runtime.operations(who).run(name, limit=options.limit, params=options.params)
    return run.answer()


@router.post(
    "/cycles/{name}/pause",
    response_model=CycleOut,
    summary="Pause a cycle",
)
async def pause_cycle(
    runtime: CurrentRuntime, name: CycleName, who: Who, body: ReasonBody | None = None
) -> Any:
    """No run starts and no record is claimed until the cycle is resumed."""
    await runtime.operations(who).pause(name, body.reason if body else "")
    return await _cycle(runtime, name)


@router.post(
    "/cycles/{name}/resume",
    response_model=CycleOut,
    summary="Resume a cycle",
)
async def resume_cycle(
    runtime: CurrentRuntime, name: CycleName, who: Who, body: ReasonBody | None = None
) -> Any:
    """Let a paused cycle run again."""
    await runtime.operations(who).resume(name, body.reason if body else "")
    return await _cycle(runtime, name)


async def _cycle(runtime: Runtime, name: str) -> dict[str, Any]:
    return cycle_json(
        next(c for c in await runtime.read_model.cycles(system=True) if c["cycle"] == name)
    )


@router.get(
    "/runs",
    response_model=ListOut[RecordJson],
    openapi_extra={"parameters": [FILTER_PARAMETER]},
    summary="List runs, newest first",
)
async def runs(
    request: Request,
    runtime: CurrentRuntime,
    cycle: Annotated[  # read by the filter; named here for the documentation
        str | None, Query(description="Only runs of this cycle", examples=["media.download"])
    ] = None,
    status: Annotated[
        str | None,
        Query(description="running, ok, blocked, partial or error; several with commas"),
    ] = None,
    limit: Limit = 50,
    after: After = None,
) -> Any:
    """Runs of every cycle, filtered by any field of a run."""
    where = filter_from_query(Run.kind, request.query_params.multi_items())
    page = await runtime.read_model.runs(where, limit=limit, after=after)
    if cycle and not page.items:
        runtime.engine.cycle(cycle)  # raises NotFound for one that never existed
    return {"items": [run_json(run) for run in page.items], "next": page.next}


@router.get(
    "/runs/{id}",
    response_model=RecordJson,
    summary="Get a run",
)
async def run(
    runtime: CurrentRuntime, id: Annotated[str, Path(description="The run's id, percent-encoded")]
) -> Any:
    """One run with its counters, duration, error and worker.

    ``moves``: what its stages did with records, and the newest of them. ``usual_seconds``: the
    median duration of the cycle's other runs that ended ok and had work; null if there are too few.
    """
    found = await runtime.read_model.record(Run.kind.table, id)
    assert isinstance(found, Run)
    return run_json(found) | {"usual_seconds": await runtime.read_model.usual_seconds(found)}
