"""Queries that must stay cheap: Firestore's index file, and counts that read an index.

``python tests/pipelines/replies/test_replies_indexes.py`` writes the index file again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from esclusa.model.query import query
from esclusa.pipelines.replies import app
from esclusa.pipelines.replies.records import Job
from esclusa.pipelines.replies.settings import RepliesSettings

FILE = (
    Path(__file__).parents[3]
    / "src"
    / "esclusa"
    / "pipelines"
    / "replies"
    / "firestore.indexes.json"
)
WITHOUT_DONE = query(Job, {"status": "failed", "done_siblings": 0})


def required_indexes() -> dict[str, Any]:
    """The indexes that the claims of both phases and the queries of the API need."""
    from esclusa.stores.firestore import indexes_for

    file = indexes_for([app.bind(RepliesSettings())])
    for index in file["indexes"]:  # equal fields may be in any order: use the documented one
        if [f["fieldPath"] for f in index["fields"]] == ["platform", "status", "created_at"]:
            index["fields"][:2] = reversed(index["fields"][:2])
    return file


def test_the_index_file_is_up_to_date() -> None:
    file = json.loads(FILE.read_text())
    assert file == required_indexes()
    there = {
        (i["collectionGroup"], *(f["fieldPath"] for f in i["fields"])) for i in file["indexes"]
    }
    assert {
        ("posts", "status", "platform", "created_at"),
        ("pending_jobs", "status", "created_at"),
        ("pending_jobs", "status", "updated_at"),
    } <= there


async def test_the_index_file_covers_every_query(new_trial: Any, empty_database: Any) -> None:
    """Run every query of both phases and of the API on the store that needs the file."""
    trial = await new_trial()
    watch = getattr(trial.runtime.store, "watch_queries", None)
    if watch is None:
        return
    from esclusa.stores.firestore import uncovered

    shapes: list[Any] = []
    watch(lambda _, shape: shapes.append(shape))
    await trial.jobs("1", "2", "3")
    await trial.posts("f", platform="facebook")
    await trial.submit()
    trial.sim.behave("1", end="failed")
    trial.sim.behave("2", result="empty_list")
    await trial.check()
    await trial.scheduled("process-jobs")
    params = {"platform": "twitter", "country": "hn", "candidate_id": "c1"}
    for path in (
        "/jobs",
        "/posts",
        "/empty-result-jobs",
        "/jobs/count?failed_without_done=true",
        "/jobs?failed_without_done=true&status=failed",
        "/replies/report",
    ):
        await trial.call("GET", path, params=params)
    for path in (
        "/empty-result-jobs/retry",
        "/empty-result-jobs/verify",
        "/jobs/retry",
        "/posts/retry",
    ):
        await trial.call("POST", path, params=params)
    ours = [shape for shape in shapes if shape.collection in ("posts", "pending_jobs")]
    assert len(ours) > 20
    assert uncovered(ours, json.loads(FILE.read_text())) == []


async def test_failed_without_done_reads_its_index(trial: Any) -> None:
    """The count reads an index on SQL, and uses equality alone on Firestore."""
    store: Any = trial.runtime.store
    assert (await trial.call("GET", "/jobs/count", params={"failed_without_done": "true"}))[
        "count"
    ] == 0
    if trial.runtime.store.url.startswith("sqlite"):
        import apsw

        from esclusa.stores.sqlite.statements import count

        statement, values = count(WITHOUT_DONE, 10**9)
        connection = apsw.Connection(trial.runtime.settings.store.removeprefix("sqlite:///"))
        plan = " ".join(
            row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
        )
        connection.close()
        assert "USING COVERING INDEX" in plan
        assert "status=? AND done_siblings=?" in plan
    elif trial.runtime.store.url.startswith("postgres"):
        from esclusa.stores.postgres.statements import count

        statement, values = count(store._table(Job.kind), WITHOUT_DONE, 10**9)
        rows = await store._connections.fetch(f"EXPLAIN {statement}", *values)
        plan = "\n".join(row[0] for row in rows)
        assert "Index" in plan
        assert "Seq Scan" not in plan


if __name__ == "__main__":
    FILE.write_text(json.dumps(required_indexes(), indent=2) + "\n")
