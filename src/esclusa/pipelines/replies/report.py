"""The report: per country, platform and candidate what was collected, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from esclusa import Runtime
from esclusa.pipelines.replies.records import Job, Post
from esclusa.pipelines.replies.reply_rows import GROUPS
from esclusa.pipelines.replies.settings import RepliesSettings, search_budget

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


async def report(runtime: Runtime, filters: Mapping[str, str]) -> dict[str, Any]:
    """Return a row for each country, platform and candidate, and their sum.

    ``posts``, ``done``, ``skipped``, ``waiting`` and ``exhausted`` count posts; ``empty`` and
    ``failed`` count jobs. ``replies_expected`` is what the posts that were not skipped say they
    have. ``searches`` counts jobs; one without replies is wasted. ``days`` is how many days of
    quota the waiting posts need.
    """
    rows = await _rows(runtime.records, filters)
    limit = await _searches_per_day(runtime)
    return {
        "items": [row | {"days": _days(row, limit)} for row in rows],
        "total": _total(rows, limit),
        "searches_per_day": limit,
    }


async def by_candidate(records: Any, limit: int, after: str | None = None) -> dict[str, Any]:
    """Return one page of the report for the console and the API, without the days."""
    rows = await _rows(records, {})
    begin = int(after) if after and after.isdecimal() else 0
    following = begin + limit
    return {
        "items": rows[begin:following],
        "next": str(following) if following < len(rows) else None,
    }


async def _rows(records: Any, filters: Mapping[str, str]) -> list[dict[str, Any]]:
    """The numbers of each group, in the order of the groups. Reads every post and every job."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for total in await records.totals(
        Post, [*GROUPS, "status", "exhausted"], sums=["replies_count"], where=filters
    ):
        _add(rows, total.values, _post_numbers(total))
    for total in await records.totals(
        Job, [*GROUPS, "status"], sums=["saved_replies"], where=filters
    ):
        _add(rows, total.values, _job_numbers(total))
    return [rows[key] for key in sorted(rows)]


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


async def _searches_per_day(runtime: Runtime) -> int:
    """The searches of a day: the limit that the provider reported last, or the declared one."""
    settings: RepliesSettings = runtime.settings_of("replies")
    name = search_budget(settings).name
    limits = [
        window["limit"]
        for budget in await runtime.read_model.budgets()
        if budget["budget"] == name
        for window in budget["windows"]
    ]
    return int(max(1, *limits))
