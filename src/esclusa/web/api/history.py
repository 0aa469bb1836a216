"""``/api/history/export`` and ``/api/time-in-state``: what the histories of many records say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Query, Request, Response
from pydantic import BaseModel

from esclusa.event_log import COLUMNS, Ocel, event_rows
from esclusa.exports import MEDIA_TYPES, encode
from esclusa.web.api.common import CurrentRuntime, Table, api_router
from esclusa.web.api.exports import file_response
from esclusa.web.problems import problem_responses

router = api_router("records")


class StayOut(BaseModel):
    """A record's time in a state; ``until`` is null if it is there still."""

    id: str
    since: datetime
    until: datetime | None
    seconds: float


class StateTimesOut(BaseModel):
    """How long records stayed in a state, in seconds, of the stays that ended.

    ``present``: how many of the records are in it. ``slowest``: these included.
    """

    state: str
    ended: int
    median: float | None
    p95: float | None
    present: int
    slowest: list[StayOut]


class TimeInStateOut(BaseModel):
    """Times in states. If not ``exact``: of a sample of ``records``, and of their latest moves."""

    table: str
    records: int
    exact: bool
    states: list[StateTimesOut]


@router.get(
    "/time-in-state/{table}",
    response_model=TimeInStateOut,
    summary="How long records stay in each state",
)
async def time_in_state(runtime: CurrentRuntime, table: Table) -> Any:
    """Median and 95th percentile of the time in each state, and the ten slowest records."""
    return await runtime.read_model.time_in_state(table)


_FILES: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            media_type.partition(";")[0]: {"schema": {"type": "string", "format": "binary"}}
            for media_type in (*MEDIA_TYPES.values(), Ocel.media_type)
        }
    }
}


@router.get(
    "/history/export",
    response_class=Response,
    responses={**_FILES, **problem_responses(404)},
    summary="The history as an event log",
)
async def export_history(
    request: Request,
    runtime: CurrentRuntime,
    kind: Annotated[list[str] | None, Query(description="Only these kinds; repeat it")] = None,
    since: Annotated[datetime | None, Query(description="Only events from this time on")] = None,
    until: Annotated[datetime | None, Query(description="Only events before this time")] = None,
    format: Annotated[
        Literal["csv", "ocel", "ndjson", "parquet"], Query(description="The format of the file")
    ] = "csv",
) -> Response:
    """Every creation and move of records, for process mining: CSV, or OCEL 2.0 as JSON."""
    read_model = runtime.read_model
    shown = [read_model.lookup(table) for table in kind or ()]
    since, until = _aware(since), _aware(until)
    found = read_model.histories(kind or (), since=since, until=until)
    if format == "ocel":
        kinds = shown or [k for k in read_model.declared() if k.history]
        log = Ocel(kinds, found, since, until)
        return await file_response(request, "history.json", log, log.media_type)
    encoded = encode(list(COLUMNS), event_rows(found, since, until), format)
    return await file_response(request, f"history.{format}", encoded, encoded.media_type)


def _aware(moment: datetime | None) -> datetime | None:
    """The time; one without a zone is in UTC."""
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
