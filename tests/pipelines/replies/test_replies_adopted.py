"""The pipeline on the Firestore collections of the team whose program it replaces."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from esclusa.pipelines.replies.records import Job, Post

UPLOADED = datetime(2026, 1, 8, 12, tzinfo=UTC)


@pytest.fixture(params=["firestore"])
def provider(request: pytest.FixtureRequest, providers: Callable[[str], Any]) -> Any:
    return providers(request.param)


async def upload(database: Any, table: str, *documents: dict[str, Any]) -> list[str]:
    """Add documents as the team's program does: ids are random, tracking fields missing."""
    async with database.google() as client:
        return [(await client.collection(table).add(fields))[1].id for fields in documents]


def post(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "platform": "twitter",
        "post_id": f"{number}",
        "country": "hn",
        "candidate_id": "c1",
        "status": "noreplies",
        "created_at": UPLOADED + timedelta(minutes=number),
        "max_posts_replies": 20,
        "start_date": "2025-11-12",
        **fields,
    }


def job(number: int, post_doc_id: str, **fields: Any) -> dict[str, Any]:
    created = UPLOADED + timedelta(hours=1)
    return {
        "job_id": f"{number:064x}",
        "post_doc_id": post_doc_id,
        "post_id": f"{number}",
        "platform": "twitter",
        "country": "hn",
        "candidate_id": "c1",
        "max_posts_replies": 20,
        "sort_by": "time",
        "status": "pending",
        "created_at": created,
        "updated_at": created,
        **fields,
    }


async def test_posts_and_jobs_of_the_team_are_worked(
    new_trial: Any, empty_database: Any, sim: Any
) -> None:
    sim.every_job = True
    waiting = await upload(
        empty_database,
        "posts",
        *[post(n) for n in range(9)],
        post(9, created_at="2025-12-27", replies_count="12"),
    )
    busy = await upload(
        empty_database, "posts", *[post(n, status="processing") for n in (20, 21, 22)]
    )
    jobs = await upload(
        empty_database,
        "pending_jobs",
        *[job(n, id) for n, id in zip((20, 21, 22), busy, strict=True)],
    )
    trial = await new_trial()
    counters = (await trial.check())["counters"]
    assert (counters["taken"], counters["done"]) == (3, 3)
    assert {(await trial.records.get(Job, id)).status for id in jobs} == {"done"}
    assert {(await trial.records.get(Post, id)).status for id in busy} == {"done"}
    assert (await trial.submit())["counters"]["submitted"] == 10
    assert {(await trial.records.get(Post, id)).status for id in waiting} == {"processing"}
    new = [job async for job in trial.records.each(Job, {"status": "pending"})]
    assert {job.post_doc_id for job in new} == set(waiting)
    # The uploader goes on: the next run takes what it adds, and an import finds it.
    [later] = await upload(empty_database, "posts", post(30))
    assert (await trial.submit())["counters"]["submitted"] == 1
    row = {name: post(30)[name] for name in ("platform", "post_id", "country", "candidate_id")}
    answer = await trial.call("POST", "/posts", [row])
    assert (answer["created"], len(await _posts(trial))) == (0, 14)
    async with empty_database.google() as client:
        stored = (await client.document(f"posts/{later}").get()).to_dict()
    assert stored["start_date"] == "2025-11-12"
    assert stored["status"] == "processing"


async def _posts(trial: Any) -> list[Post]:
    return [post async for post in trial.records.each(Post)]
