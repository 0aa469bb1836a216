"""The demo: forty posts, and a provider that fails in several ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from esclusa import Runtime, one_of
from esclusa.http import session
from esclusa.imports import ImportedRow
from esclusa.pipelines.replies.operations import ReplyOperations
from esclusa.pipelines.replies.process_posts import EXHAUSTED, WAITING
from esclusa.pipelines.replies.records import ACTIVE, Job, Post

SIMULATORS: tuple[str, ...] = ("information_tracer",)
CYCLES: tuple[str, ...] = ("replies.process-posts", "replies.process-jobs")
POSTS = 40
PLATFORMS = ("twitter", "twitter", "facebook", "youtube")
EMPTY, FAILS_ONCE, FAILS, SKIPPED = ("104", "112"), "108", "116", "139"


def environ(urls: dict[str, str], folder: Path) -> dict[str, str]:
    """Return the settings of the demo: the simulated provider and short intervals."""
    return {
        "INFORMATION_TRACER_API_URL": urls["information_tracer"],
        "INFORMATION_TRACER_API_KEY": "demo-key",
        "REPLIES_POSTS_EVERY": "2s",
        "REPLIES_JOBS_EVERY": "1s",
        "REPLIES_RECHECK_SECONDS": "1",
        "REPLIES_REQUEST_SECONDS": "2",
    }


async def prepare(runtime: Runtime, urls: dict[str, str], folder: Path) -> None:
    """Add the posts and order the provider's faults."""
    ids = [str(100 + n) for n in range(POSTS)]
    orders: list[dict[str, Any]] = [
        {"post_id": id, "finish_after": 1 + n % 4, "replies": 1 + n % 7} for n, id in enumerate(ids)
    ]
    orders += [{"post_id": id, "result": "empty_list"} for id in EMPTY]
    orders += [
        {"post_id": FAILS, "end": "failed"},
        {"post_id": FAILS_ONCE, "end": "failed", "end_times": 1},
        {"post_id": "110", "submit": "429"},
        {"post_id": "120", "submit": "500"},
    ]
    faults = [
        {"path": "/status", "times": 6, "status": 500},
        {"path": "/rawdata", "times": 2, "fault": "cut"},
    ]
    async with session() as http:
        for path, body in (("/_behave", orders), ("/_faults", faults), ("/_quota", {"limit": 60})):
            async with http.post(urls["information_tracer"] + path, json=body) as response:
                response.raise_for_status()
    rows = [
        {
            "platform": PLATFORMS[n % len(PLATFORMS)],
            "post_id": id,
            "country": "hn",
            "candidate_id": f"c{n % 3}",
            "replies_count": 0 if id == SKIPPED else 2 + n % 9,
            "created_at": f"2026-01-{1 + n % 28:02}T12:00:00Z",
        }
        for n, id in enumerate(ids)
    ]
    await ReplyOperations(runtime, "demo").add(
        ImportedRow(number, row) for number, row in enumerate(rows, 1)
    )


async def finished(runtime: Runtime) -> bool:
    """Whether no post or job will move without an operator."""
    return (
        await runtime.records.first(Post, WAITING) is None
        and await runtime.records.first(Job, {"status": one_of(*ACTIVE)}) is None
        and await runtime.records.first(Post, {"status": "done"}) is not None
    )


async def summary(runtime: Runtime) -> list[str]:
    """Return what happened, in a few sentences."""

    async def count(kind: type[Post] | type[Job], **where: Any) -> int:
        return (await runtime.records.count(kind, where))[0]

    retried, stopped = 0, 0
    for cycle in CYCLES:
        for run in (await runtime.read_model.runs({"cycle": cycle}, limit=1000)).items:
            retried += getattr(run, "counters", {}).get("retried", 0)
            stopped += run.status in ("blocked", "error")
    budget = next(
        b for b in await runtime.read_model.budgets() if b["budget"] == "information_tracer"
    )["windows"][0]
    done, skipped = await count(Post, status="done"), await count(Post, status="skipped")
    failed, empty = await count(Job, status="failed"), await count(Job, status="empty_result")
    exhausted = await count(Post, **EXHAUSTED)
    return [
        f"{done} of {POSTS} posts have their replies saved below raw/",
        f"{skipped} post is skipped: no replies are expected",
        f"{retried} transient errors of the provider were retried",
        f"{stopped} runs stopped at a refused search; the next run continued",
        f"{failed} searches failed; their posts were searched once more",
        f"{exhausted} post waits for an operator (esclusa replies resubmit)",
        f"{empty} searches found nothing (esclusa replies retry-empty, verify-empty)",
        f"quota: {budget['used']} of {budget['limit']} searches reserved",
    ]
