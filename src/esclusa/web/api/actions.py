"""``/api/actions``: the actions that pipelines declare, with a dry run."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, model_validator

from esclusa.model.errors import BadQuery
from esclusa.model.texts import text
from esclusa.web.api.common import (
    ActionOut,
    CurrentRuntime,
    ListOut,
    RequestBody,
    Who,
    api_router,
)
from esclusa.web.api.filters import filter_from_json

router = api_router("records")


class PipelineActionOut(BaseModel):
    """An action: its name, the kind that it is for (null: none), and its parameters.

    ``params`` is a JSON schema.
    """

    action: str
    title: str
    about: str
    table: str | None
    params: dict[str, Any]


class ActionBody(RequestBody):
    """The records to act on, by id or by a filter; ``{}`` is every record that it is for.

    An action that is for no record takes neither.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"filter": {"platform": "x"}, "reason": "deleted by mistake"}]
        }
    )

    ids: Annotated[list[str], Field(min_length=1, max_length=1000)] | None = None
    filter: dict[str, Any] | None = None
    params: dict[str, Any] = {}
    limit: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    reason: Annotated[str, Field(max_length=1000)] = ""
    dry_run: bool = False

    @model_validator(mode="after")
    def _not_both(self) -> ActionBody:
        if self.ids is not None and self.filter is not None:
            raise ValueError("give 'ids' or a 'filter', not both")
        return self


class ActionDoneOut(ActionOut):
    """What an action did or would do; ``message`` is of one that is for no record."""

    message: str | None = None


@router.get("/actions", response_model=ListOut[PipelineActionOut], summary="List actions")
async def actions(runtime: CurrentRuntime) -> Any:
    """The verbs that pipelines declare for operators."""
    return {
        "items": [
            {
                "action": action.name,
                "title": action.title["en"],
                "about": action.about.get("en", ""),
                "table": None if action.kind is None else action.kind.table,
                "params": action.params.model_json_schema(),
            }
            for action in runtime.read_model.registry.actions.values()
        ]
    }


@router.post("/actions/{pipeline}/{name}", response_model=ActionDoneOut, summary="Apply an action")
async def act(
    runtime: CurrentRuntime,
    pipeline: Annotated[str, Path(description="The pipeline", examples=["media"])],
    name: Annotated[str, Path(description="The action's name in it", examples=["retry"])],
    body: ActionBody,
    who: Who,
) -> Any:
    """Apply an action of a pipeline to records. `dry_run` counts them and changes nothing."""
    action = runtime.read_model.registry.action(f"{pipeline}.{name}")
    where = None
    if action.kind is not None:
        if body.ids is None and body.filter is None:
            raise BadQuery(text("action_records", action=action.name))
        where = None if not body.filter else filter_from_json(action.kind, body.filter)
    elif body.ids is not None or body.filter is not None:
        raise BadQuery(text("action_without_records", action=action.name))
    acted = await runtime.operations(who).act(
        action.name,
        ids=body.ids,
        where=where,
        params=body.params,
        limit=body.limit,
        reason=body.reason,
        dry_run=body.dry_run,
    )
    return acted.answer()
