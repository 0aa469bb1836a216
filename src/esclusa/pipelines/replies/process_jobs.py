"""Phase 2: check the provider's jobs and save the replies that they found."""

from __future__ import annotations

import asyncio
from typing import Any

from esclusa import (
    Add,
    ArtifactError,
    Attempt,
    Effect,
    Failure,
    Outcome,
    Retry,
    RunContext,
    Text,
    Throttled,
    To,
    Wait,
)
from esclusa.pipelines.replies.answers import JobStatus, is_empty, result_fault
from esclusa.pipelines.replies.client import InformationTracerClient, KeyRefused, TransientError
from esclusa.pipelines.replies.files import ExistingFile, existing_file, save_replies
from esclusa.pipelines.replies.records import MAX_JOBS, Job, finish_post, reopen_post
from esclusa.pipelines.replies.run_state import RunState, open_run_state
from esclusa.pipelines.replies.takeover import count_orphan_jobs, follow_jobs, report

COUNTERS = {
    name: name
    for name in (
        "taken",
        "done",
        "empty_result",
        "failed",
        "quota_exceeded",
        "quota_blocked",
        "resumed",
        "adopted",
        "orphans",
    )
} | {"waited": "still_pending"}


async def process_jobs(run: RunContext) -> None:
    """Run phase 2 once: read the quota, resume jobs after a reset, check the pending jobs."""
    async with open_run_state(run) as state:
        run.count("adopted", await run.adopted(Job))
        searches = await _searches_left(state)
        if not run.halted:
            await follow_jobs(state)
            await count_orphan_jobs(state)
            if searches and run.settings.resume_after_reset:
                await _resume_jobs(run, searches)
            await run.drain("check", limit=run.params.get("max_jobs", run.limit))
        report(state, Job.kind.table)


async def _searches_left(state: RunState) -> int:
    """Return the searches left of the day; end the run if the quota is used up.

    With ``REPLIES_AT_LIMIT=collect`` the run goes on. A quota that cannot be read does not end the
    run, because checks cost no search.
    """
    try:
        usage = await state.usage()
    except KeyRefused as error:
        state.log.add_error(None, "key_refused", str(error))
        state.run.halt("error", error.message)
        return 0
    except (TransientError, Throttled) as error:
        state.run.log(f"the quota could not be read: {error}", level="warning")
        return 0
    window = await state.observe(usage)
    if usage.exhausted and state.run.settings.at_limit == "stop":
        state.block(
            Text(
                "the quota is used up: {usage} until {until}; no job was touched",
                usage=usage,
                until=window.reset,
            )
        )
    return window.left


async def _resume_jobs(run: RunContext, limit: int) -> None:
    """Move ``quota_exceeded`` jobs that are due to ``pending``, oldest first."""
    await run.drain("resume", limit=limit, eager=False)
    resumed = run.counters.pop("pending", 0)
    run.count("resumed", resumed)
    run.count("taken", -resumed)  # "taken" counts checks


async def resume(job: Job, at: Attempt) -> Outcome:
    """Make a job pending again after the daily reset."""
    return To("pending", reason=Text("the quota was reset"))


async def check(job: Job, at: Attempt) -> Outcome:
    """Check a job: save its replies, or move it to where its status leads.

    An error affects this job only.
    """
    state: RunState = at.run.shared
    names = ("job_id", "post_doc_id", "post_id", "platform")
    if missing := [name for name in names if not (getattr(job, name) or "").strip()]:
        why = Text("the job has no {names}", names=", ".join(missing))
        return _fail(job, Failure(why, type="missing_id"), state)
    try:
        return await _check(job, at)
    except Throttled:
        raise
    except (TransientError, ArtifactError) as error:
        if at.tries is not None and at.number >= at.tries:
            return await _end(job, error, at)
        state.log.add_error(job, "transient_error", f"job {job.id}: {error}")
        return Retry(error)
    except Exception as error:  # noqa: BLE001 - any other fault ends this job alone
        return await _end(job, error, at)


async def _check(job: Job, at: Attempt) -> Outcome:
    state: RunState = at.run.shared
    client: InformationTracerClient = at.context
    before = await existing_file(at.artifacts, job)
    if before.state == "content" and not job.recollect:
        return await _already_saved(job, at, before, Text("its replies are saved already"))
    status, message, code = await _poll(job, at)
    if status == "running":
        state.log.add_success(job, "still_pending", status_code=code)
        return Wait(at.settings.recheck_seconds, message, attempts=0)
    if status == "failed":
        return await _end(job, Failure(message, type="provider_failed"), at, code)
    response = await client.result(str(job.job_id), job.platform)
    code, fault = response.code, result_fault(response.data, client.mask)
    if fault is None and code >= 400:
        fault = Text("the provider answers {code}", code=code)
    if fault is not None:
        return await _end(job, Failure(fault, type="no_result"), at, code)
    if is_empty(response.data):
        state.log.add_success(job, "empty_result", status_code=code)
        return To("empty_result", reason=Text("the provider found nothing"))
    saved = await save_replies(at, job, response.body, response.data, before)
    if saved is None:
        found = await existing_file(at.artifacts, job)
        return await _already_saved(job, at, found, Text("its replies were saved meanwhile"))
    state.log.add_success(
        job,
        "done",
        status_code=code,
        path=saved.path,
        replies=saved.replies,
        is_retry=saved.is_retry,
        retry_count=saved.retry_count,
    )
    return await _done(
        job,
        at,
        Text("saved as {path}", path=saved.path),
        retry_count=max(saved.retry_count, job.retry_count),
        saved_file=saved.path,
        saved_replies=saved.replies,
    )


async def _poll(job: Job, at: Attempt) -> tuple[JobStatus, str, int]:
    """Return the job's status, checking up to ``REPLIES_POLL_ROUNDS`` times while it runs."""
    client: InformationTracerClient = at.context
    found = await client.status(str(job.job_id))
    for _ in range(at.settings.poll_rounds - 1):
        if found[0] != "running" or at.run.stopping:
            break
        await asyncio.sleep(at.settings.poll_seconds)
        found = await client.status(str(job.job_id))
    return found


async def _already_saved(job: Job, at: Attempt, found: ExistingFile, reason: str) -> To:
    at.run.shared.log.add_success(
        job,
        "skipped",
        reason="JSON file already exists in the artifact store with valid content",
        path=found.path,
    )
    return await _done(job, at, reason, saved_file=found.path, saved_replies=found.replies)


async def _done(job: Job, at: Attempt, reason: str, **fields: Any) -> To:
    """Finish the job and its post, and count this job in the post's other jobs.

    Jobs that another program made are not written for that. Most posts have one job, so the others
    are read only if there are some: a query would take a third of the time of a job.
    """
    others: list[Effect] = []
    if job.siblings != 0:
        page = await at.records.find(Job, {"post_doc_id": job.post_doc_id}, limit=MAX_JOBS)
        others = [
            Add(Job, other.id, done_siblings=1)
            for other in page.items
            if other.id != job.id and other.done_siblings is not None
        ]
    also = [finish_post(job, reason), *others]
    return To("done", also=also, recollect=False, reason=reason, **fields)


async def _end(job: Job, error: Exception, at: Attempt, code: int | None = None) -> Outcome:
    """End a job without replies: ``quota_exceeded`` if the quota is used up, else ``failed``.

    A failure costs a new search. So a job whose quota cannot be read is checked again.
    """
    state: RunState = at.run.shared
    try:
        usage = await state.usage()
    except (TransientError, Throttled, KeyRefused) as unknown:
        if at.tries is None or at.number < at.tries:
            message = Text("{error}; the quota could not be read: {why}", error=error, why=unknown)
            state.log.add_error(job, "transient_error", f"job {job.id}: {message}")
            return Retry(Failure(message, type="quota_unknown"))
        return _fail(job, error, state, code)
    if not usage.exhausted:
        return _fail(job, error, state, code)
    reason = Text("the quota is used up ({usage})", usage=usage)
    state.log.add_error(job, "quota_exceeded", f"job {job.id}: {error}; {reason}", status_code=code)
    return To("quota_exceeded", fault=error, reason=reason, after=state.until_reset())


def _fail(job: Job, error: Exception, state: RunState, code: int | None = None) -> To:
    state.log.add_error(job, "failed", f"job {job.id}: {error}", status_code=code)
    return To("failed", fault=error, also=reopen_post(job))
