"""The log of a run that is killed or stopped, and runs without a place for files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.replies import environ

from esclusa.settings import load


def start(settings: dict[str, str], *argv: str) -> subprocess.Popen[bytes]:
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("ESCLUSA_", "REPLIES_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "esclusa", *argv],
        env=kept | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


async def checks(trial: Any, count: int) -> None:
    async with asyncio.timeout(60):
        while sum(s.checks for s in trial.sim.searches.values()) < count:
            await asyncio.sleep(0.05)


async def test_a_killed_run_leaves_its_log(trial: Any, empty_database: Any, tmp_path: Path) -> None:
    """The lines are saved in parts while the run goes on."""
    ids = [f"p{n:02}" for n in range(40)]
    await trial.jobs(*ids)
    trial.sim.seconds = 0.4
    more = {"REPLIES_CHECK_CONCURRENCY": "1"}
    run = start(
        environ(empty_database.url, tmp_path, trial.sim.url, **more), "run", "replies.process-jobs"
    )
    await checks(trial, 8)
    run.kill()
    await asyncio.to_thread(run.communicate)
    lines = trial.log("process-jobs", "success")
    assert 1 <= len(lines) < 40
    assert {line["outcome"] for line in lines} == {"done"}


async def test_a_stopped_run_says_so(trial: Any, empty_database: Any, tmp_path: Path) -> None:
    """SIGTERM: the answer is ``partial``, names the stop, and links the log."""
    await trial.jobs(*[f"p{n:02}" for n in range(40)])
    trial.sim.seconds = 0.4
    settings = environ(empty_database.url, tmp_path, trial.sim.url, REPLIES_CHECK_CONCURRENCY="1")
    run = start(settings, "run", "replies.process-jobs", "--json")
    await checks(trial, 4)
    run.send_signal(signal.SIGTERM)
    out, _ = await asyncio.to_thread(run.communicate, timeout=60)
    answer = json.loads(out)
    assert (answer["outcome"], run.returncode) == ("partial", 130)
    assert "cut by" in answer["message"]
    assert answer["files"]
    for path in answer["files"]:
        async with trial.web.get(f"{trial.url}/api/artifacts/{path}") as found:
            assert (found.status, bool(await found.read())) == (200, True)
    [stored] = (await trial.call("GET", "/api/runs?cycle=replies.process-jobs"))["items"]
    assert (stored["status"], stored["files"]) == ("partial", answer["files"])


async def test_without_a_place_for_files_nothing_runs(new_trial: Any) -> None:
    """``ESCLUSA_ARTIFACTS`` is named; the server starts, and no record is touched."""
    trial = await new_trial(ESCLUSA_ARTIFACTS="")
    await trial.posts("1")
    for path in ("/process-posts", "/process-jobs"):
        status, problem = await trial.ask("POST", path)
        assert (status, "ESCLUSA_ARTIFACTS is not set" in problem["detail"]) == (503, True)
    assert (await trial.ask("GET", "/readyz"))[0] == 503
    assert ((await trial.post("1")).attempts, trial.sim.used) == (0, 0)


def test_the_bucket_of_the_origin_is_read(tmp_path: Path) -> None:
    given = environ("sqlite:///x.db", tmp_path, "http://127.0.0.1:1") | {"ESCLUSA_ARTIFACTS": ""}
    settings = load(environ=given | {"GCS_BUCKET_NAME": "team-bucket"})
    assert (settings.artifacts, settings.plans[0].missing) == ("gs://team-bucket", ())
    both = load(environ=given | {"GCS_BUCKET_NAME": "b", "ESCLUSA_ARTIFACTS": str(tmp_path)})
    assert both.artifacts == str(tmp_path)
    assert load(environ=given).plans[0].missing


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
async def test_the_log_files_of_the_service_before(new_trial: Any) -> None:
    """Their scripts find each error by ``error_type``, ``post_id`` and ``job_doc_id``."""
    trial = await new_trial(REPLIES_ORIGIN_LOGS="true")

    def read(folder: str, path: str) -> Any:
        assert path.startswith(f"{folder}/20")
        return json.loads((trial.files / path).read_text())

    assert not [path for path in (await trial.submit())["files"] if path.endswith(".json")]
    await trial.posts("good", "none", "broken", "refused")
    await trial.posts("few", max_posts_replies=0, replies_count=0)
    trial.sim.behave("none", result="empty_list")
    trial.sim.behave("broken", end="failed")
    trial.sim.behave("refused", submit="400")
    run = await trial.submit()
    calls, errors = [path for path in run["files"] if path.endswith(".json")]
    found = read("logs", calls)
    assert found["execution_type"] == "process-posts"
    assert (found["total_entries"], found["skipped_posts"]) == (len(found["calls"]), 1)
    assert found["api_usage"]["limits"]["max_searches_per_day"] == trial.sim.limit
    entries = {entry["post_id"]: entry for entry in found["calls"]}
    assert (entries["good"]["success"], entries["good"]["status_code"]) == (True, 200)
    assert entries["good"]["url"].endswith("/submit")
    assert (entries["few"]["skipped"], entries["few"]["url"]) == (True, None)
    assert (entries["refused"]["success"], entries["refused"]["status_code"]) == (False, 400)
    [error] = read("logs/errors", errors)["errors"]
    assert (error["error_type"], error["post_id"]) == ("submit_failed", "refused")
    await trial.submit()
    run = await trial.check()
    calls, errors = [path for path in run["files"] if path.endswith(".json")]
    found = read("logs/errors", errors)
    assert found["error_types"] == {"failed": 1, "empty_result": 1}
    by_post = {error["post_id"]: error for error in found["errors"]}
    for post_id in ("none", "broken"):
        job = await trial.job(post_id)
        assert (by_post[post_id]["job_doc_id"], by_post[post_id]["job_id"]) == (job.id, job.job_id)
    await trial.call("POST", "/empty-result-jobs/retry")
    run = await trial.check()
    calls, errors = [path for path in run["files"] if path.endswith(".json")]
    assert read("logs/errors", errors)["error_types"] == {"retry_still_empty": 1}
