"""Phase 2: jobs become saved replies. Tests name the points of the specification."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from esclusa.pipelines.replies.answers import SearchUsage, is_empty, job_status, search_usage
from esclusa.pipelines.replies.records import Job, Post


async def test_the_quota_is_read_first(trial: Any) -> None:
    """Point 1: a used-up quota ends the run at once and changes nothing."""
    [job] = await trial.jobs("1")
    trial.sim.used = trial.sim.limit
    run = await trial.check()
    assert (run["outcome"], run["counters"]["quota_blocked"], run["counters"]["taken"]) == (
        "blocked",
        1,
        0,
    )
    assert "400/400" in run["message"]
    assert await trial.job("1") == job
    assert trial.sim.counts["GET /status"] == 0
    trial.sim.limit = 0  # a provider without a limit does not block
    assert (await trial.check())["counters"]["done"] == 1


async def test_oldest_first_up_to_max_jobs(trial: Any) -> None:
    """Points 2 and 3; a list is saved as the member ``data`` of an object."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    await trial.jobs("3", "1", "2")
    for number, post_id in enumerate(("1", "2", "3")):
        old = await trial.job(post_id)
        await trial.runtime.store.purge(_only(old))
        await trial.records.insert([old.but(created_at=start + timedelta(hours=number))])
    run = await trial.check(max_jobs=2)
    assert (run["counters"]["taken"], run["counters"]["done"], run["outcome"]) == (2, 2, "ok")
    assert [await trial.states(p) for p in "123"] == [
        ("done", "done"),
        ("done", "done"),
        ("processing", "pending"),
    ]
    job = await trial.job("1")
    steps = await trial.runtime.store.history(job.ref)
    assert [(s.frm, s.to) for s in steps][-2:] == [
        ("pending", "processing"),
        ("processing", "done"),
    ]
    assert {s.run for s in steps[-2:]} == {run["run"]}
    saved = json.loads(trial.file("1").read_text())
    assert list(saved) == ["data"]
    assert [r["in_reply_to_status_id_str"] for r in saved["data"]] == ["1"] * 3
    assert (job.saved_file, job.saved_replies) == ("raw/hn/twitter/c1/1.json", 3)
    assert job.updated_at > job.created_at


async def test_a_job_without_ids_fails(trial: Any) -> None:
    """Point 2."""
    [whole] = await trial.jobs("1")
    blank = {"post_doc_id": "x", "post_id": "9", "platform": "twitter"}
    await trial.records.insert(
        [
            Job(id="a", job_id=None, **blank),
            Job(id="b", job_id="h", **blank | {"post_doc_id": None}),
        ]
    )
    run = await trial.check()
    assert (run["counters"]["failed"], run["counters"]["done"], run["outcome"]) == (2, 1, "partial")
    failed = [await trial.records.get(Job, id) for id in "ab"]
    assert [job.last_error["message"] for job in failed] == [
        "the job has no job_id",
        "the job has no post_doc_id",
    ]
    assert whole.id not in {line["job_id"] for line in trial.log("process-jobs", "errors")}


async def test_a_saved_file_needs_no_call(trial: Any) -> None:
    """Point 4."""
    await trial.jobs("1")
    trial.save("1", [{"id_str": "7"}])
    run = await trial.check()
    assert run["counters"]["done"] == 1
    assert await trial.states("1") == ("done", "done")
    assert trial.sim.counts["GET /status"] == 0
    assert json.loads(trial.file("1").read_text()) == [{"id_str": "7"}]
    [line] = [li for li in trial.log("process-jobs", "success") if li["outcome"] == "skipped"]
    assert line["reason"] == "JSON file already exists in the artifact store with valid content"


@pytest.mark.parametrize("word", ["started", "queued for review"])
async def test_a_running_job_stays_pending(trial: Any, word: str) -> None:
    """Point 5: known and unknown words, without a limit of attempts.

    A run that a person starts ignores the delay between checks; a scheduled run does not.
    """
    await trial.jobs("1")
    trial.sim.behave("1", finish_after=14, word=word)
    for _ in range(12):
        run = await trial.check()
        assert (run["counters"]["still_pending"], run["outcome"]) == (1, "ok")
    job = await trial.job("1")
    assert (job.status, job.attempts) == ("pending", 0)
    assert 50 < (job.due_at - job.updated_at).total_seconds() < 61
    assert (await trial.scheduled("process-jobs"))["counters"]["taken"] == 0
    await trial.later(61)
    assert (await trial.scheduled("process-jobs"))["counters"]["still_pending"] == 1
    assert (await trial.check())["counters"]["done"] == 1


async def test_one_run_can_poll_several_times(new_trial: Any) -> None:
    """Point 5: rounds, and the seconds between them."""
    trial = await new_trial(REPLIES_POLL_ROUNDS="3", REPLIES_POLL_SECONDS="0.01")
    await trial.jobs("1", "2")
    trial.sim.behave("1", finish_after=3)
    trial.sim.behave("2", finish_after=4)
    run = await trial.check()
    assert (run["counters"]["done"], run["counters"]["still_pending"]) == (1, 1)
    assert [s.checks for s in trial.sim.searches.values()] == [3, 3]


async def test_every_kind_of_result(trial: Any) -> None:
    """Points 6, 7, 9 and 10: an error is never saved as data, and affects one job only."""
    kinds = {
        "data": ("done", "done"),
        "dict": ("done", "done"),
        "empty_list": ("processing", "empty_result"),
        "empty_dict": ("processing", "empty_result"),
        "blank_dict": ("processing", "empty_result"),
        "null": ("noreplies", "failed"),
        "no_body": ("noreplies", "failed"),
        "error_object": ("noreplies", "failed"),
        "text": ("noreplies", "failed"),
        "404": ("noreplies", "failed"),
    }
    ends = {
        "failed": ("noreplies", "failed"),
        "no_status": ("noreplies", "failed"),
        "dead_text": ("noreplies", "failed"),
    }
    await trial.jobs(*kinds, *ends)
    for kind in kinds:
        trial.sim.behave(kind, result=kind)
    for end in ends:
        trial.sim.behave(end, end=end)
    run = await trial.check()
    assert (
        run["counters"]["done"],
        run["counters"]["empty_result"],
        run["counters"]["failed"],
    ) == (2, 3, 8)
    assert run["outcome"] == "partial"
    for post_id, states in (kinds | ends).items():
        assert (post_id, await trial.states(post_id)) == (post_id, states)
        assert trial.file(post_id).exists() == (states[1] == "done")
    assert "cannot locate" in (await trial.job("error_object")).last_error["message"]
    assert len(trial.log("process-jobs", "errors")) == 8
    assert json.loads(trial.file("dict").read_text())["posts"]


def test_empty_results_are_recognized() -> None:
    """Point 7."""
    empty = [[], {}, {"a": None}, {"a": " ", "b": [], "c": {}, "d": None}]
    full = [[{}], [None], {"a": 0}, {"a": False}, {"a": None, "b": "x"}, {"a": [None]}]
    assert [is_empty(value) for value in empty + full] == [True] * len(empty) + [False] * len(full)


def test_job_status() -> None:
    """Status answers: known words, unknown words, no word, and the texts of dead jobs."""
    answers_by_status = {
        "finished": [
            {"status": "finished"},
            {"status": " Finished ", "tweet_preview": [{"d": "Job failed"}]},
        ],
        "running": [
            {"status": "started", "tweet_preview": [{"d": "Job failed"}]},
            {"status": "pending"},
            {"status": "processing"},
            {"status": "odd"},
        ],
        "failed": [
            {},
            [],
            None,
            "x",
            {"status": None},
            {"status": "failed"},
            {"status": "Job failed"},
            {"message": "we cannot locate this job"},
            {"status": "started", "status_text": "we cannot locate this job"},
        ],
    }
    assert {
        found: {job_status(answer)[0] for answer in answers}
        for found, answers in answers_by_status.items()
    } == {found: {found} for found in answers_by_status}


def test_search_usage() -> None:
    """Usage as numbers or text, impossible numbers, and answers without usage."""

    def of(used: Any, limit: Any) -> SearchUsage | None:
        return search_usage(
            {
                "usage": {"day": {"searches_used": used, "period_start": 12}},
                "limits": {"max_searches_per_day": limit},
            }
        )

    assert [of(170, 400), of("170", "400"), of(3.7, None), of(-3, -1)] == [
        SearchUsage(170, 400),
        SearchUsage(170, 400),
        SearchUsage(3, 0),
        SearchUsage(0, 0),
    ]
    assert of(10**30, 10**30) == SearchUsage(2**31 - 1, 2**31 - 1)
    assert [
        of(float("inf"), 400),
        of(None, 400),
        of(True, 400),
        search_usage([]),
        search_usage({"usage": []}),
    ] == [None] * 5


async def test_quota_exceeded_is_not_failed(trial: Any) -> None:
    """Points 6 and 9: a job that fails while the quota is used up keeps its post."""
    await trial.jobs("1", "2", "3")
    trial.sim.behave("1", end="failed")
    trial.sim.behave("2", result="null")
    trial.sim.order(
        "/account_stat", status=500
    )  # only the first answer: the run goes on although the quota is used up
    trial.sim.used = trial.sim.limit
    run = await trial.check()
    assert (
        run["counters"]["quota_exceeded"],
        run["counters"]["done"],
        run["counters"]["failed"],
    ) == (2, 1, 0)
    assert [await trial.states(p) for p in "12"] == [("processing", "quota_exceeded")] * 2
    job = await trial.job("1")
    assert "400/400" in (await trial.runtime.store.history(job.ref))[-1].reason
    assert job.last_error["type"] == "provider_failed"


async def test_jobs_resume_after_the_reset(new_trial: Any) -> None:
    """Point 11: after the provider's reset, oldest first, as many as the day allows."""
    trial = await new_trial()
    await trial.jobs("1", "2", "3")
    for post_id in "123":
        trial.sim.behave(post_id, end="failed")
    trial.sim.order("/account_stat", status=500)
    trial.sim.used = trial.sim.limit
    assert (await trial.check())["counters"]["quota_exceeded"] == 3
    trial.sim.used, trial.sim.period_start = 0, None
    assert (await trial.check())["counters"]["resumed"] == 0  # before the reset, no run resumes it
    for post_id in "123":
        trial.sim.behave(post_id)
    await trial.later(86_400)
    off = await new_trial(REPLIES_RESUME_AFTER_RESET="false")
    await off.later(86_400)
    assert (await off.check())["counters"]["resumed"] == 0
    trial.sim.used, trial.sim.limit = 0, 3  # one of them is kept
    run = await trial.check()
    assert (run["counters"]["resumed"], run["counters"]["done"], run["counters"]["taken"]) == (
        2,
        2,
        2,
    )
    assert [await trial.states(p) for p in "123"] == [
        ("done", "done"),
        ("done", "done"),
        ("processing", "quota_exceeded"),
    ]
    acted = await trial.call("POST", "/jobs/retry", params={"status": "quota_exceeded"})
    assert acted["retried"] == 1
    assert (await trial.check())["counters"]["done"] == 1


async def test_a_failed_job_reopens_its_post_unless_another_is_active(trial: Any) -> None:
    """Point 9; a done post stays done."""
    await trial.jobs("1", "2")
    one, two = await trial.post("1"), await trial.post("2")
    other = {"post_id": "1", "platform": "twitter"}
    await trial.records.insert(
        [
            Job(
                job_id="other",
                post_doc_id=one.id,
                due_at=datetime.now(UTC) + timedelta(days=1),
                **other,
            )
        ]
    )
    trial.sim.behave("1", end="failed")
    trial.sim.behave("2", end="failed")
    await trial.call(
        "POST", "/api/records/posts/move", {"ids": [two.id], "to": "done", "reason": "by hand"}
    )
    run = await trial.scheduled("process-jobs")
    assert run["counters"]["failed"] == 2
    assert ((await trial.post("1")).status, (await trial.post("2")).status) == (
        "processing",
        "done",
    )
    assert (await trial.check())["counters"][
        "failed"
    ] == 1  # the provider does not know the other job
    assert (await trial.post("1")).status == "noreplies"


async def test_transient_errors_are_retried(new_trial: Any) -> None:
    """Network and server errors count an attempt; the job fails after the maximum in a row."""
    trial = await new_trial(
        REPLIES_MAX_TRANSIENT="3", REPLIES_RESULT_SECONDS="0.5"
    )  # none of its results is usable
    await trial.jobs("1")
    for number, fault in enumerate(({"status": 500}, {"fault": "cut"}), 1):
        trial.sim.order("/status", **fault)
        run = await trial.check()
        assert (run["counters"]["retried"], run["counters"]["failed"]) == (1, 0)
        job = await trial.job("1")
        assert (job.status, job.attempts) == ("pending", number)
    trial.sim.behave("1", finish_after=3)
    assert (await trial.check())["counters"]["still_pending"] == 1
    assert (await trial.job("1")).attempts == 0  # a good answer resets the count
    for fault in ({"fault": "hang"}, {"fault": "bad_json"}, {"fault": "html"}):
        trial.sim.order("/rawdata", **fault)
        await trial.check()
    assert await trial.states("1") == ("noreplies", "failed")
    assert "tok-3f9a" not in json.dumps((await trial.job("1")).last_error)


async def test_a_throttle_waits_without_counting(trial: Any) -> None:
    """A 429 waits for Retry-After and counts no attempt."""
    await trial.jobs("2")
    trial.sim.order("/status", status=429, headers={"Retry-After": "7"})
    run = await trial.check()
    job = await trial.job("2")
    assert (run["counters"]["still_pending"], job.status, job.attempts) == (1, "pending", 0)
    assert 5 < (job.due_at - job.updated_at).total_seconds() < 8


@pytest.mark.parametrize(
    "header", ["inf", "nan", "-5", "99999999999", "Fri, 31 Dec 9999 23:59:59 GMT", "soon", ""]
)
async def test_an_odd_retry_after_waits_at_most_a_day(trial: Any, header: str) -> None:
    """An invalid or excessive Retry-After waits at most a day and counts no attempt."""
    await trial.jobs("2")
    trial.sim.order("/status", status=429, headers={"Retry-After": header})
    run = await trial.check()
    job = await trial.job("2")
    assert (run["counters"]["still_pending"], job.status, job.attempts, job.last_error) == (
        1,
        "pending",
        0,
        None,
    )
    assert 0 < (job.due_at - job.updated_at).total_seconds() <= 86_400


async def test_unstorable_characters_in_answers(trial: Any) -> None:
    """Half a surrogate pair or a null character does not change what an answer means."""
    await trial.jobs("1", "2")
    for end in ("\ud800", "\x00"):
        trial.sim.order(
            "/status",
            match=(await trial.job("1")).job_id,
            status=200,
            body={"status": f"busy {end}"},
        )
        trial.sim.order(
            "/status",
            match=(await trial.job("2")).job_id,
            status=200,
            body={"status": f"busy {end}"},
        )
        run = await trial.check()
        assert (run["counters"]["still_pending"], (await trial.job("1")).attempts) == (2, 0)
    for post_id, end in (("1", "\ud800"), ("2", "\x00")):
        body = {"status": "failed", "message": f"broken {end}"}
        trial.sim.order("/status", match=(await trial.job(post_id)).job_id, status=200, body=body)
    assert (await trial.check())["counters"]["failed"] == 2
    for post_id in "12":
        assert (await trial.job(post_id)).last_error[
            "message"
        ] == "the provider says: broken \ufffd"


async def test_replies_that_are_hard_to_encode(trial: Any) -> None:
    """Points 6 and 8: ``"error": false`` is data.

    Half an emoji and a ``_metadata`` of the provider do not prevent our metadata.
    """
    await trial.jobs("1")
    trial.save("1", [])
    result = {"error": False, "_metadata": "theirs", "posts": [{"full_text": "cortado \ud83d"}]}
    trial.sim.order("/rawdata", status=200, body=result)
    assert (await trial.check())["counters"]["done"] == 1
    saved = json.loads(trial.file("1").read_text())
    assert (saved["_metadata"]["is_retry"], saved["posts"]) == (True, result["posts"])


async def test_retry_metadata(trial: Any) -> None:
    """Point 8: metadata names an earlier empty file or a retry; the older version is kept."""
    await trial.jobs("list", "dict", "again")
    trial.save("list", [])
    trial.save("dict", {"a": None})
    trial.sim.behave("dict", result="dict")
    trial.sim.behave("again", result="empty_list", later="data")
    run = await trial.check()
    assert (run["counters"]["done"], run["counters"]["empty_result"]) == (2, 1)
    saved = json.loads(trial.file("list").read_text())
    assert len(saved["data"]) == 3
    meta = saved["_metadata"]
    assert (meta["is_retry"], meta["retry_count"], meta["previous_file_existed"]) == (True, 1, True)
    assert datetime.fromisoformat(meta["retry_timestamp"]).tzinfo is not None
    [older] = list((trial.files / "versions" / "hn" / "twitter" / "c1" / "list").iterdir())
    assert json.loads(older.read_text()) == []
    assert meta["older_version"] == f"versions/hn/twitter/c1/list/{older.name}"
    async with trial.web.get(f"{trial.url}/api/artifacts/{meta['older_version']}") as answer:
        assert (answer.status, json.loads(await answer.read())) == (200, [])
    assert list(saved) == ["data", "_metadata"]
    assert not list((trial.files / "raw").rglob("*.versions"))
    other = json.loads(trial.file("dict").read_text())
    assert (other["_metadata"]["retry_count"], len(other["posts"])) == (1, 3)
    assert (await trial.call("POST", "/empty-result-jobs/retry"))["retried"] == 1
    assert (await trial.job("again")).retry_count == 1
    assert (await trial.check())["counters"]["done"] == 1
    meta = json.loads(trial.file("again").read_text())["_metadata"]
    assert (
        meta["is_retry"],
        meta["retry_count"],
        meta["previous_file_existed"],
        meta["older_version"],
    ) == (True, 1, False, None)
    line = [li for li in trial.log("process-jobs", "success") if li["post_id"] == "again"][-1]
    assert (line["is_retry"], line["retry_count"], line["status_code"]) == (True, 1, 200)


async def test_paths_are_unique_and_stay_inside(trial: Any) -> None:
    """Names stay readable: none leaves its folder, and two values never share a file."""
    wild = ["../../etc/x", "..", "a/b", "=~a=2Fb", "ñandú", "x" * 400, "a b", "."]
    for number, country in enumerate(wild):
        await trial.posts(
            "same", platform="twitter" if number == 0 else f"p{number}", country=country
        )
        await trial.records.insert(
            [
                Job(
                    job_id=f"h{number}",
                    post_doc_id=f"d{number}",
                    post_id="same",
                    platform="twitter",
                    country=country,
                )
            ]
        )
        trial.sim.searches[f"h{number}"] = _search(f"h{number}")
    run = await trial.check()
    assert run["counters"]["done"] == len(wild)
    files = [f for f in trial.files.rglob("*.json") if "logs" not in f.parts]
    assert len(files) == len(wild)
    assert all(
        f.relative_to(trial.files / "raw").parts[1:] == ("twitter", "unknown", "same.json")
        for f in files
    )
    assert {"ñandú", "a b"} <= {f.relative_to(trial.files / "raw").parts[0] for f in files}


async def test_an_exception_fails_one_job(trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points 9 and 10: any exception fails one job and reopens its post; others go on."""
    await trial.jobs("1", "2", "3", replies_count=60)
    trial.sim.behave("2", replies=50)
    monkeypatch.setattr("esclusa.pipelines.replies.client.MAX_BYTES", 5000)
    run = await trial.check()
    assert (run["counters"]["done"], run["counters"]["failed"]) == (2, 1)
    assert await trial.states("2") == ("noreplies", "failed")
    assert (await trial.job("2")).last_error["type"] == "too_large"
    assert [line["post_id"] for line in trial.log("process-jobs", "errors")] == ["2"]


async def test_too_many_crashes_fail_the_job_and_reopen_its_post(new_trial: Any) -> None:
    """A job whose worker crashed too often fails, and its post is searched again."""
    trial = await new_trial(REPLIES_MAX_TRANSIENT="2")
    [job] = await trial.jobs("1")
    await trial.runtime.store.purge(_only(job))
    await trial.records.insert([job.but(attempts=2)])  # the state after two crashes
    run = await trial.check()
    assert (run["counters"]["failed"], await trial.states("1")) == (1, ("noreplies", "failed"))


def _search(id: str) -> Any:
    from esclusa.simulators.information_tracer import SimulatedSearch

    return SimulatedSearch(id, "same", "twitter")


def _only(job: Job) -> Any:
    from esclusa.model.query import query

    return query(Job, {"id": job.id}, limit=1)


async def test_a_job_without_a_post_ends(trial: Any) -> None:
    """Point 10: the job of a post that does not exist ends, too."""
    [job] = await trial.jobs("1")
    from esclusa.model.query import query

    await trial.runtime.store.purge(query(Post, {"id": job.post_doc_id}, limit=1))
    assert (await trial.check())["counters"]["done"] == 1
