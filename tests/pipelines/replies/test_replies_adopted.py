"""The pipeline on the collections, tables and files of the service that it replaces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from support.origin_replies import (
    COLUMNS,
    Origin,
    as_sqlite,
    checksum,
    files_below,
    fitting,
    in_sqlite,
    save,
)
from support.replies import environ

from esclusa.app import open_runtime, open_store
from esclusa.cli import code_of
from esclusa.pipelines.replies import process_jobs, process_posts
from esclusa.pipelines.replies.client import InformationTracerClient
from esclusa.pipelines.replies.records import Job, Post

ATTACHED = json.dumps(
    {
        table: {
            "attach": True,
            "track": {
                "prefix": "esclusa_",
                "status": "status",
                "created_at": "created_at",
                "updated_at": "updated_at",
            },
        }
        for table in ("posts", "pending_jobs")
    }
)
# The fields that a run changes in a record that it moves.
MOVED = ("status", "updated_at", "retry_count")


@pytest.fixture(params=["firestore", "postgres", "sqlite"])
def provider(request: pytest.FixtureRequest, providers: Callable[[str], Any]) -> Any:
    return providers(request.param)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


class Team:
    """The team's database, and a runtime that was pointed at it."""

    def __init__(self, database: Any, folder: Path) -> None:
        self.database, self.files = database, folder / "artifacts"
        self.origin = Origin()

    @property
    def is_firestore(self) -> bool:
        return bool(self.database.url.startswith("firestore"))

    @property
    def file(self) -> Path | None:
        """The file of a SQLite database; None for other stores."""
        url = str(self.database.url)
        return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else None

    @property
    def settings(self) -> dict[str, str]:
        return {} if self.is_firestore else {"ESCLUSA_TABLES": ATTACHED}

    async def write(self) -> None:
        if self.is_firestore:
            async with self.database.google() as client:
                await self.origin.write_firestore(client)
        elif self.file is not None:
            self.origin.write_sqlite(self.file)
        else:
            async with connected(self.database.url) as connection:
                await self.origin.write_postgres(connection)

    async def upload(self, id: str, fields: dict[str, Any]) -> None:
        """Add a post as the team's uploader does."""
        if self.is_firestore:
            async with self.database.google() as client:
                await client.collection("posts").document(id).set(fields)
            return
        names = ", ".join(["id", *fields])
        if self.file is not None:
            places = ", ".join("?" * (len(fields) + 1))
            values = [as_sqlite(value) for value in fields.values()]
            in_sqlite(self.file, f"INSERT INTO posts ({names}) VALUES ({places})", id, *values)
            return
        places = ", ".join(f"${n}" for n in range(1, len(fields) + 2))
        async with connected(self.database.url) as connection:
            insert = f"INSERT INTO posts ({names}) VALUES ({places})"
            columns = COLUMNS["posts"]
            values = [fitting(value, columns[name]) for name, value in fields.items()]
            await connection.execute(insert, id, *values)

    async def change(self, table: str, id: str, **fields: Any) -> None:
        """Update a document or row as the team's own service does; without fields, delete it."""
        if self.is_firestore:
            async with self.database.google() as client:
                document = client.collection(table).document(id)
                await (document.update(fields) if fields else document.delete())
            return
        if self.file is not None:
            sets = ", ".join(f"{name} = ?" for name in fields)
            statement = f"UPDATE {table} SET {sets}" if fields else f"DELETE FROM {table}"
            in_sqlite(self.file, f"{statement} WHERE id = ?", *fields.values(), id)
            return
        sets = ", ".join(f"{name} = ${n}" for n, name in enumerate(fields, 2))
        statement = f"UPDATE {table} SET {sets}" if fields else f"DELETE FROM {table}"
        async with connected(self.database.url) as connection:
            await connection.execute(f"{statement} WHERE id = $1", id, *fields.values())

    async def stored(self, table: str) -> dict[str, dict[str, Any]]:
        """Every document or row as it is stored, by id."""
        if self.is_firestore:
            async with self.database.google() as client:
                return {d.id: d.to_dict() async for d in client.collection(table).stream()}
        if self.file is not None:
            rows = in_sqlite(self.file, f"SELECT * FROM {table}")
            return {row["id"]: row for row in rows}
        async with connected(self.database.url) as connection:
            rows = await connection.fetch(f"SELECT * FROM {table}")
            return {row["id"]: dict(row) for row in rows}

    async def migrate(self, sim: Any, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        for name, value in environ(self.database.url, folder, sim.url, **self.settings).items():
            monkeypatch.setenv(name, value)
        code = await asyncio.to_thread(
            code_of, ["migrate", "--yes"], open_runtime=open_runtime, open_store=open_store
        )
        assert code == 0


@pytest.fixture
def team(empty_database: Any, tmp_path: Path) -> Team:
    return Team(empty_database, tmp_path)


def whole_database(origin: Origin) -> dict[str, str]:
    """Every state, every odd type, duplicates and jobs in flight; ids by what they are."""
    now = datetime.now(UTC)
    ids = {
        "waiting": origin.post("100", replies_count=float("nan")),
        "text times": origin.post(
            "101", created_at="2025-12-27T10:00:00", post_created_at="27 Dec 2025", updated_at=...
        ),
        "no time": origin.post("102", created_at="Sat Dec 27 11:00:00 2025", replies_count="12"),
        "number id": origin.post(103, replies_count="many", max_posts_replies="100"),
        "old maximum": origin.post("104", max_posts_replies=..., max_replies=7, note="kept"),
        "no window": origin.post("105", start_date=..., end_date=..., post_created_at=...),
        "no platform": origin.post("112", platform=...),
        "no country": origin.post("106", country=..., candidate_id=...),
        "capital": origin.post("107", platform="Facebook"),
        "one": origin.post("108"),
        "its duplicate": origin.post("108", candidate_id="hnd01other"),
        "failed often": origin.post("109"),
        "failed once": origin.post("110"),
        "saved": origin.post("111"),
        "in flight": origin.post("120", "processing"),
        "orphan": origin.post("121", "processing"),
        "held": origin.post("122", "processing"),
        "empty": origin.post("123", "processing"),
        "all failed": origin.post("124", "processing"),
        "no job": origin.post("125", "processing"),
        "done": origin.post("130", "done"),
        "skipped": origin.post("131", "skipped", replies_count=5),
        "finished": origin.post("132", "finished"),
        "quota": origin.post("133"),
    }
    for _ in range(38):
        origin.job(ids["failed often"], "failed")
    origin.job(ids["failed once"], "failed")
    jobs = {
        "flying": origin.job(ids["in flight"], sort_by="relevance"),
        "old": origin.job(ids["in flight"], max_posts_replies=..., max_posts=20),
        "left": origin.job(ids["orphan"], "processing"),
        "theirs": origin.job(ids["held"], "processing", updated_at=now),
        "nothing": origin.job(ids["empty"], "empty_result", retry_count=2),
        "bad": origin.job(ids["all failed"], "failed"),
        "good": origin.job(ids["done"], "done", execution_log_file="gs://bucket/logs/1.json"),
        "checked": origin.job(ids["done"], "verified"),
        "evidence": origin.job(ids["done"], "failed"),
        "limited": origin.job(ids["quota"], "quota_exceeded"),
    }
    return ids | {f"job {name}": id for name, id in jobs.items()}


async def test_the_teams_database_is_taken_over(
    team: Team, new_trial: Any, sim: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made twice or rewritten, jobs in flight are collected, and the run reports it."""
    ids = whole_database(team.origin)
    await team.write()
    save(team.files, "raw/honduras/twitter/hnd09sosa/111.json", [{"id_str": "1"}])
    save(team.files, "raw/honduras/twitter/hnd09sosa/130.json", {"data": [{"id_str": "2"}]})
    save(team.files, "raw/honduras/twitter/hnd09sosa/old-20260113-101010-130.json", [])
    save(team.files, "logs/2026-01-08/12-00-00-000.json", {"calls": []})
    before = {table: await team.stored(table) for table in ("posts", "pending_jobs")}
    files = files_below(team.files)
    sim.every_job = True
    await team.migrate(sim, monkeypatch, tmp_path)
    trial = await new_trial(**team.settings)

    async def status(name: str) -> str:
        kind = Job if name.startswith("job ") else Post
        return (await trial.records.get(kind, ids[name])).status

    checked = await trial.check()
    assert (checked["counters"]["adopted"], checked["counters"]["orphans"]) == (49, 4)
    assert "taken over" in checked["message"]
    assert checked["counters"]["done"] == 4  # two in flight, one orphan, one that was resumed
    assert {name: await status(name) for name in ids if name.startswith("job ")} == {
        "job flying": "done",
        "job old": "done",
        "job left": "done",
        "job theirs": "processing",
        "job nothing": "empty_result",
        "job bad": "failed",
        "job good": "done",
        "job checked": "verified",
        "job evidence": "failed",
        "job limited": "done",
    }
    run = await trial.submit(max_posts=1)
    # The oldest, whatever the type of its time; SQLite has no order for text that is not ISO.
    assert trial.submitted() == ["reply:101" if team.file is None else "reply:102"]
    assert run["counters"]["adopted"] == 24
    counters = (await trial.submit())["counters"]
    assert (counters["adopted"], counters["without_window"], counters["retried"]) == (0, 1, 1)
    assert (await trial.records.get(Post, ids["no platform"])).attempts == 1
    assert (counters["duplicates"], counters["exhausted"], counters["unreadable_files"]) == (
        1,
        1,
        0,
    )
    assert {name: await status(name) for name in ids if not name.startswith("job ")} == {
        "waiting": "processing",
        "text times": "processing",
        "no time": "processing",
        "number id": "processing",
        "old maximum": "processing",
        "no window": "processing",
        "no platform": "noreplies",
        "no country": "processing",
        "capital": "processing",
        "one": "processing",
        "its duplicate": "noreplies",
        "failed often": "noreplies",
        "failed once": "processing",
        "saved": "done",
        "in flight": "done",
        "orphan": "done",
        "held": "processing",
        "empty": "done",
        "all failed": "processing",
        "no job": "processing",
        "done": "done",
        "skipped": "skipped",
        "finished": "finished",
        "quota": "done",
    }
    bodies = {
        json.loads(c["body"])["query"]: json.loads(c["body"])
        for c in sim.calls
        if c["path"] == "/submit"
    }
    assert len(bodies) == len(trial.submitted()) == 12
    window = ("2025-11-12", "2025-12-05")
    assert (bodies["reply:100"]["start_date"], bodies["reply:100"]["end_date"]) == window
    assert bodies["reply:104"]["max_post"] == 7
    assert bodies["reply:103"]["max_post"] == 100
    assert bodies["reply:107"]["platform_to_collect"] == ["facebook"]

    assert (await trial.check())["counters"]["done"] == 12
    for table, kept in before.items():
        after = await team.stored(table)
        assert kept.keys() <= after.keys()
        if table == "posts":
            assert after.keys() == kept.keys()
        for id, fields in kept.items():
            own = {n: v for n, v in fields.items() if n not in MOVED}
            assert checksum({n: after[id][n] for n in own}) == checksum(own), (table, id)
    untouched = (
        "skipped",
        "finished",
        "done",
        "job bad",
        "job evidence",
        "job checked",
        "job good",
    )
    for name in untouched:
        table = "pending_jobs" if name.startswith("job ") else "posts"
        kept, after = before[table][ids[name]], (await team.stored(table))[ids[name]]
        assert checksum({n: after[n] for n in kept}) == checksum(kept), name
    now = files_below(team.files)
    assert {path: now[path] for path in files} == files
    new = (await team.stored("pending_jobs")).keys() - before["pending_jobs"].keys()
    assert len(new) == 12
    again = await trial.submit()
    assert (again["counters"]["submitted"], again["counters"]["adopted"]) == (1, 0)  # the duplicate
    total = (await trial.call("GET", "/replies/report"))["total"]
    assert total["replies_expected"] > 0


async def test_uploads_go_on(
    team: Team, new_trial: Any, sim: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the uploader adds is taken by the next run, and an import makes no second record."""
    team.origin.post("1")
    team.origin.post(103, "done")
    await team.write()
    await team.migrate(sim, monkeypatch, tmp_path)
    (tmp_path / "rows.csv").write_text(
        "platform,post_id,country,candidate_id,replies_count\n"
        "twitter,1,honduras,hnd09sosa,12\ntwitter,1,honduras,hnd01other,12\n"
        "twitter,103,honduras,hnd09sosa,12\n"
    )
    code = await asyncio.to_thread(
        code_of,
        ["replies", "import", str(tmp_path / "rows.csv")],
        open_runtime=open_runtime,
        open_store=open_store,
    )
    assert code == 0
    assert len(await team.stored("posts")) == 2
    trial = await new_trial(**team.settings)
    assert (await trial.submit())["counters"]["submitted"] == 1
    later = Origin(seed=2)
    id = later.post("2", platform="Twitter")
    await team.upload(id, later.posts[id])
    row = {"platform": "Twitter", "post_id": "2", "candidate_id": "hnd01other"}
    answer = await trial.call("POST", "/posts", [row])
    assert (answer["created"], answer["known"]) == (0, 1)
    assert "known for the candidate hnd09sosa" in answer["warnings"][0]["warning"]
    plain = await trial.call("POST", "/posts", [row | {"platform": "twitter"}])
    assert (plain["created"], plain["known"]) == (0, 1)
    assert (await trial.submit())["counters"]["submitted"] == 1
    assert (await trial.records.get(Post, id)).status == "processing"
    assert len(await team.stored("posts")) == 3


async def test_every_verb_works_on_records_of_the_team(
    team: Team, new_trial: Any, sim: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command ends in a traceback, whatever the records hold."""
    origin = team.origin
    few, many = origin.post("1", "done", replies_count=1), origin.post("2", "done")
    origin.post("3", "finished")
    broken = origin.post("4", platform=["twitter"] if team.is_firestore else "twitter")
    for post in (few, many):
        origin.job(post, "empty_result", created_at="yesterday" if team.is_firestore else None)
    odd = origin.job(many, "empty_result", retry_count="two", country=7, post_doc_id="gone")
    origin.job(few, "failed", max_posts_replies="x")
    origin.job(many, "quota_exceeded", sort_by="size" if team.is_firestore else "time")
    await team.write()
    await team.migrate(sim, monkeypatch, tmp_path)
    assert broken

    async def call(*argv: str) -> int:
        return await asyncio.to_thread(
            code_of, [*argv], open_runtime=open_runtime, open_store=open_store
        )

    for argv in (
        ["replies", "failed"],
        ["replies", "failed", "--without-done"],
        ["replies", "retry-empty", "--dry-run"],
        ["replies", "verify-empty"],
        ["replies", "retry-empty"],
        ["replies", "retry-jobs"],
        ["replies", "resubmit"],
        ["replies", "recollect"],
        ["replies", "quota"],
        ["records", "posts"],
        ["records", "pending_jobs"],
        ["why", "posts", broken],
        ["why", "pending_jobs", odd],
        ["status"],
        ["repair", "posts", "--from", "finished", "--to", "noreplies", "--reason", "again", "-y"],
    ):
        assert await call(*argv) == 0, argv
    trial = await new_trial(**team.settings)
    for path in (
        "/jobs",
        "/posts",
        "/posts/count?status=finished",
        "/posts/count?status=noreplies&updated_today=true",
        "/jobs/count?status=failed&updated_today=true",
        "/jobs/count?failed_without_done=true",
        "/empty-result-jobs/count",
        "/empty-result-jobs",
    ):
        assert (await trial.ask("GET", path))[0] == 200, path
    for path in ("/process-jobs", "/process-posts", "/empty-result-jobs/retry"):
        assert (await trial.ask("POST", path))[0] == 200, path
    job = await trial.records.get(Job, odd)
    assert job is not None


async def test_jobs_that_others_hold_are_left_for_a_while(
    team: Team, new_trial: Any, sim: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``REPLIES_ORPHAN_SECONDS`` after their last update, not before."""
    now = datetime.now(UTC)
    post = team.origin.post("1", "processing")
    job = team.origin.job(post, "processing", updated_at=now - timedelta(minutes=50))
    await team.write()
    sim.every_job = True
    await team.migrate(sim, monkeypatch, tmp_path)
    trial = await new_trial(**team.settings)
    run = await trial.check()
    assert (run["counters"]["taken"], run["counters"]["orphans"]) == (0, 0)
    shorter = await new_trial(**team.settings, REPLIES_ORPHAN_SECONDS="600")
    if not team.is_firestore:
        assert (await shorter.check())["counters"]["orphans"] == 1
    else:
        await trial.later(20 * 60)
        assert (await trial.check())["counters"]["done"] == 1
    assert (await trial.records.get(Job, job)).status == "done"


async def test_the_old_service_goes_on(
    team: Team, new_trial: Any, sim: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it moves in this moment stays there; a post is not searched twice.

    A job that it deletes is lost.
    """
    taken, deleted = team.origin.post("1"), team.origin.post("2", "processing")
    removed = team.origin.job(deleted)
    checked = team.origin.post("3", "processing")
    verified = team.origin.job(checked)
    searched, skipped = (
        team.origin.post("4", platform="youtube"),
        team.origin.post("5", platform="youtube"),
    )
    await team.write()
    sim.every_job = True
    await team.migrate(sim, monkeypatch, tmp_path)
    trial = await new_trial(**team.settings)
    looked = process_posts.find_file

    async def moved_before_the_search(artifacts: Any, records: Any, post: Any) -> Any:
        if post.id == taken:
            await team.change("posts", post.id, status="processing")
        return await looked(artifacts, records, post)

    submit = InformationTracerClient.submit

    async def moved_during_the_search(client: Any, search: Any) -> Any:
        answer = await submit(client, search)
        id, state = (searched, "processing") if search.post_id == "4" else (skipped, "skipped")
        await team.change("posts", id, status=state)
        return answer

    monkeypatch.setattr(process_posts, "find_file", moved_before_the_search)
    monkeypatch.setattr(InformationTracerClient, "submit", moved_during_the_search)
    run = await trial.submit()
    assert sorted(trial.submitted()) == ["reply:4", "reply:5"]
    assert (run["counters"]["submitted"], run["counters"]["lost"]) == (2, 1)
    posts = await team.stored("posts")
    assert [posts[id]["status"] for id in (taken, searched, skipped)] == [
        "processing",
        "processing",
        "skipped",
    ]
    assert posts[skipped]["esclusa_leased_by" if not team.is_firestore else "leased_by"] is None
    jobs = {job["post_doc_id"] for job in (await team.stored("pending_jobs")).values()}
    assert searched in jobs  # the search is paid, and its job is kept
    assert skipped not in jobs
    found = process_jobs.existing_file

    async def changed_meanwhile(artifacts: Any, job: Any) -> Any:
        if job.id == removed:
            await team.change("pending_jobs", job.id)
        if job.id == verified:
            await team.change("pending_jobs", job.id, status="verified")
        return await found(artifacts, job)

    monkeypatch.setattr(process_jobs, "existing_file", changed_meanwhile)
    run = await trial.check()
    assert (run["counters"]["taken"], run["counters"]["done"], run["counters"]["lost"]) == (3, 1, 2)
    jobs = await team.stored("pending_jobs")
    assert removed not in jobs
    assert jobs[verified]["status"] == "verified"
    posts = await team.stored("posts")
    assert posts[checked]["status"] == "processing"  # the next run lets it follow its jobs
    assert posts[deleted]["status"] in ("processing", "noreplies")
