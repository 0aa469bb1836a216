"""Records that the service which this pipeline replaces has left, or goes on writing.

Its jobs and posts are worked as they are. What it left half done is put right at the start of each
run: a post in ``processing`` that this pipeline did not submit follows its jobs.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from esclusa import Text, To, at_most, null
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
        reason = Text("it has no job")
        if found:
            reason = Text("its jobs are {states}", states=", ".join(sorted(found)))
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
    if not run.counters["adopted"]:
        return
    message = Text(
        "taken over: {count:,} {table} of another program",
        count=run.counters["adopted"],
        table=table,
    )
    if count := run.counters["orphans"]:
        message = Text("{found}, {count:,} left in processing", found=message, count=count)
    if count := run.counters["without_window"]:
        message = Text(
            "{found}, {count:,} without start_date and post_created_at", found=message, count=count
        )
    if count := run.counters["unreadable_files"]:
        message = Text(
            "{found}, {count:,} with a file that could not be read", found=message, count=count
        )
    if run.message:
        message = Text("{message}; {more}", message=message, more=run.message)
    run.end(run.outcome, message)
