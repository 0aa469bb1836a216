"""What the provider's answers mean. Pure: no I/O, no clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal

from esclusa.pipelines.replies.records import Post

# The platforms that the provider documents, and its maximum of replies for each.
PLATFORM_LIMITS: Mapping[str, int] = {
    "twitter": 10_000,
    "facebook": 100,
    "instagram": 100,
    "reddit": 500,
    "youtube": 500,
    "threads": 200,
    "weibo": 200,
    "bluesky": 500,
}

DEFAULT_REPLIES = 100
_DEAD_JOB = re.compile(r"job failed|cannot locate this job", re.IGNORECASE)
_QUOTA = re.compile(r"quota|limit", re.IGNORECASE)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

JobStatus = Literal["finished", "running", "failed"]


def replies_to_request(post: Post, unknown: Literal["skip", "fetch"]) -> int | None:
    """Return how many replies to request; None if none are expected."""
    counts = [
        count
        for count in (post.max_posts_replies, post.max_replies, post.replies_count)
        if count is not None
    ]
    wanted = next((count for count in counts if count > 0), None)
    if wanted is None and not counts and unknown == "fetch":
        wanted = DEFAULT_REPLIES
    return (
        None if wanted is None else min(wanted, PLATFORM_LIMITS.get(post.platform.lower(), wanted))
    )


def mentions_quota(message: str) -> bool:
    """Whether an error message is about the quota."""
    return _QUOTA.search(message) is not None


def job_status(answer: Any) -> tuple[JobStatus, str]:
    """Return a job's status and a message about it, from the answer to a status request.

    An unknown status word counts as running, because a failure costs a new search.
    """
    if not isinstance(answer, dict):
        return "failed", f"the provider's answer has no status: {_excerpt(answer)}"
    texts = [value for value in answer.values() if isinstance(value, str)]
    dead = next((text for text in texts if _DEAD_JOB.search(text)), None)
    word = answer.get("status")
    if not isinstance(word, str) or not word.strip():
        return "failed", f"the provider's answer has no status: {dead or _excerpt(answer)}"
    match word.strip().lower():
        case "finished":
            return "finished", "finished"
        case "failed":
            return "failed", f"the provider says: {dead or error_message(answer) or 'failed'}"
        case _ if dead is not None:
            return "failed", f"the provider says: {_excerpt(dead)}"
        case _:
            return "running", f"the provider says: {_excerpt(word)}"


def error_message(answer: Any) -> str | None:
    """Return the message of an error object; None if the answer is not an error object.

    ``"error": false`` means that there is no error.
    """
    if not isinstance(answer, dict):
        return None
    for name in ("error", "message"):
        value = answer.get(name)
        if not _is_empty_value(value) and value not in (False, 0):
            return _excerpt(value)
    return None


def result_fault(result: Any) -> str | None:
    """Return why a result cannot be saved as data; None if it is data, empty or not."""
    if result is None:
        return "the provider gave no result"
    if isinstance(result, list):
        return None
    if not isinstance(result, dict):
        return f"the provider's result is not a list of posts: {_excerpt(result)}"
    message = error_message(result)
    return None if message is None else f"the provider answered with an error: {message}"


def is_empty(result: Any) -> bool:
    """Whether a result is ``[]``, ``{}`` or an object whose values are all null, blank or empty."""
    if isinstance(result, list):
        return not result
    return isinstance(result, dict) and all(
        _is_empty_value(value) for name, value in result.items() if name != "_metadata"
    )


def _is_empty_value(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, list | dict) and not value)


@dataclass(frozen=True, slots=True)
class SearchUsage:
    """The searches of the day as the provider counts them. ``limit`` is 0 if it reports none."""

    used: int
    limit: int
    period_start: date | None = None

    def on(self, today: date) -> SearchUsage:
        """Return the usage of today.

        Before the first search of a day, the provider may still report the day before.
        """
        if self.period_start is not None and self.period_start < today:
            return replace(self, used=0)
        return self

    @property
    def exhausted(self) -> bool:
        return self.limit > 0 and self.used >= self.limit

    def __str__(self) -> str:
        return f"{self.used}/{self.limit or '?'}"


def search_usage(answer: Any) -> SearchUsage | None:
    """Return the usage in the answer to an account request; None if it has none."""
    day = _nested(answer, "usage", "day")
    used = _count(_nested(day, "searches_used"))
    limit = _count(_nested(answer, "limits", "max_searches_per_day"))
    if used is None:
        return None
    try:
        start = date.fromisoformat(str(_nested(day, "period_start"))[:10])
    except ValueError:
        start = None
    return SearchUsage(used, limit or 0, start)


def _nested(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _count(value: Any) -> int | None:
    """Return a count within the range of every store's integers; None if it is not a count."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return min(max(0, int(value)), 2**31 - 1)
    except (TypeError, ValueError, OverflowError):
        return None


def _excerpt(value: Any) -> str:
    """Return the first 200 characters, without those that a store or a log file cannot hold."""
    text = value if isinstance(value, str) else repr(value)
    return _UNSTORABLE.sub("\ufffd", text.strip()[:200])
