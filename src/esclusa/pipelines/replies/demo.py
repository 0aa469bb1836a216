"""What ``make demo`` plays: forty posts, a provider with bad days, and everything comes to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from esclusa import http as outside
from esclusa import one_of
from esclusa.imports import Row
from esclusa.pipelines.replies.desk import Desk
from esclusa.pipelines.replies.records import ACTIVE, Job, Post
from esclusa.pipelines.replies.submitting import EXHAUSTED, WAITING
from esclusa.runtime import Runtime

SIMULATORS: tuple[str, ...] = ("information_tracer",)
CYCLES: tuple[str, ...] = ("replies.process-posts", "replies.process-jobs")
POSTS = 40
PLATFORMS = ("twitter", "twitter", "facebook", "youtube")
EMPTY, FAILS_ONCE, FAILS, SKIPPED = ("104", "112"), "108", "116", "139"


def environ(urls: dict[str, str], folder: Path) -> dict[str, str]:
    """The settings of the demo: the simulated provider, and days that last seconds."""
    return {
        "INFORMATION_TRACER_API_URL": urls["information_tracer"], "INFORMATION_TRACER_API_KEY": "demo-key", "REPLIES_POSTS_EVERY": "2s",
        "REPLIES_JOBS_EVERY": "1s", "REPLIES_RECHECK_SECONDS": "1", "REPLIES_REQUEST_SECONDS": "2",
    }  # fmt: skip


async def prepare(runtime: Runtime, urls: dict[str, str], folder: Path) -> None:
    """The posts, and what will go wrong with them."""
    ids = [str(100 + n) for n in range(POSTS)]
    orders: list[dict[str, Any]] = [
        {"post_id": id, "finish_after": 1 + n % 4, "replies": 1 + n % 7} for n, id in enumerate(ids)
    ]
    orders += [{"post_id": id, "result": "empty_list"} for id in EMPTY]
    orders += [
        {"post_id": FAILS, "end": "failed"},
        {"post_id": FAILS_ONCE, "end": "failed", "end_times": 1},
    ]
    orders += [{"post_id": "110", "submit": "429"}, {"post_id": "120", "submit": "500"}]
    faults = [
        {"path": "/status", "times": 6, "status": 500},
        {"path": "/rawdata", "times": 2, "fault": "cut"},
    ]
    async with outside.session() as session:
        for path, body in (("/_behave", orders), ("/_faults", faults), ("/_quota", {"limit": 60})):
            async with session.post(urls["information_tracer"] + path, json=body) as answer:
                answer.raise_for_status()
    rows = [
        {
            "platform": PLATFORMS[n % len(PLATFORMS)], "post_id": id, "country": "hn", "candidate_id": f"c{n % 3}",
            "replies_count": 0 if id == SKIPPED else 2 + n % 9, "created_at": f"2026-01-{1 + n % 28:02}T12:00:00Z",
        }
        for n, id in enumerate(ids)
    ]  # fmt: skip
    await Desk(runtime, "demo").add(Row(number, row) for number, row in enumerate(rows, 1))


async def finished(runtime: Runtime) -> bool:
    """Whether nothing moves by itself any more."""
    records = runtime.engine.records
    waiting, under_way = (
        await records.first(Post, WAITING),
        await records.first(Job, {"status": one_of(*ACTIVE)}),
    )
    return (
        waiting is None
        and under_way is None
        and await records.first(Post, {"status": "done"}) is not None
    )


async def summary(runtime: Runtime) -> list[str]:
    """How it went."""
    records = runtime.engine.records

    async def count(kind: type[Post] | type[Job], **where: Any) -> int:
        return (await records.count(kind, where))[0]

    hiccups, stopped = 0, 0
    for cycle in CYCLES:
        for run in (await runtime.read_model.runs({"cycle": cycle}, limit=1000)).items:
            hiccups += getattr(run, "counters", {}).get("retried", 0)
            stopped += run.status in ("blocked", "error")
    budget = next(
        b for b in await runtime.read_model.budgets() if b["budget"] == "information_tracer"
    )["windows"][0]
    saved, skipped, exhausted = (
        await count(Post, status="done"),
        await count(Post, status="skipped"),
        await count(Post, **EXHAUSTED),
    )
    failed, empty = await count(Job, status="failed"), await count(Job, status="empty_result")
    return [
        f"{saved} of {POSTS} posts have their replies saved below raw/, {skipped} is skipped: no replies are expected",
        f"{hiccups} hiccups of the provider were tried again, {stopped} runs stopped at a refused search and the next one went on",
        f"{failed} searches failed; their posts were searched once more, and {exhausted} waits for an operator (esclusa replies resubmit)",
        f"{empty} found nothing (esclusa replies retry-empty, verify-empty)",
        f"quota: {budget['used']}/{budget['limit']} searches reserved, never one more",
    ]
