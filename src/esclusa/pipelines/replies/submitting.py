"""Phase 1: posts that wait become searches at the provider."""

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
)  # fmt: skip
from esclusa.pipelines.replies.answers import CAPS, how_many
from esclusa.pipelines.replies.client import Hiccup, KeyRefused, Search, SubmitFailed
from esclusa.pipelines.replies.errand import Errand, Office
from esclusa.pipelines.replies.files import kept, path_of
from esclusa.pipelines.replies.records import ACTIVE, Job, Post
from esclusa.pipelines.replies.settings import RepliesSettings, quota

WAITING: dict[str, Any] = {"status": "noreplies", "exhausted": False}
EXHAUSTED: dict[str, Any] = {"status": "noreplies", "exhausted": True}
TURNS: tuple[dict[str, Any], ...] = (
    {"platform": "twitter"},
    {"platform": below("twitter")},
    {"platform": above("twitter")},
)
"""Twitter first, then the other platforms by name; within each turn the stage's own order holds."""

COUNTERS = {
    name: name
    for name in ("taken", "submitted", "done", "skipped", "errors", "exhausted", "quota_blocked")
}


async def process_posts(run: RunContext) -> None:
    """One run of phase 1. ``max_posts`` counts searches: posts that need none do not use it up."""
    office: Office = run.context
    moment = run.started
    async with office.errand(run) as errand:
        try:
            if await _waiting(run, moment) and await _may_submit(errand):
                await _submit_in_turns(errand, run.params.get("max_posts", run.limit), moment)
        finally:
            run.count("exhausted", (await run.records.count(Post, EXHAUSTED, cap=1_000_000_000))[0])


async def _waiting(run: RunContext, moment: datetime) -> bool:
    """Whether a post is left that this run has not looked at."""
    return await run.records.first(Post, WAITING | {"due_at": at_most(moment)}) is not None


async def _may_submit(errand: Errand) -> bool:
    """Ask the provider once, before the first submit, what is left of the day."""
    try:
        usage = await errand.usage(fresh=True)
    except (Hiccup, KeyRefused, Throttled) as error:
        message = f"the quota could not be asked, so nothing was submitted: {error}"
        errand.error(None, "quota_unknown", message)
        errand.run.halt("error", message)
        return False
    window = await errand.learn(usage)
    if usage.exhausted:
        errand.blocked(f"the quota is used up: {usage} until {window.reset.isoformat()}")
    return not errand.run.halted


async def exhausted(records: Any, limit: int, after: str | None = None) -> dict[str, Any]:
    """Posts whose searches failed too often: they wait for an operator (``esclusa replies resubmit``)."""
    page = await records.find(Post, EXHAUSTED, limit=limit, after=after)
    names = ("id", "post_id", "platform", "country", "candidate_id", "replies_count", "updated_at")
    return {
        "items": [{name: getattr(post, name) for name in names} for post in page.items],
        "next": page.next,
    }


async def _submit_in_turns(errand: Errand, most: int | None, moment: datetime) -> None:
    """Turn by turn, never more posts at a time than there are searches left for: what cannot be submitted is not even claimed."""
    run = errand.run
    for turn in TURNS:
        while not run.stopping and (most is None or run.counters["submitted"] < most):
            window = await run.observe(quota(run.settings))
            if window.left == 0:
                if await _waiting(run, moment):
                    errand.blocked(
                        f"the quota is used up: {window.used}/{window.limit} until {window.reset.isoformat()}"
                    )
                return
            limit = (
                window.left if most is None else min(window.left, most - run.counters["submitted"])
            )
            taken = run.counters["taken"]
            await run.drain("submit", where=turn, limit=limit, before=moment)
            if run.counters["taken"] - taken < limit:
                break


async def submit(post: Post, at: Attempt) -> Outcome:
    """One post: to ``processing`` with its job, or to where it needs none. A search that fails stops the run."""
    settings: RepliesSettings = at.settings
    errand = at.context.of(at)
    if not (post.post_id or "").strip():
        return _error(errand, post, Failure("the post has no post_id", type="no_post_id"), after=0)
    wanted = how_many(post, settings.unknown_count)
    if wanted is None:
        errand.success(post, "skipped")
        return To("skipped", reason="no replies are expected")
    try:
        before = await kept(at.artifacts, path_of(post))
    except ArtifactError as error:
        return _error(
            errand,
            post,
            Failure(f"whether its replies are saved is not known: {error}", type="artifact_error"),
            after=0,
        )
    if before.what == "content":
        errand.success(post, "already_saved", path=path_of(post))
        return To("done", reason="its replies are saved already")
    active = await at.records.first(Job, {"post_doc_id": post.id, "status": one_of(*ACTIVE)})
    if active is not None:
        errand.success(post, "has_job", job_id=active.job_id)
        return Wait(0, f"its job {active.id} is {active.status}")
    try:
        job = await _job(post, wanted, at)
    except BadRecord as error:  # found before the search is paid for
        return _error(
            errand,
            post,
            Failure(f"no job can be made of it: {error}", type="invalid_data"),
            after=0,
        )
    try:
        await at.spend(quota(settings))
    except BudgetEmpty as error:
        errand.blocked(str(error))
        return Wait(0, str(error))
    return await _search(post, job, wanted, at, errand)


async def _job(post: Post, wanted: int, at: Attempt) -> Job:
    """The job that a search will be; the provider gives it its id."""
    done = (await at.records.count(Job, {"post_doc_id": post.id, "status": "done"}))[0]
    made = Job.kind.draft({
        "job_id": None, "post_doc_id": post.id, "post_id": post.post_id, "platform": post.platform, "country": post.country,
        "candidate_id": post.candidate_id, "max_posts": wanted, "sort_by": post.sort_by, "done_siblings": done or None,
    })  # fmt: skip
    assert isinstance(made, Job)
    return made


async def _search(post: Post, job: Job, wanted: int, at: Attempt, errand: Errand) -> Outcome:
    today = at.now.date()
    since = min(today, (post.created_at or at.now).date()) - timedelta(days=1)
    search = Search(
        str(post.post_id), post.platform.lower(), wanted, post.sort_by or "time", since, today
    )
    try:
        job_id, code = await errand.client.submit(search)
    except SubmitFailed as error:
        return await _failed(post, error, at, errand)
    job.job_id = job_id
    effect = await _effect(job, at)
    if effect is None:
        return _error(
            errand,
            post,
            Failure(
                f"the provider answered with job {job_id}, which is another's or over",
                type="known_job",
            ),
        )
    errand.success(post, "submitted", job_id=job_id, status_code=code, max_posts=wanted)
    at.run.count("submitted")
    submits = post.submits + 1
    return To(
        "processing",
        submits=submits,
        exhausted=submits > at.settings.max_resubmits,
        also=[effect],
        reason=f"job {job_id}",
    )


async def _effect(job: Job, at: Attempt) -> Effect | None:
    """What makes the job pending. The provider may give the same search the same id: then the job of that id starts again."""
    known = await at.records.get(Job, job.kind.id_of(job.job_id))
    if known is None:
        return Create(job)
    again = ("failed", "quota_exceeded", "empty_result")
    if known.post_doc_id != job.post_doc_id or known.status not in again:
        return None
    return Move(
        Job,
        known.id,
        "pending",
        frm=again,
        reason="submitted again; the provider gave it the same id",
    )


async def _failed(post: Post, error: SubmitFailed, at: Attempt, errand: Errand) -> Outcome:
    """A search that the provider did not take. The rest would fail too, unless it is this post's platform that it does not know."""
    if not error.spent:
        await at.refund(1, quota(at.settings))
    refused = error.kind == "error" and error.code is not None and error.code < 500
    if refused and post.platform.lower() not in CAPS:
        return _error(errand, post, error, status_code=error.code)
    kind = error.kind
    if kind != "rate_limit" and (usage := await errand.exhausted()) is not None:
        kind = "quota"
        await errand.learn(usage)
    message = f"{error} (post {post.id}); the run stops here"
    errand.error(post, kind, message, status_code=error.code)
    at.run.count({"quota": "quota_blocked", "rate_limit": "rate_limited", "error": "errors"}[kind])
    at.run.halt("error" if kind == "error" else "blocked", message)
    return Retry(error, after=0)


def _error(
    errand: Errand, post: Post, error: Failure, *, after: float | None = None, **facts: Any
) -> Retry:
    """An error of this post alone: counted, told, kept; the run goes on."""
    errand.error(post, "error", f"post {post.id}: {error}", **facts)
    errand.run.count("errors")
    errand.run.end("partial", "some posts could not be submitted; the log of the run names them")
    return Retry(error, after=after)
