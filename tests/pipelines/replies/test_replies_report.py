"""The report: what was collected and what it cost, on every store, by command, HTTP and console."""

from __future__ import annotations

from typing import Any

from esclusa.pipelines.replies.records import Job, Post


def post(number: int, status: str, **fields: Any) -> Post:
    given = {"country": "honduras", "candidate_id": "hnd09", "replies_count": 10} | fields
    platform = given.pop("platform", "twitter")
    return Post(platform=platform, post_id=str(number), status=status, **given)


def job(number: int, status: str, **fields: Any) -> Job:
    given = {"country": "honduras", "candidate_id": "hnd09", "platform": "twitter"} | fields
    return Job(
        job_id=f"j{number}", post_doc_id=f"p{number}", post_id=str(number), status=status, **given
    )


async def test_numbers_by_country_platform_and_candidate(trial: Any) -> None:
    trial.sim.limit = 2
    await trial.records.insert([
        post(1, "done"),
        post(2, "done"),
        post(3, "noreplies"),
        post(4, "noreplies", exhausted=True),
        post(5, "processing"),
        post(6, "skipped", replies_count=7),
        post(7, "noreplies", replies_count=None),
        post(8, "noreplies", country=None, candidate_id=None, platform="youtube"),
    ])  # fmt: skip
    await trial.records.insert([
        job(1, "done", saved_replies=12),
        job(2, "done", saved_replies=3),
        job(3, "failed"),
        job(4, "empty_result"),
        job(5, "pending"),
        job(6, "verified"),
        job(7, "quota_exceeded"),
        job(8, "failed", country="unknown", candidate_id="unknown", platform="youtube"),
    ])  # fmt: skip
    answer = await trial.call("GET", "/replies/report")
    honduras, unknown = answer["items"]
    assert honduras == {
        "country": "honduras", "platform": "twitter", "candidate_id": "hnd09",
        "posts": 7, "done": 2, "skipped": 1, "waiting": 2, "exhausted": 1, "empty": 2,
        "failed": 1, "replies_saved": 15, "replies_expected": 50, "searches": 7,
        "searches_wasted": 3, "days": 0.01,
    }  # fmt: skip
    assert [unknown[name] for name in ("country", "platform", "candidate_id")] == [
        "unknown", "youtube", "unknown",
    ]  # fmt: skip
    assert (unknown["posts"], unknown["waiting"], unknown["searches_wasted"]) == (1, 1, 1)
    assert answer["searches_per_day"] == 399  # one is kept
    assert answer["total"]["posts"] == 8
    assert answer["total"]["searches"] == 8
    assert answer["total"]["days"] == 0.01
    [only] = (await trial.call("GET", "/replies/report?platform=youtube"))["items"]
    assert only == unknown
    view = await trial.call("GET", "/api/views/replies.by-candidate?limit=1")
    assert view["items"] == [honduras]
    [last] = (
        await trial.call("GET", f"/api/views/replies.by-candidate?limit=1&after={view['next']}")
    )["items"]
    assert last["country"] == "unknown"


async def test_the_report_of_a_run_counts_what_it_saved(trial: Any) -> None:
    await trial.call("POST", "/posts", [
        {"platform": "twitter", "post_id": str(n), "country": "hn", "candidate_id": "c",
         "replies_count": 3}
        for n in range(3)
    ])  # fmt: skip
    await trial.call("POST", "/process-posts")
    await trial.call("POST", "/process-jobs")
    answer = await trial.call("GET", "/replies/report")
    [row] = answer["items"]
    saved = [
        job.saved_replies async for job in trial.records.each(Job) if job.saved_replies is not None
    ]
    assert row["replies_saved"] == sum(saved)
    assert row["searches"] == 3
    assert row["posts"] == 3


async def test_files_of_another_service_are_counted(trial: Any) -> None:
    """Its jobs do not say what they saved; several of one post share a file."""
    trial.save("1", [{"id_str": str(n)} for n in range(4)])
    trial.save("2", {"data": [{"id_str": "9"}], "_metadata": {"is_retry": True}})
    trial.save("3", "not a list of replies")
    names = {"country": "hn", "candidate_id": "c1"}
    await trial.records.insert([
        job(1, "done", **names),
        Job(job_id="again", post_doc_id="p1", post_id="1", platform="twitter", status="done",
            **names),
        job(2, "done", **names),
        job(3, "done", **names),
        job(4, "done", **names),
        job(5, "done", saved_replies=7, **names),
    ])  # fmt: skip
    answer = await trial.call("GET", "/replies/report")
    assert answer["total"]["replies_saved"] == 4 + 1 + 7
    assert answer["uncounted_files"] == 2  # one has no replies, one is missing
    [row] = (await trial.call("GET", "/api/views/replies.by-candidate"))["items"]
    assert row["replies_saved"] == 12


async def test_a_file_that_several_jobs_have_is_counted_once(trial: Any) -> None:
    """Of a post that was collected again, and of jobs that found a file of another."""
    await trial.jobs("1", "2", replies_count=3)
    await trial.check()
    before = (await trial.call("GET", "/replies/report"))["total"]
    await trial.call("POST", "/posts/recollect?post_id=1")
    await trial.submit()
    await trial.check()
    after = (await trial.call("GET", "/replies/report"))["total"]
    assert (before["searches"], after["searches"]) == (2, 3)
    assert after["replies_saved"] == before["replies_saved"] > 0
