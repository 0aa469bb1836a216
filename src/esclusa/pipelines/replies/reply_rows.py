"""Saved files of replies as rows of one flat table. Pure: no I/O, no clock.

The columns are those of the table that analysts of the service before this one know, where
``tweet_id`` is the reply's id on any platform; ``replied_at`` is new.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from esclusa.exports import Column
from esclusa.pipelines.replies.answers import error_message, is_empty
from esclusa.pipelines.replies.json_members import members

Row = dict[str, Any]
Path = tuple[str, ...]

# What a path says of its replies, and what replies are grouped by.
GROUPS = ("country", "platform", "candidate_id")
FOLDER = "raw/"
# How a file begins that was renamed before its post was collected again.
_RENAMED = re.compile(r"old-\d{8}-\d{6}-")
_ESCAPED_PART = re.compile(r"(?:=[0-9A-F]{2})+")
_MENTION = re.compile(r"(?<![\w@])@(\w[\w.]*)")
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"


def _paths(*dotted: str) -> tuple[Path, ...]:
    return tuple(tuple(name.split(".")) for name in dotted)


# Where the platforms have each value, in the order to look.
_TEXTS = {
    "tweet_id": _paths("id_str", "id", "pk", "comment_id", "id.commentId", "id.videoId", "i"),
    "tweet_url": _paths("tweet_url", "url", "permalink", "link", "l"),
    "created_at": _paths(
        "created_at", "created_time", "created_utc", "published_at", "snippet.publishedAt", "t"
    ),
    "full_text": _paths(
        "full_text",
        "text",
        "message",
        "body",
        "content",
        "snippet.textDisplay",
        "snippet.title",
        "d",
    ),
    "lang": _paths("lang", "language"),
    "user_id": _paths(
        "user.id_str", "user.id", "user.pk", "author.id", "from.id", "user_id", "author_id", "u_id"
    ),
    "user_screen_name": _paths(
        "user.screen_name", "user.username", "author.username", "username", "author", "n"
    ),
    "user_name": _paths("user.name", "user.full_name", "author.name", "from.name", "author_name"),
    "in_reply_to_status_id_str": _paths(
        "in_reply_to_status_id_str",
        "in_reply_to_status_id",
        "parent_comment_id",
        "original_post_pk",
    ),
    "in_reply_to_user_id_str": _paths("in_reply_to_user_id_str", "in_reply_to_user_id"),
    "in_reply_to_screen_name": _paths("in_reply_to_screen_name"),
    "retweeted_status_id_str": _paths("retweeted_status_id_str", "retweeted_status.id_str"),
    "retweeted_status_screen_name": _paths(
        "retweeted_status_screen_name", "retweeted_status.user.screen_name"
    ),
}
_COUNTS = {
    "user_followers_count": _paths("user.followers_count", "user.follower_count"),
    "user_friends_count": _paths("user.friends_count", "user.following_count"),
    "reply_count": _paths("reply_count", "child_comment_count", "comment_count"),
    "retweet_count": _paths("retweet_count", "share_count", "repost_count"),
    "quote_count": _paths("quote_count"),
    "favorite_count": _paths(
        "favorite_count", "comment_like_count", "like_count", "likes", "score"
    ),
}
_FLAGS = {
    "user_verified": _paths("user.verified", "user.is_verified"),
    "is_quote_status": _paths("is_quote_status"),
}

COLUMNS = [
    Column("ingestion_date", "date"),
    Column("ingestion_timestamp", "time"),
    *(Column(n) for n in ("source_file", "country", "platform", "candidate_id", "parent_post_id")),
    *(Column(n) for n in ("tweet_id", "tweet_url", "created_at", "full_text", "lang")),
    *(Column(n) for n in ("user_id", "user_screen_name", "user_name")),
    Column("user_followers_count", "int"),
    Column("user_friends_count", "int"),
    Column("user_verified", "bool"),
    *(Column(n, "int") for n in ("reply_count", "retweet_count", "quote_count", "favorite_count")),
    *(Column(n, "bool") for n in ("is_reply", "is_retweet", "is_quote_status")),
    *(Column(n) for n in ("in_reply_to_status_id_str", "in_reply_to_user_id_str")),
    *(Column(n) for n in ("in_reply_to_screen_name", "retweeted_status_id_str")),
    Column("retweeted_status_screen_name"),
    Column("has_media", "bool"),
    Column("media_count", "int"),
    Column("is_retry", "bool"),
    Column("retry_count", "int"),
    Column("replied_at", "time"),
]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of replies, and what its path says of them."""

    path: str
    country: str
    platform: str
    candidate_id: str | None
    post_id: str


def source_file(path: str) -> SourceFile | None:
    """Return what a path below ``raw/`` says; None if it is not a file of replies.

    ``raw/{country}/{platform}/{candidate_id}/{post_id}.json``; some have no candidate.
    """
    if not path.startswith(FOLDER) or not path.endswith(".json"):
        return None
    parts = path.removeprefix(FOLDER).removesuffix(".json").split("/")
    if len(parts) < 3 or any(part.endswith(".versions") for part in parts[:-1]):
        return None
    country, platform, *others, name = (_unescaped(part) for part in parts)
    return SourceFile(
        path, country, platform, others[0] if others else None, _RENAMED.sub("", name, count=1)
    )


def _unescaped(part: str) -> str:
    """The value of a part. One that begins with ``=~`` is escaped."""
    if not part.startswith("=~"):
        return part
    return _ESCAPED_PART.sub(
        lambda found: bytes.fromhex(found[0].replace("=", "")).decode(errors="replace"), part[2:]
    )


def reply_rows(source: SourceFile, text: str, modified: datetime | None) -> Iterator[Row]:
    """Yield the replies of a file, in all stored shapes, one by one. Raises ValueError.

    An array, an object with ``data``, with or without ``_metadata``, or an object that is itself
    one reply. An error object has none. Only one reply is parsed at a time.
    """
    retry = _metadata(text)
    moment = modified.astimezone(UTC) if modified is not None else None
    common = {
        "ingestion_date": moment.date() if moment is not None else None,
        "ingestion_timestamp": moment,
        "source_file": source.path,
        "country": source.country,
        "platform": source.platform,
        "candidate_id": source.candidate_id,
        "parent_post_id": source.post_id,
        "is_retry": retry.get("is_retry") is True,
        "retry_count": _count(retry.get("retry_count")) or 0,
    }
    for item in _replies(text):
        if isinstance(item, dict):
            yield common | _reply(item, source.platform.lower())


def reply_key(row: Mapping[str, Any]) -> bytes:
    """What makes a reply unique: its platform, its post and its id, or all it says without one."""
    identity = row["tweet_id"] or "\0".join(
        str(row[name]) for name in ("user_id", "user_screen_name", "created_at", "full_text")
    )
    known = f"{row['platform'].lower()}\0{row['parent_post_id']}\0{identity}"
    return hashlib.blake2b(known.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Pseudonyms:
    """Replaces what names an author by a keyed hash: the same key gives the same hash."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        # Identifies the key without revealing it.
        self.key_id = self._hash("key", "")[:12]

    def apply(self, row: Row) -> Row:
        """The row without names; ids and mentions of the same person stay the same text."""
        platform = row["platform"].lower()
        for name in ("user_id", "in_reply_to_user_id_str"):
            if row[name] is not None:
                row[name] = self._hash(f"{platform} id", row[name])
        for name in (
            "user_screen_name", "in_reply_to_screen_name", "retweeted_status_screen_name",
        ):  # fmt: skip
            if row[name] is not None:
                row[name] = self._screen_name(platform, row[name])
        row["user_name"] = row["tweet_url"] = None
        if row["full_text"] is not None:
            row["full_text"] = _MENTION.sub(
                lambda found: f"@{self._screen_name(platform, found[1])[:16]}", row["full_text"]
            )
        return row

    def _screen_name(self, platform: str, name: str) -> str:
        return self._hash(f"{platform} name", name.lstrip("@").lower())

    def _hash(self, what: str, value: str) -> str:
        message = f"{what}\0{value}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, message, "sha256").hex()[:32]


# one reply


def _reply(item: dict[str, Any], platform: str) -> Row:
    row: Row = {name: _text(_first(item, paths)) for name, paths in _TEXTS.items()}
    row |= {name: _count(_first(item, paths)) for name, paths in _COUNTS.items()}
    row |= {name: _flag(_first(item, paths)) for name, paths in _FLAGS.items()}
    media = _media(item)
    return row | {
        "is_reply": row["in_reply_to_status_id_str"] is not None or platform != "twitter",
        "is_retweet": row["retweeted_status_id_str"] is not None or "retweeted_status" in item,
        "has_media": media > 0,
        "media_count": media,
        "replied_at": _time(row["created_at"]),
    }


def _first(item: dict[str, Any], paths: tuple[Path, ...]) -> Any:
    """The first value that is neither missing nor a list or an object."""
    for path in paths:
        value: Any = item
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None and value != "" and not isinstance(value, dict | list):
            return value
    return None


def _media(item: dict[str, Any]) -> int:
    for name in ("extended_entities", "entities"):
        found = item.get(name)
        if isinstance(found, dict) and isinstance(found.get("media"), list):
            return len(found["media"])
    return int(bool(item.get("media_url")))


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _count(value: Any) -> int | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        number = int(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return number if -(2**63) <= number < 2**63 else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _time(text: str | None) -> datetime | None:
    """The time of a reply: ISO 8601, ``Mon Jan 05 12:00:00 +0000 2026``, or seconds since 1970."""
    if text is None:
        return None
    try:
        if text[:1].isdigit():
            if text.replace(".", "", 1).isdecimal() and len(text) >= 9:
                return datetime.fromtimestamp(float(text), UTC)
            found = datetime.fromisoformat(text)
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
        _day, month, day, clock, zone, year = text.split()
        number = _MONTHS.index(month) // 3 + 1
        made = f"{year}-{number:02}-{day:0>2}T{clock}{zone}"
        return datetime.fromisoformat(made).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


# one file


def _replies(text: str) -> Iterator[Any]:
    others: dict[str, Any] = {}
    listed = False
    for name, value in members(text):
        if name is None:
            listed = True
            yield value
        elif not listed:
            others[name] = value
    if listed or not others or is_empty(others):
        return
    data = others.get("data")
    if isinstance(data, dict) and data:
        yield data
    elif error_message(others) is None:
        yield {name: value for name, value in others.items() if name != "_metadata"}


def _metadata(text: str) -> dict[str, Any]:
    if '"_metadata"' not in text:
        return {}
    found = [value for name, value in members(text) if name == "_metadata"]
    return found[-1] if found and isinstance(found[-1], dict) else {}
