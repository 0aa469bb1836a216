"""Phase 1: submit a search to the provider for each waiting post."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from esclusa import (
    ArtifactError,
    Attempt,
    BadRecord,
    BudgetEmpty,
    Create,
    Effect,
    Failure,
    Move,
    Outcome,
    Retry,
    RunContext,
    Throttled,
    To,
    Wait,
    above,
    at_most,
    below,
    one_of,
)
from esclusa.pipelines.replies.answers import PLATFORM_LIMITS, replies_to_request
from esclusa.pipelines.replies.client import (
    InformationTracerClient,
    KeyRefused,
    SearchRequest,
    SubmitFailed,
    TransientError,
)
from esclusa.pipelines.replies.files import existing_file, replies_path
from esclusa.pipelines.replies.records import ACTIVE, Job, Post
from esclusa.pipelines.replies.run_state import RunState, open_run_state
from esclusa.pipelines.replies.settings import RepliesSettings, search_budget

WAITING: dict[str, Any] = {"status": "noreplies", "exhausted": False}
EXHAUSTED: dict[str, Any] = {"status": "noreplies", "exhausted": True}
# Twitter first, then the other platforms by name; the stage's order holds within each group.
PLATFORM_GROUPS: tuple[dict[str, Any], ...] = (
    {"platform": "twitter"},
    {"platform": below("twitter")},
    {"platform": above("twitter")},
)
# The states from which a job starts again if the provider returns its id for a new search.
RESUBMITTABLE = ("failed", "quota_exceeded", "empty_result")

COUNTERS = {
    name: name
    for name in ("taken", "submitted", "done", "skipped", "errors", "exhausted", "quota_blocked")
}


async def process_posts(run: RunContext) -> None:
    """Run phase 1 once.

    ``max_posts`` limits the searches; posts that need none do not count towards it.
    """
    due_by = run.started
    async with open_run_state(run) as state:
        try:
            if await _is_post_due(run, due_by) and await _has_quota(state):
                await _submit_by_platform(state, run.params.get("max_posts", run.limit), due_by)
        finally:
            run.count("exhausted", (await run.records.count(Post, EXHAUSTED, cap=1_000_000_000))[0])


async def _is_post_due(run: RunContext, due_by: datetime) -> bool:
    """Whether a post is left that this run has not taken."""
    return await run.records.first(Post, WAITING | {"due_at": at_most(due_by)}) is not None


async def _has_quota(state: RunState) -> bool:
    """Read the provider's usage once, before the first submit; end the run if nothing is left."""
    try:
        usage = await state.usage(fresh=True)
    except (TransientError, KeyRefused, Throttled) as error:
        message = f"the quota could not be read, so nothing was submitted: {error}"
        state.log.add_error(None, "quota_unknown", message)
        state.run.halt("error", message)
        return False
    window = await state.observe(usage)
    if usage.exhausted:
        state.block(f"the quota is used up: {usage} until {window.reset.isoformat()}")
    return not state.run.halted


async def _submit_by_platform(state: RunState, max_posts: int | None, due_by: datetime) -> None:
    """Submit group by group, never claiming more posts than there are searches left."""
    run = state.run
    for group in PLATFORM_GROUPS:
        while not run.stopping and (max_posts is None or run.counters["submitted"] < max_posts):
            window = await run.observe(search_budget(run.settings))
            if window.left == 0:
                if await _is_post_due(run, due_by):
                    state.block(
                        f"the quota is used up: {window.used}/{window.limit} "
                        f"until {window.reset.isoformat()}"
                    )
                return
            limit = window.left
            if max_posts is not None:
                limit = min(limit, max_posts - run.counters["submitted"])
            taken = run.counters["taken"]
            await run.drain("submit", where=group, limit=limit, before=due_by)
            if run.counters["taken"] - taken < limit:
                break


async def exhausted(records: Any, limit: int, after: str | None = None) -> dict[str, Any]:
    """List the posts whose searches failed too often.

    They wait for an operator (``esclusa replies resubmit``).
    """
    page = await records.find(Post, EXHAUSTED, limit=limit, after=after)
    names = ("id", "post_id", "platform", "country", "candidate_id", "replies_count", "updated_at")
    return {
        "items": [{name: getattr(post, name) for name in names} for post in page.items],
        "next": page.next,
    }


async def submit(post: Post, at: Attempt) -> Outcome:
    """Move a post to ``processing`` with its job, or to where it needs no search.

    A search that fails stops the run.
    """
    settings: RepliesSettings = at.settings
    state: RunState = at.run.shared
    if not (post.post_id or "").strip():
        return _fail(state, post, Failure("the post has no post_id", type="no_post_id"), after=0)
    max_replies = replies_to_request(post, settings.unknown_count)
    if max_replies is None:
        state.log.add_success(post, "skipped")
        return To("skipped", reason="no replies are expected")
    try:
        before = await existing_file(at.artifacts, replies_path(post))
    except ArtifactError as error:
        failure = Failure(f"its saved file could not be read: {error}", type="artifact_error")
        return _fail(state, post, failure, after=0)
    if before.state == "content":
        state.log.add_success(post, "already_saved", path=replies_path(post))
        return To("done", reason="its replies are saved already")
    active = await at.records.first(Job, {"post_doc_id": post.id, "status": one_of(*ACTIVE)})
    if active is not None:
        state.log.add_success(post, "has_job", job_id=active.job_id)
        return Wait(0, f"its job {active.id} is {active.status}")
    try:  # before the search is paid for
        job = await _draft_job(post, max_replies, at)
    except BadRecord as error:
        failure = Failure(f"no job can be made for it: {error}", type="invalid_data")
        return _fail(state, post, failure, after=0)
    try:
        await at.spend(search_budget(settings))
    except BudgetEmpty as error:
        state.block(str(error))
        return Wait(0, str(error))
    return await _search(post, job, max_replies, at)


async def _draft_job(post: Post, max_replies: int, at: Attempt) -> Job:
    """Return the job of a search, without the id that the provider will give it."""
    done, _ = await at.records.count(Job, {"post_doc_id": post.id, "status": "done"})
    job = Job.kind.draft(
        {
            "job_id": None,
            "post_doc_id": post.id,
            "post_id": post.post_id,
            "platform": post.platform,
            "country": post.country,
            "candidate_id": post.candidate_id,
            "max_posts": max_replies,
            "sort_by": post.sort_by,
            "done_siblings": done or None,
        }
    )
    assert isinstance(job, Job)
    return job


async def _search(post: Post, job: Job, max_replies: int, at: Attempt) -> Outcome:
    state: RunState = at.run.shared
    client: InformationTracerClient = at.context
    today = at.now.date()
    search = SearchRequest(
        post_id=str(post.post_id),
        platform=post.platform.lower(),
        max_replies=max_replies,
        sort_by=post.sort_by or "time",
        since=min(today, (post.created_at or at.now).date()) - timedelta(days=1),
        until=today,
    )
    try:
        job_id, code = await client.submit(search)
    except SubmitFailed as error:
        return await _submit_failed(post, error, at)
    job.job_id = job_id
    effect = await _start_job(job, at)
    if effect is None:
        message = f"the provider returned job {job_id}, which is finished or of another post"
        return _fail(state, post, Failure(message, type="known_job"))
    state.log.add_success(post, "submitted", job_id=job_id, status_code=code, max_posts=max_replies)
    at.run.count("submitted")
    submits = post.submits + 1
    return To(
        "processing",
        submits=submits,
        exhausted=submits > at.settings.max_resubmits,
        also=[effect],
        reason=f"job {job_id}",
    )


async def _start_job(job: Job, at: Attempt) -> Effect | None:
    """Return the effect that makes the job pending; None if its id belongs to another job.

    The provider may return the same id for the same search: then that job starts again.
    """
    known = await at.records.get(Job, job.kind.id_of(job.job_id))
    if known is None:
        return Create(job)
    if known.post_doc_id != job.post_doc_id or known.status not in RESUBMITTABLE:
        return None
    return Move(
        Job,
        known.id,
        "pending",
        frm=RESUBMITTABLE,
        reason="submitted again; the provider gave it the same id",
    )


async def _submit_failed(post: Post, error: SubmitFailed, at: Attempt) -> Outcome:
    """Stop the run, because other submits would fail too.

    The run goes on if the provider only refuses a platform that it does not document.
    """
    state: RunState = at.run.shared
    if not error.spent:
        await at.refund(1, search_budget(at.settings))
    refused = error.kind == "error" and error.code is not None and error.code < 500
    if refused and post.platform.lower() not in PLATFORM_LIMITS:
        return _fail(state, post, error, status_code=error.code)
    kind = error.kind
    if kind != "rate_limit" and (usage := await state.exhausted_usage()) is not None:
        kind = "quota"
        await state.observe(usage)
    message = f"{error} (post {post.id}); the run stops here"
    state.log.add_error(post, kind, message, status_code=error.code)
    at.run.count({"quota": "quota_blocked", "rate_limit": "rate_limited", "error": "errors"}[kind])
    at.run.halt("error" if kind == "error" else "blocked", message)
    return Retry(error, after=0)


def _fail(
    state: RunState, post: Post, error: Failure, *, after: float | None = None, **fields: Any
) -> Retry:
    """Log and count an error of this post alone; the run goes on."""
    state.log.add_error(post, "error", f"post {post.id}: {error}", **fields)
    state.run.count("errors")
    state.run.end("partial", "some posts could not be submitted; see the log of the run")
    return Retry(error, after=after)
