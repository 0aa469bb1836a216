"""The files of saved replies: their paths, what a path already holds, and older versions."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from esclusa import ArtifactExists, ArtifactMissing, Artifacts, segment
from esclusa.pipelines.replies.answers import is_empty
from esclusa.pipelines.replies.records import Job, Post

# A larger file has content; it is not read to find out.
LARGE_BYTES = 4 << 20


def replies_path(record: Post | Job) -> str:
    """Return the path of a post's replies.

    It is ``raw/{country}/{platform}/{candidate_id}/{post_id}.json``. Each part is escaped: no
    two posts share a file, and no part can leave its folder.
    """
    return f"{_stem(record)}.json"


def _stem(record: Post | Job) -> str:
    parts = (record.country, record.platform, record.candidate_id, record.post_id)
    return "/".join(["raw", *(segment(part or "") for part in parts)])


@dataclass(frozen=True, slots=True)
class ExistingFile:
    """What a path holds: a file with replies (``content``), one without (``empty``), or no file."""

    state: Literal["content", "empty", "missing"]
    body: bytes = b""


async def existing_file(artifacts: Artifacts, path: str) -> ExistingFile:
    """Return what the path holds. A file that is not JSON holds no replies and counts as empty."""
    info = await artifacts.info(path)
    if info is None:
        return ExistingFile("missing")
    if info.size > LARGE_BYTES:
        return ExistingFile("content")
    try:
        body = await artifacts.get(path)
        data = json.loads(body)
    except ArtifactMissing:
        return ExistingFile("missing")
    except (ValueError, RecursionError):
        return ExistingFile("empty", body)
    return (
        ExistingFile("empty", body) if data is None or is_empty(data) else ExistingFile("content")
    )


@dataclass(frozen=True, slots=True)
class SavedReplies:
    """How replies were saved. ``retry_count`` is at least 1 if ``is_retry``."""

    is_retry: bool
    retry_count: int


async def save_replies(
    artifacts: Artifacts, job: Job, body: bytes, data: Any, before: ExistingFile, now: datetime
) -> SavedReplies | None:
    """Save the replies of a job; return None if another process saved replies meanwhile.

    ``before`` is what the path held: nothing, or an empty file, which is kept as an older version.
    """
    path = replies_path(job)
    is_retry = before.state == "empty" or job.retry_count > 0
    retry_count = max(1, job.retry_count) if is_retry else 0
    if is_retry:
        older = await _keep_older(artifacts, job, before.body) if before.state == "empty" else None
        metadata = {
            "is_retry": True,
            "retry_count": retry_count,
            "retry_timestamp": now.isoformat(),
            "previous_file_existed": before.state == "empty",
            "older_version": older,
        }
        body = _json({"data": data} if isinstance(data, list) else data, metadata)
    try:
        await artifacts.put(
            path, body, content_type="application/json", create=before.state == "missing"
        )
    except ArtifactExists:
        found = await existing_file(artifacts, path)
        if found.state == "content":
            return None
        return await save_replies(artifacts, job, body, data, found, now)
    return SavedReplies(is_retry, retry_count)


def _json(data: dict[str, Any], metadata: dict[str, Any]) -> bytes:
    """Return the data as JSON, with this metadata as its first member in place of its own."""
    document = {"_metadata": metadata} | data | {"_metadata": metadata}
    try:
        return json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair can only be written as an escape
        return json.dumps(document).encode()


async def _keep_older(artifacts: Artifacts, job: Job, body: bytes) -> str:
    """Copy the file that will be replaced and return the address of the copy.

    The copy is named by its content, so that a second attempt makes no second copy.
    """
    path = f"{_stem(job)}.versions/{hashlib.sha256(body).hexdigest()[:32]}.json"
    try:
        return await artifacts.put(path, body, content_type="application/json", create=True)
    except ArtifactExists:
        return artifacts.public_url(path)
