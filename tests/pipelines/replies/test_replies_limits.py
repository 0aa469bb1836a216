"""The day's searches: what was paid for is collected, and the limit is never passed."""

from __future__ import annotations

import json
from typing import Any

import pytest

ONE_STORE = pytest.mark.parametrize("provider", ["sqlite"], indirect=True)


async def test_four_days_of_a_short_quota(new_trial: Any) -> None:
    """120 posts, 20 searches a day, posts first as the seed calls them: all that is paid is saved.

    Without a search that is kept, the jobs are never collected: 80 searches, no reply.
    """
    trial = await new_trial()
    sim, ids = trial.sim, [f"p{n:03}" for n in range(120)]
    sim.limit = 20
    await trial.posts(*ids)
    for day in range(4):
        for _ in range(3):
            await trial.submit()
            await trial.check()
        assert sim.used == 19, f"day {day + 1}"
        await trial.later(86_400)
        sim.offset += 86_400
    assert (sim.refused, sum(sim.submitted.values())) == (0, 76)
    done = (await trial.call("GET", "/jobs/count", params={"status": "done"}))["count"]
    assert (done, len(list((trial.files / "raw").rglob("*.json")))) == (76, 76)
    assert max(sim.submitted.values()) == 1


async def test_all_searches_can_be_spent(new_trial: Any) -> None:
    """``REPLIES_KEEP_SEARCHES=0`` spends all; ``REPLIES_AT_LIMIT=collect`` collects even then."""
    stop = await new_trial(REPLIES_KEEP_SEARCHES="0")
    stop.sim.limit = 3
    await stop.posts("1", "2", "3", "4")
    assert (await stop.submit())["counters"]["submitted"] == 3
    blocked = await stop.check()
    assert (blocked["outcome"], blocked["counters"]["taken"]) == ("blocked", 0)
    collect = await new_trial(REPLIES_KEEP_SEARCHES="0", REPLIES_AT_LIMIT="collect")
    run = await collect.check()
    assert (run["outcome"], run["counters"]["done"]) == ("ok", 3)
    assert (stop.sim.used, stop.sim.refused) == (3, 0)


async def test_a_quota_that_is_reached_during_a_run(new_trial: Any) -> None:
    """Only an answer counts that was asked for after the failure: no job fails by an older one."""
    trial = await new_trial(REPLIES_CHECK_CONCURRENCY="1")
    ids = [f"p{n:02}" for n in range(8)]
    await trial.jobs(*ids)
    for post_id in ids:
        trial.sim.behave(post_id, end="failed")
    used = {"usage": {"day": {"searches_used": 10}}, "limits": {"max_searches_per_day": 400}}
    for _ in range(3):  # before the run, and after two failures
        trial.sim.order("/account_stat", status=200, body=used)
    trial.sim.used = trial.sim.limit
    run = await trial.check()
    assert (run["counters"]["failed"], run["counters"]["quota_exceeded"]) == (2, 6)
    states = [await trial.states(post_id) for post_id in ids]
    assert states.count(("processing", "quota_exceeded")) == 6


async def test_an_unknown_quota_fails_no_job(trial: Any) -> None:
    """A failure costs a new search, so a job is checked again while the quota cannot be read."""
    await trial.jobs("1")
    trial.sim.behave("1", end="failed")
    for _ in range(2):
        trial.sim.order("/account_stat", status=500)
    run = await trial.check()
    assert (run["counters"]["failed"], run["counters"]["retried"]) == (0, 1)
    assert await trial.states("1") == ("processing", "pending")
    await trial.check()
    assert await trial.states("1") == ("noreplies", "failed")


async def test_one_refused_post_does_not_hold_up_the_others(trial: Any) -> None:
    """It waits with backoff, ``why`` says so, and it ends exhausted with a dead letter."""
    await trial.posts("bad", "one", "two")
    trial.sim.behave("bad", submit="400", submit_times=99)
    run = await trial.submit()
    assert (run["outcome"], "the run stops here" in run["message"]) == ("error", True)
    alerts = (await trial.call("GET", "/api/alerts"))["items"]
    assert "cycle_failed" in json.dumps(alerts)
    post = await trial.post("bad")
    assert (post.status, post.attempts) == ("noreplies", 1)
    why = await trial.call("GET", f"/api/records/posts/{post.id}/why")
    assert "400" in why["answer"]
    assert (await trial.submit())["counters"]["submitted"] == 2
    for _ in range(4):
        await trial.later(2 * 86_400)
        trial.sim.offset += 2 * 86_400
        await trial.submit()
    post = await trial.post("bad")
    assert (post.exhausted, post.attempts, post.submits) == (True, 5, 0)
    letters = (await trial.call("GET", "/api/dead-letters"))["items"]
    assert [letter["record_id"] for letter in letters] == [post.id]
    why = await trial.call("GET", f"/api/records/posts/{post.id}/why")
    assert [reason["code"] for reason in why["reasons"]] == ["exhausted"]
    assert "400" in why["answer"]
    await trial.later(2 * 86_400)
    run = await trial.submit()
    assert (run["counters"]["taken"], run["counters"]["exhausted"]) == (0, 1)
    trial.sim.behave("bad")
    acted = await trial.call(
        "POST", "/api/dead-letters/redrive", {"ids": [letters[0]["id"]], "reason": "repaired"}
    )
    assert acted["moved"] == 1
    assert (await trial.submit())["counters"]["submitted"] == 1


async def test_a_search_that_the_provider_knows_is_bounded(new_trial: Any) -> None:
    """The same id for the same query, of a job that is done: at most two searches are paid."""
    trial = await new_trial()
    await trial.jobs("1")
    trial.sim.behave("1", same_id=True)
    await trial.check()
    assert await trial.states("1") == ("done", "done")
    assert (await trial.call("POST", "/posts/recollect"))["recollected"] == 1
    for _ in range(6):
        await trial.submit()
        await trial.check()
        await trial.later(2 * 86_400)
        trial.sim.offset += 2 * 86_400
    post = await trial.post("1")
    assert (post.status, post.exhausted) == ("noreplies", True)
    assert trial.sim.submitted["1"] == 3
    assert (await trial.call("GET", "/api/dead-letters"))["items"][0]["error_type"] == "known_job"


@ONE_STORE
async def test_a_job_that_the_table_refuses_is_not_searched_again(
    trial: Any, empty_database: Any
) -> None:
    """The error of its post keeps its id: once the table takes the job, it is collected."""
    await trial.posts("1")
    empty_database._run(
        """CREATE TRIGGER refuse BEFORE INSERT ON pending_jobs
        BEGIN SELECT RAISE(ABORT, 'not allowed'); END"""
    )
    for attempt in 1, 2:
        await trial.submit()
        post = await trial.post("1")
        assert (post.status, post.attempts) == ("noreplies", attempt)
        assert post.last_error["type"] == "rejected"
        await trial.later(2 * 86_400)
        trial.sim.offset += 2 * 86_400
    empty_database._run("DROP TRIGGER refuse")
    await trial.submit()
    assert await trial.states("1") == ("processing", "pending")
    await trial.check()
    assert await trial.states("1") == ("done", "done")
    assert (trial.sim.submitted, (await trial.post("1")).submits) == ({"1": 1}, 1)


async def test_a_post_that_breaks_the_provider_does_not_starve_others(trial: Any) -> None:
    """After the second failure of the same post in a row, others have their turn."""
    await trial.posts("bad", "one")
    trial.sim.behave("bad", submit="no_id", submit_times=99)
    assert (await trial.submit())["outcome"] == "error"
    assert (await trial.submit())["outcome"] == "error"
    assert (await trial.submit())["counters"]["submitted"] == 1
    assert not (await trial.post("bad")).exhausted
