"""Lifecycles that change: ``/api/lifecycles``, and the repair of undeclared states."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from esclusa.web.api.common import (
    ActionOut,
    CurrentRuntime,
    ListOut,
    RequestBody,
    Table,
    Who,
    api_router,
)
from esclusa.web.api.records import StateCountOut

router = api_router("records")


class RenamedOut(BaseModel):
    """A renamed state, and how many records still have its earlier name."""

    frm: Annotated[str, Field(alias="from")]
    to: str
    count: int


class StageDiffOut(BaseModel):
    """A stage that is new, takes more states than before, or is not declared any more."""

    stage: str
    change: Literal["new", "wider", "removed"]
    states: list[str]
    count: int | None
    exact: bool
    since: datetime | None
    text: str


class LifecycleDiffOut(BaseModel):
    """How a declared lifecycle differs from the one that `esclusa migrate` stored last.

    ``stranded``: records that nothing would move, in ``undeclared`` and ``unserved`` states.
    """

    table: str
    known: bool
    added: list[str]
    removed: list[str]
    renamed: list[RenamedOut]
    undeclared: list[StateCountOut]
    unserved: list[StateCountOut]
    stages: list[StageDiffOut]
    stranded: int


class RepairBody(RequestBody):
    """The undeclared state, the state to move its records to, and why."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"from": "sent", "to": "delivered", "reason": "renamed by hand", "dry_run": True}
            ]
        },
    )

    frm: Annotated[str, Field(alias="from", min_length=1, max_length=1000)]
    to: str
    reason: Annotated[str, Field(max_length=1000)] = ""
    dry_run: bool = False


@router.get(
    "/lifecycles",
    response_model=ListOut[LifecycleDiffOut],
    summary="Compare declared and stored lifecycles",
)
async def lifecycles(runtime: CurrentRuntime) -> Any:
    """Every kind: states added, removed, renamed or undeclared, and stages that changed."""
    return {"items": [diff.answer() for diff in await runtime.engine.lifecycles.diff()]}


@router.post(
    "/records/{table}/repair",
    response_model=ActionOut,
    summary="Move records out of an undeclared state",
)
async def repair(runtime: CurrentRuntime, table: Table, body: RepairBody, who: Who) -> Any:
    """Move all records out of a state that the lifecycle does not have. It needs a reason.

    `dry_run` only counts.
    """
    done = await runtime.operations(who).repair(
        table, body.frm, body.to, reason=body.reason, dry_run=body.dry_run
    )
    return done.answer()
