"""Posts whose replies are wanted, and the provider's jobs that collect them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from esclusa import Exists, Lifecycle, Move, Record, one_of

SortBy = Literal["time", "engagement"]

ACTIVE = ("pending", "processing")
"""The states of a job that may still bring replies."""

NAME, QUERY = 800, 506
"""The most bytes of a name: an index holds three of them; and characters of a post_id: the provider's query takes no more."""


def _short(name: str | None) -> str | None:
    if name is not None and len(name.encode()) > NAME:
        raise ValueError(f"it is longer than {NAME} bytes")
    return name


class Post(
    Record,
    table="posts",
    key=("platform", "post_id"),
    index=(("status", "platform", "created_at"), ("status", "exhausted")),
):
    """A social post. ``submits`` counts its searches; once it is ``exhausted`` no further one is made without an operator."""

    platform: str
    post_id: str | None = Field(max_length=QUERY)
    country: str | None = None
    candidate_id: str | None = None
    replies_count: int | None = None
    max_posts_replies: int | None = None
    max_replies: int | None = None
    """The old name of ``max_posts_replies``, still read."""
    sort_by: SortBy | None = None
    submits: int = 0
    exhausted: bool = False

    _names = field_validator("platform", "country", "candidate_id")(_short)

    lifecycle = Lifecycle("""
        noreplies -> processing | skipped | done
        processing -> done | noreplies
        done -> noreplies
    """)


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
    """A search at the provider. ``done_siblings`` counts the other jobs of its post that ended well (null: none), so that failed
    jobs without a done one are found by an index."""

    job_id: str | None
    post_doc_id: str | None
    post_id: str | None = Field(max_length=QUERY)
    platform: str
    country: str | None = None
    candidate_id: str | None = None
    max_posts: int | None = None
    sort_by: SortBy | None = None
    retry_count: int = 0
    done_siblings: int | None = None

    _names = field_validator("platform", "country", "candidate_id")(_short)

    lifecycle = Lifecycle("""
        pending -> processing
        processing -> done | failed | quota_exceeded | empty_result | pending
        empty_result -> pending | verified
        quota_exceeded -> pending
        failed -> pending
    """)


def post_back(job: Any) -> list[Move]:
    """The post of a job that failed waits again, unless another of its jobs may still bring replies."""
    if not job.post_doc_id:
        return []
    other = Exists(Job, post_doc_id=job.post_doc_id, status=one_of(*ACTIVE))
    return [
        Move(
            Post,
            job.post_doc_id,
            "noreplies",
            frm="processing",
            unless=other,
            reason=f"its job {job.id} failed",
        )
    ]


def post_done(job: Job, reason: str) -> Move:
    """The post of a job that ended well is done, whichever of its jobs it was."""
    return Move(Post, str(job.post_doc_id), "done", frm=("processing", "noreplies"), reason=reason)
