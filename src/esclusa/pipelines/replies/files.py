"""The files of saved replies: their paths, what a path already holds, and older versions.

Files are ``raw/{country}/{platform}/{candidate_id}/{post_id}.json``. Other programs read that
folder, so nothing else is written there: an older version goes to ``versions/…`` before its file is
replaced, and no file is replaced that has replies, unless an operator orders it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from esclusa import ArtifactExists, ArtifactMissing, Artifacts, Attempt, plain_segment
from esclusa.pipelines.replies.answers import error_message, is_empty
from esclusa.pipelines.replies.records import Job, Post, same_post

# A larger file is parsed in a thread, so that it does not block the event loop.
_THREAD_BYTES = 1 << 20
# A larger file has content; it is not read to find out.
_MAX_BYTES = 32 << 20
# What the service that this pipeline replaces put in the place of these characters.
_REPLACED = re.compile(r"[/\\]")


def replies_path(record: Post | Job) -> str:
    """Return the path of a post's replies. No two posts share a file, and none leaves its folder.

    A part that is missing is ``unknown``.
    """
    return _paths(*_parts(record))[0]


def known_paths(record: Post | Job) -> list[str]:
    """Return the paths at which a post's replies may be already, in the order to look.

    First the name that the service which this pipeline replaces would give the file: slashes and
    backslashes are ``_``. A post may also have one of its first files, which were not below
    ``raw/``.
    """
    own, earlier, unlayered = _paths(*_parts(record))
    found = [earlier, own, unlayered if isinstance(record, Post) else None]
    return [path for path in dict.fromkeys(found) if path is not None]


@lru_cache(maxsize=1024)  # a job asks several times
def _paths(*parts: str) -> tuple[str, str | None, str | None]:
    """The path of a file, its path in the earlier service, and that without ``raw/``."""
    own = f"raw/{'/'.join(map(plain_segment, parts))}.json"
    named = [_REPLACED.sub("_", part) for part in parts]
    if any(plain_segment(part) != part for part in named):
        return own, None, None
    return own, f"raw/{'/'.join(named)}.json", f"{'/'.join(named)}.json"


def _stem(record: Post | Job) -> str:
    return "/".join(plain_segment(part) for part in _parts(record))


def _parts(record: Post | Job) -> Iterator[str]:
    for part in (record.country, record.platform, record.candidate_id, record.post_id):
        yield part if part is not None and part.strip() else "unknown"


@dataclass(frozen=True, slots=True)
class ExistingFile:
    """A file with replies (``content``), one without (``empty``), or no file at that path.

    An error that was saved as if it were replies is ``empty``. ``replies`` is None if the file is
    too large to be counted.
    """

    state: Literal["content", "empty", "missing"]
    path: str
    body: bytes = b""
    data: Any = None
    replies: int | None = None


async def existing_file(artifacts: Artifacts, record: Post | Job) -> ExistingFile:
    """Return the first file of a post that has content; if none has, the first one that exists."""
    first: ExistingFile | None = None
    for path in known_paths(record):
        found = await read_file(artifacts, path)
        if found.state == "content":
            return found
        if first is None or first.state == "missing":
            first = found
    assert first is not None  # a record has at least one path
    return first


async def find_file(artifacts: Artifacts, records: Any, post: Post) -> ExistingFile:
    """Return the file of a post, or of the same post under another spelling of its platform."""
    found = await existing_file(artifacts, post)
    if found.state == "content" or (same := same_post(post)) is None:
        return found
    owner = (post.country, post.candidate_id)
    async for other in records.each(Post, same):
        if other.id != post.id and (other.country, other.candidate_id) == owner:
            file = await existing_file(artifacts, other)
            if file.state == "content":
                return file
    return found


async def read_file(artifacts: Artifacts, path: str) -> ExistingFile:
    """Return what the path holds. A file that is not JSON holds no replies and counts as empty."""
    info = await artifacts.info(path)
    if info is None:
        return ExistingFile("missing", path)
    if info.size > _MAX_BYTES:
        return ExistingFile("content", path)
    try:
        body = await artifacts.get(path)
        data = await parsed(body)
    except ArtifactMissing:
        return ExistingFile("missing", path)
    except (ValueError, RecursionError):
        return ExistingFile("empty", path, body)
    if not isinstance(data, list | dict) or is_empty(data) or _is_error(data):
        return ExistingFile("empty", path, body, data)
    return ExistingFile("content", path, body, data, count_replies(data))


async def parsed(body: bytes) -> Any:
    """Parse JSON without blocking the event loop."""
    if len(body) > _THREAD_BYTES:
        return await asyncio.to_thread(json.loads, body)
    return json.loads(body)


def _is_error(data: Any) -> bool:
    return isinstance(data, dict) and not data.get("data") and error_message(data) is not None


def count_replies(data: Any) -> int:
    """Return how many replies a result or a file has; an object without a list of them is one."""
    if isinstance(data, dict):
        data = data.get("data", data)
    return len(data) if isinstance(data, list) else 1


@dataclass(frozen=True, slots=True)
class SavedReplies:
    """How replies were saved. ``retry_count`` is at least 1 if ``is_retry``."""

    path: str
    replies: int
    is_retry: bool
    retry_count: int


async def save_replies(
    at: Attempt, job: Job, body: bytes, data: Any, before: ExistingFile
) -> SavedReplies | None:
    """Save the replies of a job; return None if another process saved replies meanwhile.

    The first file of a post is kept: it is on disk before the job is settled, together with others.
    If another process writes it in that moment, the attempt fails, and the next one finds it. Jobs
    of one post that this process checks at the same moment see each other's file.
    ``before`` is the file that the post has. If its path is taken, it is kept as an older version.
    """
    path = replies_path(job)
    there = before.state != "missing"
    is_retry = there or job.retry_count > 0
    retry_count = max(1, job.retry_count) if is_retry else 0
    saved = SavedReplies(path, count_replies(data), is_retry, retry_count)
    if before.path == path and there and _holds(before.data, data):
        return saved  # a worker that died had saved it
    metadata = None
    if is_retry:
        metadata = {
            "is_retry": True,
            "retry_count": retry_count,
            "retry_timestamp": at.now.isoformat(),
            "previous_file_existed": there,
            "older_version": await _keep_older(at.artifacts, job, before) if there else None,
        }
    document, create = _document(body, data, metadata), before.path != path or not there
    write = at.artifacts.put if there else at.keep
    try:
        await write(path, document, content_type="application/json", create=create)
    except ArtifactExists:
        found = await read_file(at.artifacts, path)
        if found.state == "content" and not job.recollect:
            return None
        return await save_replies(at, job, body, data, found)
    return saved


def _holds(before: Any, data: Any) -> bool:
    """Whether a file has these replies already."""
    if isinstance(data, list):
        return isinstance(before, dict) and before.get("data") == data
    return isinstance(before, dict) and before | {"_metadata": None} == data | {"_metadata": None}


def _document(body: bytes, data: Any, metadata: dict[str, Any] | None) -> bytes:
    """Return the file: an object, with a list as its ``data``, and the metadata at its end."""
    end = b"" if metadata is None else b', "_metadata": ' + json.dumps(metadata).encode()
    if isinstance(data, list) and body.lstrip().startswith(b"["):
        return b'{"data": ' + body.strip() + end + b"}"
    if isinstance(data, list):  # in another encoding
        data = {"data": data}
    document = {name: value for name, value in data.items() if name != "_metadata"}
    if metadata is not None:
        document["_metadata"] = metadata
    try:
        return json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair can only be written as an escape
        return json.dumps(document).encode()


async def _keep_older(artifacts: Artifacts, job: Job, before: ExistingFile) -> str:
    """Copy the file that will be replaced and return the path of the copy.

    The copy is named by its content, so that a second attempt makes no second copy. A file that is
    not replaced is not copied.
    """
    if before.path != replies_path(job):
        return before.path
    body = before.body or await artifacts.get(before.path)
    path = f"versions/{_stem(job)}/{hashlib.sha256(body).hexdigest()[:32]}.json"
    with suppress(ArtifactExists):
        await artifacts.put(path, body, content_type="application/json", create=True)
    return path
