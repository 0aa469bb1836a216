"""The actions of operators on posts and jobs; console, API and the pipeline's own routes use them.

Each takes one record and answers its move, or why it is skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from esclusa import Move, Text, To, one_of
from esclusa.pipelines.replies.files import existing_file
from esclusa.pipelines.replies.records import ACTIVE, Job, Post, finish_post

if TYPE_CHECKING:
    from esclusa import ActionContext

# A twitter post with at most this many replies may have none that a search finds.
MAX_EXPECTED_EMPTY = 2


async def retry_empty(job: Job, at: ActionContext) -> To | str:
    """Check jobs with an empty result again, with one retry more; reopen their done posts."""
    found = await existing_file(at.artifacts, job)
    if found.state == "content":
        return f"its post has replies already, in {found.path}: it is done"
    reopened = []
    if job.post_doc_id:
        reason = Text("its job {job} is retried", job=job.id)
        reopened = [Move(Post, job.post_doc_id, "noreplies", frm="done", reason=reason)]
    return To(
        "pending",
        retry_count=job.retry_count + 1,
        also=reopened,
        reason="an empty result is retried",
    )


async def verify_empty(job: Job, at: ActionContext) -> To | str:
    """Accept the empty results of twitter posts with few replies; finish their posts."""
    if job.platform != "twitter":
        return f"only twitter's empty results are verified, not {job.platform}'s"
    post = await at.records.get(Post, job.post_doc_id) if job.post_doc_id else None
    if post is None:
        return "its post does not exist"
    if post.replies_count is None:
        return "its post's number of replies is unknown"
    if post.replies_count > MAX_EXPECTED_EMPTY:
        return f"its post has {post.replies_count} replies"
    return To("verified", also=[finish_post(job, Text("an empty result was to be expected"))])


async def retry_jobs(job: Job, at: ActionContext) -> To | str:
    """Check failed and ``quota_exceeded`` jobs again, unless another job of the post is done."""
    if await has_done_job(at.records, job):
        return "another job of its post is done"
    return To("pending")


async def resubmit(post: Post, at: ActionContext) -> To | str:
    """Allow one more search for posts whose searches failed too often."""
    return To("noreplies", exhausted=False)


async def recollect(post: Post, at: ActionContext) -> To | str:
    """Search done posts again. Their files are kept as older versions when new ones come."""
    active = {"post_doc_id": post.id, "status": one_of(*ACTIVE)}
    if (job := await at.records.first(Job, active)) is not None:
        return f"its job {job.id} is {job.status}"
    failed = {"post_doc_id": post.id, "status": "failed"}
    return To(
        "noreplies",
        recollect=True,
        exhausted=False,
        submits=(await at.records.count(Job, failed))[0],  # they do not prevent it
        reason="its replies are collected again",
    )


async def has_done_job(records: Any, job: Job) -> bool:
    """Whether another job of the same post is done."""
    if job.done_siblings is not None:
        return job.done_siblings > 0
    done = {"post_doc_id": job.post_doc_id, "status": "done"}
    return await records.first(Job, done) is not None
