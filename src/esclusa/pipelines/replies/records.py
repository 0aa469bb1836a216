"""Posts whose replies are wanted, and the provider's jobs that collect them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from esclusa import Exists, Lifecycle, Move, Record, one_of

SortBy = Literal["time", "engagement"]

# The states of a job that may still bring replies.
ACTIVE = ("pending", "processing")

# One index holds three names, and an index entry is limited in size.
MAX_NAME_BYTES = 800
# Characters of a post_id: the provider's query takes no more.
MAX_POST_ID = 506


def _check_length(name: str | None) -> str | None:
    if name is not None and len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"it is longer than {MAX_NAME_BYTES} bytes")
    return name


class Post(
    Record,
    table="posts",
    key=("platform", "post_id"),
    index=(("status", "platform", "created_at"), ("status", "exhausted")),
):
    """A social post.

    ``submits`` counts its searches. An ``exhausted`` post is not searched again until an operator
    resubmits it.
    """

    platform: str
    post_id: str | None = Field(max_length=MAX_POST_ID)
    country: str | None = None
    candidate_id: str | None = None
    replies_count: int | None = None
    max_posts_replies: int | None = None
    # The old name of `max_posts_replies`, still read.
    max_replies: int | None = None
    sort_by: SortBy | None = None
    submits: int = 0
    exhausted: bool = False

    _names = field_validator("platform", "country", "candidate_id")(_check_length)

    lifecycle = Lifecycle(
        """
        noreplies -> processing | skipped | done
        processing -> done | noreplies
        done -> noreplies
        """,
        finished=["done"],
    )


class Job(
    Record,
    table="pending_jobs",
    key="job_id",
    refs={"post_doc_id": Post},
    index=(
        ("status", "created_at"),
        ("status", "updated_at"),
        ("post_doc_id", "status"),
        ("status", "done_siblings", "platform", "country", "candidate_id"),
    ),
):
    """A search at the provider.

    ``saved_file`` is the path of the file with its replies, ``saved_replies`` how many it has.
    ``done_siblings`` counts the other done jobs of its post (null if there are none), so that an
    index finds the failed jobs of posts that have no done job.
    """

    job_id: str | None
    post_doc_id: str | None
    post_id: str | None = Field(max_length=MAX_POST_ID)
    platform: str
    country: str | None = None
    candidate_id: str | None = None
    max_posts: int | None = None
    sort_by: SortBy | None = None
    retry_count: int = 0
    saved_file: str | None = None
    saved_replies: int | None = None
    done_siblings: int | None = None

    _names = field_validator("platform", "country", "candidate_id")(_check_length)

    lifecycle = Lifecycle("""
        pending -> processing
        processing -> done | failed | quota_exceeded | empty_result | pending
        empty_result -> pending | verified
        quota_exceeded -> pending
        failed -> pending
    """)


def reopen_post(job: Any) -> list[Move]:
    """Move the post of a failed job back to ``noreplies``, unless another of its jobs is active."""
    if not job.post_doc_id:
        return []
    return [
        Move(
            Post,
            job.post_doc_id,
            "noreplies",
            frm="processing",
            unless=Exists(Job, post_doc_id=job.post_doc_id, status=one_of(*ACTIVE)),
            reason=f"its job {job.id} failed",
        )
    ]


def finish_post(job: Job, reason: str) -> Move:
    """Move the post of a job to ``done``."""
    return Move(Post, str(job.post_doc_id), "done", frm=("processing", "noreplies"), reason=reason)
