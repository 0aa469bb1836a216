"""Records that the service which this pipeline replaces has left, or goes on writing.

Its jobs and posts are worked as they are. What it left half done is put right at the start of each
run: a post in ``processing`` that this pipeline did not submit follows its jobs.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from esclusa import To, at_most, null
from esclusa.pipelines.replies.records import ACTIVE, Job, Post
from esclusa.pipelines.replies.run_state import RunState

# Posts that this pipeline did not submit.
UNSUBMITTED = {"status": "processing", "submits": 0}
# The states of jobs after which a post stays in `processing`, and after which it is done.
WAITING = (*ACTIVE, "quota_exceeded")
FINISHED = ("done", "verified", "empty_result")


async def follow_jobs(state: RunState) -> None:
    """Move posts in ``processing`` that this pipeline did not submit to where their jobs lead.

    A job that is active, or waits for the quota, leaves its post. Otherwise a job that has ended
    well or empty makes it ``done``; only failed jobs, or none, send it back to ``noreplies``.
    """
    run = state.run
    async for post in run.records.each(Post, UNSUBMITTED):
        if run.stopping:
            return
        found = {job.status async for job in run.records.each(Job, {"post_doc_id": post.id})}
        if found.intersection(WAITING) or not found <= {*FINISHED, "failed"}:
            continue
        to = "done" if found.intersection(FINISHED) else "noreplies"
        reason = f"its jobs are {', '.join(sorted(found))}" if found else "it has no job"
        if await run.move(post, To(to, reason=reason)):
            run.count("orphans")
            state.log.add_success(post, f"followed_to_{to}", reason=reason)


async def count_orphan_jobs(state: RunState) -> None:
    """Count the jobs in ``processing`` that another program left: this run takes them."""
    run = state.run
    before = run.now - timedelta(seconds=run.settings.orphan_seconds)
    run.count("orphans", (await run.records.count(Job, abandoned(before)))[0])


def abandoned(before: datetime) -> dict[str, Any]:
    """Return the filter of jobs that another program left in ``processing`` before a time."""
    return {"status": "processing", "leased_by": null, "updated_at": at_most(before)}


def report(state: RunState, table: str) -> None:
    """Say in the message of a run that found records of another program what was taken over.

    A message that the run has already follows.
    """
    run = state.run
    names = {
        "adopted": f"{table} of another program",
        "orphans": "left in processing",
        "without_window": "without start_date and post_created_at",
        "unreadable_files": "with a file that could not be read",
    }
    found = [f"{run.counters[n]:,} {words}" for n, words in names.items() if run.counters[n]]
    if run.counters["adopted"]:
        message = f"taken over: {', '.join(found)}"
        run.end(run.outcome, f"{message}; {run.message}" if run.message else message)
