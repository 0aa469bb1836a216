"""The export of a million replies: its time, its memory, and what DuckDB reads back."""

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

PER_POST = 50
TEXT = "no me representa, y a usted tampoco; pregunte en la plaza " * 2


async def reply_export(driver: Driver, report: Report, scale: Scale) -> None:
    """Export a tenth of the replies, then all; each in a process of its own, twice."""
    folder = Path(tempfile.mkdtemp(prefix="esclusa-export-", dir=driver.folder))
    posts = max(100, scale.of(1_000_000) // PER_POST)
    _save(folder, range(posts // 10))
    small, few = await _export(folder)
    _save(folder, range(posts // 10, posts))
    shutil.rmtree(folder / "artifacts" / "exports")
    large, many = await _export(folder)
    again, none = await _export(folder)
    parts = f"{folder}/artifacts/exports/replies/parquet/*.parquet"
    with duckdb.connect() as connection:
        read = connection.execute(f"SELECT count(*), count(DISTINCT tweet_id) FROM '{parts}'")
        [(rows, ids)] = read.fetchall()
    if not rows == ids == many["replies"] == posts * PER_POST or none["replies"]:
        raise RuntimeError(f"{posts * PER_POST} replies, {many}, {rows} rows, {ids} ids, {none}")
    report.notes.append(
        f"replies export: {rows:,} replies of {posts:,} files in {large.seconds:.0f} s"
        f" ({rows / large.seconds:,.0f}/s), at most {large.peak_mb:.0f} MB;"
        f" {few['replies']:,} replies took {small.peak_mb:.0f} MB; an export of nothing new"
        f" {again.seconds:.1f} s, {again.peak_mb:.0f} MB; DuckDB reads {rows:,} distinct replies"
    )
    progress(report.notes[-1])
    shutil.rmtree(folder, ignore_errors=True)


class Usage:
    """What a process took: seconds, and the peak of its memory."""

    def __init__(self, seconds: float, peak_mb: float) -> None:
        self.seconds, self.peak_mb = seconds, peak_mb


async def _export(folder: Path) -> tuple[Usage, dict[str, Any]]:
    environ = os.environ | {
        "ESCLUSA_STORE": f"sqlite:///{folder}/store.db",
        "ESCLUSA_ARTIFACTS": str(folder / "artifacts"),
        "ESCLUSA_PIPELINES": "replies",
    }
    command = [sys.executable, "-m", "esclusa", "replies", "export", "--json"]
    out = folder / "answer.json"
    began = time.perf_counter()
    with out.open("wb") as stdout:
        action = [(os.POSIX_SPAWN_DUP2, stdout.fileno(), 1)]
        pid = os.posix_spawn(sys.executable, command, environ, file_actions=action)
        _, code, used = await asyncio.to_thread(os.wait4, pid, 0)
    if code:
        raise RuntimeError(f"replies export ended with {os.waitstatus_to_exitcode(code)}")
    return Usage(time.perf_counter() - began, used.ru_maxrss / 1024), json.loads(out.read_text())


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
