"""``/api/stages``, ``/api/rates`` and ``/api/leases``: what stages have to do, did and hold."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict

from esclusa.web.api.requests import CurrentRuntime, System, api_router
from esclusa.web.api.responses import ListOut

router = api_router("work")


class StageOut(BaseModel):
    """A stage: what is due, and its throughput and errors in the last five minutes."""

    model_config = ConfigDict(extra="allow")

    stage: str
    table: str
    take: list[str]
    hold: str | None
    due: int
    due_exact: bool
    oldest_due_at: datetime | None
    next_due_at: datetime | None
    oldest_due_seconds: float | None
    per_minute: float
    error_share: float | None
    p50: float | None
    p99: float | None
    drain_seconds: float | None


class RatesOut(BaseModel):
    """The settlements of a stage per minute, starting at ``first``, and their total."""

    stage: str
    first: datetime
    minutes: int
    moved: list[int]
    retried: list[int]
    waited: list[int]
    exhausted: list[int]
    lost: list[int]
    total: dict[str, int]
    error_share: float | None
    p50: float | None
    p90: float | None
    p99: float | None


class LeaseOut(BaseModel):
    """A record that a worker holds. ``orphan``: the lease expired and no worker took it yet."""

    stage: str
    table: str
    id: str
    status: str
    worker: str | None
    attempt: int
    until: datetime | None
    orphan: bool


@router.get("/stages", response_model=ListOut[StageOut], summary="List stages")
async def stages(runtime: CurrentRuntime, *, system: System = False) -> Any:
    """Every stage with its due records, the oldest of them, and its rates."""
    return {"items": await runtime.read_model.stages(system=system)}


@router.get("/rates", response_model=ListOut[RatesOut], summary="Settlements per minute")
async def rates(
    runtime: CurrentRuntime,
    minutes: Annotated[int, Query(ge=1, le=1440, description="How many minutes back")] = 60,
    *,
    system: System = False,
) -> Any:
    """What each stage settled, minute by minute."""
    return {"items": await runtime.read_model.rates(minutes, system=system)}


@router.get("/leases", response_model=ListOut[LeaseOut], summary="List leases")
async def leases(runtime: CurrentRuntime, *, system: System = False) -> Any:
    """Records that are held now: by which worker, until when."""
    return {"items": await runtime.read_model.leases(system=system)}
