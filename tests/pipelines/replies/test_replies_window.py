"""Which days are searched, and what an import reads and doubts."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any


def windows(trial: Any) -> dict[str, tuple[str, str]]:
    bodies = [json.loads(c["body"]) for c in trial.sim.calls if c["path"] == "/submit"]
    return {b["query"].removeprefix("reply:"): (b["start_date"], b["end_date"]) for b in bodies}


async def test_the_days_of_a_search(new_trial: Any) -> None:
    """The post's own days; else from a day before it was published; else two years back."""
    trial = await new_trial()
    rows = {
        "own": {"start_date": "2025-11-12", "end_date": "2025-12-05"},
        "begin": {"start_date": "12 Nov 2025"},
        "x": {"post_created_at": "Thu Nov 20 15:00:00 +0000 2025"},
        "seconds": {"post_created_at": "1763650800"},
        "end": {"end_date": "2025-12-05", "post_created_at": "2025-11-20"},
        "none": {"created_at": "2026-01-08T12:00:00Z"},
    }
    for post_id, fields in rows.items():
        await trial.posts(post_id, **fields)
    today = (await trial.runtime.store.now()).date()
    run = await trial.submit()
    assert windows(trial) == {
        "own": ("2025-11-12", "2025-12-05"),
        "begin": ("2025-11-12", str(today)),
        "x": ("2025-11-19", str(today)),
        "seconds": ("2025-11-19", str(today)),
        "end": ("2025-11-19", "2025-12-05"),
        "none": (str(today - timedelta(days=730)), str(today)),
    }
    assert run["counters"]["without_window"] == 1
    assert (await trial.post("own")).start_date == "2025-11-12"
    assert (await trial.job("own")).sort_by == "time"


async def test_replies_before_the_upload_are_found(new_trial: Any) -> None:
    """The replies are older than the row: a search from the upload on would be paid and empty."""
    trial = await new_trial(REPLIES_WINDOW_DAYS="400")
    await trial.posts("dated", post_created_at="2025-11-20T12:00:00Z")
    await trial.posts("undated")
    day = f"{await trial.runtime.store.now() - timedelta(days=300):%Y-%m-%d}"
    trial.sim.behave("dated", replied_on="2025-11-21")
    trial.sim.behave("undated", replied_on=day)
    await trial.submit()
    assert (await trial.check())["counters"]["done"] == 2


async def test_days_in_the_wrong_order_cost_no_search(trial: Any) -> None:
    await trial.posts("1", start_date="2026-01-05", end_date="2026-01-01")
    run = await trial.submit()
    assert (run["counters"]["errors"], trial.sim.used) == (1, 0)
    assert "after end_date" in (await trial.post("1")).last_error["message"]


async def test_an_import_warns(trial: Any) -> None:
    """Damaged ids and links are reported by row, and are never paid for."""
    ids = ["1.78935E+18", "1789354343434343424.0", "https://x.com/a/status/1", "x.com/a/1", "17"]
    rows = [{"platform": "twitter", "post_id": id, "replies_count": 5} for id in ids]
    answer = await trial.call("POST", "/posts", rows)
    assert (answer["created"], [w["row"] for w in answer["warnings"]]) == (5, [1, 2, 3, 4])
    assert "spreadsheet" in answer["warnings"][0]["warning"]
    assert "link" in answer["warnings"][2]["warning"]
    run = await trial.submit()
    assert (trial.submitted(), run["counters"]["errors"]) == (["reply:17"], 4)
    late = {"platform": "twitter", "post_id": "18", "created_at": "2026-01-05"}
    [warning] = (await trial.call("POST", "/posts", [late]))["warnings"]
    assert "post_created_at" in warning["warning"]
    bad = {"platform": "twitter", "post_id": "19", "post_created_at": "05/01/2026"}
    status, problem = await trial.ask("POST", "/posts", [bad])
    assert (status, "not a date" in problem["errors"][0]["error"]) == (422, True)


async def test_a_second_candidate_is_reported(trial: Any) -> None:
    await trial.posts("1")
    row = {"platform": "twitter", "post_id": "1", "candidate_id": "c2", "replies_count": 5}
    answer = await trial.call("POST", "/posts", [row])
    assert (answer["created"], answer["known"]) == (0, 1)
    assert "known for the candidate c1" in answer["warnings"][0]["warning"]
    assert (await trial.post("1")).candidate_id == "c1"


async def test_old_names_are_accepted(trial: Any) -> None:
    """``max_posts_to_process``, ``sort_by``, the counts, ``updated_today``."""
    await trial.posts("1", "2", "3")
    run = await trial.call("POST", "/process-posts?max_posts_to_process=2&sort_by=engagement")
    assert run["counters"]["submitted"] == 2
    assert (await trial.job("1")).sort_by == "engagement"
    assert (await trial.ask("POST", "/process-posts?max_posts=1&max_posts_to_process=2"))[0] == 400
    trial.sim.behave("1", result="empty_list")
    await trial.check()
    count = await trial.call("GET", "/posts/count?status=noreplies&platform=twitter")
    assert count == {"count": 1, "status": "noreplies", "filters": {"platform": "twitter"}}
    assert (await trial.call("GET", "/empty-result-jobs/count"))["count"] == 1
    jobs = await trial.call("GET", "/jobs/count?status=done&updated_today=true")
    assert (jobs["count"], jobs["filters"]) == (1, {"updated_today": True})
    await trial.later(2 * 86_400)
    assert (await trial.call("GET", "/jobs/count?status=done&updated_today=true"))["count"] == 0
