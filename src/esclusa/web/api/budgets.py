"""``/api/budgets``: what is used and left of each budget, and its limits."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from esclusa.web.api.requests import CurrentRuntime, RequestBody, Who, api_router
from esclusa.web.api.responses import ListOut

router = api_router("work")


class WindowOut(BaseModel):
    """The open window of a budget: what is used and left, and when it resets."""

    budget: str
    per: str
    limit: int
    used: int
    left: int
    start: datetime
    reset: datetime
    spenders: dict[str, int]
    projected: int
    runs_out_at: datetime | None
    barred: datetime | None


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


@router.get("/budgets", response_model=ListOut[BudgetOut], summary="List budgets")
async def budgets(runtime: CurrentRuntime) -> Any:
    """Every budget: used, left, reset time and who used it."""
    return {"items": await runtime.read_model.budgets()}


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
