"""Phase 2: searches that are over become saved replies, or what else came of them."""

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
    Throttled,
    To,
    Wait,
)
from esclusa.pipelines.replies.answers import Standing, is_empty, why_unusable
from esclusa.pipelines.replies.client import Answer, Hiccup, KeyRefused
from esclusa.pipelines.replies.errand import Errand, Office
from esclusa.pipelines.replies.files import Kept, kept, path_of, save
from esclusa.pipelines.replies.records import Job, post_back, post_done

SIBLINGS = 200
"""At most so many other jobs of a post are told that one ended well; a post has two or three."""

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
    )
} | {"waited": "still_pending"}


async def process_jobs(run: RunContext) -> None:
    """One run of phase 2: the quota first, then what the reset let go, then every pending job that is due, oldest first."""
    office: Office = run.context
    async with office.errand(run) as errand:
        left = await _left(errand)
        if run.halted:
            return
        if left and run.settings.resume_after_reset:
            await _resume(run, left)
        await run.drain("check", limit=run.params.get("max_jobs", run.limit))


async def _left(errand: Errand) -> int:
    """What is left of the day; the run ends here if it is nothing. A provider that does not say stops nobody: checks cost nothing."""
    try:
        usage = await errand.usage(fresh=True)
    except KeyRefused as error:
        errand.error(None, "key_refused", str(error))
        errand.run.halt("error", str(error))
        return 0
    except (Hiccup, Throttled) as error:
        errand.run.log(f"the quota could not be asked: {error}", level="warning")
        return 0
    window = await errand.learn(usage)
    if usage.exhausted:
        errand.blocked(
            f"the quota is used up: {usage} until {window.reset.isoformat()}; no job was touched"
        )
    return window.left


async def _resume(run: RunContext, left: int) -> None:
    """Jobs that failed for want of quota are due at the reset, oldest first, as many as the new day has searches for."""
    await run.drain("resume", limit=left, eager=False)
    resumed = run.counters.pop("pending", 0)
    run.count("resumed", resumed)
    run.count("taken", -resumed)  # they are not yet checked


async def resume(job: Job, at: Attempt) -> Outcome:
    return To("pending", reason="the quota was reset")


async def check(job: Job, at: Attempt) -> Outcome:
    """One job: saved, empty, failed, out of quota, or still running. Its error never is another's."""
    errand: Errand = at.context.of(at)
    if not all(
        (part or "").strip() for part in (job.job_id, job.post_doc_id, job.post_id, job.platform)
    ):
        lacks = [
            name
            for name in ("job_id", "post_doc_id", "post_id", "platform")
            if not (getattr(job, name) or "").strip()
        ]
        return _fail(job, Failure(f"the job has no {', '.join(lacks)}", type="missing_id"), errand)
    try:
        return await _check(job, at, errand)
    except Throttled:
        raise
    except (Hiccup, ArtifactError) as error:
        if at.tries is not None and at.number >= at.tries:
            return await _ended(job, error, at, errand)
        errand.error(job, "hiccup", f"job {job.id}: {error}")
        return Retry(error)
    except Exception as error:  # noqa: BLE001 - any other fault ends this job, after the quota question
        return await _ended(job, error, at, errand)


async def _check(job: Job, at: Attempt, errand: Errand) -> Outcome:
    before = await kept(at.artifacts, path_of(job))
    if before.what == "content":
        errand.success(
            job,
            "skipped",
            reason="JSON file already exists in the artifact store with valid content",
            path=path_of(job),
        )
        return await _done(job, at, "its replies are saved already")
    found, words, code = await _poll(job, at, errand)
    if found == "running":
        errand.success(job, "still_pending", status_code=code)
        return Wait(at.settings.recheck_seconds, words, attempts=0)
    if found == "failed":
        return await _ended(job, Failure(words, type="provider_failed"), at, errand, code)
    answer = await errand.client.result(str(job.job_id), job.platform)
    why = why_unusable(answer.said) or (
        f"the provider answers {answer.code}" if answer.code >= 400 else None
    )
    if why is not None:
        return await _ended(
            job, Failure(errand.client.hidden(why), type="no_result"), at, errand, answer.code
        )
    if is_empty(answer.said):
        errand.success(job, "empty_result", status_code=answer.code)
        return To("empty_result", reason="the provider found nothing")
    return await _saved(job, answer, before, at, errand)


async def _poll(job: Job, at: Attempt, errand: Errand) -> tuple[Standing, str, int]:
    """Where the job stands; while it runs, as often as one run may ask."""
    answer = await errand.client.status(str(job.job_id))
    for _ in range(at.settings.poll_rounds - 1):
        if answer[0] != "running" or at.run.stopping:
            break
        await asyncio.sleep(at.settings.poll_seconds)
        answer = await errand.client.status(str(job.job_id))
    return answer


async def _saved(job: Job, answer: Answer, before: Kept, at: Attempt, errand: Errand) -> Outcome:
    saved = await save(at.artifacts, job, answer.body, answer.said, before, at.now)
    if saved is None:
        errand.success(
            job,
            "skipped",
            reason="JSON file already exists in the artifact store with valid content",
            path=path_of(job),
        )
        return await _done(job, at, "its replies were saved meanwhile")
    facts = {
        "status_code": answer.code,
        "path": saved.path,
        "is_retry": saved.is_retry,
        "retry_count": saved.retry_count,
    }
    errand.success(job, "done", **facts)
    return await _done(
        job, at, f"saved as {saved.path}", retry_count=max(saved.retry_count, job.retry_count)
    )


async def _done(job: Job, at: Attempt, reason: str, **fields: Any) -> To:
    """The job and its post are done, and the post's other jobs know."""
    page = await at.records.find(Job, {"post_doc_id": job.post_doc_id}, limit=SIBLINGS)
    others: list[Effect] = [
        Add(Job, other.id, done_siblings=1) for other in page.items if other.id != job.id
    ]
    return To("done", also=[post_done(job, reason), *others], reason=reason, **fields)


async def _ended(
    job: Job, error: Exception, at: Attempt, errand: Errand, code: int | None = None
) -> Outcome:
    """A job that will bring nothing: out of quota, if today's is used up, and failed otherwise."""
    usage = await errand.exhausted()
    if usage is None:
        return _fail(job, error, errand, code)
    errand.error(
        job,
        "quota_exceeded",
        f"job {job.id}: {error}; the quota is used up ({usage})",
        status_code=code,
    )
    return To(
        "quota_exceeded",
        fault=error,
        reason=f"the quota is used up ({usage})",
        after=errand.until_reset(),
    )


def _fail(job: Job, error: Exception, errand: Errand, code: int | None = None) -> To:
    errand.error(job, "failed", f"job {job.id}: {error}", status_code=code)
    return To("failed", fault=error, also=post_back(job))
