"""The pipeline's own routes, at the root of the service."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from esclusa.model.errors import BadQuery, SettingsError
from esclusa.pipelines.replies.desk import Choice, Desk, jobs, quota_now
from esclusa.pipelines.replies.records import Job, Post
from esclusa.pipelines.replies.settings import missing
from esclusa.runtime import Runtime
from esclusa.web.api import rows, schemas
from esclusa.web.api.records import After, Limit, Who, by_name, listed
from esclusa.web.problems import responses

Most = Annotated[int | None, Query(ge=1, le=1_000_000, description="At most so many")]
DryRun = Annotated[bool, Query(description="Only count what it would do")]
JobState = Literal[
    "pending", "processing", "done", "failed", "quota_exceeded", "empty_result", "verified"
]
PostState = Literal["noreplies", "processing", "done", "skipped"]


_ROW: dict[str, Any] = {
    "type": "object",
    "required": ["platform", "post_id"],
    "properties": {
        "platform": {"type": "string"}, "post_id": {"type": "string"}, "country": {"type": "string"}, "candidate_id": {"type": "string"},
        "replies_count": {"type": "integer"}, "max_posts_replies": {"type": "integer"}, "sort_by": {"enum": ["time", "engagement"]},
        "created_at": {"type": "string", "format": "date-time"},
    },
}  # fmt: skip
_EXAMPLE = {
    "platform": "twitter",
    "post_id": "1789",
    "country": "honduras",
    "candidate_id": "hnd09sosa",
    "replies_count": 12,
}


class CountShape(BaseModel):
    count: int


class QuotaShape(BaseModel):
    """Today's searches: what the provider counts, and what is reserved here for searches under way too."""

    used: int
    limit: int
    left: int
    reset: str
    reserved: int
    exhausted: bool
    timezone: str


class RetriedShape(schemas.ActedShape):
    retried: int


class VerifiedShape(schemas.ActedShape):
    verified: int


def _choice(
    platform: Annotated[str | None, Query(examples=["twitter"])] = None,
    country: str | None = None,
    candidate_id: str | None = None,
    post_id: str | None = None,
) -> Choice:
    return Choice(platform or None, country or None, candidate_id or None, post_id or None)


Chosen = Annotated[Choice, Depends(_choice)]


def _known(request: Request) -> None:
    """Refuse a parameter that the route does not have: a misspelt filter must not widen what is counted or acted upon."""
    names = set(inspect.signature(request.scope["endpoint"]).parameters)
    known = names - {"who", "request", "chosen"} | (
        {field.name for field in fields(Choice)} if "chosen" in names else set()
    )
    if unknown := sorted(set(request.query_params) - known):
        raise BadQuery(
            f"there is no parameter {', '.join(unknown)}; there are: {', '.join(sorted(known)) or 'none'}"
        )


def build(runtime: Runtime) -> APIRouter:
    """Every route of the pipeline."""
    router = APIRouter(
        tags=["replies"],
        dependencies=[Depends(_known)],
        responses=responses(400),
        generate_unique_id_function=by_name,
    )
    _reading(runtime, router)
    _acting(runtime, router)
    return router


def _reading(runtime: Runtime, api: APIRouter) -> None:
    records = runtime.engine.records

    @api.get(
        "/jobs/count", response_model=CountShape, responses=responses(422), summary="How many jobs"
    )
    async def count_jobs(
        chosen: Chosen,
        status: JobState | None = None,
        *,
        failed_without_done: Annotated[
            bool, Query(description="Failed jobs of posts that have no done job")
        ] = False,
    ) -> Any:
        where = _jobs(chosen, status, without_done=failed_without_done)
        return {"count": await Desk(runtime, "api").count_jobs(where)}

    @api.get(
        "/jobs",
        response_model=schemas.Listed[schemas.RecordJson],
        responses=responses(422),
        summary="Jobs",
    )
    async def list_jobs(
        chosen: Chosen,
        status: JobState | None = None,
        *,
        failed_without_done: Annotated[
            bool, Query(description="Failed jobs of posts that have no done job")
        ] = False,
        limit: Limit = 100,
        after: After = None,
    ) -> Any:
        page = await records.find(
            Job,
            _jobs(chosen, status, without_done=failed_without_done),
            limit=limit,
            after=after or None,
        )
        return listed(page)

    @api.get(
        "/empty-result-jobs",
        response_model=schemas.Listed[schemas.RecordJson],
        summary="Empty jobs",
    )
    async def list_empty(chosen: Chosen, limit: Limit = 100, after: After = None) -> Any:
        page = await records.find(
            Job, chosen.where(status="empty_result"), limit=limit, after=after or None
        )
        return listed(page)

    @api.get(
        "/posts",
        response_model=schemas.Listed[schemas.RecordJson],
        responses=responses(422),
        summary="Posts",
    )
    async def list_posts(
        chosen: Chosen,
        status: PostState | None = None,
        *,
        exhausted: Annotated[
            bool | None, Query(description="Only posts that wait for an operator, or only others")
        ] = None,
        limit: Limit = 100,
        after: After = None,
    ) -> Any:
        more = {
            name: value
            for name, value in (("status", status), ("exhausted", exhausted))
            if value is not None
        }
        page = await records.find(Post, chosen.where(**more), limit=limit, after=after or None)
        return listed(page)

    @api.get(
        "/quota",
        response_model=QuotaShape,
        responses=responses(502, 503),
        summary="Today's searches: used, limit, reset",
    )
    async def quota() -> Any:
        if faults := list(missing(runtime.engine.plan_of("replies").settings)):  # type: ignore[arg-type]  # its own settings
            raise SettingsError("the quota cannot be asked:", faults)
        return await quota_now(runtime)


def _acting(runtime: Runtime, api: APIRouter) -> None:
    refusals = responses(409, 422, 503)

    @api.post(
        "/process-posts",
        response_model=schemas.RunShape,
        responses=refusals,
        summary="Run phase 1 to its end",
    )
    async def process_posts(
        who: Who, max_posts: Annotated[Most, Query(description="At most so many searches")] = None
    ) -> Any:
        return await _run(runtime, who, "replies.process-posts", max_posts=max_posts)

    @api.post(
        "/process-jobs",
        response_model=schemas.RunShape,
        responses=refusals,
        summary="Run phase 2 to its end",
    )
    async def process_jobs(
        who: Who, max_jobs: Annotated[Most, Query(description="At most so many jobs")] = None
    ) -> Any:
        return await _run(runtime, who, "replies.process-jobs", max_jobs=max_jobs)

    @api.post(
        "/empty-result-jobs/retry", response_model=RetriedShape, summary="Check empty jobs again"
    )
    async def retry_empty(
        who: Who, chosen: Chosen, limit: Most = None, *, dry_run: DryRun = False
    ) -> Any:
        return await Desk(runtime, who).retry_empty(chosen, limit=limit, dry_run=dry_run)

    @api.post(
        "/empty-result-jobs/verify",
        response_model=VerifiedShape,
        summary="Empty jobs that were to be expected",
    )
    async def verify_empty(
        who: Who, chosen: Chosen, limit: Most = None, *, dry_run: DryRun = False
    ) -> Any:
        return await Desk(runtime, who).verify_empty(chosen, limit=limit, dry_run=dry_run)

    @api.post(
        "/jobs/retry",
        response_model=RetriedShape,
        responses=responses(422),
        summary="Check failed jobs again",
    )
    async def retry_jobs(
        who: Who,
        chosen: Chosen,
        status: Annotated[
            Literal["failed", "quota_exceeded"] | None,
            Query(description="Both, if it is not named"),
        ] = None,
        limit: Most = None,
        *,
        dry_run: DryRun = False,
    ) -> Any:
        return await Desk(runtime, who).retry_jobs(
            chosen, [status] if status else [], limit=limit, dry_run=dry_run
        )

    @api.post("/posts/retry", response_model=RetriedShape, summary="Give exhausted posts a new try")
    async def retry_posts(
        who: Who, chosen: Chosen, limit: Most = None, *, dry_run: DryRun = False
    ) -> Any:
        return await Desk(runtime, who).resubmit(chosen, limit=limit, dry_run=dry_run)

    @api.post(
        "/posts",
        response_model=schemas.InsertedShape,
        responses=responses(413, 422),
        openapi_extra=rows.body_of(_ROW, _EXAMPLE),
        summary="Add posts",
        description="A JSON array, or one object per line. A known post is left as it is; a bad row is reported by its number and the "
        "good ones are kept; 422 if there is no good one.",
    )
    async def add_posts(request: Request, who: Who) -> Any:
        report = await Desk(runtime, who).add(await rows.sent(request))
        return rows.answer(report, "a post", request.url.path)


async def _run(runtime: Runtime, who: str, cycle: str, **params: int | None) -> dict[str, Any]:
    said = {name: value for name, value in params.items() if value is not None}
    return (await runtime.operations(who).run(cycle, params=said)).answer()


def _jobs(chosen: Choice, status: str | None, *, without_done: bool) -> dict[str, Any]:
    if without_done and status not in (None, "failed"):
        raise HTTPException(
            422, f"failed_without_done is about failed jobs, not about {status} ones"
        )
    return jobs(chosen, [status] if status else [], without_done=without_done)
