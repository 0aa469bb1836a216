"""Routes and commands: what they answer and what they refuse."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.replies import TOKEN, environ

from esclusa.app import open_runtime, open_store
from esclusa.cli import code_of
from esclusa.pipelines.replies.records import Job, Post


async def test_adding_posts(trial: Any) -> None:
    """``POST /posts`` takes an array or one object per line.

    Known posts stay as they are; bad rows are reported by number.
    """
    rows = [
        {
            "platform": "Twitter",
            "post_id": 42,
            "replies_count": "7",
            "created_at": "2026-01-05T10:00:00",
            "unheard_of": 1,
        },
        {"platform": "twitter"},
        {"post_id": "1"},
        "text",
        {"platform": "twitter", "post_id": "43", "replies_count": "many"},
        {"platform": "twitter", "post_id": "44", "sort_by": "size"},
        {"platform": "twitter", "post_id": "45", "status": "done"},
        {"platform": "twitter", "post_id": " "},
        {"platform": "twitter", "post_id": "46\x00"},
        {"platform": "twitter", "post_id": "47", "created_at": "0001-01-01T00:00:00+05:00"},
        {"platform": ["x"], "post_id": 1.5},
        {"platform": "twitter", "post_id": "48", "replies_count": True},
    ]
    answer = await trial.call("POST", "/posts", rows)
    assert (answer["created"], answer["known"], [e["row"] for e in answer["errors"]]) == (
        1,
        0,
        list(range(2, 13)),
    )
    assert answer["errors"][0]["error"] == "post_id: it is missing"
    post = await trial.post("42")
    assert (post.status, post.replies_count, post.created_at.isoformat()) == (
        "noreplies",
        7,
        "2026-01-05T10:00:00+00:00",
    )
    lines = (
        '{"platform": "twitter", "post_id": "42", "replies_count": 9}\n'
        '{"platform": "reddit", "post_id": "50"}\n{oops\n'
    )
    answer = await trial.call("POST", "/posts", data=lines)
    assert (answer["created"], answer["known"], [e["row"] for e in answer["errors"]]) == (1, 1, [3])
    assert (await trial.post("42")).replies_count == 7
    status, problem = await trial.ask("POST", "/posts", [{"post_id": "1"}])
    assert (status, problem["errors"][0]["row"]) == (422, 1)
    status, problem = await trial.ask("POST", "/posts", data="[1, 2")
    assert (status, "not JSON" in problem["detail"]) == (400, True)


async def test_an_unstorable_row_is_reported(trial: Any) -> None:
    """``POST /posts``: numbers in every notation, and names too long for an index or a query."""
    invalid: list[dict[str, Any]] = [
        {"replies_count": "99999999999999999999999"},
        {"max_posts_replies": 3e9},
        {"max_replies": -(2**40)},
        {"replies_count": 1e300},
        {"platform": "x" * 801},
        {"country": "ñ" * 401},
        {"candidate_id": "c" * 10_000},
        {"post_id": "7" * 507},
        {"created_at": 10**30},
    ]
    rows = [
        {"platform": "twitter", "post_id": f"bad{n}", "replies_count": 5} | more
        for n, more in enumerate(invalid)
    ]
    many = "".join(
        map(chr, range(0x4E00, 0x5E00))
    )  # random text, because an index entry may be compressed
    rows.append(
        {
            "platform": "twitter",
            "post_id": many[:506],
            "country": many[:266],
            "candidate_id": many[300:566],
            "replies_count": 5,
        }
    )
    rows.append({"platform": "twitter", "post_id": "1", "created_at": 1_767_600_000_000})
    answer = await trial.call("POST", "/posts", rows)
    assert (answer["created"], [e["row"] for e in answer["errors"]]) == (
        2,
        list(range(1, len(invalid) + 1)),
    )
    for error, row in zip(answer["errors"], invalid, strict=True):
        assert error["error"].startswith(next(iter(row)))
    assert (await trial.submit())["counters"]["submitted"] == 1
    assert (await trial.check())["counters"]["done"] == 1
    assert (await trial.post("1")).created_at.isoformat() == "2026-01-05T08:00:00+00:00"


async def test_lists_and_counts(trial: Any) -> None:
    """``GET /jobs``, ``/posts``, ``/jobs/count``: filtered, paged by cursor."""
    await trial.posts("1", "2", "3")
    await trial.posts("4", platform="reddit", country="ar", candidate_id="c2")
    await trial.submit()
    trial.sim.behave("2", end="failed")
    await trial.check()
    page = await trial.call("GET", "/posts", params={"limit": 2})
    rest = await trial.call("GET", "/posts", params={"limit": 2, "after": page["next"]})
    assert sorted(p["post_id"] for p in page["items"] + rest["items"]) == ["1", "2", "3", "4"]
    assert rest["next"] is None
    assert [
        p["post_id"]
        for p in (await trial.call("GET", "/posts", params={"status": "noreplies"}))["items"]
    ] == ["2"]
    found = (await trial.call("GET", "/jobs", params={"status": "failed"}))["items"]
    assert [(j["post_id"], j["status"], j["last_error"]["type"]) for j in found] == [
        ("2", "failed", "provider_failed")
    ]

    async def count(**params: str) -> int:
        return (await trial.call("GET", "/jobs/count", params=params))["count"]

    assert (
        await count(),
        await count(status="done"),
        await count(platform="reddit", country="ar", candidate_id="c2"),
    ) == (4, 3, 1)
    assert (await trial.ask("GET", "/jobs/count", params={"status": "lost"}))[0] == 422
    assert (
        await trial.ask(
            "GET", "/jobs/count", params={"status": "done", "failed_without_done": "true"}
        )
    )[0] == 422
    assert (await trial.ask("GET", "/jobs", params={"after": "x"}))[0] == 400
    assert (await trial.ask("GET", "/jobs", params={"country": "a\x00"}))[0] == 400


async def test_an_unknown_parameter_is_refused(trial: Any) -> None:
    """A misspelt filter is not ignored: nothing is counted and nothing is changed."""
    await trial.jobs("1")
    trial.sim.behave("1", result="empty_list")
    await trial.check()
    for method, path in (
        ("POST", "/empty-result-jobs/retry?candidate=x"),
        ("POST", "/empty-result-jobs/verify?plattform=reddit"),
        ("POST", "/jobs/retry?dry-run=true"),
        ("POST", "/posts/retry?id=1"),
        ("POST", "/process-posts?limit=1"),
        ("POST", "/process-jobs?max_posts=1"),
        ("POST", "/posts?dry_run=true"),
        ("GET", "/jobs?state=done"),
        ("GET", "/jobs/count?state=done"),
        ("GET", "/empty-result-jobs?status=done"),
        ("GET", "/posts?order=id"),
        ("GET", "/quota?day=1"),
    ):
        status, problem = await trial.ask(method, path)
        assert (status, "there is no parameter" in problem["detail"]) == (400, True), path
    for path in (
        "/empty-result-jobs/retry?platform=",
        "/jobs/retry?post_id",
        "/posts/retry?country=",
    ):
        status, problem = await trial.ask("POST", path)
        assert (status, "with a value" in problem["detail"]) == (400, True), path
    assert await trial.states("1") == ("processing", "empty_result")
    assert (
        await trial.call(
            "POST", "/empty-result-jobs/retry", params={"post_id": "1", "dry_run": "true"}
        )
    )["matched"] == 1


async def test_failed_without_done(trial: Any) -> None:
    """Failed jobs of posts that have no done job, in any order; in counts and in lists."""
    await trial.posts("good", "bad", "late")
    for post_id in ("good", "bad", "late"):
        trial.sim.behave(post_id, end="failed")
    await trial.submit()
    await trial.check()

    async def without_done(**params: str) -> list[str]:
        params = {"status": "failed", "failed_without_done": "true", **params}
        found = (await trial.call("GET", "/jobs", params=params))["items"]
        assert (await trial.call("GET", "/jobs/count", params=params))["count"] == len(found)
        return sorted(j["post_id"] for j in found)

    assert await without_done() == ["bad", "good", "late"]
    trial.sim.behave("good")
    await trial.submit()
    await trial.check()
    assert await without_done() == ["bad", "bad", "late", "late"]
    assert await without_done(platform="reddit") == []
    assert (await trial.call("GET", "/jobs/count", params={"status": "failed"}))["count"] == 5
    trial.sim.behave("late")
    acted = await trial.call(
        "POST", "/jobs/retry", params={"status": "failed", "post_id": "late", "limit": 1}
    )
    assert (acted["matched"], acted["retried"]) == (2, 1)
    await trial.check()
    assert await without_done() == ["bad", "bad"]
    assert (await trial.post("late")).status == "done"  # its retried job is done
    acted = await trial.call("POST", "/jobs/retry", params={"post_id": "good"})
    assert (acted["retried"], "done" in acted["passed"][0]["why"]) == (0, True)


async def test_empty_results(trial: Any) -> None:
    """Retry reuses the job; verify accepts only results that were to be expected."""
    await trial.posts("few", replies_count=2)
    await trial.posts("many", replies_count=3)
    await trial.posts("reopened", "filled", replies_count=9)
    await trial.posts("fb", platform="facebook", replies_count=1)
    await trial.records.insert(
        [
            Post(
                platform="twitter",
                post_id="unknown",
                max_posts_replies=5,
                country="hn",
                candidate_id="c1",
            )
        ]
    )
    for post_id in ("few", "many", "reopened", "filled", "fb", "unknown"):
        trial.sim.behave(post_id, result="empty_list")
    await trial.submit()
    assert (await trial.check())["counters"]["empty_result"] == 6
    assert await trial.states("many") == ("processing", "empty_result")
    listed = await trial.call("GET", "/empty-result-jobs", params={"platform": "facebook"})
    assert [j["post_id"] for j in listed["items"]] == ["fb"]
    dry = await trial.call("POST", "/empty-result-jobs/verify", params={"dry_run": "true"})
    assert (dry["matched"], dry["verified"]) == (5, 0)
    acted = await trial.call("POST", "/empty-result-jobs/verify")
    assert acted["verified"] == 1
    assert await trial.states("few") == ("done", "verified")
    assert await trial.states("unknown") == ("processing", "empty_result")
    ids = [(await trial.post("reopened")).id]
    await trial.call(
        "POST", "/api/records/posts/move", {"ids": ids, "to": "done", "reason": "by hand"}
    )
    trial.save("filled", [{"id_str": "1"}])
    params = {"candidate_id": "c1", "country": "hn", "platform": "twitter"}
    assert (await trial.call("POST", "/empty-result-jobs/retry", params=params | {"limit": 1}))[
        "retried"
    ] == 1
    acted = await trial.call("POST", "/empty-result-jobs/retry", params=params)
    assert (acted["retried"], len(acted["passed"])) == (2, 1)
    assert "it is done" in acted["passed"][0]["why"]
    job = await trial.job("reopened")
    assert (await trial.states("reopened"), job.retry_count) == (("noreplies", "pending"), 1)
    run = await trial.submit()
    assert (run["counters"]["submitted"], trial.sim.submitted["reopened"]) == (0, 1)
    trial.sim.behave("reopened")
    await trial.check()
    assert await trial.states("reopened") == ("done", "done")
    assert (await trial.job("many")).status == "empty_result"
    assert (await trial.job("many")).retry_count == 1
    assert (await trial.call("GET", "/jobs/count"))["count"] == 6
    audit = await trial.call("GET", "/api/audit")
    assert {"retry-empty", "verify-empty"} <= {row["verb"] for row in audit["items"]}


async def test_quota_and_undeclared_moves(trial: Any) -> None:
    """``GET /quota``: usage, limit, reset. A generic move refuses an undeclared move."""
    await trial.jobs("1")
    trial.sim.used = 170
    quota = await trial.call("GET", "/quota")
    assert (quota["used"], quota["limit"], quota["left"], quota["reset"][-15:]) == (
        170,
        400,
        230,
        "T00:00:00+00:00",
    )
    status, problem = await trial.ask(
        "POST",
        "/api/records/pending_jobs/move",
        {"filter": {"status": "pending"}, "to": "verified"},
    )
    assert (status, problem["from"], problem["to"]) == (409, "pending", "verified")
    assert (await trial.job("1")).status == "pending"
    trial.sim.order("/account_stat", status=500)
    status, problem = await trial.ask("GET", "/quota")
    assert (status, "500" in problem["detail"]) == (502, True)


async def test_a_missing_key_is_reported(new_trial: Any) -> None:
    """The server starts and reports the missing setting; a run is refused and changes nothing."""
    trial = await new_trial(INFORMATION_TRACER_API_KEY="")
    await trial.posts("1")
    for path in ("/process-posts", "/process-jobs", "/api/cycles/replies.process-jobs/run"):
        status, problem = await trial.ask("POST", path)
        assert (status, "INFORMATION_TRACER_API_KEY" in problem["detail"]) == (503, True)
    assert (await trial.ask("GET", "/quota"))[0] == 503
    status, ready = await trial.ask("GET", "/readyz")
    assert (status, "INFORMATION_TRACER_API_KEY" in json.dumps(ready)) == (503, True)
    assert (await trial.post("1")).status == "noreplies"
    assert (await trial.call("GET", "/api/runs"))["items"] == []


async def test_every_route_is_documented(trial: Any) -> None:
    paths = (await trial.call("GET", "/openapi.json"))["paths"]
    for method, path in (
        ("post", "/process-posts"),
        ("post", "/process-jobs"),
        ("post", "/empty-result-jobs/retry"),
        ("get", "/empty-result-jobs"),
        ("post", "/empty-result-jobs/verify"),
        ("get", "/jobs/count"),
        ("get", "/jobs"),
        ("get", "/posts"),
        ("post", "/jobs/retry"),
        ("post", "/posts"),
        ("get", "/quota"),
        ("post", "/posts/retry"),
    ):
        assert method in paths[path], path


async def test_commands(
    trial: Any, empty_database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """``esclusa replies``: import of three formats, both phases, every operation, exit codes."""
    for name, value in environ(empty_database.url, tmp_path, trial.sim.url).items():
        monkeypatch.setenv(name, value)

    async def call(*argv: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = await asyncio.to_thread(
            code_of, ["replies", *argv, "--json"], open_runtime=open_runtime, open_store=open_store
        )
        out = capsys.readouterr()
        return code, json.loads(out.out) if out.out else out.err

    async def process(*argv: str) -> tuple[int, Any]:
        """Run a command that handles signals in a process of its own."""
        command = [sys.executable, "-m", "esclusa", "replies", *argv, "--json"]
        started = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            async with asyncio.timeout(120):
                out, err = await started.communicate()
        except TimeoutError:
            started.kill()
            raise
        return started.returncode or 0, json.loads(out) if out else err.decode()

    (tmp_path / "a.csv").write_text(
        "platform,post_id,country,candidate_id,replies_count,note\n"
        "twitter,1,hn,c1,2,x\ntwitter,,hn,c1,2,\n"
    )
    (tmp_path / "b.json").write_text(
        '[{"platform": "twitter", "post_id": "2", "country": "hn", "candidate_id": "c1", '
        '"replies_count": 4}]'
    )
    (tmp_path / "c.ndjson").write_text(
        '{"platform": "twitter", "post_id": "1"}\n'
        '{"platform": "twitter", "post_id": "3", "replies_count": 4}\n'
    )
    (tmp_path / "d.csv").write_text("platform,post_id\n,\n")
    code, output = await call("import", str(tmp_path / "a.csv"))
    assert (code, output) == (
        5,
        {"created": 1, "known": 0, "errors": [{"row": 2, "error": "post_id: it is missing"}]},
    )
    assert (await call("import", str(tmp_path / "b.json")))[0] == 0
    assert (await call("import", str(tmp_path / "c.ndjson"))) == (
        0,
        {"created": 1, "known": 1, "errors": []},
    )
    assert (await call("import", str(tmp_path / "d.csv")))[0] == 1
    code, output = await call("import", str(tmp_path / "none.csv"))
    assert (code, "none.csv" in output) == (1, True)
    trial.sim.behave("1", result="empty_list")
    trial.sim.behave("2", end="failed")
    code, run = await process("process-posts", "--max-posts", "2")
    assert (code, run["counters"]["submitted"]) == (0, 2)
    code, run = await process("process-jobs", "--max-jobs", "9")
    assert (code, run["counters"]["empty_result"], run["counters"]["failed"]) == (5, 1, 1)
    code, failed = await call("failed", "--without-done")
    assert (code, failed["count"], failed["items"][0]["post_id"]) == (0, 1, "2")
    assert (await call("retry-empty", "--country", "ar"))[1]["retried"] == 0
    assert (await call("verify-empty"))[1]["verified"] == 1
    assert (await call("retry-jobs", "--status", "failed"))[1]["retried"] == 1
    assert (await call("resubmit", "--post-id", "2"))[1]["retried"] == 0
    code, quota = await call("quota")
    assert (code, quota["used"], quota["limit"]) == (0, 2, 400)
    monkeypatch.setenv("INFORMATION_TRACER_API_KEY", "")
    code, output = await call("quota")
    assert (code, "INFORMATION_TRACER_API_KEY" in output) == (3, True)
    monkeypatch.setenv("REPLIES_QUOTA_TIMEZONE", "Mars/Base")
    code, output = await call("quota")
    assert (code, "REPLIES_QUOTA_TIMEZONE" in output) == (3, True)


async def test_the_token_is_never_logged_or_stored(new_trial: Any, capsys: Any) -> None:
    """The token stays out of messages, even if the provider repeats it or a URL contains it."""
    trial = await new_trial(ESCLUSA_LOG_LEVEL="debug")
    await trial.jobs("1", "2")
    trial.sim.order(
        "/status", status=200, body={"status": "failed", "message": f"token {TOKEN} is bad"}
    )
    trial.sim.order("/status", fault="cut")
    await trial.check()
    await trial.posts("3")
    trial.sim.order("/submit", status=400, body={"error": f"no search for {TOKEN}"})
    run = await trial.submit()
    answer = capsys.readouterr()
    jobs = [job.model_dump_json() async for job in trial.records.each(Job)]
    files = [f.read_text() for f in trial.files.rglob("*") if f.is_file()]
    assert "token (secret) is bad" in "".join(jobs)
    assert TOKEN not in "".join([answer.out, answer.err, json.dumps(run), *jobs, *files])
