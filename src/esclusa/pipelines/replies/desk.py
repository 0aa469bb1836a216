"""What operators do with posts and jobs: the same verbs for the routes and the commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from esclusa import Artifacts, Move, To, null, one_of
from esclusa.imports import Report, Row
from esclusa.model.storable import storage_fault
from esclusa.model.value import value
from esclusa.pipelines.replies.client import connected
from esclusa.pipelines.replies.files import kept, path_of
from esclusa.pipelines.replies.records import Job, Post, post_done
from esclusa.pipelines.replies.settings import RepliesSettings, quota
from esclusa.pipelines.replies.submitting import EXHAUSTED
from esclusa.runtime import Runtime

BATCH = 1000
EXPECTED = 2
"""A twitter post of which the platform counts so few replies may well have none that can be found."""
EVERYTHING = 1_000_000_000
_READ = (
    "platform",
    "post_id",
    "country",
    "candidate_id",
    "replies_count",
    "max_posts_replies",
    "max_replies",
    "sort_by",
    "created_at",
)
_NAMES = ("platform", "post_id", "country", "candidate_id")


@value
class Choice:
    """Which jobs or posts: those that have all of these values."""

    platform: str | None = None
    country: str | None = None
    candidate_id: str | None = None
    post_id: str | None = None

    def where(self, **more: Any) -> dict[str, Any]:
        said = {
            "platform": self.platform,
            "country": self.country,
            "candidate_id": self.candidate_id,
            "post_id": self.post_id,
        }
        return {name: value for name, value in said.items() if value is not None} | more


def jobs(
    choice: Choice, status: Iterable[str] = (), *, without_done: bool = False
) -> dict[str, Any]:
    """The filter of a list or a count of jobs. ``without_done``: failed ones of posts that have no done job."""
    if without_done:
        return choice.where(status="failed", done_siblings=null)
    states = tuple(status)
    return (
        choice.where(status=states[0] if len(states) == 1 else one_of(*states))
        if states
        else choice.where()
    )


class Desk:
    """One operator at work."""

    def __init__(self, runtime: Runtime, who: str) -> None:
        self._runtime = runtime
        self._records = runtime.engine.records
        self._operator = runtime.operations(who)

    @property
    def _artifacts(self) -> Artifacts:
        return self._runtime.artifacts

    async def retry_empty(
        self, choice: Choice, *, limit: int | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """Empty jobs are checked again: the same job, one retry more, and its post waits again if it was done."""

        async def again(job: Job) -> To | str:
            path = path_of(job)
            if (await kept(self._artifacts, path)).what == "content":
                return f"its post has replies already, in {path}: it is done"
            back = (
                [
                    Move(
                        Post,
                        job.post_doc_id,
                        "noreplies",
                        frm="done",
                        reason=f"its job {job.id} is retried",
                    )
                ]
                if job.post_doc_id
                else []
            )
            return To(
                "pending",
                retry_count=job.retry_count + 1,
                also=back,
                reason="an empty result is retried",
            )

        acted = await self._operator.apply(
            "retry-empty",
            Job.kind.table,
            again,
            where=choice.where(status="empty_result"),
            limit=limit,
            dry_run=dry_run,
        )
        return acted.answer() | {"retried": acted.moved}

    async def verify_empty(
        self, choice: Choice, *, limit: int | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """Empty jobs of twitter posts with hardly any replies are as expected: verified, and their posts done."""

        async def expected(job: Job) -> To | str:
            if job.platform != "twitter":
                return f"only twitter's empty results are verified, not {job.platform}'s"
            post = await self._records.get(Post, job.post_doc_id) if job.post_doc_id else None
            if post is None:
                return "its post is not there"
            if post.replies_count is None:
                return "how many replies its post has is not known"
            if post.replies_count > EXPECTED:
                return f"its post has {post.replies_count} replies"
            return To("verified", also=[post_done(job, "an empty result was to be expected")])

        where = (
            choice.where(status="empty_result")
            if choice.platform
            else choice.where(status="empty_result", platform="twitter")
        )
        acted = await self._operator.apply(
            "verify-empty", Job.kind.table, expected, where=where, limit=limit, dry_run=dry_run
        )
        return acted.answer() | {"verified": acted.moved}

    async def retry_jobs(
        self,
        choice: Choice,
        status: Iterable[str],
        *,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Failed jobs, and those out of quota, are checked again."""

        async def again(job: Job) -> To | str:
            return (
                f"another job of its post is done ({job.done_siblings})"
                if job.done_siblings
                else To("pending")
            )

        states = tuple(status) or ("failed", "quota_exceeded")
        acted = await self._operator.apply(
            "retry", Job.kind.table, again, where=jobs(choice, states), limit=limit, dry_run=dry_run
        )
        return acted.answer() | {"retried": acted.moved}

    async def resubmit(
        self, choice: Choice, *, limit: int | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """Posts whose searches failed too often get one more."""

        async def again(post: Post) -> To | str:
            return To("noreplies", exhausted=False)

        acted = await self._operator.apply(
            "resubmit",
            Post.kind.table,
            again,
            where=choice.where(**EXHAUSTED),
            limit=limit,
            dry_run=dry_run,
        )
        return acted.answer() | {"retried": acted.moved}

    async def count_jobs(self, where: Mapping[str, Any]) -> int:
        return (await self._records.count(Job, where, cap=EVERYTHING))[0]

    async def add(self, rows: Iterable[Row]) -> Report:
        """Add posts; a known one is left as it is, a bad row is reported by its number, the good ones are kept."""
        report = Report()

        def drafts() -> Iterator[Post]:
            for row in rows:
                try:
                    yield draft(row)
                except ValueError as error:
                    report.refuse(row.number, str(error))

        try:
            async for answers in self._records.load(drafts(), size=BATCH):
                report.count(answers)
        finally:
            if report.created:
                await self._operator.note("add", Post.kind.table, report.created)
        return report


def draft(row: Row) -> Post:
    """A new post from a row of a file or a request; ValueError says every fault of it. Columns that a post does not have do not count."""
    if row.values is None:
        raise ValueError(row.fault or "it cannot be read")
    said = {name: row.values[name] for name in _READ if row.values.get(name) is not None}
    for name in _NAMES:
        if isinstance(said.get(name), int) and not isinstance(said[name], bool):
            said[name] = str(said[name])
        if isinstance(said.get(name), str):
            said[name] = said[name].strip()
    faults = [
        f"{name}: it is missing" for name in ("platform", "post_id") if said.get(name) in (None, "")
    ]
    if isinstance(said.get("platform"), str):
        said["platform"] = said["platform"].lower()
    status = row.values.get("status")
    if status not in (None, "", Post.kind.initial):
        faults.append(f"status: a new post starts in {Post.kind.initial}, not in {status!r:.40}")
    faults += [
        f"{name}: {fault}" for name, value in said.items() if (fault := _fault(value)) is not None
    ]
    if faults:
        raise ValueError("; ".join(faults))
    try:
        post = Post.model_validate(said)
    except ValidationError as error:
        raise ValueError(
            "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg'].lower()}" for e in error.errors())
        ) from None
    if large := [
        name
        for name in said
        if isinstance(number := getattr(post, name), int) and not -(2**31) <= number < 2**31
    ]:
        raise ValueError("; ".join(f"{name}: the number is too large" for name in large))
    if post.created_at is not None:
        if not 1971 <= post.created_at.year <= 2200:
            raise ValueError(f"created_at: no post is of the year {post.created_at.year}")
        post.created_at = post.created_at.replace(tzinfo=post.created_at.tzinfo or UTC)
    return post


def _fault(value: Any) -> str | None:
    if isinstance(value, bool):
        return "yes or no is not what belongs there"
    return storage_fault(value)


async def quota_now(runtime: Runtime) -> dict[str, Any]:
    """What the provider says of today's searches, beside what is reserved here."""
    settings = _settings(runtime)
    async with connected(settings) as client:
        said = await client.usage()
    budget = quota(settings)
    window = next(
        w
        for b in await runtime.read_model.budgets()
        if b["budget"] == budget.name
        for w in b["windows"]
    )
    usage = said.on(runtime.engine.clock.now().astimezone(ZoneInfo(settings.quota_timezone)).date())
    limits = [limit for limit in (usage.limit, settings.daily_limit) if limit]
    limit = min(limits, default=window["limit"])
    return {
        "used": usage.used, "limit": limit, "left": max(0, limit - max(usage.used, window["used"])), "reset": window["reset"].isoformat(),
        "reserved": window["used"], "exhausted": usage.used >= limit, "timezone": settings.quota_timezone,
    }  # fmt: skip


def _settings(runtime: Runtime) -> RepliesSettings:
    found = runtime.engine.plan_of("replies").settings
    assert isinstance(found, RepliesSettings)
    return found


__all__ = ["Choice", "Desk", "draft", "jobs", "quota_now"]
