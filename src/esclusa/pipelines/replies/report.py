"""The report: per country, platform and candidate what was collected, and what it cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from esclusa import ArtifactError, Artifacts, Runtime, null, one_of
from esclusa.pipelines.replies.files import existing_file, replies_path
from esclusa.pipelines.replies.records import Job, Post
from esclusa.pipelines.replies.reply_rows import GROUPS
from esclusa.pipelines.replies.settings import BUDGET

# Numbers of the report, in the order of its columns.
NUMBERS = (
    "posts",
    "done",
    "skipped",
    "waiting",
    "exhausted",
    "empty",
    "failed",
    "replies_saved",
    "replies_expected",
    "searches",
    "searches_wasted",
)
# The states of jobs whose search brought no replies.
_EMPTY = ("empty_result", "verified")
# Numbers of other jobs of a post. A list, because Firestore needs no index for it.
_SOME = one_of(*range(1, 30))
# Files that are read at once.
_AT_ONCE = 16


async def report(runtime: Runtime, filters: Mapping[str, str]) -> dict[str, Any]:
    """Return a row for each country, platform and candidate, and their sum.

    ``posts``, ``done``, ``skipped``, ``waiting`` and ``exhausted`` count posts; ``empty`` and
    ``failed`` count jobs. ``replies_saved`` is what the jobs have saved, each file once; the files
    of jobs that another service finished are read. ``replies_expected`` is what the posts that were
    not skipped say they have. ``searches`` counts jobs; one without replies is wasted. ``days`` is
    how many days of quota the waiting posts need. ``uncounted_files`` are missing, empty,
    unreadable or too large.
    """
    rows, uncounted = await _rows(runtime.records, runtime.artifacts, filters)
    limit = await _searches_per_day(runtime.read_model)
    return {
        "items": [row | {"days": _days(row, limit)} for row in rows],
        "total": _total(rows, limit),
        "searches_per_day": limit,
        "uncounted_files": uncounted,
    }


async def by_candidate(
    records: Any, limit: int, after: str | None = None, *, artifacts: Any, read_model: Any
) -> dict[str, Any]:
    """Return one page of the report for the console and the API."""
    rows, _ = await _rows(records, artifacts, {})
    searches = await _searches_per_day(read_model)
    begin = int(after) if after and after.isdecimal() else 0
    following = begin + limit
    return {
        "items": [row | {"days": _days(row, searches)} for row in rows[begin:following]],
        "next": str(following) if following < len(rows) else None,
    }


async def _rows(
    records: Any, artifacts: Artifacts, filters: Mapping[str, str]
) -> tuple[list[dict[str, Any]], int]:
    """The numbers of each group, in the order of the groups, and how many files are not counted.

    Reads every post and every job.
    """
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for total in await records.totals(
        Post, [*GROUPS, "status", "exhausted"], sums=["replies_count"], where=filters
    ):
        _add(rows, total.values, _post_numbers(total))
    for total in await records.totals(
        Job, [*GROUPS, "status"], sums=["saved_replies"], where=filters
    ):
        _add(rows, total.values, _job_numbers(total))
    shared = await _shared_files(records, filters)
    for job in shared.replaced:
        _add(rows, job.__dict__, {"replies_saved": -(job.saved_replies or 0)})
    uncounted = 0
    async for job, count in _count_files(artifacts, shared.foreign):
        _add(rows, job.__dict__, {"replies_saved": count or 0})
        uncounted += count is None
    return [rows[key] for key in sorted(rows)], uncounted


@dataclass(frozen=True, slots=True)
class _SharedFiles:
    """Done jobs whose number of replies is not the one in their file.

    ``replaced``: a newer job of the post has the same file. ``foreign``: another service finished
    it and noted no number; one job for each file.
    """

    replaced: list[Job]
    foreign: list[Job]


async def _shared_files(records: Any, filters: Mapping[str, str]) -> _SharedFiles:
    replaced: list[Job] = []
    newest: dict[str, Job] = {}
    foreign: dict[str, Job] = {}
    for siblings in (null, _SOME):  # a job without others has its file for itself
        async for job in records.each(Job, {**filters, "status": "done", "siblings": siblings}):
            path = job.saved_file or replies_path(job)
            if job.saved_replies is None:
                foreign.setdefault(path, job)
            elif path not in newest:
                newest[path] = job
            else:
                older, newest[path] = sorted((job, newest[path]), key=lambda each: each.updated_at)
                replaced.append(older)
    return _SharedFiles(replaced, [job for path, job in foreign.items() if path not in newest])


async def _count_files(
    artifacts: Artifacts, jobs: Sequence[Job]
) -> AsyncIterator[tuple[Job, int | None]]:
    """The replies in the file of each job, some at a time; None if the number is not known."""

    async def count(job: Job) -> tuple[Job, int | None]:
        try:
            return job, (await existing_file(artifacts, job)).replies
        except ArtifactError:
            return job, None

    for start in range(0, len(jobs), _AT_ONCE):
        for found in await asyncio.gather(*map(count, jobs[start : start + _AT_ONCE])):
            yield found


def _post_numbers(total: Any) -> dict[str, int]:
    state, exhausted, count = total.values["status"], total.values["exhausted"], total.count
    waits = state == "noreplies"
    return {
        "posts": count,
        "done": count * (state == "done"),
        "skipped": count * (state == "skipped"),
        "waiting": count * (waits and not exhausted),
        "exhausted": count * (waits and bool(exhausted)),
        "replies_expected": int(total.sums["replies_count"]) * (state != "skipped"),
    }


def _job_numbers(total: Any) -> dict[str, int]:
    state, count = total.values["status"], total.count
    empty, failed = count * (state in _EMPTY), count * (state == "failed")
    return {
        "empty": empty,
        "failed": failed,
        "replies_saved": int(total.sums["saved_replies"]),
        "searches": count,
        "searches_wasted": empty + failed,
    }


def _add(
    rows: dict[tuple[str, ...], dict[str, Any]],
    values: Mapping[str, Any],
    numbers: Mapping[str, int],
) -> None:
    group = {name: str(values[name] or "unknown") for name in GROUPS}
    row = rows.setdefault(tuple(group.values()), group | dict.fromkeys(NUMBERS, 0))
    for name, number in numbers.items():
        row[name] += number


def _total(rows: Sequence[Mapping[str, Any]], limit: int) -> dict[str, Any]:
    summed = {name: sum(row[name] for row in rows) for name in NUMBERS}
    return summed | {"days": _days(summed, limit)}


def _days(row: Mapping[str, Any], limit: int) -> float:
    return round(int(row["waiting"]) / limit, 2)


async def _searches_per_day(read_model: Any) -> int:
    """The searches of a day: the limit that the provider reported last, or the declared one."""
    limits = [
        window["limit"]
        for budget in await read_model.budgets()
        if budget["budget"] == BUDGET
        for window in budget["windows"]
    ]
    return int(max(1, *limits))
