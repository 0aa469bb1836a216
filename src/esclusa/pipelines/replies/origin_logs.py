"""The two JSON files of a run as the service before wrote them, for the scripts that read them.

``logs/{day}/{time}.json`` has every call, ``logs/errors/{day}/{time}.json`` the errors. They are
written when the run ends, if ``REPLIES_ORIGIN_LOGS`` is set. A run without entries has no file.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import Any

from esclusa import ArtifactError, ArtifactExists, RunContext, Text
from esclusa.pipelines.replies.answers import SearchUsage
from esclusa.pipelines.replies.files import replies_path
from esclusa.pipelines.replies.records import Job, Post

# Entries of one file. All lines of a run are in its NDJSON files.
MAX_ENTRIES = 10_000
# Runs that may begin in the same millisecond.
_NAMES = 50
_SKIPPED = ("skipped", "already_saved", "has_job", "duplicate")
# Outcomes of jobs that are errors there, and the error type if the job is a retry.
_ERRORS = {
    "failed": "retry_failed",
    "quota_exceeded": "quota_exceeded",
    "empty_result": "retry_still_empty",
}


class OriginLog:
    """Collects the entries of one run and saves them."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._calls: list[dict[str, Any]] = []
        self._errors: list[dict[str, Any]] = []
        self._totals: Counter[str] = Counter()
        self._types: Counter[str] = Counter()

    def add(self, record: Post | Job, line: dict[str, Any], *, success: bool) -> None:
        """Add a line of the run's log."""
        skipped = line["outcome"] in _SKIPPED
        self._totals.update(("calls", "skipped" if skipped else "called"))
        if len(self._calls) < MAX_ENTRIES:
            self._calls.append(self._call(record, line, success=success, skipped=skipped))
        error_type = _error_type(record, line, success=success)
        if error_type is not None:
            self._types[error_type] += 1
            if len(self._errors) < MAX_ENTRIES:
                self._errors.append(_error(record, line, error_type))

    def _call(
        self, record: Post | Job, line: dict[str, Any], *, success: bool, skipped: bool
    ) -> dict[str, Any]:
        call = "/submit" if isinstance(record, Post) else "/status"
        return {
            "timestamp": line["timestamp"],
            "post_id": line["post_id"],
            "url": None if skipped else self._run.settings.api_url + call,
            "success": success,
            "status_code": line["status_code"],
            "error_message": line.get("error"),
            "response_time_ms": None,
            "max_posts_replies": record.max_posts_replies,
            "skipped": skipped,
            "skip_reason": line.get("reason", line["outcome"]) if skipped else None,
            "job_id": line["job_id"],
            "is_retry": line["is_retry"],
            "retry_count": line["retry_count"],
        }

    async def save(self, usage: SearchUsage | None) -> None:
        """Write the files that have entries, and list them in the run."""
        run = self._run
        limit = run.params.get("max_posts") or run.params.get("max_jobs")
        head = {
            "execution_timestamp": run.started.isoformat(),
            "execution_type": run.cycle.name.rpartition(".")[2],
        }
        used = None if usage is None else _as_answered(usage)
        taken = run.counters["taken"]
        if self._calls:
            totals = {
                "requested_max_posts": limit,
                "available_posts": taken,
                "total_entries": self._totals["calls"],
                "api_calls": self._totals["called"],
                "skipped_posts": self._totals["skipped"],
            }
            await self._put("logs", head | totals | {"api_usage": used, "calls": self._calls})
        if self._errors:
            totals = {
                "requested_max_items": limit,
                "available_items": taken,
                "total_errors": self._types.total(),
                "error_types": dict(self._types),
            }
            errors = {"api_usage": used, "errors": self._errors}
            await self._put("logs/errors", head | totals | errors)

    async def _put(self, folder: str, content: dict[str, Any]) -> None:
        """Write a file under a name that none has; the log of the earlier service stays."""
        run = self._run
        body = json.dumps(content, indent=2, ensure_ascii=False, default=str).encode()
        for later in range(_NAMES):
            at = run.started + timedelta(milliseconds=later)
            path = f"{folder}/{at:%Y-%m-%d}/{at:%H-%M-%S}-{at.microsecond // 1000:03}.json"
            try:
                await run.artifacts.put(path, body, content_type="application/json", create=True)
            except ArtifactExists:
                continue
            except ArtifactError as error:
                run.end("partial", Text("its log could not be saved: {why}", why=error))
                return
            run.files.append(path)
            return


def _error_type(record: Post | Job, line: dict[str, Any], *, success: bool) -> str | None:
    """The error type of a line; None if it is no error there, as a job that is checked again."""
    outcome = line["outcome"]
    if isinstance(record, Post):
        return None if success else "submit_failed"
    if outcome not in _ERRORS:
        return None
    return _ERRORS[outcome] if record.retry_count > 0 else str(outcome)


def _error(record: Post | Job, line: dict[str, Any], error_type: str) -> dict[str, Any]:
    names = ("timestamp", "job_id", "post_id", "platform", "country", "candidate_id")
    return {name: line[name] for name in names} | {
        "error_type": error_type,
        "error_message": line.get("error") or "the result is empty",
        "job_doc_id": record.id if isinstance(record, Job) else None,
        "gcs_path": replies_path(record),
        "status_code": line["status_code"],
    }


def _as_answered(usage: SearchUsage) -> dict[str, Any]:
    """The usage in the form of the provider's answer."""
    return {
        "usage": {"day": {"searches_used": usage.used}},
        "limits": {"max_searches_per_day": usage.limit},
    }
