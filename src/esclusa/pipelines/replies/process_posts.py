"""Phase 1: submit a search to the provider for each waiting post."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, get_args

from esclusa import (
    Add,
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
    Text,
    Throttled,
    To,
    Wait,
    above,
    at_most,
    below,
    one_of,
)
from esclusa.pipelines.replies.answers import (
    PLATFORM_LIMITS,
    SearchWindow,
    id_fault,
    replies_to_request,
    search_window,
)
from esclusa.pipelines.replies.client import (
    InformationTracerClient,
    KeyRefused,
    SearchRequest,
    SubmitFailed,
    TransientError,
)
from esclusa.pipelines.replies.files import find_file
from esclusa.pipelines.replies.records import ACTIVE, MAX_JOBS, Job, Post, SortBy, same_post
from esclusa.pipelines.replies.run_state import RunState, open_run_state
from esclusa.pipelines.replies.settings import RepliesSettings, search_budget
from esclusa.pipelines.replies.takeover import follow_jobs, report

WAITING: dict[str, Any] = {"status": "noreplies", "exhausted": False}
EXHAUSTED: dict[str, Any] = {"status": "noreplies", "exhausted": True}
# Twitter first, then the other platforms by name; the stage's order holds within each group.
#
# At last what other programs wrote without a platform, or with one that is no text: it is an error.
PLATFORM_GROUPS: tuple[dict[str, Any], ...] = (
    {"platform": "twitter"},
    {"platform": below("twitter")},
    {"platform": above("twitter")},
    {},
)
# The states from which a job starts again if the provider returns its id for a new search.
RESUBMITTABLE = ("failed", "quota_exceeded", "empty_result")

# The reason of a post's move to `processing`, before the id of its job.
JOB_REASON = "job "

COUNTERS = {
    name: name
    for name in (
        "taken",
        "submitted",
        "done",
        "skipped",
        "errors",
        "exhausted",
        "quota_blocked",
        "adopted",
        "orphans",
        "duplicates",
        "without_window",
        "unreadable_files",
    )
}


async def process_posts(run: RunContext) -> None:
    """Run phase 1 once.

    ``max_posts`` limits the searches; posts that need none do not count towards it. ``sort_by`` is
    the order for posts that have none.
    """
    due_by = run.started
    async with open_run_state(run) as state:
        run.count("adopted", await run.adopted(Post))
        await follow_jobs(state)
        try:
            if await _is_post_due(run, due_by) and await _has_quota(state):
                await _submit_by_platform(state, run.params.get("max_posts", run.limit), due_by)
        finally:
            run.counters["exhausted"], _ = await run.records.count(
                Post, EXHAUSTED, cap=1_000_000_000
            )
            report(state, Post.kind.table)


async def _is_post_due(run: RunContext, due_by: datetime) -> bool:
    """Whether a post is left that this run has not taken."""
    return await run.records.first(Post, WAITING | {"due_at": at_most(due_by)}) is not None


async def _has_quota(state: RunState) -> bool:
    """Read the provider's usage once, before the first submit; end the run if nothing is left."""
    try:
        usage = await state.usage()
    except (TransientError, KeyRefused, Throttled) as error:
        message = Text("the quota could not be read, so nothing was submitted: {why}", why=error)
        state.log.add_error(None, "quota_unknown", message)
        state.run.halt("error", message)
        return False
    window = await state.observe(usage)
    if usage.exhausted:
        state.block(
            Text("the quota is used up: {usage} until {until}", usage=usage, until=window.reset)
        )
    elif window.left == 0:
        state.block_spent(window)
    return not state.run.halted


async def _submit_by_platform(state: RunState, max_posts: int | None, due_by: datetime) -> None:
    """Submit group by group, never claiming more posts than there are searches left."""
    run = state.run
    for group in PLATFORM_GROUPS:
        while not run.stopping and (max_posts is None or run.counters["submitted"] < max_posts):
            window = await run.observe(search_budget(run.settings))
            if window.left == 0:
                if await _is_post_due(run, due_by):
                    state.block_spent(window)
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
        failure = Failure(Text("the post has no post_id"), type="no_post_id")
        return _fail(state, post, failure, after=0)
    max_replies = replies_to_request(post, settings.unknown_count)
    if max_replies is None:
        state.log.add_success(post, "skipped")
        return To("skipped", reason=Text("no replies are expected"))
    waiting = await _has_file(post, at) or await _has_job(post, at)
    if waiting is not None:
        return waiting
    try:  # before the search is paid for
        _check_id(str(post.post_id))
        window = search_window(post, at.now.date(), settings.window_days)
        others = (await at.records.find(Job, {"post_doc_id": post.id}, limit=MAX_JOBS)).items
        submits = _count_submits(post, others)
        job = _draft_job(post, max_replies, others, at)
    except (BadRecord, ValueError) as error:
        why = Text("no job can be made for it: {why}", why=error)
        failure = Failure(why, type="invalid_data")
        return _fail(state, post, failure, after=0)
    if submits > max(post.submits, settings.max_resubmits):
        reason = Text("{count} searches of it failed before", count=submits)
        state.log.add_error(post, "exhausted", f"post {post.id}: {reason}")
        return To("noreplies", submits=submits, exhausted=True, reason=reason)
    if not window.given:
        at.run.count("without_window")
    if (taken := await _is_taken(post, at)) is not None:
        return taken
    job.job_id = _paid_job(post)
    if job.job_id is None:
        try:
            await at.spend(search_budget(settings))
        except BudgetEmpty as error:
            state.block(error.message)
            return Wait(0, error.message)
    return await _search(post, job, window, submits, others, at)


async def _has_file(post: Post, at: Attempt) -> Outcome | None:
    """Return what to do with a post whose replies are saved, or whose file cannot be read."""
    state: RunState = at.run.shared
    if post.recollect:
        return None
    try:
        before = await find_file(at.artifacts, at.records, post)
    except ArtifactError as error:
        why = Text("its saved file could not be read: {why}", why=error)
        failure = Failure(why, type="artifact_error")
        at.run.count("unreadable_files")
        return _fail(state, post, failure, after=0, attempts=1)
    if before.state != "content":
        return None
    state.log.add_success(post, "already_saved", path=before.path)
    return To("done", reason=Text("its replies are saved already, in {path}", path=before.path))


def _check_id(post_id: str) -> None:
    if (fault := id_fault(post_id.strip())) is not None:
        raise ValueError(fault)


async def _has_job(post: Post, at: Attempt) -> Outcome | None:
    """Return what to do with a post that has an active job, or whose duplicate has one."""
    state: RunState = at.run.shared
    await at.caught_up()  # the job of a duplicate may be made just now
    asked: list[dict[str, Any]] = [{"post_doc_id": post.id}]
    if (same := same_post(post)) is not None:
        asked.append(same)
    for where in asked:
        active = await at.records.first(Job, where | {"status": one_of(*ACTIVE)})
        if active is None:
            continue
        if active.post_doc_id != post.id:
            at.run.count("duplicates")
        state.log.add_success(
            post, "has_job" if active.post_doc_id == post.id else "duplicate", job_id=active.job_id
        )
        return Wait(0, Text("its job {job} is {state}", job=active.id, state=active.status))
    return None


def _count_submits(post: Post, jobs: Sequence[Job]) -> int:
    """Return the searches of a post that count towards the limit of resubmits.

    Failed jobs of the service that this pipeline replaces count, too.
    """
    return max(post.submits, sum(job.status == "failed" for job in jobs))


async def _is_taken(post: Post, at: Attempt) -> Outcome | None:
    """Return what to do with a post that another program has moved since it was claimed.

    It stays where the other program put it.
    """
    found = await at.records.get(Post, post.id)
    if found is not None and found.status == post.status:
        return None
    reason = Text("another program has taken it meanwhile")
    if found is None or found.status not in ("processing", "done", "skipped"):
        return Wait(0, reason)
    return To(found.status, reason=reason)


def _draft_job(post: Post, max_replies: int, others: Sequence[Job], at: Attempt) -> Job:
    """Return the job of a search, without the id that the provider will give it.

    Raises ValueError if the post asks for an order that the provider does not know.
    """
    sort_by = post.sort_by or at.run.params.get("sort_by") or "time"
    if sort_by not in get_args(SortBy):
        raise ValueError(f"sort_by: {sort_by!r:.60} is neither time nor engagement")
    job = Job.kind.draft(
        {
            "job_id": None,
            "post_doc_id": post.id,
            "post_id": post.post_id,
            "platform": post.platform,
            "country": post.country,
            "candidate_id": post.candidate_id,
            "max_posts_replies": max_replies,
            "max_posts": max_replies,
            "sort_by": sort_by,
            "recollect": post.recollect,
            "siblings": len(others),
            "done_siblings": sum(other.status == "done" for other in others),
        }
    )
    assert isinstance(job, Job)
    return job


def _paid_job(post: Post) -> str | None:
    """Return the id of a job that was paid for, and that the store refused to save.

    The error of a rejected settlement has the reason of its move.
    """
    error = post.last_error or {}
    reason = (error.get("values") or {}).get("reason")
    if error.get("type") != "rejected" or not isinstance(reason, str):
        return None
    return reason.removeprefix(JOB_REASON) if reason.startswith(JOB_REASON) else None


async def _search(
    post: Post,
    job: Job,
    window: SearchWindow,
    submits: int,
    others: Sequence[Job],
    at: Attempt,
) -> Outcome:
    """Submit a search, unless the job has its id already: then its search is paid."""
    state: RunState = at.run.shared
    client: InformationTracerClient = at.context
    max_replies = job.max_posts_replies or 0
    code: int | None = None
    search = SearchRequest(
        post_id=str(post.post_id).strip(),
        platform=post.platform.lower(),
        max_replies=max_replies,
        sort_by=str(job.sort_by),
        since=window.start,
        until=window.end,
    )
    is_paid = job.job_id is not None
    if not is_paid:
        try:
            job.job_id, code = await client.submit(search)
        except SubmitFailed as error:
            return await _submit_failed(post, error, at)
    submits += 1
    exhausted = submits > at.settings.max_resubmits
    effects = await _start_job(job, others, at)
    if effects is None:
        message = Text(
            "the provider returned job {job}, which is finished or of another post",
            job=job.job_id,
        )
        failure = Failure(message, type="known_job")
        return _fail(state, post, failure, permanent=exhausted, fields={"submits": submits})
    state.log.add_success(
        post, "submitted", job_id=job.job_id, status_code=code, max_posts=max_replies
    )
    if not is_paid:
        at.run.count("submitted")
    return To(
        "processing",
        submits=submits,
        exhausted=exhausted,
        also=effects,
        attempts=0,
        reason=f"{JOB_REASON}{job.job_id}",
    )


async def _start_job(job: Job, others: Sequence[Job], at: Attempt) -> list[Effect] | None:
    """Return the effects that make the job pending; None if its id belongs to another job.

    The other jobs of the post count a new one. The provider may return the same id for the same
    search: then that job starts again.
    """
    known = await at.records.by_key(Job, job.job_id)
    if known is None:
        counted = [Add(Job, each.id, siblings=1) for each in others if each.siblings is not None]
        return [Create(job), *counted]
    if known.post_doc_id != job.post_doc_id or known.status not in RESUBMITTABLE:
        return None
    reason = Text("submitted again; the provider gave it the same id")
    again = Move(
        Job, known.id, "pending", frm=RESUBMITTABLE, recollect=job.recollect, reason=reason
    )
    return [again]


async def _submit_failed(post: Post, error: SubmitFailed, at: Attempt) -> Outcome:
    """Stop the run, because other submits would fail too.

    A post that the provider refuses waits, and is exhausted after its tries. A post whose submit
    failed for another reason is due for the next run; after a second failure it waits as well, so
    that it does not hold up the others. The run goes on if the provider only refuses a platform
    that it does not document.
    """
    state: RunState = at.run.shared
    if not error.spent:
        await at.refund(1, search_budget(at.settings))
    if error.about_post and post.platform.lower() not in PLATFORM_LIMITS:
        return _fail(state, post, error, status_code=error.code)
    kind = error.kind
    if kind != "rate_limit" and await _is_quota_used_up(state):
        kind = "quota"
    message = Text("{why} (post {post}); the run stops here", why=error, post=post.id)
    state.log.add_error(post, kind, message, status_code=error.code)
    at.run.count({"quota": "quota_blocked", "rate_limit": "rate_limited", "error": "errors"}[kind])
    at.run.halt("error" if kind == "error" else "blocked", message)
    if kind == "error" and error.about_post:
        return Retry(error)
    again = kind == "error" and at.number > 1
    return Retry(error, after=None if again else 0, attempts=1 if kind == "error" else 0)


async def _is_quota_used_up(state: RunState) -> bool:
    """Ask the provider, and adjust the budget if it is; no answer means no."""
    try:
        usage = await state.usage()
    except (TransientError, Throttled, KeyRefused) as error:
        state.run.log(f"the quota could not be read: {error}", level="warning")
        return False
    if usage.exhausted:
        await state.observe(usage)
    return usage.exhausted


def _fail(
    state: RunState,
    post: Post,
    error: Failure,
    *,
    after: float | None = None,
    attempts: int | None = None,
    permanent: bool = False,
    fields: Mapping[str, Any] = MappingProxyType({}),
    **logged: Any,
) -> Retry:
    """Log and count an error of this post alone; the run goes on."""
    state.log.add_error(post, "error", f"post {post.id}: {error}", **logged)
    state.run.count("errors")
    why = Text("some posts could not be submitted; see the log of the run")
    state.run.end("partial", why)
    return Retry(error, after=after, attempts=attempts, permanent=permanent, **fields)
