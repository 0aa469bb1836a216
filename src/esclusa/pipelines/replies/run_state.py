"""What a run shares with its handlers: its log of successes and errors, and the day's quota.

A cycle's function opens it with ``open_run_state``; handlers read it as ``at.run.shared``.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from typing import IO, Any
from zoneinfo import ZoneInfo

from esclusa import ArtifactError, RunContext, Throttled, WindowUse, segment
from esclusa.pipelines.replies.answers import SearchUsage
from esclusa.pipelines.replies.client import InformationTracerClient, KeyRefused, TransientError
from esclusa.pipelines.replies.records import Job, Post
from esclusa.pipelines.replies.settings import RepliesSettings, search_budget

# How long an answer about the quota is reused by jobs of the run that fail together.
USAGE_SECONDS = 2.0
_CHUNK_BYTES = 1 << 20


class ReplyRunLog:
    """Two NDJSON files of a run: one of successes, one of errors."""

    def __init__(self, run: RunContext, files: Mapping[str, IO[bytes]]) -> None:
        self._run = run
        self._files = files
        self._lines = 0

    def add_success(self, record: Post | Job, outcome: str, **fields: Any) -> None:
        """Write a line to the file of successes."""
        self._write("success", record, outcome, fields)

    def add_error(
        self, record: Post | Job | None, outcome: str, message: str, **fields: Any
    ) -> None:
        """Write a line to the file of errors and to the log."""
        self._write("errors", record, outcome, {"error": message, **fields})
        self._run.log(message, level="warning", outcome=outcome, record=getattr(record, "id", None))

    def _write(
        self, file: str, record: Post | Job | None, outcome: str, fields: dict[str, Any]
    ) -> None:
        names = ("post_id", "platform", "country", "candidate_id", "job_id")
        retry_count = getattr(record, "retry_count", 0)  # a post has none
        created_at = getattr(record, "created_at", None)
        line = {
            "timestamp": self._run.now.isoformat(),
            "run": self._run.id,
            "cycle": self._run.cycle.name,
            "outcome": outcome,
            **{name: getattr(record, name, None) for name in names},
            "status_code": None,
            "is_retry": retry_count > 0,
            "retry_count": retry_count,
            "created_at": created_at.isoformat() if created_at is not None else None,
            **fields,
        }
        self._files[file].write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._lines += 1

    async def save(self) -> None:
        """Save both files to the artifact store, unless both are empty."""
        if not self._lines:
            return
        run = self._run
        stem = f"logs/{run.cycle.name.replace('.', '/')}/{run.started:%Y-%m-%d}/{segment(run.id)}"
        try:
            for name, file in self._files.items():
                await run.artifacts.put(
                    f"{stem}.{name}.ndjson", _chunks(file), content_type="application/x-ndjson"
                )
        except ArtifactError as error:
            run.log(f"the log of the run could not be saved: {error}", level="error")
            run.end("partial", f"its log could not be saved: {error}")


class RunState:
    """The log of a run, and what the provider reports about the day's quota."""

    def __init__(self, run: RunContext, log: ReplyRunLog) -> None:
        self.run = run
        self.log = log
        self._client: InformationTracerClient = run.context
        self._settings: RepliesSettings = run.settings
        self._usage_lock = asyncio.Lock()
        self._recent: tuple[float, SearchUsage] | None = None

    async def usage(self, *, fresh: bool = False) -> SearchUsage:
        """Return the provider's usage of today. Raises TransientError, Throttled, KeyRefused.

        Jobs that fail together share an answer. A ``fresh`` answer is not shared: it is from before
        those failures.
        """
        async with self._usage_lock:
            recent, now = self._recent, time.monotonic()
            if recent is not None and not fresh and now - recent[0] <= USAGE_SECONDS:
                return recent[1]
            today = self.run.now.astimezone(ZoneInfo(self._settings.quota_timezone)).date()
            usage = (await self._client.usage()).on(today)
            self._recent = None if fresh else (time.monotonic(), usage)
            return usage

    async def exhausted_usage(self) -> SearchUsage | None:
        """Return today's usage if the quota is used up; None if it is not, or is not known."""
        try:
            usage = await self.usage()
        except (TransientError, Throttled, KeyRefused) as error:
            self.run.log(f"the quota could not be read: {error}", level="warning")
            return None
        return usage if usage.exhausted else None

    async def observe(self, usage: SearchUsage) -> WindowUse:
        """Adjust the budget to the provider's usage and return the open window."""
        limits = [limit for limit in (usage.limit, self._settings.daily_limit) if limit]
        window = await self.run.observe(
            search_budget(self._settings), used=usage.used, limit=min(limits, default=None)
        )
        self.run.log(
            f"quota: {usage}",
            searches_used=usage.used,
            daily_limit=usage.limit,
            reserved=window.used,
        )
        return window

    def block(self, message: str) -> None:
        """End the run as blocked: the quota is used up."""
        self.run.count("quota_blocked")
        self.log.add_error(None, "quota_blocked", message)
        self.run.halt("blocked", message)

    def until_reset(self) -> timedelta:
        """Return the time until the provider's next day."""
        return search_budget(self._settings).windows[0].reset(self.run.now) - self.run.now


@asynccontextmanager
async def open_run_state(run: RunContext) -> AsyncIterator[RunState]:
    """Share a log and the quota with the handlers of this run; save the log at the end."""
    with ExitStack() as stack:
        files = {  # in memory while they are small
            name: stack.enter_context(tempfile.SpooledTemporaryFile(_CHUNK_BYTES))
            for name in ("success", "errors")
        }
        log = ReplyRunLog(run, files)
        run.shared = RunState(run, log)
        try:
            yield run.shared
        finally:
            await log.save()


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    file.seek(0)
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk
