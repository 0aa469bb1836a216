"""Where replies are saved, what is there already, and how a new version keeps the older one."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any, Literal

from esclusa import ArtifactExists, ArtifactMissing, Artifacts, segment
from esclusa.model.value import value
from esclusa.pipelines.replies.answers import is_empty
from esclusa.pipelines.replies.records import Job, Post

LARGE = 4 << 20
"""A file of more bytes is not read to know that it has content."""


def path_of(record: Post | Job) -> str:
    """The file of a post's replies: ``raw/{country}/{platform}/{candidate_id}/{post_id}.json``. Parts are escaped, so that no two
    posts share a file and none can name one elsewhere."""
    return f"{_stem(record)}.json"


def _stem(record: Post | Job) -> str:
    parts = (record.country, record.platform, record.candidate_id, record.post_id)
    return "/".join(["raw", *(segment(part or "") for part in parts)])


@value
class Kept:
    """What is at a path: ``content`` is replies, ``empty`` a file that holds none, ``nothing`` no file."""

    what: Literal["content", "empty", "nothing"]
    body: bytes = b""


async def kept(artifacts: Artifacts, path: str) -> Kept:
    """What is saved there already. A file that is no JSON counts as empty: it is nobody's replies."""
    info = await artifacts.info(path)
    if info is None:
        return Kept("nothing")
    if info.size > LARGE:
        return Kept("content")
    try:
        body = await artifacts.get(path)
        said = json.loads(body)
    except ArtifactMissing:
        return Kept("nothing")
    except (ValueError, RecursionError):
        return Kept("empty", body)
    return Kept("empty", body) if said is None or is_empty(said) else Kept("content")


@value
class Saved:
    """How replies were saved. ``retry_count`` is at least 1 where it is a retry."""

    path: str
    url: str
    is_retry: bool
    retry_count: int


async def save(
    artifacts: Artifacts, job: Job, body: bytes, said: Any, before: Kept, now: datetime
) -> Saved | None:
    """Save the replies of a job over what was there ``before`` (nothing, or an empty file, which is kept as an older version).
    None if somebody else saved replies there meanwhile: theirs stay."""
    path = path_of(job)
    retry = before.what == "empty" or job.retry_count > 0
    count = max(1, job.retry_count) if retry else 0
    if retry:
        older = await _keep_older(artifacts, job, before.body) if before.what == "empty" else None
        metadata = {
            "is_retry": True, "retry_count": count, "retry_timestamp": now.isoformat(),
            "previous_file_existed": before.what == "empty", "older_version": older,
        }  # fmt: skip
        body = _json({"data": said} if isinstance(said, list) else said, metadata)
    try:
        url = await artifacts.put(
            path, body, content_type="application/json", create=before.what == "nothing"
        )
    except ArtifactExists:
        found = await kept(artifacts, path)
        return (
            None if found.what == "content" else await save(artifacts, job, body, said, found, now)
        )
    return Saved(path, url, retry, count)


def _json(said: dict[str, Any], metadata: dict[str, Any]) -> bytes:
    whole = {"_metadata": metadata} | said | {"_metadata": metadata}  # first, and ours
    try:
        return json.dumps(whole, ensure_ascii=False).encode()
    except (
        UnicodeEncodeError
    ):  # a reply cut amid an emoji has half of one, which only an escape can tell
        return json.dumps(whole).encode()


async def _keep_older(artifacts: Artifacts, job: Job, body: bytes) -> str:
    """Copy the file that will be replaced; its name is its content's, so that a second attempt makes no second copy."""
    path = f"{_stem(job)}.versions/{hashlib.sha256(body).hexdigest()[:32]}.json"
    try:
        return await artifacts.put(path, body, content_type="application/json", create=True)
    except ArtifactExists:
        return artifacts.public_url(path)
