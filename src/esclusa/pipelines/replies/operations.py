"""What operators do with posts and jobs: one implementation for the routes and the commands."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from esclusa import (
    Duplicate,
    Page,
    Runtime,
    SettingsError,
    null,
    one_of,
    storage_fault,
)
from esclusa.imports import ImportedRow, ImportReport, read_time
from esclusa.pipelines.replies.actions import has_done_job
from esclusa.pipelines.replies.answers import PLATFORM_LIMITS, id_fault
from esclusa.pipelines.replies.client import open_client
from esclusa.pipelines.replies.records import Job, Post, spellings
from esclusa.pipelines.replies.settings import RepliesSettings, missing_settings, search_budget

# Values that the chosen jobs or posts have: names of `FILTERS`.
Filters = Mapping[str, str]
FILTERS = ("platform", "country", "candidate_id", "post_id")

BATCH = 1000
# Keys that one query asks for.
KEYS = 5
# Platforms with capital letters, as the service before stored them if its files had them.
_CAPITALS = [name for each in PLATFORM_LIMITS for name in spellings(each)[1:]]
_NAMES = ("platform", "post_id", "country", "candidate_id")
_COUNTS = ("replies_count", "max_posts_replies", "max_replies")
_DAYS = ("start_date", "end_date")
_TIMES = ("created_at", "post_created_at", *_DAYS)
_COLUMNS = (*_NAMES, *_COUNTS, "sort_by", *_TIMES)


def job_filter(filters: Filters, status: Iterable[str] = ()) -> dict[str, Any]:
    """Return the filter of a list or a count of jobs."""
    states = tuple(status)
    if not states:
        return dict(filters)
    return {**filters, "status": states[0] if len(states) == 1 else one_of(*states)}


class ReplyOperations:
    """The acts of one operator on posts and jobs. Each act is written to the audit."""

    def __init__(self, runtime: Runtime, who: str) -> None:
        self._runtime = runtime
        self._records = runtime.records
        self._operations = runtime.operations(who)

    async def retry_empty(
        self, filters: Filters, *, limit: int | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """Check jobs with an empty result again; reopen their done posts."""
        return await self._act("retry-empty", "retried", filters, limit=limit, dry_run=dry_run)

    async def verify_empty(
        self, filters: Filters, *, limit: int | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """Accept the empty results of twitter posts with few replies; finish the posts."""
        return await self._act("verify-empty", "verified", filters, limit=limit, dry_run=dry_run)

    async def retry_jobs(
        self,
        filters: Filters,
        status: Iterable[str],
        *,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Check failed and ``quota_exceeded`` jobs again."""
        where = job_filter(filters, status)
        return await self._act("retry-jobs", "retried", where, limit=limit, dry_run=dry_run)

    async def resubmit(
        self, filters: Filters, *, limit: int | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """Allow one more search for exhausted posts."""
        return await self._act("resubmit", "retried", filters, limit=limit, dry_run=dry_run)

    async def recollect(
        self, filters: Filters, *, limit: int | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """Search done posts again. Their files are kept as older versions."""
        return await self._act("recollect", "recollected", filters, limit=limit, dry_run=dry_run)

    async def _act(
        self, verb: str, key: str, where: Mapping[str, Any], *, limit: int | None, dry_run: bool
    ) -> dict[str, Any]:
        """Apply an action of the pipeline; its answer has the number of records as ``key``, too."""
        acted = await self._operations.act(
            f"replies.{verb}", where=where, limit=limit, dry_run=dry_run
        )
        return acted.answer() | {key: acted.moved}

    async def add(self, rows: Iterable[ImportedRow]) -> ImportReport:
        """Add posts. A known post stays as it is; a bad row is reported by its number.

        A row is doubtful, and is reported too, if its id looks damaged, if it names another
        candidate than the known post, or if it does not say when the post was published.
        """
        report = ImportReport()
        # Posts that an earlier upload may have stored with capital letters in their platform.
        respelled: list[tuple[int, set[str], Post]] = []
        capitals = await self._records.first(Post, {"platform": one_of(*_CAPITALS)}) is not None

        def drafts() -> Iterator[tuple[int, Post]]:
            for row in rows:
                try:
                    post = draft_post(row)
                except ValueError as error:
                    report.refuse(row.number, str(error))
                    continue
                for warning in _row_warnings(post):
                    report.warn(row.number, warning)
                spelled = {str((row.values or {})["platform"]).strip()} - {post.platform}
                if capitals:
                    spelled |= {*spellings(post.platform)[1:]}
                if spelled:
                    respelled.append((row.number, spelled, post))
                else:
                    yield row.number, post

        try:
            await self._load(report, drafts())
            await self._load(report, [row async for row in self._unknown(report, respelled)])
        finally:
            if report.created:
                await self._operations.note("add", Post.kind.table, report.created)
        return report

    async def _load(self, report: ImportReport, rows: Iterable[tuple[int, Post]]) -> None:
        drafted: deque[tuple[int, Post]] = deque()

        def posts() -> Iterator[Post]:
            for number, post in rows:
                drafted.append((number, post))
                yield post

        async for answers in self._records.load(posts(), size=BATCH):
            report.count(answers)
            known = [
                (number, post, answer.id)
                for (number, post), answer in zip(
                    [drafted.popleft() for _ in answers], answers, strict=True
                )
                if isinstance(answer, Duplicate)
            ]
            found = await self._records.get_many(Post, [id for _, _, id in known])
            for (number, post, _), first in zip(known, found, strict=True):
                _compare_known(report, number, post, first)

    async def _unknown(
        self, report: ImportReport, rows: Sequence[tuple[int, set[str], Post]]
    ) -> AsyncIterator[tuple[int, Post]]:
        """Yield the rows of which no post is stored with their platform in another spelling."""
        for start in range(0, len(rows), KEYS):
            part = rows[start : start + KEYS]
            ids = one_of(*{str(post.post_id) for _, _, post in part})
            spelled = one_of(*set().union(*(spelled for _, spelled, _ in part)))
            where = {"platform": spelled, "post_id": ids}
            found = {
                (p.platform.lower(), p.post_id): p async for p in self._records.each(Post, where)
            }
            for number, _, post in part:
                if (first := found.get((post.platform, post.post_id))) is None:
                    yield number, post
                else:
                    report.known += 1
                    _compare_known(report, number, post, first)


def _compare_known(report: ImportReport, number: int, post: Post, first: Post | None) -> None:
    """Report a row that names another candidate than the post that is known."""
    if first is None or post.candidate_id in (None, first.candidate_id):
        return
    report.warn(
        number,
        f"post {post.post_id} is known for the candidate {first.candidate_id} ({first.id}), not for"
        f" {post.candidate_id}; it is not added again",
    )


async def count_jobs(runtime: Runtime, where: Mapping[str, Any]) -> int:
    """Return the exact number of jobs that match."""
    return (await runtime.records.count(Job, where, cap=1_000_000_000))[0]


async def count_failed_without_done(runtime: Runtime, filters: Filters) -> int:
    """Return the number of failed jobs of posts that have no done job."""
    where = {**filters, "status": "failed"}
    known = await count_jobs(runtime, where | {"done_siblings": 0})
    foreign = runtime.records.each(Job, where | {"done_siblings": null})
    waiting = [job async for job in foreign if not await has_done_job(runtime.records, job)]
    return known + len(waiting)


async def find_failed_without_done(
    runtime: Runtime, filters: Filters, *, limit: int, after: str | None = None
) -> Page[Job]:
    """Return a page of the failed jobs of posts that have no done job, by id.

    Jobs of another program do not say whether their post has one: it is looked up.
    """
    found: list[Job] = []
    while True:
        where = {**filters, "status": "failed"}
        page = await runtime.records.find(Job, where, limit=limit - len(found), after=after)
        found += [job for job in page.items if not await has_done_job(runtime.records, job)]
        after = page.next
        if after is None or len(found) >= limit:
            return Page(found, after)


def draft_post(row: ImportedRow) -> Post:
    """Return a new post from a row of a file or a request; ValueError lists all of its faults.

    Columns that a post does not have are ignored.
    """
    if row.values is None:
        raise ValueError(row.fault or "it cannot be read")
    given = {name: row.values[name] for name in _COLUMNS if row.values.get(name) is not None}
    _read_times(given)
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


def _read_times(given: dict[str, Any]) -> None:
    """Read the times of a row, as platforms write them; ValueError names one that is unreadable."""
    for name in _TIMES:
        value = given.get(name)
        if isinstance(value, str) and (found := read_time(value)) is not None:
            given[name] = found.date().isoformat() if name in _DAYS else found
        elif value is not None and (isinstance(value, str) or name in _DAYS):
            raise ValueError(
                f"{name}: {value!r:.60} is not a date; write it as 2026-01-05 or 2026-01-05T12:00Z"
            )


def _row_warnings(post: Post) -> Iterator[str]:
    if post.post_id is not None and (fault := id_fault(post.post_id)) is not None:
        yield f"post_id: {fault}; it will not be searched"
    if post.created_at is not None and post.start_date is None and post.post_created_at is None:
        yield (
            "created_at is when the row was added; name the column post_created_at if it is when"
            " the post was published, so that the search begins there"
        )


def _row_faults(given: Mapping[str, Any], status: Any) -> Iterator[str]:
    for name in ("platform", "post_id"):
        if given.get(name) in (None, ""):
            yield f"{name}: it is missing"
    if status not in (None, "", Post.kind.initial):
        yield f"status: a new post starts in {Post.kind.initial}, not in {status!r:.40}"
    for name, value in given.items():
        if isinstance(value, bool):
            yield f"{name}: a boolean is not allowed here"
        elif name in _COUNTS and not _is_count(value):
            yield f"{name}: {value!r:.60} is not a whole number"
        elif (fault := storage_fault(value)) is not None:
            yield f"{name}: {fault}"


def _is_count(value: Any) -> bool:
    try:
        return float(value).is_integer()
    except (TypeError, ValueError, OverflowError):
        return False


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
