"""Posts whose replies are wanted, and the provider's jobs that collect them.

Both may be documents of the service that this pipeline replaces: values of other types are read
as far as they make sense, and stay as they are in the store.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from esclusa import Exists, Lifecycle, Move, Record, Text, one_of
from esclusa.imports import read_time

SortBy = Literal["time", "engagement"]

# The states of a job that may still bring replies.
ACTIVE = ("pending", "processing")

# How many jobs of a post are read. It has two or three; an earlier service made up to 237.
MAX_JOBS = 300

# One index holds three names, and an index entry is limited in size.
MAX_NAME_BYTES = 800
# Characters of a post_id: the provider's query takes no more.
MAX_POST_ID = 506

# How platforms write their own names, where that is not one capital letter.
_OWN_NAMES = {"youtube": "YouTube", "tiktok": "TikTok"}


def _as_count(value: Any) -> Any:
    """A count that another program wrote; None if it is not a whole number."""
    if isinstance(value, str | float):
        try:
            return int(float(value)) if float(value).is_integer() else None
        except (ValueError, OverflowError):
            return None
    return None if isinstance(value, bool) else value


def _as_text(value: Any) -> Any:
    """A name that another program wrote as a whole number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_date_text(value: Any) -> Any:
    return value.isoformat()[:10] if isinstance(value, date) else _as_text(value)


def _as_time(value: Any) -> Any:
    """A time that another program wrote as text; None if it cannot be read."""
    return read_time(value) if isinstance(value, str) else value


Count = Annotated[int | None, BeforeValidator(_as_count)]
# A number that counts from 0, and that another program may leave out.
Number = Annotated[int, BeforeValidator(lambda value: _as_count(value) or 0)]
Name = Annotated[str | None, BeforeValidator(_as_text)]
DateText = Annotated[str | None, BeforeValidator(_as_date_text)]
Time = Annotated[datetime | None, BeforeValidator(_as_time)]
Flag = Annotated[bool, BeforeValidator(lambda value: value is not None and value)]


def _check_length(name: str | None) -> str | None:
    if name is not None and len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"it is longer than {MAX_NAME_BYTES} bytes")
    return name


class Post(
    Record,
    table="posts",
    key=("platform", "post_id"),
    shared_key=True,
    optional=(
        "country",
        "candidate_id",
        "replies_count",
        "max_posts_replies",
        "max_replies",
        "sort_by",
        "post_created_at",
        "start_date",
        "end_date",
    ),
    added=("submits", "exhausted", "recollect"),
    index=(("status", "platform", "created_at"), ("status", "exhausted"), ("status", "submits")),
):
    """A social post.

    ``created_at`` is when its row was added, ``post_created_at`` when the post was published.
    ``start_date`` and ``end_date`` are the days of its search. ``submits`` counts its searches. An
    ``exhausted`` post is not searched again until an operator resubmits it. ``recollect``: it is
    searched although its replies are saved.
    """

    platform: str
    post_id: Name = Field(max_length=MAX_POST_ID)
    country: Name = None
    candidate_id: Name = None
    replies_count: Count = None
    max_posts_replies: Count = None
    # The old name of `max_posts_replies`, still read.
    max_replies: Count = None
    sort_by: SortBy | None = None
    post_created_at: Time = None
    start_date: DateText = None
    end_date: DateText = None
    submits: Number = 0
    exhausted: Flag = False
    recollect: Flag = False

    _names = field_validator("platform", "country", "candidate_id")(_check_length)

    lifecycle = Lifecycle(
        """
        noreplies -> processing | skipped | done
        processing -> done | noreplies
        done -> noreplies
        """,
        finished=["done"],
        foreign=["finished"],
    )


class Job(
    Record,
    table="pending_jobs",
    key="job_id",
    refs={"post_doc_id": Post},
    optional=("country", "candidate_id", "max_posts_replies", "max_posts", "sort_by"),
    added=("retry_count", "recollect", "saved_file", "saved_replies", "siblings", "done_siblings"),
    index=(
        ("status", "created_at"),
        ("status", "updated_at"),
        ("post_doc_id", "status"),
        ("status", "done_siblings", "platform", "country", "candidate_id"),
    ),
):
    """A search at the provider.

    ``max_posts_replies`` is how many replies it asks for, ``sort_by`` their order. ``saved_file``
    is the path of the file with its replies, ``saved_replies`` how many it has. ``siblings`` counts
    the other jobs of its post, and ``done_siblings`` the done ones, so that an index finds the
    failed jobs of posts that have no done job; null if another program made the job. ``recollect``:
    it replaces a file.
    """

    job_id: str | None
    post_doc_id: str | None
    post_id: Name = Field(max_length=MAX_POST_ID)
    platform: str
    country: Name = None
    candidate_id: Name = None
    max_posts_replies: Count = None
    # The old name of `max_posts_replies`, still read and written.
    max_posts: Count = None
    sort_by: Name = None
    retry_count: Number = 0
    recollect: Flag = False
    saved_file: str | None = None
    saved_replies: int | None = None
    siblings: int | None = None
    done_siblings: int | None = None

    _names = field_validator("platform", "country", "candidate_id")(_check_length)

    lifecycle = Lifecycle("""
        pending -> processing
        processing -> done | failed | quota_exceeded | empty_result | pending
        empty_result -> pending | verified
        quota_exceeded -> pending
        failed -> pending
    """)


def spellings(platform: str) -> tuple[str, ...]:
    """Return the names of one platform that other programs store: with and without capitals."""
    name = platform.lower()
    own = _OWN_NAMES.get(name, name)
    return tuple(dict.fromkeys((platform, name, name.title(), name.upper(), own)))


def same_post(post: Post) -> dict[str, Any] | None:
    """Return the filter of posts, or jobs, of the same platform and id; None if no index has it."""
    if len(str(post.post_id).encode()) > MAX_NAME_BYTES:
        return None
    return {"platform": one_of(*spellings(post.platform)), "post_id": post.post_id}


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
            reason=Text("its job {job} failed", job=job.id),
        )
    ]


def finish_post(job: Job, reason: str) -> Move:
    """Move the post of a job to ``done``."""
    return Move(
        Post,
        str(job.post_doc_id),
        "done",
        frm=("processing", "noreplies"),
        recollect=False,
        reason=reason,
    )
