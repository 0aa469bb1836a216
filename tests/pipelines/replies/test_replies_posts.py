"""Phase 1: waiting posts become searches. Tests name the points of the specification."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from esclusa.pipelines.replies.records import Job, Post


async def test_order_and_max_posts(trial: Any) -> None:
    """Point 1: twitter first, then platforms by name, oldest first; max_posts counts searches."""
    await trial.posts("y1", platform="youtube", created_at="2020-01-01T00:00:00Z")
    await trial.posts("f2", platform="facebook", created_at="2021-01-01T00:00:00Z")
    await trial.posts("f1", platform="facebook", created_at="2020-06-01T00:00:00Z")
    await trial.posts("t2", created_at="2026-02-01T00:00:00Z")
    await trial.posts("t1", created_at="2026-01-01T00:00:00Z")
    await trial.posts("t0", created_at="2025-01-01T00:00:00Z", replies_count=0)
    assert (await trial.post("t1")).created_at == datetime(2026, 1, 1, tzinfo=UTC)
    first = await trial.submit(max_posts=1)
    assert (first["outcome"], first["counters"]["submitted"], first["counters"]["skipped"]) == (
        "ok",
        1,
        1,
    )
    assert trial.submitted() == ["reply:t1"]
    assert (await trial.post("t2")).attempts == 0
    await trial.submit(max_posts=2)
    await trial.submit()
    assert trial.submitted() == ["reply:t1", "reply:t2", "reply:f1", "reply:f2", "reply:y1"]


async def test_a_post_without_post_id_is_an_error(trial: Any) -> None:
    """Point 2."""
    await trial.records.insert(
        [
            Post(platform="twitter", post_id=None, replies_count=3),
            Post(platform="reddit", post_id=" ", replies_count=3),
        ]
    )
    await trial.posts("1")
    for _ in range(2):
        run = await trial.submit()
        assert (run["counters"]["errors"], run["outcome"]) == (2, "partial")
    assert trial.submitted() == ["reply:1"]
    kept = await trial.records.get(Post, "twitter", None)
    assert (kept.status, kept.last_error["type"]) == ("noreplies", "no_post_id")
    assert "no post_id" in trial.log("process-posts", "errors")[0]["error"]


async def test_an_invalid_post_costs_no_search(trial: Any) -> None:
    """A fault in a row that another program wrote is found before the search is paid for."""
    await trial.posts("3")
    one, two = (Post(platform="twitter", post_id=id, replies_count=5) for id in "12")
    one.sort_by, two.country = "size", "".join(map(chr, range(0x4E00, 0x5E00)))
    await trial.records.insert([one, two])
    for _ in range(2):
        run = await trial.submit()
        assert (run["outcome"], run["counters"]["errors"]) == ("partial", 2)
    assert (trial.submitted(), trial.sim.used) == (["reply:3"], 1)
    for id, field in (("1", "sort_by"), ("2", "country")):
        post = await trial.post(id)
        assert (post.status, post.last_error["type"]) == ("noreplies", "invalid_data")
        assert field in post.last_error["message"]
    assert (await trial.call("GET", "/quota"))["reserved"] == 1


async def test_how_many_replies_are_requested(new_trial: Any) -> None:
    """Points 3 and 4, the limits per platform, and the old name of the maximum."""
    trial = await new_trial(REPLIES_UNKNOWN_COUNT="fetch")
    await trial.posts("both", max_posts_replies=7, replies_count=50)
    await trial.posts("count", replies_count=50)
    await trial.posts("zero", max_posts_replies=0, replies_count=9)
    await trial.posts("old", max_replies=8, replies_count=50)
    await trial.posts("capped", platform="instagram", replies_count=5000)
    await trial.posts("unknown", replies_count=None)
    await trial.posts("none", replies_count=0)
    await trial.posts("minus", max_posts_replies=-1, replies_count=None)
    run = await trial.submit()
    asked = {
        json.loads(c["body"])["query"]: json.loads(c["body"])["max_post"]
        for c in trial.sim.calls
        if c["path"] == "/submit"
    }
    assert asked == {
        "reply:both": 7,
        "reply:count": 50,
        "reply:zero": 9,
        "reply:old": 8,
        "reply:capped": 100,
        "reply:unknown": 100,
    }
    assert run["counters"]["skipped"] == 2
    assert (await trial.job("both")).max_posts == 7


async def test_a_post_without_expected_replies_is_skipped(trial: Any) -> None:
    """Point 4: by default, also if neither count is known."""
    await trial.posts("unknown", replies_count=None)
    await trial.posts("zero", replies_count=0)
    assert (await trial.submit())["counters"]["skipped"] == 2
    assert [(await trial.post(p)).status for p in ("unknown", "zero")] == ["skipped", "skipped"]
    assert trial.submitted() == []
    assert [line["outcome"] for line in trial.log("process-posts", "success")] == [
        "skipped",
        "skipped",
    ]


async def test_a_saved_file_needs_no_search(trial: Any) -> None:
    """Point 5: a file with content is enough; an empty one is not."""
    await trial.posts("saved", "empty", "blank")
    trial.save("saved", [{"id_str": "1"}])
    trial.save("empty", [])
    trial.save("blank", {"a": None, "b": " "})
    run = await trial.submit()
    assert (run["counters"]["done"], run["counters"]["submitted"]) == (1, 2)
    assert (await trial.post("saved")).status == "done"
    assert trial.submitted() == ["reply:empty", "reply:blank"]


async def test_an_unreadable_file_is_an_error_of_its_post(trial: Any) -> None:
    """No search is paid for it, the others go on, and it is due for the next run."""
    await trial.posts("odd", "next")
    trial.file("odd").parent.mkdir(parents=True)
    trial.file("odd").symlink_to(trial.file("odd"))
    run = await trial.submit()
    assert (run["outcome"], run["counters"]["errors"], run["counters"]["submitted"]) == (
        "partial",
        1,
        1,
    )
    assert [line["post_id"] for line in trial.log("process-posts", "errors")] == ["odd"]
    trial.file("odd").unlink()
    assert (await trial.scheduled("process-posts"))["counters"]["submitted"] == 1


async def test_a_post_from_the_future_is_searched_until_today(trial: Any) -> None:
    """A search cannot begin after it ends."""
    await trial.posts("1", created_at="2150-01-01T00:00:00Z")
    assert (await trial.submit())["counters"]["submitted"] == 1
    body = json.loads(next(c["body"] for c in trial.sim.calls if c["path"] == "/submit"))
    assert body["start_date"] < body["end_date"]


async def test_a_post_with_an_active_job_is_not_submitted(trial: Any) -> None:
    """Point 6: pending or processing."""
    await trial.posts("1", "2")
    for post_id, status in (("1", "pending"), ("2", "processing")):
        id = Post.kind.id_of("twitter", post_id)
        await trial.records.insert(
            [
                Job(
                    job_id=f"j{post_id}",
                    post_doc_id=id,
                    post_id=post_id,
                    platform="twitter",
                    status=status,
                )
            ]
        )
    run = await trial.submit()
    assert (run["counters"]["submitted"], run["outcome"]) == (0, "ok")
    assert trial.submitted() == []
    assert (await trial.post("1")).status == "noreplies"


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
async def test_the_spelling_of_a_platform_makes_no_other_post(trial: Any) -> None:
    """Posts of one candidate share a search and its file; another candidate has its own."""
    await trial.records.insert(
        [
            Post(platform=name, post_id="1", country="hn", candidate_id=owner, replies_count=5)
            for name, owner in (("YouTube", "c1"), ("youtube", "c1"), ("YOUTUBE", "c2"))
        ]
    )
    for expected in (1, 2, 0), (1, 1, 0), (0, 0, 1):
        counters = (await trial.submit())["counters"]
        assert tuple(counters[n] for n in ("submitted", "duplicates", "done")) == expected
        await trial.check()
    posts = [post async for post in trial.records.each(Post)]
    assert [post.status for post in posts] == ["done"] * 3
    assert trial.sim.submitted == {"1": 2}


async def test_two_runs_at_once_submit_each_post_once(new_trial: Any) -> None:
    """Point 6: two servers share the posts; a second run in one server is refused."""
    one, two = await new_trial(), await new_trial()
    ids = [f"p{n:02}" for n in range(40)]
    await one.posts(*ids)
    answers = await asyncio.gather(
        one.ask("POST", "/process-posts"),
        two.ask("POST", "/process-posts"),
        one.ask("POST", "/process-posts"),
    )
    assert sorted(status for status, _ in answers) == [200, 200, 409]
    assert sum(body["counters"]["submitted"] for status, body in answers if status == 200) == 40
    assert one.sim.submitted == dict.fromkeys(ids, 1)
    assert (await one.call("GET", "/jobs/count"))["count"] == 40


async def test_the_body_of_a_submit(trial: Any) -> None:
    """Points 7 and 9: the search begins a day before the post; the job copies the post."""
    await trial.posts(
        "77",
        created_at="2026-04-01T01:00:00Z",
        post_created_at="2026-03-01T01:00:00Z",
        sort_by="engagement",
        max_posts_replies=12,
    )
    run = await trial.submit()
    body = json.loads(next(c["body"] for c in trial.sim.calls if c["path"] == "/submit"))
    today = f"{await trial.runtime.store.now():%Y-%m-%d}"
    assert body == {
        "query": "reply:77",
        "timeline_only": False,
        "enable_ai": False,
        "comment_depth": 1,
        "sort_by": "engagement",
        "platform_to_collect": ["twitter"],
        "max_post": 12,
        "start_date": "2026-02-28",
        "end_date": today,
        "token": "tok-3f9a-very-secret",
    }
    post, job = await trial.post("77"), await trial.job("77")
    assert (post.status, job.status, job.post_doc_id, job.retry_count) == (
        "processing",
        "pending",
        post.id,
        0,
    )
    assert (job.country, job.candidate_id, job.max_posts, job.sort_by) == (
        "hn",
        "c1",
        12,
        "engagement",
    )
    assert job.max_posts_replies == 12
    assert job.job_id in trial.sim.searches
    steps = await trial.runtime.store.history(post.ref)
    assert [(s.frm, s.to, s.run) for s in steps] == [("noreplies", "processing", run["run"])]
    [line] = trial.log("process-posts", "success")
    assert (
        line["post_id"],
        line["job_id"],
        line["status_code"],
        line["is_retry"],
        line["retry_count"],
    ) == (
        "77",
        job.job_id,
        200,
        False,
        0,
    )
    assert "tok-3f9a" not in json.dumps([line, *[str(r) for r in (post, job)]])


REFUSALS = [
    ("429", "blocked", "429", "rate_limited", 0),
    ("403", "blocked", "403", "quota_blocked", 0),
    ("400", "error", "400", "errors", 0),
    ("500", "error", "500", "errors", 1),
    ("no_id", "error", "no job id", "errors", 1),
    ("error_object", "error", "could not start", "errors", 1),
    ("quota_text", "blocked", "Daily quota exceeded", "quota_blocked", 1),
    ("hang", "error", "did not answer", "errors", 1),
]


async def test_a_failed_submit_stops_the_run(new_trial: Any) -> None:
    """Points 7 and 8: the post is due at once, the others are untouched.

    A refusal costs nothing. A search that the provider may have counted stays reserved.
    """
    normal, short_timeout, spent = await new_trial(), await new_trial(REPLIES_SUBMIT_SECONDS="2"), 0
    for order, outcome, text, counter, costs in REFUSALS:
        trial = short_timeout if order == "hang" else normal
        ids = [f"{order}-{n}" for n in range(3)]
        await trial.posts(*ids)
        trial.sim.behave(ids[1], submit=order)
        run = await trial.submit()
        assert (run["outcome"], run["counters"]["submitted"], run["counters"][counter]) == (
            outcome,
            1,
            1,
        ), run
        assert text in run["message"]
        assert [(await trial.post(p)).status for p in ids] == [
            "processing",
            "noreplies",
            "noreplies",
        ]
        assert (await trial.post(ids[2])).attempts == 0
        line = trial.log("process-posts", "errors")[-1]
        assert (line["post_id"], text in line["error"]) == (ids[1], True)
        spent += 1 + costs
        assert (await trial.call("GET", "/api/budgets"))["items"][0]["windows"][0]["used"] == spent
        left = 1 if order == "400" else 2  # a post that is refused waits
        assert (await normal.scheduled("process-posts"))["counters"]["submitted"] == left
        spent += left
    assert (await normal.call("GET", "/jobs/count"))["count"] == 3 * len(REFUSALS) - 1


async def test_an_unstorable_job_id_is_refused(trial: Any) -> None:
    """Point 7: an id_hash256 that cannot be stored is not a job id."""
    await trial.posts("1")
    for id in ("a\x00b", "\ud800", " ", "", 12, None, ["x"]):
        trial.sim.order("/submit", status=200, body={"id_hash256": id})
        run = await trial.submit()
        assert (run["outcome"], run["counters"]["submitted"], "no job id" in run["message"]) == (
            "error",
            0,
            True,
        )
        await trial.later(2 * 86_400)  # from the second failure on, it waits
    assert (await trial.submit())["counters"]["submitted"] == 1


async def test_a_refusal_while_the_quota_is_used_up_blocks_the_run(trial: Any) -> None:
    """Point 8: after a failed submit, the usage is read again and the budget follows it."""
    await trial.posts("1", "2")
    before = {"usage": {"day": {"searches_used": 10}}, "limits": {"max_searches_per_day": 400}}
    trial.sim.order(
        "/account_stat", status=200, body=before
    )  # the answer before the submit; then others used the account
    trial.sim.used = trial.sim.limit
    run = await trial.submit()
    assert (run["outcome"], run["counters"]["quota_blocked"], run["counters"]["submitted"]) == (
        "blocked",
        1,
        0,
    )
    assert "Submission failed" in run["message"]
    assert trial.log("process-posts", "errors")[0]["outcome"] == "quota"
    assert (await trial.call("GET", "/api/budgets"))["items"][0]["windows"][0]["left"] == 0
    assert (await trial.post("1")).status == "noreplies"


async def test_an_unknown_platform_is_an_error_of_its_post(trial: Any) -> None:
    """An unknown platform is sent as it is; its refusal does not stop the other posts."""
    await trial.posts("a", platform="aardvark")
    await trial.posts("z", platform="youtube")
    run = await trial.submit()
    assert (run["counters"]["errors"], run["counters"]["submitted"], run["outcome"]) == (
        1,
        1,
        "partial",
    )
    assert trial.submitted() == ["reply:a", "reply:z"]
    post = await trial.post("a", "aardvark")
    assert (post.status, "unsupported platform" in post.last_error["message"]) == (
        "noreplies",
        True,
    )


async def test_a_post_is_resubmitted_once(trial: Any) -> None:
    """Point 10: then it waits until an operator allows one more search."""
    await trial.posts("1", "2")
    trial.sim.behave("1", end="failed")
    trial.sim.behave("2", end="failed")
    for searches in (1, 2):
        assert (await trial.submit())["counters"]["exhausted"] == 0
        assert trial.sim.submitted["1"] == searches
        assert (await trial.check())["counters"]["failed"] == 2
    for _ in range(2):
        run = await trial.submit()
        assert (run["counters"]["submitted"], run["counters"]["exhausted"]) == (0, 2)
    listed = await trial.call("GET", "/posts", params={"exhausted": "true"})
    assert [p["post_id"] for p in listed["items"]] == ["1", "2"]
    view = await trial.call("GET", "/api/views/replies.exhausted")
    assert (view["count"], [item["post_id"] for item in view["items"]]) == (2, ["1", "2"])
    acted = await trial.call("POST", "/posts/retry", params={"post_id": "1", "platform": "twitter"})
    assert (acted["retried"], acted["matched"]) == (1, 1)
    assert (await trial.submit())["counters"]["submitted"] == 1
    assert trial.sim.submitted == {"1": 3, "2": 2}
    await trial.check()
    assert (await trial.submit())["counters"]["exhausted"] == 2


async def test_a_known_job_id_restarts_that_job(trial: Any) -> None:
    """If the provider returns the id of an earlier search, that job starts again."""
    await trial.posts("1")
    trial.sim.behave("1", end="failed", same_id=True)
    await trial.submit()
    await trial.check()
    assert await trial.states("1") == ("noreplies", "failed")
    trial.sim.behave("1", same_id=True)
    await trial.submit()
    assert await trial.states("1") == ("processing", "pending")
    await trial.check()
    assert await trial.states("1") == ("done", "done")
    assert (await trial.call("GET", "/jobs/count"))["count"] == 1


async def test_an_empty_budget_blocks_before_the_first_claim(new_trial: Any) -> None:
    """Usage is read once, before the first submit; posts beyond the budget stay untouched."""
    trial = await new_trial(REPLIES_KEEP_SEARCHES="0")
    await trial.posts(*[f"p{n}" for n in range(6)])
    trial.sim.used, trial.sim.limit = 397, 400
    run = await trial.submit()
    assert (run["outcome"], run["counters"]["submitted"], run["counters"]["quota_blocked"]) == (
        "blocked",
        3,
        1,
    )
    assert trial.sim.counts["GET /account_stat"] == 1
    assert (trial.sim.used, trial.sim.refused) == (400, 0)
    again = await trial.submit()
    assert (again["outcome"], again["counters"]["taken"]) == ("blocked", 0)
    post = await trial.post("p5")
    assert (post.status, post.attempts, await trial.runtime.store.history(post.ref)) == (
        "noreplies",
        0,
        [],
    )
    own = await new_trial(REPLIES_DAILY_LIMIT="2", REPLIES_KEEP_SEARCHES="0")
    trial.sim.used = 0
    await own.later(86_400)
    assert (await own.submit())["counters"]["submitted"] == 2


async def test_servers_together_spend_exactly_the_limit(new_trial: Any) -> None:
    """Four servers share the store's budget: they spend all of it, and no more."""
    team = [await new_trial(REPLIES_KEEP_SEARCHES="0") for _ in range(4)]
    await team[0].posts(*[f"p{n:03}" for n in range(60)])
    await team[0].posts(*[f"s{n:03}" for n in range(20)], replies_count=0)
    team[0].sim.limit = 40
    runs = await asyncio.gather(*(trial.submit() for trial in team))
    assert sum(run["counters"]["submitted"] for run in runs) == 40
    assert "blocked" in {run["outcome"] for run in runs}
    assert (team[0].sim.used, team[0].sim.refused) == (40, 0)


async def test_usage_of_yesterday_does_not_block_today(trial: Any) -> None:
    """Before the first search of a day, the provider may report yesterday's usage."""
    await trial.posts("1")
    trial.sim.used, trial.sim.period_start = 400, "2020-01-01"
    assert (await trial.submit())["counters"][
        "submitted"
    ] == 0  # the simulator itself still counts 400
    trial.sim.used = 0
    trial.sim.period_start = "2020-01-01"
    assert (await trial.submit())["counters"]["submitted"] == 1


async def test_unreadable_usage_stops_before_the_first_submit(trial: Any) -> None:
    await trial.posts("1")
    trial.sim.order("/account_stat", status=500)
    run = await trial.submit()
    assert (run["outcome"], trial.submitted()) == ("error", [])
    trial.sim.token = "another"
    run = await trial.submit()
    assert run["outcome"] == "error"
    assert "INFORMATION_TRACER_API_KEY" in run["message"]
    assert (await trial.post("1")).status == "noreplies"
