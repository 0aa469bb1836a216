"""``/api/status``, ``/api/workers``, ``/api/alerts`` and ``/api/audit``: the whole system."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import Request
from pydantic import BaseModel, ConfigDict

from esclusa.model.system_records import Alert, Audit
from esclusa.web.api.common import (
    FILTER_PARAMETER,
    After,
    CurrentRuntime,
    Limit,
    ListOut,
    RecordJson,
    api_router,
    mask_text,
    page_json,
    record_json,
)
from esclusa.web.api.cycles import CycleOut, cycle_json
from esclusa.web.api.filters import filter_from_query
from esclusa.web.api.records import KindOut
from esclusa.web.api.stages import BudgetOut, StageOut

router = api_router("work")


class StatusOut(BaseModel):
    """Everything that ``esclusa status`` shows."""

    model_config = ConfigDict(extra="allow")

    now: datetime
    store: str
    kinds: list[KindOut]
    stages: list[StageOut]
    cycles: list[CycleOut]
    budgets: list[BudgetOut]
    workers: list[RecordJson]
    dead_letters: int


@router.get("/status", response_model=StatusOut, summary="Get the status")
async def status(runtime: CurrentRuntime) -> Any:
    """Kinds, stages, cycles, budgets, workers and the number of dead letters in one answer."""
    answer = await runtime.read_model.status()
    return answer | {"cycles": [cycle_json(cycle) for cycle in answer["cycles"]]}


@router.get("/workers", response_model=ListOut[RecordJson], summary="List workers, newest first")
async def workers(runtime: CurrentRuntime) -> Any:
    """Worker processes, and when each was last seen."""
    return {"items": await runtime.read_model.workers()}


@router.get(
    "/alerts",
    response_model=ListOut[RecordJson],
    openapi_extra={"parameters": [FILTER_PARAMETER]},
    summary="List alerts, newest first",
)
async def alerts(
    request: Request, runtime: CurrentRuntime, limit: Limit = 100, after: After = None
) -> Any:
    """Alerts with the times when they began and ended, filtered by any of their fields.

    ``mute``: until when, by whom and why an alert is muted; null if it is not.
    """
    where = filter_from_query(Alert.kind, request.query_params.multi_items())
    page = await runtime.read_model.alerts(where, limit=limit, after=after)
    found = [a for a in page.items if isinstance(a, Alert)]
    items = [
        record_json(alert) | {"key": mask_text(alert.key), "mute": mute}
        for alert, mute in zip(found, await runtime.read_model.mutes(found), strict=True)
    ]
    return {"items": items, "next": page.next}


@router.get(
    "/audit",
    response_model=ListOut[RecordJson],
    openapi_extra={"parameters": [FILTER_PARAMETER]},
    summary="List operator actions, newest first",
)
async def audit(
    request: Request, runtime: CurrentRuntime, limit: Limit = 100, after: After = None
) -> Any:
    """What operators did, filtered by any field."""
    where = filter_from_query(Audit.kind, request.query_params.multi_items())
    return page_json(
        await runtime.read_model.records(
            Audit.kind.table, where, order="-done_at", limit=limit, after=after
        )
    )
