"""``/api/series``: what stages and pipelines did over hours, days and weeks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import BaseModel
from pydantic_core import to_json

from esclusa.engine.series import Over
from esclusa.web.api.common import CurrentRuntime, ListOut, System, api_router
from esclusa.web.problems import problem_responses

router = api_router("work")

Stage = Annotated[str | None, Query(description="Only this stage, as listed by `GET /api/stages`")]
Pipeline = Annotated[str | None, Query(description="Only the stages of this pipeline")]


class TotalOut(BaseModel):
    """The numbers of a whole span; ``due`` and ``oldest`` are the largest in it."""

    moved: int
    retried: int
    waited: int
    exhausted: int
    lost: int
    failed: int
    error_share: float | None
    due: int | None
    oldest: float | None
    p50: float | None
    p90: float | None
    p99: float | None


class SpanOut(BaseModel):
    """A list for each number, with an item for each step of ``step`` seconds from ``first``.

    ``due`` and ``oldest`` (seconds) are the largest backlog in the step, ``p50``, ``p90`` and
    ``p99`` handler times in seconds; null where nothing is known.
    """

    first: datetime
    step: int
    points: int
    moved: list[int]
    retried: list[int]
    waited: list[int]
    exhausted: list[int]
    lost: list[int]
    due: list[int | None]
    due_exact: bool
    oldest: list[float | None]
    p50: list[float | None]
    p90: list[float | None]
    p99: list[float | None]
    total: TotalOut


class SeriesOut(SpanOut):
    """The series of a stage, of a pipeline or of everything.

    ``previous``: the span of the same length before, if ``compare`` is given.
    """

    stage: str | None
    pipeline: str | None
    over: Over
    previous: SpanOut | None = None


@router.get(
    "/series",
    responses={200: {"model": ListOut[SeriesOut]}, **problem_responses(404)},
    response_class=Response,
    summary="Throughput, errors, backlog and latency over time",
)
async def series(
    runtime: CurrentRuntime,
    over: Annotated[Over, Query(description="The span that ends now")] = "hour",
    by: Annotated[
        Literal["stage", "pipeline", "all"], Query(description="What each series is about")
    ] = "stage",
    stage: Stage = None,
    pipeline: Pipeline = None,
    *,
    compare: Annotated[bool, Query(description="With the span before")] = False,
    system: System = False,
) -> Any:
    """What stages did and had to do, in equal steps.

    Each minute of an hour, each 15 minutes of a day, each hour of one or two weeks. The last step
    lasts still, except in an hour.
    """
    found = await runtime.read_model.series(
        over, by=by, stage=stage, pipeline=pipeline, compare=compare, system=system
    )
    # Tens of thousands of numbers that the read model made: not validated again.
    return Response(to_json({"items": found, "next": None}), media_type="application/json")
