"""What a run keeps while it lasts: its log of successes and errors, and what the provider said of the quota."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import IO, Any
from zoneinfo import ZoneInfo

from esclusa import ArtifactError, Attempt, RunContext, Throttled, WindowUse, segment
from esclusa.pipelines.replies.answers import Usage
from esclusa.pipelines.replies.client import Client, Hiccup, KeyRefused, connected
from esclusa.pipelines.replies.records import Job, Post
from esclusa.pipelines.replies.settings import RepliesSettings, quota

FRESH = 2.0
"""Seconds for which an answer about the quota serves the jobs of one run that fail together."""
_CHUNK = 1 << 20


class Errand:
    """One run of one of the two cycles."""

    def __init__(self, run: RunContext, client: Client, files: dict[str, IO[bytes]]) -> None:
        self.run = run
        self.client = client
        self._files = files
        self._lines = 0
        self._asking = asyncio.Lock()
        self._asked: tuple[float, Usage] | None = None

    # the log

    def success(self, record: Post | Job, outcome: str, **facts: Any) -> None:
        """One line in the file of successes."""
        self._write("success", record, outcome, facts)

    def error(self, record: Post | Job | None, outcome: str, error: str, **facts: Any) -> None:
        """One line in the file of errors, and in the log."""
        self._write("errors", record, outcome, {"error": error, **facts})
        self.run.log(
            error,
            level="warning",
            outcome=outcome,
            record=record.id if record is not None else None,
        )

    def _write(
        self, file: str, record: Post | Job | None, outcome: str, facts: dict[str, Any]
    ) -> None:
        job = record if isinstance(record, Job) else None
        line = {
            "timestamp": self.run.now.isoformat(), "run": self.run.id, "cycle": self.run.cycle.name, "outcome": outcome,
            "post_id": record.post_id if record is not None else None, "platform": record.platform if record is not None else None,
            "country": record.country if record is not None else None, "candidate_id": record.candidate_id if record is not None else None,
            "job_id": job.job_id if job is not None else None, "status_code": None, "is_retry": job is not None and job.retry_count > 0,
            "retry_count": job.retry_count if job is not None else 0,
            "created_at": record.created_at.isoformat() if record is not None and record.created_at is not None else None, **facts,
        }  # fmt: skip
        self._files[file].write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._lines += 1

    async def keep_log(self) -> None:
        """Both files to the artifact store; a run that had nothing to tell leaves none."""
        if not self._lines:
            return
        run = self.run
        name = f"logs/{run.cycle.name.replace('.', '/')}/{run.started:%Y-%m-%d}/{segment(run.id)}"
        try:
            for file, lines in self._files.items():
                await run.artifacts.put(
                    f"{name}.{file}.ndjson", _chunks(lines), content_type="application/x-ndjson"
                )
        except ArtifactError as error:
            run.log(f"the log of the run could not be saved: {error}", level="error")
            run.end("partial", f"its log could not be saved: {error}")

    # the quota

    async def usage(self, *, fresh: bool = False) -> Usage:
        """What the provider says of today. Raises Hiccup, Throttled, KeyRefused.

        Jobs that fail together share an answer; one that is asked for ``fresh`` is not kept for them, since it was true before.
        """
        async with self._asking:
            if self._asked is not None and not fresh and time.monotonic() - self._asked[0] <= FRESH:
                return self._asked[1]
            settings: RepliesSettings = self.run.settings
            today = self.run.now.astimezone(ZoneInfo(settings.quota_timezone)).date()
            said = (await self.client.usage()).on(today)
            self._asked = None if fresh else (time.monotonic(), said)
            return said

    async def exhausted(self) -> Usage | None:
        """The quota question: today's usage if it is used up. Not, if the provider does not say."""
        try:
            said = await self.usage()
        except (Hiccup, Throttled, KeyRefused) as error:
            self.run.log(f"the quota could not be asked: {error}", level="warning")
            return None
        return said if said.exhausted else None

    async def learn(self, usage: Usage) -> WindowUse:
        """Tell the budget what the provider said."""
        settings: RepliesSettings = self.run.settings
        limits = [limit for limit in (usage.limit, settings.daily_limit) if limit]
        window = await self.run.observe(
            quota(settings), used=usage.used, limit=min(limits, default=None)
        )
        self.run.log(
            f"quota: {usage}",
            searches_used=usage.used,
            daily_limit=usage.limit,
            reserved=window.used,
        )
        return window

    def blocked(self, message: str) -> None:
        """The quota is used up: the run is over, and says so."""
        self.run.count("quota_blocked")
        self.error(None, "quota_blocked", message)
        self.run.halt("blocked", message)

    def until_reset(self) -> timedelta:
        """How long it is until the provider's next day."""
        settings: RepliesSettings = self.run.settings
        return quota(settings).windows[0].reset(self.run.now) - self.run.now


class Office:
    """What lives as long as the process: the client, and the errands under way."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._errands: dict[str, Errand] = {}

    def of(self, at: Attempt) -> Errand:
        """The errand that an attempt is part of."""
        return self._errands[at.run.id]

    @asynccontextmanager
    async def errand(self, run: RunContext) -> AsyncIterator[Errand]:
        """An errand for this run; its log is kept when it ends."""
        with _spools("success", "errors") as files:
            errand = self._errands[run.id] = Errand(run, self.client, files)
            try:
                yield errand
            finally:
                del self._errands[run.id]
                await errand.keep_log()


@asynccontextmanager
async def office(settings: RepliesSettings) -> AsyncIterator[Office]:
    """The pipeline's lifespan."""
    async with connected(settings) as client:
        yield Office(client)


@contextmanager
def _spools(*names: str) -> Iterator[dict[str, IO[bytes]]]:
    """Files that are in memory while they are small, and gone when the run is."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(tempfile.SpooledTemporaryFile(_CHUNK)) for name in names}


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    file.seek(0)
    while chunk := file.read(_CHUNK):
        yield chunk
