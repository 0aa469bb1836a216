"""What the provider's answers mean. Pure: no I/O, no clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, Literal

from esclusa import Text
from esclusa.imports import read_time
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
_RATE = re.compile(r"too many|\brate\b|slow down|throttl", re.IGNORECASE)
_KEY = re.compile(r"token|api.?key|credential|unauthori|authenticat|forbidden", re.IGNORECASE)
# Ids that a spreadsheet has changed into numbers, and addresses in the place of ids.
_DAMAGED_ID = re.compile(r"\d+(?:[.,]\d+)?[eE]\+?\d+\Z|\d+\.0+\Z")
_LINK = re.compile(r"https?://|www\.|[\w.-]+\.(?:com|be|net|org)/", re.IGNORECASE)
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


def id_fault(post_id: str) -> str | None:
    """Return why a post_id cannot be the id of a post; None if it can."""
    if _DAMAGED_ID.match(post_id):
        return f"{post_id!r:.60} is a number as a spreadsheet writes it: digits of the id are lost"
    if _LINK.match(post_id):
        return f"{post_id!r:.120} is a link, not the id of a post"
    return None


@dataclass(frozen=True, slots=True)
class SearchWindow:
    """The days of a search. ``given``: the post says when they begin."""

    start: date
    end: date
    given: bool


def search_window(post: Post, today: date, days: int) -> SearchWindow:
    """Return the days in which replies of a post are searched; ValueError if there are none.

    Its ``start_date`` and ``end_date``; else from a day before it was published until today; else
    so many ``days`` back from today. When its row was added says nothing about its replies.
    """
    start, end = _day(post.start_date), _day(post.end_date) or today
    published = post.post_created_at
    if start is None and isinstance(published, datetime):
        start = min(published.date(), end) - timedelta(days=1)
    if start is not None and start > end:
        raise ValueError(f"start_date {start} is after end_date {end}")
    return SearchWindow(start or end - timedelta(days=days), end, start is not None)


def _day(text: str | None) -> date | None:
    found = read_time(text) if text else None
    return None if found is None else found.date()


def mentions_quota(message: str) -> bool:
    """Whether an error message is about the quota."""
    return _QUOTA.search(message) is not None


def mentions_account(message: str) -> bool:
    """Whether an error message is about the rate of calls or the key: every search would fail."""
    return _RATE.search(message) is not None or _KEY.search(message) is not None


def job_status(answer: Any, mask: Callable[[str], str] = str) -> tuple[JobStatus, str]:
    """Return a job's status and a message about it, from the answer to a status request.

    ``mask`` is applied to the provider's own words.

    An unknown status word counts as running, because a failure costs a new search.
    """
    if not isinstance(answer, dict):
        return "failed", _no_status(mask(_excerpt(answer)))
    texts = [value for value in answer.values() if isinstance(value, str)]
    dead = next((text for text in texts if _DEAD_JOB.search(text)), None)
    word = answer.get("status")
    if not isinstance(word, str) or not word.strip():
        return "failed", _no_status(mask(dead or _excerpt(answer)))
    match word.strip().lower():
        case "finished":
            return "finished", "finished"
        case "failed":
            return "failed", _quoted(mask(dead or error_message(answer) or "failed"))
        case _ if dead is not None:
            return "failed", _quoted(mask(_excerpt(dead)))
        case _:
            return "running", _quoted(mask(_excerpt(word)))


def _no_status(answer: str) -> Text:
    return Text("the provider's answer has no status: {answer}", answer=answer)


def _quoted(words: str) -> Text:
    return Text("the provider says: {words}", words=words)


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


def result_fault(result: Any, mask: Callable[[str], str] = str) -> Text | None:
    """Return why a result cannot be saved as data; None if it is data, empty or not.

    ``mask`` is applied to the provider's own words.
    """
    if result is None:
        return Text("the provider gave no result")
    if isinstance(result, list):
        return None
    if not isinstance(result, dict):
        answer = mask(_excerpt(result))
        return Text("the provider's result is not a list of posts: {answer}", answer=answer)
    if (message := error_message(result)) is None:
        return None
    return Text("the provider answered with an error: {why}", why=mask(message))


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
