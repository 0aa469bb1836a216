"""The pipeline's own routes, at the root of the service."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from esclusa import BadQuery, Runtime, at_least
from esclusa.pipelines.replies.operations import (
    FILTERS,
    ReplyOperations,
    count_failed_without_done,
    count_jobs,
    find_failed_without_done,
    job_filter,
    quota_status,
)
from esclusa.pipelines.replies.records import Job, Post, SortBy
from esclusa.pipelines.replies.report import report
from esclusa.web import (
    STRICT_PARAMETERS,
    ActionOut,
    After,
    InsertOut,
    Limit,
    ListOut,
    RecordJson,
    RunOut,
    Who,
    operation_id,
    page_json,
    problem_responses,
    read_rows,
    rows_body,
    rows_response,
)

Max = Annotated[int | None, Query(ge=1, le=1_000_000, description="The maximum of records")]
DryRun = Annotated[bool, Query(description="Only count, change nothing")]
WithoutDone = Annotated[bool, Query(description="Failed jobs of posts that have no done job")]
JobState = Literal[
    "pending", "processing", "done", "failed", "quota_exceeded", "empty_result", "verified"
]
PostState = Literal["noreplies", "processing", "done", "skipped", "finished"]
UpdatedToday = Annotated[bool, Query(description="Only records that changed today, in UTC")]
RecordPage = ListOut[RecordJson]

_ROW_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["platform", "post_id"],
    "properties": {
        "platform": {"type": "string"},
        "post_id": {"type": "string"},
        "country": {"type": "string"},
        "candidate_id": {"type": "string"},
        "replies_count": {"type": "integer"},
        "max_posts_replies": {"type": "integer"},
        "sort_by": {"enum": ["time", "engagement"]},
        "start_date": {"type": "string", "format": "date"},
        "end_date": {"type": "string", "format": "date"},
        "post_created_at": {"type": "string", "format": "date-time"},
        "created_at": {"type": "string", "format": "date-time"},
    },
}
_ROW_EXAMPLE = {
    "platform": "twitter",
    "post_id": "1789",
    "country": "honduras",
    "candidate_id": "hnd09sosa",
    "replies_count": 12,
}


class CountOut(BaseModel):
    """How many records match, and the state and filters that were asked for."""

    count: int
    status: str | None = None
    filters: dict[str, Any] = {}


class ReportNumbersOut(BaseModel):
    """Posts by state, jobs without replies, replies, searches, and the days that waiting needs."""

    posts: int
    done: int
    skipped: int
    waiting: int
    exhausted: int
    empty: int
    failed: int
    replies_saved: int
    replies_expected: int
    searches: int
    searches_wasted: int
    days: float


class ReportRowOut(ReportNumbersOut):
    """The numbers of one candidate on one platform in one country."""

    country: str
    platform: str
    candidate_id: str


class ReportOut(BaseModel):
    """The report: its rows, their sum, the searches of a day, and files that it cannot count."""

    items: list[ReportRowOut]
    total: ReportNumbersOut
    searches_per_day: int
    uncounted_files: int


class QuotaOut(BaseModel):
    """Today's searches: counted by the provider, and reserved here for searches under way."""

    used: int
    limit: int
    left: int
    reset: str
    reserved: int
    exhausted: bool
    timezone: str


class RetriedOut(ActionOut):
    """An act that retries records."""

    retried: int


class RecollectedOut(ActionOut):
    """An act that has posts searched again."""

    recollected: int


class VerifiedOut(ActionOut):
    """An act that verifies empty results."""

    verified: int


def _filters(
    request: Request,
    platform: Annotated[str | None, Query(examples=["twitter"])] = None,
    country: str | None = None,
    candidate_id: str | None = None,
    post_id: str | None = None,
) -> dict[str, str]:
    given = dict(zip(FILTERS, (platform, country, candidate_id, post_id), strict=True))
    empty = [name for name, value in given.items() if value == ""]
    if empty and request.method == "POST":  # without a value it would choose all records
        raise BadQuery(f"{', '.join(empty)}: records to change are chosen by filters with a value")
    return {name: value for name, value in given.items() if value}


FilterQuery = Annotated[dict[str, str], Depends(_filters)]


def build(runtime: Runtime) -> APIRouter:
    """Return every route of the pipeline."""
    router = APIRouter(
        tags=["replies"],
        dependencies=[STRICT_PARAMETERS],
        responses=problem_responses(400),
        generate_unique_id_function=operation_id,
    )
    _add_reads(runtime, router)
    _add_cycles(runtime, router)
    _add_operations(runtime, router)
    return router


def _add_reads(runtime: Runtime, api: APIRouter) -> None:
    @api.get(
        "/jobs/count",
        response_model=CountOut,
        responses=problem_responses(422),
        summary="How many jobs",
    )
    async def get_job_count(
        filters: FilterQuery,
        status: JobState | None = None,
        *,
        failed_without_done: WithoutDone = False,
        updated_today: UpdatedToday = False,
    ) -> Any:
        asked = {"failed_without_done": failed_without_done, "updated_today": updated_today}
        shown = filters | {name: True for name, given in asked.items() if given}
        if failed_without_done:
            _refuse_state(status, updated_today=updated_today)
            found = await count_failed_without_done(runtime, filters)
            return {"count": found, "status": "failed", "filters": shown}
        where = job_filter(filters, [status] if status else []) | _today(runtime, updated_today)
        return {"count": await count_jobs(runtime, where), "status": status, "filters": shown}

    @api.get("/jobs", response_model=RecordPage, responses=problem_responses(422), summary="Jobs")
    async def list_jobs(
        filters: FilterQuery,
        status: JobState | None = None,
        *,
        failed_without_done: WithoutDone = False,
        limit: Limit = 100,
        after: After = None,
    ) -> Any:
        if failed_without_done:
            _refuse_state(status)
            return page_json(
                await find_failed_without_done(runtime, filters, limit=limit, after=after or None)
            )
        where = job_filter(filters, [status] if status else [])
        return page_json(await runtime.records.find(Job, where, limit=limit, after=after or None))

    @api.get(
        "/empty-result-jobs/count",
        response_model=CountOut,
        summary="How many jobs have an empty result",
    )
    async def get_empty_count(filters: FilterQuery, *, updated_today: UpdatedToday = False) -> Any:
        where = job_filter(filters, ["empty_result"]) | _today(runtime, updated_today)
        shown = filters | ({"updated_today": True} if updated_today else {})
        count = await count_jobs(runtime, where)
        return {"count": count, "status": "empty_result", "filters": shown}

    @api.get("/empty-result-jobs", response_model=RecordPage, summary="Jobs with an empty result")
    async def list_empty(filters: FilterQuery, limit: Limit = 100, after: After = None) -> Any:
        where = job_filter(filters, ["empty_result"])
        return page_json(await runtime.records.find(Job, where, limit=limit, after=after or None))

    @api.get(
        "/posts/count",
        response_model=CountOut,
        responses=problem_responses(422),
        summary="How many posts",
    )
    async def get_post_count(
        filters: FilterQuery,
        status: PostState | None = None,
        *,
        updated_today: UpdatedToday = False,
    ) -> Any:
        where = filters | ({"status": status} if status else {}) | _today(runtime, updated_today)
        count, _ = await runtime.records.count(Post, where, cap=1_000_000_000)
        shown = filters | ({"updated_today": True} if updated_today else {})
        return {"count": count, "status": status, "filters": shown}

    @api.get("/posts", response_model=RecordPage, responses=problem_responses(422), summary="Posts")
    async def list_posts(
        filters: FilterQuery,
        status: PostState | None = None,
        *,
        exhausted: Annotated[
            bool | None, Query(description="Only posts that wait for an operator, or only others")
        ] = None,
        limit: Limit = 100,
        after: After = None,
    ) -> Any:
        given = {"status": status, "exhausted": exhausted}
        where = filters | {name: value for name, value in given.items() if value is not None}
        return page_json(await runtime.records.find(Post, where, limit=limit, after=after or None))

    @api.get(
        "/replies/report",
        response_model=ReportOut,
        summary="Posts, replies and searches by country, platform and candidate",
    )
    async def get_report(
        platform: Annotated[str | None, Query(examples=["twitter"])] = None,
        country: str | None = None,
        candidate_id: str | None = None,
    ) -> Any:
        given = {"platform": platform, "country": country, "candidate_id": candidate_id}
        return await report(runtime, {name: value for name, value in given.items() if value})

    @api.get(
        "/quota",
        response_model=QuotaOut,
        responses=problem_responses(502, 503),
        summary="Today's searches: used, limit, reset",
    )
    async def quota() -> Any:
        return await quota_status(runtime)


def _add_cycles(runtime: Runtime, api: APIRouter) -> None:
    refusals = problem_responses(409, 422, 503)

    async def run(who: str, cycle: str, **params: int | str | None) -> dict[str, Any]:
        given = {name: value for name, value in params.items() if value is not None}
        return (await runtime.operations(who).run(cycle, params=given)).answer()

    @api.post(
        "/process-posts",
        response_model=RunOut,
        responses=refusals,
        summary="Run phase 1 once",
    )
    async def process_posts(
        who: Who,
        max_posts: Annotated[Max, Query(description="The maximum of searches")] = None,
        max_posts_to_process: Annotated[Max, Query(description="The old name of max_posts")] = None,
        sort_by: Annotated[
            SortBy | None, Query(description="The order for posts that have none")
        ] = None,
    ) -> Any:
        if max_posts is not None and max_posts_to_process is not None:
            raise BadQuery("max_posts and max_posts_to_process are the same; give one of them")
        most = max_posts_to_process if max_posts is None else max_posts
        return await run(who, "replies.process-posts", max_posts=most, sort_by=sort_by)

    @api.post(
        "/process-jobs",
        response_model=RunOut,
        responses=refusals,
        summary="Run phase 2 once",
    )
    async def process_jobs(
        who: Who, max_jobs: Annotated[Max, Query(description="The maximum of jobs")] = None
    ) -> Any:
        return await run(who, "replies.process-jobs", max_jobs=max_jobs)


def _add_operations(runtime: Runtime, api: APIRouter) -> None:
    @api.post(
        "/empty-result-jobs/retry",
        response_model=RetriedOut,
        summary="Check jobs with an empty result again",
    )
    async def retry_empty(
        who: Who, filters: FilterQuery, limit: Max = None, *, dry_run: DryRun = False
    ) -> Any:
        return await ReplyOperations(runtime, who).retry_empty(
            filters, limit=limit, dry_run=dry_run
        )

    @api.post(
        "/empty-result-jobs/verify",
        response_model=VerifiedOut,
        summary="Accept the empty results of twitter posts with few replies",
    )
    async def verify_empty(
        who: Who, filters: FilterQuery, limit: Max = None, *, dry_run: DryRun = False
    ) -> Any:
        return await ReplyOperations(runtime, who).verify_empty(
            filters, limit=limit, dry_run=dry_run
        )

    @api.post(
        "/jobs/retry",
        response_model=RetriedOut,
        responses=problem_responses(422),
        summary="Check failed jobs again",
    )
    async def retry_jobs(
        who: Who,
        filters: FilterQuery,
        status: Annotated[
            Literal["failed", "quota_exceeded"] | None, Query(description="Default: both states")
        ] = None,
        limit: Max = None,
        *,
        dry_run: DryRun = False,
    ) -> Any:
        return await ReplyOperations(runtime, who).retry_jobs(
            filters, [status] if status else [], limit=limit, dry_run=dry_run
        )

    @api.post(
        "/posts/retry",
        response_model=RetriedOut,
        summary="Allow one more search for exhausted posts",
    )
    async def retry_posts(
        who: Who, filters: FilterQuery, limit: Max = None, *, dry_run: DryRun = False
    ) -> Any:
        return await ReplyOperations(runtime, who).resubmit(filters, limit=limit, dry_run=dry_run)

    @api.post(
        "/posts/recollect",
        response_model=RecollectedOut,
        summary="Search done posts again",
        description="The file of a post is kept as an older version when the new one is saved. "
        "With dry_run, only count them.",
    )
    async def recollect(
        who: Who, filters: FilterQuery, limit: Max = None, *, dry_run: DryRun = False
    ) -> Any:
        return await ReplyOperations(runtime, who).recollect(filters, limit=limit, dry_run=dry_run)

    @api.post(
        "/posts",
        response_model=InsertOut,
        responses=problem_responses(413, 422),
        openapi_extra=rows_body(_ROW_SCHEMA, _ROW_EXAMPLE),
        summary="Add posts",
        description="A JSON array, or one object per line. A known post stays as it is. A bad row "
        "is reported by its number and the good rows are kept; 422 if there is no good row.",
    )
    async def add_posts(request: Request, who: Who) -> Any:
        report = await ReplyOperations(runtime, who).add(await read_rows(request))
        return rows_response(report, "a post", request.url.path)


def _refuse_state(status: str | None, *, updated_today: bool = False) -> None:
    """Refuse what ``failed_without_done`` cannot be combined with."""
    if status not in (None, "failed"):
        raise HTTPException(
            422, f"failed_without_done applies to failed jobs, not to {status} ones"
        )
    if updated_today:
        raise HTTPException(422, "failed_without_done and updated_today exclude each other")


def _today(runtime: Runtime, updated_today: bool) -> dict[str, Any]:
    """Return the filter of records that changed today."""
    now = runtime.engine.clock.now()
    start = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return {"updated_at": at_least(start)} if updated_today else {}
