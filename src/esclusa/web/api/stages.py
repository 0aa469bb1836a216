"""What stages have to do, did, hold and may use.

``/api/stages``, ``/api/rates``, ``/api/leases`` and ``/api/budgets``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from esclusa.web.api.common import CurrentRuntime, ListOut, RequestBody, System, Who, api_router

router = api_router("work")


class PauseOut(BaseModel):
    """The pause of a whole stage. ``trying``: one record at a time is tried now."""

    cause: Literal["wait", "breaker"]
    reason: str
    since: datetime
    until: datetime | None
    trying: bool


class StageOut(BaseModel):
    """A stage: what is due, and its throughput and errors in the last five minutes.

    ``drain_seconds``: when what is due will be handled; null: not at this rate, and ``drain_note``
    says why. With a number, ``drain_note`` says what limits it.
    """

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
    drain_note: str | None
    pause: PauseOut | None


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


class WindowOut(BaseModel):
    """The open window of a budget: what is used and left, and when it resets.

    ``waits``: something will need it; otherwise the forecast is what is used now.
    A rate has a ``burst``, and ``free_at`` if its next unit is not free now.
    """

    budget: str
    per: str
    limit: int
    used: int
    left: int
    start: datetime
    reset: datetime
    spenders: dict[str, int]
    waits: bool
    projected: int
    runs_out_at: datetime | None
    barred: datetime | None
    burst: int | None
    free_at: datetime | None


class BudgetOut(BaseModel):
    """A budget and its windows."""

    budget: str
    pipeline: str
    windows: list[WindowOut]


class BudgetLimitBody(RequestBody):
    """A new limit for the open window of a budget, until it resets."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"per": "day", "limit": 500, "reason": "the provider raised it today"}]
        }
    )

    per: Literal["second", "minute", "hour", "day", "month"]
    limit: Annotated[int, Field(ge=0, le=1_000_000_000_000)]
    reason: Annotated[str, Field(max_length=1000)] = ""


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


@router.get("/budgets", response_model=ListOut[BudgetOut], summary="List budgets")
async def budgets(runtime: CurrentRuntime) -> Any:
    """Every budget: used, left, reset time and who used it."""
    return {"items": await runtime.read_model.budgets()}


class PastUseOut(BaseModel):
    """What was used in a day or a month. ``limit``: null if the budget counts shorter windows."""

    start: datetime
    used: int
    limit: int | None
    spenders: dict[str, int]


class BudgetUseOut(BaseModel):
    """The use of a budget over time; ``per`` is null if its windows are too short to be kept."""

    budget: str
    per: Literal["day", "month"] | None
    timezone: str | None
    items: list[PastUseOut]


@router.get(
    "/budgets/{name}/use", response_model=BudgetUseOut, summary="A budget's use over the month"
)
async def budget_use(
    runtime: CurrentRuntime,
    name: Annotated[str, Path(description="The budget, as listed by `GET /api/budgets`")],
) -> Any:
    """What was used on each of the last 31 days, or in each of 12 months, and by whom."""
    return await runtime.read_model.budget_use(name)


@router.post(
    "/budgets/{name}/limit",
    response_model=BudgetOut,
    summary="Change a budget's limit",
)
async def limit_budget(
    runtime: CurrentRuntime,
    name: Annotated[
        str,
        Path(
            description="The budget, as listed by `GET /api/budgets`",
            examples=["information-tracer"],
        ),
    ],
    body: BudgetLimitBody,
    who: Who,
) -> Any:
    """Change the limit of the open window, until it resets."""
    await runtime.operations(who).limit(name, body.per, body.limit, body.reason)
    return next(b for b in await runtime.read_model.budgets() if b["budget"] == name)
