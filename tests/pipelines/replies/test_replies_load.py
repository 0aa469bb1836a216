"""Many jobs, many workers, killed workers: nothing stuck, doubled or overspent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.replies import environ

from esclusa.pipelines.replies.records import Job, Post

WORKER = Path(__file__).parent / "replies_worker.py"


def start(command: list[str], settings: dict[str, str]) -> subprocess.Popen[bytes]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ESCLUSA_", "REPLIES_"))
    }
    return subprocess.Popen(
        [sys.executable, *command],
        env=kept | settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


async def exit_code(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code; kill a process that does not end."""
    try:
        return await asyncio.to_thread(process.wait, 120)
    finally:
        process.kill()


async def test_four_processes_and_a_budget_of_400(
    trial: Any, empty_database: Any, tmp_path: Path
) -> None:
    """The provider never counts search 401 and refuses none.

    The emulator is slow: there the budget is 120.
    """
    limit = trial.sim.limit = 400 if not empty_database.url.startswith("firestore") else 120
    rows = [
        Post(platform="twitter", post_id=f"p{n:03}", replies_count=3) for n in range(limit + 30)
    ]
    await trial.records.insert(rows)
    settings = environ(empty_database.url, tmp_path, trial.sim.url, REPLIES_KEEP_SEARCHES="0")
    team = [start(["-m", "esclusa", "run", "replies.process-posts"], settings) for _ in range(4)]
    codes = [await exit_code(process) for process in team]
    assert set(codes) <= {0, 1}
    assert (trial.sim.used, trial.sim.refused, trial.sim.counts["POST /submit"]) == (
        limit,
        0,
        limit,
    )
    assert max(trial.sim.submitted.values()) == 1
    assert (await trial.call("GET", "/jobs/count"))["count"] == limit


POINTS = {
    "process-posts": [
        "before submit",
        "after submit",
        "before settle",
        "inside settle",
        "after settle",
    ],
    "process-jobs": [
        "after status",
        "after result",
        "after put",
        "before settle",
        "inside settle",
        "after settle",
    ],
}
SLOW = ("after submit", "after put", "inside settle")
"""The points for stores where a process starts slowly: after the call, and in the transaction."""


async def test_kills_at_every_point(trial: Any, empty_database: Any, tmp_path: Path) -> None:
    """Point 9 of both phases: no job and no post is stuck or doubled, whatever the moment."""
    ids = [f"p{n:02}" for n in range(30)]
    await trial.posts(*ids)
    for cycle, points in POINTS.items():
        for point in (
            points
            if not empty_database.url.startswith("firestore")
            else [p for p in points if p in SLOW]
        ):
            shift = str(trial.runtime.store.clock_offset)
            more = {
                "KILL_AT": point,
                "ESCLUSA_LEASE_SECONDS": "1",
                "REPLIES_CHECK_CONCURRENCY": "2",
                "ESCLUSA_CLOCK_OFFSET_SECONDS": shift,
            }
            worker = start(
                [str(WORKER), f"replies.{cycle}"],
                environ(empty_database.url, tmp_path, trial.sim.url, **more),
            )
            assert await exit_code(worker) == -signal.SIGKILL, point
            await trial.later(
                2
            )  # the leases of the killed process expire before the next one starts
        await (trial.submit() if cycle == "process-posts" else trial.check())
    for post_id in ids:
        jobs = [job async for job in trial.records.each(Job, {"post_id": post_id})]
        assert (post_id, (await trial.post(post_id)).status, [job.status for job in jobs]) == (
            post_id,
            "done",
            ["done"],
        )
        assert trial.file(post_id).exists()
    doubled = [post_id for post_id, searches in trial.sim.submitted.items() if searches > 1]
    assert len(doubled) <= len(POINTS["process-posts"])  # each kill costs at most one search
    assert max(trial.sim.submitted.values()) <= 1 + len(POINTS["process-posts"])
    assert (await trial.records.count(Job))[0] == len(ids)


@pytest.mark.parametrize("width", [7])
async def test_many_jobs_in_one_run(new_trial: Any, width: int) -> None:
    """Each pending job is checked once, within the limit of concurrency."""
    trial = await new_trial(REPLIES_CHECK_CONCURRENCY=str(width))
    count = 300
    trial.sim.seconds = 0.1  # long enough for all of them to overlap on a busy machine
    trial.sim.limit = count + 1
    for start_ in range(0, count, 100):
        await trial.records.insert(
            [
                Job(
                    job_id=f"h{n}",
                    post_doc_id=f"twitter:{n}",
                    post_id=str(n),
                    platform="twitter",
                    country="hn",
                    candidate_id="c1",
                )
                for n in range(start_, start_ + 100)
            ]
        )
    from esclusa.simulators.information_tracer import SimulatedSearch

    trial.sim.searches |= {
        f"h{n}": SimulatedSearch(f"h{n}", str(n), "twitter") for n in range(count)
    }
    run = await trial.check()
    assert (run["counters"]["done"], run["outcome"]) == (count, "ok")
    assert {s.checks for s in trial.sim.searches.values()} == {1}
    assert trial.sim.most_at_once == width
