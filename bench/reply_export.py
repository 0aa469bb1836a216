"""Export and report of a million replies: time, memory, and what DuckDB reads back."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

from bench.driver import Driver
from bench.measures import Measure, Scale, progress
from bench.report import Report
from esclusa.app import open_runtime
from esclusa.pipelines.replies.records import Job, Post
from esclusa.settings import load

PER_POST = 50
# Of 100 jobs, those that the service before has finished.
FOREIGN = 10
TEXT = "no me representa, y a usted tampoco; pregunte en la plaza " * 2


async def reply_export(driver: Driver, report: Report, scale: Scale) -> None:
    """Export and report a tenth of the replies, then all; each in a process of its own."""
    folder = Path(tempfile.mkdtemp(prefix="esclusa-export-", dir=driver.folder))
    posts = max(100, scale.of(1_000_000) // PER_POST)
    _save(folder, range(posts // 10))
    await _record(folder, range(posts // 10))
    small, few = await _command(folder, "export")
    small_report, _ = await _command(folder, "report")
    _save(folder, range(posts // 10, posts))
    await _record(folder, range(posts // 10, posts))
    shutil.rmtree(folder / "artifacts" / "exports")
    large, many = await _command(folder, "export")
    again, none = await _command(folder, "export")
    large_report, reported = await _command(folder, "report")
    parts = f"{folder}/artifacts/exports/replies/parquet/*.parquet"
    with duckdb.connect() as connection:
        read = connection.execute(f"SELECT count(*), count(DISTINCT tweet_id) FROM '{parts}'")
        [(rows, ids)] = read.fetchall()
    saved = reported["total"]["replies_saved"]
    if not rows == ids == many["replies"] == saved == posts * PER_POST or none["replies"]:
        raise RuntimeError(
            f"{posts * PER_POST} replies, {many}, {rows} rows, {ids} ids, {none}, {saved} reported"
        )
    report.notes.append(
        f"replies export: {rows:,} replies of {posts:,} files in {large.seconds:.0f} s"
        f" ({rows / large.seconds:,.0f}/s), at most {large.peak_mb:.0f} MB;"
        f" {few['replies']:,} replies took {small.peak_mb:.0f} MB; an export of nothing new"
        f" {again.seconds:.1f} s, {again.peak_mb:.0f} MB; DuckDB reads {rows:,} distinct replies"
    )
    report.notes.append(
        f"replies report: {saved:,} replies of {posts:,} jobs, {FOREIGN} % of them of another"
        f" service, in {large_report.seconds:.1f} s, at most {large_report.peak_mb:.0f} MB;"
        f" a tenth of them took {small_report.seconds:.1f} s, {small_report.peak_mb:.0f} MB"
    )
    for note in report.notes[-2:]:
        progress(note)
    shutil.rmtree(folder, ignore_errors=True)


class Usage:
    """What a process took: seconds, and the peak of its memory."""

    def __init__(self, seconds: float, peak_mb: float) -> None:
        self.seconds, self.peak_mb = seconds, peak_mb


def _environ(folder: Path) -> dict[str, str]:
    return {
        "ESCLUSA_STORE": f"sqlite:///{folder}/store.db",
        "ESCLUSA_ARTIFACTS": str(folder / "artifacts"),
        "ESCLUSA_PIPELINES": "replies",
    }


async def _command(folder: Path, name: str) -> tuple[Usage, dict[str, Any]]:
    command = [sys.executable, "-m", "esclusa", "replies", name, "--json"]
    out = folder / "answer.json"
    began = time.perf_counter()
    with out.open("wb") as stdout:
        action = [(os.POSIX_SPAWN_DUP2, stdout.fileno(), 1)]
        environ = os.environ | _environ(folder)
        pid = os.posix_spawn(sys.executable, command, environ, file_actions=action)
        _, code, used = await asyncio.to_thread(os.wait4, pid, 0)
    if code:
        raise RuntimeError(f"replies {name} ended with {os.waitstatus_to_exitcode(code)}")
    return Usage(time.perf_counter() - began, used.ru_maxrss / 1024), json.loads(out.read_text())


async def _record(folder: Path, posts: range) -> None:
    """Insert the posts and their done jobs; those of another service do not say what they saved."""
    async with open_runtime(load(environ=_environ(folder))) as runtime:
        for start in range(posts.start, posts.stop, 1000):
            some = range(start, min(posts.stop, start + 1000))
            await runtime.records.insert([_post(n) for n in some])
            await runtime.records.insert([_job(n) for n in some])


def _names(post: int) -> dict[str, str]:
    names = {"platform": "twitter", "country": "hn", "candidate_id": f"c{post % 100:02}"}
    return names | {"post_id": str(post)}


def _post(post: int) -> Post:
    return Post(**_names(post), status="done", replies_count=PER_POST, submits=1)


def _job(post: int) -> Job:
    foreign = post % 100 < FOREIGN
    return Job(
        **_names(post),
        job_id=f"j{post}",
        post_doc_id=f"twitter:{post}",
        status="done",
        saved_replies=None if foreign else PER_POST,
        done_siblings=None if foreign else 0,
    )


def _save(folder: Path, posts: range) -> None:
    """Save the replies of these posts as the pipeline does."""
    for post in posts:
        path = folder / f"artifacts/raw/hn/twitter/c{post % 100:02}/{post}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"data": [_reply(post, n) for n in range(PER_POST)]}))


def _reply(post: int, number: int) -> dict[str, Any]:
    id = post * PER_POST + number
    return {
        "id_str": str(1_900_000_000_000_000_000 + id),
        "created_at": "Mon Jan 05 12:00:00 +0000 2026",
        "full_text": f"@candidato {id} {TEXT}",
        "lang": "es",
        "user": {
            "id_str": str(id % 50_000),
            "screen_name": f"user_{id % 50_000}",
            "name": f"User {id % 50_000}",
            "followers_count": id % 1000,
            "friends_count": id % 300,
            "verified": False,
        },
        "reply_count": 0,
        "retweet_count": number,
        "quote_count": 0,
        "favorite_count": id % 90,
        "in_reply_to_status_id_str": str(post),
        "in_reply_to_screen_name": "candidato",
        "is_quote_status": False,
        "entities": {"hashtags": [], "user_mentions": [], "urls": []},
        "tweet_url": f"https://x.com/user_{id % 50_000}/status/{id}",
    }


MEASURES: dict[str, Measure] = {"reply-export": reply_export}
