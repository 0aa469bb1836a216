"""``/api/kinds``: every kind of record, its lifecycle and counts."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from esclusa.model.stage import Role
from esclusa.web.api.requests import CurrentRuntime, System, Table, api_router
from esclusa.web.api.responses import ListOut

router = api_router("records")


class StateCountOut(BaseModel):
    """How many records are in a state. If ``exact`` is false, at least that many."""

    state: str
    count: int
    exact: bool


class LifecycleOut(BaseModel):
    """The states of a kind and the moves between them."""

    initial: str
    states: list[str]
    terminal: list[str]
    roles: dict[str, Role]
    moves: list[tuple[str, str]]


class KindOut(BaseModel):
    """A kind of record: its fields, its lifecycle, and how many records are in each state."""

    table: str
    kind: str
    pipeline: str
    key: list[str]
    fields: dict[str, str]
    lifecycle: LifecycleOut
    counts: list[StateCountOut]


@router.get("/kinds", response_model=ListOut[KindOut], summary="List kinds")
async def kinds(runtime: CurrentRuntime, *, system: System = False) -> Any:
    """Every kind with its lifecycle and the number of records in each state."""
    return {"items": await runtime.read_model.kinds(system=system)}


@router.get(
    "/kinds/{table}",
    response_model=KindOut,
    summary="Get a kind",
)
async def kind(runtime: CurrentRuntime, table: Table) -> Any:
    """One kind with its lifecycle and the number of records in each state."""
    return await runtime.read_model.kind(table)
