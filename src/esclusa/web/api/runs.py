"""``/api/runs``: the runs of cycles."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from pydantic import BaseModel, ConfigDict

from esclusa.model.system_records import Run
from esclusa.web.api.filters import filter_from_query
from esclusa.web.api.requests import FILTER_PARAMETER, After, CurrentRuntime, Limit, api_router
from esclusa.web.api.responses import ListOut, RecordJson, run_json

router = api_router("work")


class RunOut(BaseModel):
    """The result of a run."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "run": "media.download:2026-11-16T02%3A15",
                "cycle": "media.download",
                "outcome": "partial",
                "counters": {"taken": 12, "success": 11, "error": 1},
                "message": None,
            }
        }
    )

    run: str
    cycle: str
    outcome: Literal["ok", "blocked", "partial", "error"]
    counters: dict[str, int]
    message: str | None


@router.get(
    "/runs",
    response_model=ListOut[RecordJson],
    openapi_extra={"parameters": [FILTER_PARAMETER]},
    summary="List runs, newest first",
)
async def runs(
    request: Request,
    runtime: CurrentRuntime,
    cycle: Annotated[  # noqa: ARG001 - read by the filter; named here for the documentation
        str | None, Query(description="Only runs of this cycle", examples=["media.download"])
    ] = None,
    status: Annotated[  # noqa: ARG001
        str | None,
        Query(description="running, ok, blocked, partial or error; several with commas"),
    ] = None,
    limit: Limit = 50,
    after: After = None,
) -> Any:
    """Runs of every cycle, filtered by any field of a run."""
    where = filter_from_query(Run.kind, request.query_params.multi_items())
    page = await runtime.read_model.runs(where, limit=limit, after=after)
    return {"items": [run_json(run) for run in page.items], "next": page.next}


@router.get(
    "/runs/{id}",
    response_model=RecordJson,
    summary="Get a run",
)
async def run(
    runtime: CurrentRuntime, id: Annotated[str, Path(description="The run's id, percent-encoded")]
) -> Any:
    """One run with its counters, duration, error and worker."""
    return run_json(await runtime.read_model.record(Run.kind.table, id))
