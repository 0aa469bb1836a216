"""What a run shares with its handlers: its log of successes and errors, and the day's quota.

A cycle's function opens it with ``open_run_state``; handlers read it as ``at.run.shared``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from esclusa import RunContext, RunFiles, Text, WindowUse
from esclusa.pipelines.replies.answers import SearchUsage
from esclusa.pipelines.replies.client import InformationTracerClient
from esclusa.pipelines.replies.origin_logs import OriginLog
from esclusa.pipelines.replies.records import Job, Post
from esclusa.pipelines.replies.settings import RepliesSettings, search_budget, spendable


class ReplyRunLog:
    """Two NDJSON files of a run: one of successes, one of errors.

    ``origin``: the files of the service before, if they are wanted.
    """

    def __init__(self, run: RunContext, files: RunFiles, origin: OriginLog | None) -> None:
        self._run = run
        self._files = files
        self._origin = origin

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
            "created_at": created_at.isoformat()
            if isinstance(created_at, datetime)
            else created_at,
            **fields,
        }
        self._files.add(file, line)
        if self._origin is not None and record is not None:
            self._origin.add(record, line, success=file == "success")


class RunState:
    """The log of a run, and what the provider reports about the day's quota."""

    def __init__(self, run: RunContext, log: ReplyRunLog) -> None:
        self.run = run
        self.log = log
        self._client: InformationTracerClient = run.context
        self._settings: RepliesSettings = run.settings
        self._usage_lock = asyncio.Lock()
        # When the last question about the quota was asked, and its answer.
        self._last: tuple[float, SearchUsage] | None = None

    async def usage(self) -> SearchUsage:
        """Return the provider's usage of today. Raises TransientError, Throttled, KeyRefused.

        Only an answer counts that was asked for after this call. Jobs that fail together share it.
        """
        called = time.monotonic()
        async with self._usage_lock:
            if self._last is not None and self._last[0] > called:
                return self._last[1]
            asked = time.monotonic()
            today = self.run.now.astimezone(ZoneInfo(self._settings.quota_timezone)).date()
            usage = (await self._client.usage()).on(today)
            self._last = (asked, usage)
            return usage

    @property
    def last_usage(self) -> SearchUsage | None:
        """The last answer about the quota in this run."""
        return None if self._last is None else self._last[1]

    async def observe(self, usage: SearchUsage) -> WindowUse:
        """Adjust the budget to the provider's usage and return the open window."""
        limits = [limit for limit in (usage.limit, self._settings.daily_limit) if limit]
        limit = spendable(min(limits), self._settings) if limits else None
        window = await self.run.observe(search_budget(self._settings), used=usage.used, limit=limit)
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

    def block_spent(self, window: WindowUse) -> None:
        """End the run as blocked: what may be spent of the day's searches is spent."""
        spent = Text(
            "the quota is used up: {usage} until {until}",
            usage=f"{window.used}/{window.limit}",
            until=window.reset,
        )
        if kept := self._settings.keep_searches:
            spent = Text(
                "{spent}; {count} of the day's searches are kept (REPLIES_KEEP_SEARCHES)",
                spent=spent,
                count=kept,
            )
        self.block(spent)

    def until_reset(self) -> timedelta:
        """Return the time until the provider's next day."""
        return search_budget(self._settings).windows[0].reset(self.run.now) - self.run.now


@asynccontextmanager
async def open_run_state(run: RunContext) -> AsyncIterator[RunState]:
    """Share a log and the quota with the handlers of this run."""
    origin = OriginLog(run) if run.settings.origin_logs else None
    async with run.lines("success", "errors") as files:
        state = run.shared = RunState(run, ReplyRunLog(run, files, origin))
        try:
            yield state
        finally:
            if origin is not None:
                await origin.save(state.last_usage)
