"""What the provider's answers mean. Pure: no I/O, no clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any, Literal

from esclusa.model.storable import words
from esclusa.model.value import value
from esclusa.pipelines.replies.records import Post

CAPS: Mapping[str, int] = {
    "twitter": 10_000, "facebook": 100, "instagram": 100, "reddit": 500, "youtube": 500, "threads": 200, "weibo": 200, "bluesky": 500,
}  # fmt: skip
"""The platforms that the provider is known to collect, and the most posts that it gives of each."""

DEFAULT_WANTED = 100
_DEAD = re.compile(r"job failed|cannot locate this job", re.IGNORECASE)
_QUOTA = re.compile(r"quota|limit", re.IGNORECASE)

Standing = Literal["finished", "running", "failed"]


def how_many(post: Post, unknown: Literal["skip", "fetch"]) -> int | None:
    """How many replies to ask for; None if none are expected."""
    said = [
        count
        for count in (post.max_posts_replies, post.max_replies, post.replies_count)
        if count is not None
    ]
    wanted = next((count for count in said if count > 0), None)
    if wanted is None and not said and unknown == "fetch":
        wanted = DEFAULT_WANTED
    return None if wanted is None else min(wanted, CAPS.get(post.platform.lower(), wanted))


def speaks_of_quota(text: str) -> bool:
    return _QUOTA.search(text) is not None


def standing(answer: Any) -> tuple[Standing, str]:
    """Where a job stands by the answer to a status question, and the words to tell it in.

    A word that is not known means that it is still running: a failure costs a new search.
    """
    if not isinstance(answer, dict):
        return "failed", f"the provider's answer has no status: {_short(answer)}"
    texts = [value for value in answer.values() if isinstance(value, str)]
    dead = next((text for text in texts if _DEAD.search(text)), None)
    word = answer.get("status")
    if not isinstance(word, str) or not word.strip():
        return "failed", f"the provider's answer has no status: {dead or _short(answer)}"
    match word.strip().lower():
        case "finished":
            return "finished", "finished"
        case "failed":
            return "failed", f"the provider says: {dead or message_of(answer) or 'failed'}"
        case _ if dead is not None:
            return "failed", f"the provider says: {_short(dead)}"
        case _:
            return "running", f"the provider says: {_short(word)}"


def message_of(answer: Any) -> str | None:
    """The words of an error object, if the answer is one. (``"error": false`` says that there is none.)"""
    if not isinstance(answer, dict):
        return None
    said = next(
        (
            value
            for name in ("error", "message")
            if not is_empty_value(value := answer.get(name)) and value not in (False, 0)
        ),
        None,
    )
    return None if said is None else _short(said)


def why_unusable(result: Any) -> str | None:
    """Why a result is no data; None if it is (empty or not)."""
    if result is None:
        return "the provider gave no result"
    if isinstance(result, list):
        return None
    if not isinstance(result, dict):
        return f"the provider's result is no list of posts: {_short(result)}"
    said = message_of(result)
    return None if said is None else f"the provider says in place of a result: {said}"


def is_empty(result: Any) -> bool:
    """Nothing was found: ``[]``, ``{}``, or an object all of whose values are null, blank, or empty."""
    if isinstance(result, list):
        return not result
    return isinstance(result, dict) and all(
        is_empty_value(value) for name, value in result.items() if name != "_metadata"
    )


def is_empty_value(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, list | dict) and not value)


@value
class Usage:
    """What the provider says of today's searches. ``limit`` 0: it names none."""

    used: int
    limit: int
    period_start: date | None = None

    def on(self, today: date) -> Usage:
        """The same as of today: until the first search of a day the provider may still tell of the day before."""
        return (
            Usage(0, self.limit, self.period_start)
            if self.period_start is not None and self.period_start < today
            else self
        )

    @property
    def exhausted(self) -> bool:
        return self.limit > 0 and self.used >= self.limit

    def __str__(self) -> str:
        return f"{self.used}/{self.limit or '?'}"


def usage(answer: Any) -> Usage | None:
    """The usage in an answer to an account question; None if it has none."""
    day = _inside(answer, "usage", "day")
    used, limit = (
        _whole(_inside(day, "searches_used")),
        _whole(_inside(answer, "limits", "max_searches_per_day")),
    )
    if used is None:
        return None
    try:
        start = date.fromisoformat(str(_inside(day, "period_start"))[:10])
    except ValueError:
        start = None
    return Usage(used, limit or 0, start)


def _inside(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _whole(value: Any) -> int | None:
    """A count, as large as any store can hold; None if it is none."""
    try:
        return (
            None if value is None or isinstance(value, bool) else min(max(0, int(value)), 2**31 - 1)
        )
    except (TypeError, ValueError, OverflowError):
        return None


def _short(value: Any) -> str:
    """The beginning of what was said, without characters that cannot be stored or written."""
    return words((value if isinstance(value, str) else repr(value)).strip()[:200])
