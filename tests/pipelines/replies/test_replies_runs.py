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
