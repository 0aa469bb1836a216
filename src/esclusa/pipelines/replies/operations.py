"""What operators do with posts and jobs: one implementation for the routes and the commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from esclusa import Move, Runtime, SettingsError, To, null, one_of, storage_fault
from esclusa.imports import ImportedRow, ImportReport
from esclusa.pipelines.replies.client import open_client
from esclusa.pipelines.replies.files import existing_file, replies_path
from esclusa.pipelines.replies.process_posts import EXHAUSTED
from esclusa.pipelines.replies.records import Job, Post, finish_post
from esclusa.pipelines.replies.settings import RepliesSettings, missing_settings, search_budget

# Values that the chosen jobs or posts have: names of `FILTERS`.
Filters = Mapping[str, str]
FILTERS = ("platform", "country", "candidate_id", "post_id")

BATCH = 1000
# A twitter post with at most this many replies may have none that a search finds.
MAX_EXPECTED_EMPTY = 2
_NAMES = ("platform", "post_id", "country", "candidate_id")
_COLUMNS = (
    *_NAMES, "replies_count", "max_posts_replies", "max_replies", "sort_by", "created_at"
)  # fmt: skip


def job_filter(
    filters: Filters, status: Iterable[str] = (), *, without_done: bool = False
) -> dict[str, Any]:
    """Return the filter of a list or a count of jobs.

    ``without_done`` selects the failed jobs of posts that have no done job.
    """
    if without_done:
        return {**filters, "status": "failed", "done_siblings": null}
    states = tuple(status)
    if not states:
        return dict(filters)
    return {**filters, "status": states[0] if len(states) == 1 else one_of(*states)}


class ReplyOperations:
    """The acts of one operator on posts and jobs. Each act is written to the audit."""

    def __init__(self, runtime: Runtime, who: str) -> None:
        self._artifacts = runtime.artifacts
        self._records = runtime.records
        self._operations = runtime.operations(who)

    async def retry_empty(
        self, filters: Filters, *, limit: int | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """Check jobs with an empty result again, with one retry more; reopen their done posts."""

        async def choose(job: Job) -> To | str:
            path = replies_path(job)
            if (await existing_file(self._artifacts, path)).state == "content":
                return f"its post has replies already, in {path}: it is done"
            reopened = []
            if job.post_doc_id:
                reason = f"its job {job.id} is retried"
                reopened = [Move(Post, job.post_doc_id, "noreplies", frm="done", reason=reason)]
            return To(
                "pending",
                retry_count=job.retry_count + 1,
                also=reopened,
                reason="an empty result is retried",
            )

        acted = await self._operations.apply(
            "retry-empty",
            Job.kind.table,
            choose,
            where={**filters, "status": "empty_result"},
            limit=limit,
            dry_run=dry_run,
        )
        return acted.answer() | {"retried": acted.moved}

    async def verify_empty(
        self, filters: Filters, *, limit: int | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """Accept the empty results of twitter posts with few replies; finish their posts."""

        async def choose(job: Job) -> To | str:
            if job.platform != "twitter":
                return f"only twitter's empty results are verified, not {job.platform}'s"
            post = await self._records.get(Post, job.post_doc_id) if job.post_doc_id else None
            if post is None:
                return "its post does not exist"
            if post.replies_count is None:
                return "its post's number of replies is unknown"
            if post.replies_count > MAX_EXPECTED_EMPTY:
                return f"its post has {post.replies_count} replies"
            return To("verified", also=[finish_post(job, "an empty result was to be expected")])

        acted = await self._operations.apply(
            "verify-empty",
            Job.kind.table,
            choose,
            where={"platform": "twitter", **filters, "status": "empty_result"},
            limit=limit,
            dry_run=dry_run,
        )
        return acted.answer() | {"verified": acted.moved}

    async def retry_jobs(
        self,
        filters: Filters,
        status: Iterable[str],
        *,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Check failed and ``quota_exceeded`` jobs again."""

        async def choose(job: Job) -> To | str:
            if job.done_siblings:
                return f"another job of its post is done ({job.done_siblings})"
            return To("pending")

        acted = await self._operations.apply(
            "retry",
            Job.kind.table,
            choose,
            where=job_filter(filters, tuple(status) or ("failed", "quota_exceeded")),
            limit=limit,
            dry_run=dry_run,
        )
        return acted.answer() | {"retried": acted.moved}

    async def resubmit(
        self, filters: Filters, *, limit: int | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """Allow one more search for exhausted posts."""

        async def choose(post: Post) -> To | str:
            return To("noreplies", exhausted=False)

        acted = await self._operations.apply(
            "resubmit",
            Post.kind.table,
            choose,
            where={**filters, **EXHAUSTED},
            limit=limit,
            dry_run=dry_run,
        )
        return acted.answer() | {"retried": acted.moved}

    async def add(self, rows: Iterable[ImportedRow]) -> ImportReport:
        """Add posts. A known post stays as it is; a bad row is reported by its number."""
        report = ImportReport()

        def drafts() -> Iterator[Post]:
            for row in rows:
                try:
                    yield draft_post(row)
                except ValueError as error:
                    report.refuse(row.number, str(error))

        try:
            async for answers in self._records.load(drafts(), size=BATCH):
                report.count(answers)
        finally:
            if report.created:
                await self._operations.note("add", Post.kind.table, report.created)
        return report


async def count_jobs(runtime: Runtime, where: Mapping[str, Any]) -> int:
    """Return the exact number of jobs that match."""
    return (await runtime.records.count(Job, where, cap=1_000_000_000))[0]


def draft_post(row: ImportedRow) -> Post:
    """Return a new post from a row of a file or a request; ValueError lists all of its faults.

    Columns that a post does not have are ignored.
    """
    if row.values is None:
        raise ValueError(row.fault or "it cannot be read")
    given = {name: row.values[name] for name in _COLUMNS if row.values.get(name) is not None}
    for name in _NAMES:
        if isinstance(given.get(name), int) and not isinstance(given[name], bool):
            given[name] = str(given[name])
        if isinstance(given.get(name), str):
            given[name] = given[name].strip()
    if isinstance(given.get("platform"), str):
        given["platform"] = given["platform"].lower()
    if faults := list(_row_faults(given, row.values.get("status"))):
        raise ValueError("; ".join(faults))
    try:
        post = Post.model_validate(given)
    except ValidationError as error:
        raise ValueError(
            "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg'].lower()}" for e in error.errors())
        ) from None
    if large := [
        name
        for name in given
        if isinstance(number := getattr(post, name), int) and not -(2**31) <= number < 2**31
    ]:
        raise ValueError("; ".join(f"{name}: the number is too large" for name in large))
    if post.created_at is not None:
        if not 1971 <= post.created_at.year <= 2200:
            raise ValueError(
                f"created_at: the year {post.created_at.year} is not between 1971 and 2200"
            )
        post.created_at = post.created_at.replace(tzinfo=post.created_at.tzinfo or UTC)
    return post


def _row_faults(given: Mapping[str, Any], status: Any) -> Iterator[str]:
    for name in ("platform", "post_id"):
        if given.get(name) in (None, ""):
            yield f"{name}: it is missing"
    if status not in (None, "", Post.kind.initial):
        yield f"status: a new post starts in {Post.kind.initial}, not in {status!r:.40}"
    for name, value in given.items():
        if isinstance(value, bool):
            yield f"{name}: a boolean is not allowed here"
        elif (fault := storage_fault(value)) is not None:
            yield f"{name}: {fault}"


async def quota_status(runtime: Runtime) -> dict[str, Any]:
    """Return the provider's usage of the day beside the searches reserved in the store.

    Raises SettingsError if the provider's key is not set.
    """
    settings: RepliesSettings = runtime.settings_of("replies")
    if faults := list(missing_settings(settings)):
        raise SettingsError("the quota cannot be read:", faults)
    async with open_client(settings) as client:
        reported = await client.usage()
    window = next(
        w
        for b in await runtime.read_model.budgets()
        if b["budget"] == search_budget(settings).name
        for w in b["windows"]
    )
    today = runtime.engine.clock.now().astimezone(ZoneInfo(settings.quota_timezone)).date()
    usage = reported.on(today)
    limits = [limit for limit in (usage.limit, settings.daily_limit) if limit]
    limit = min(limits, default=window["limit"])
    return {
        "used": usage.used,
        "limit": limit,
        "left": max(0, limit - max(usage.used, window["used"])),
        "reset": window["reset"].isoformat(),
        "reserved": window["used"],
        "exhausted": usage.used >= limit,
        "timezone": settings.quota_timezone,
    }
