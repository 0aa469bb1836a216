"""``esclusa replies export``: the table that analysts read, over many exports of changing files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any

import duckdb
import pytest
from support.command import CommandResult
from support.gcs import BUCKET, gcs_server
from support.replies import environ

from esclusa.app import open_runtime, open_store
from esclusa.cli import code_of
from esclusa.exports import FORMATS
from esclusa.pipelines.replies.records import Job
from esclusa.settings import load

RunExport = Callable[..., CommandResult]

TWEET = {
    "id_str": "900",
    "created_at": "Mon Jan 05 12:00:00 +0000 2026",
    "full_text": "@Sosa no, gracias @maria_p ñ",
    "lang": "es",
    "tweet_url": "https://x.com/pedro77/status/900",
    "user": {
        "id_str": "77",
        "screen_name": "pedro77",
        "name": "Pedro Páramo",
        "followers_count": 12,
        "friends_count": 3,
        "verified": False,
    },
    "reply_count": 1,
    "retweet_count": 2,
    "quote_count": 0,
    "favorite_count": 5,
    "in_reply_to_status_id_str": "100",
    "in_reply_to_user_id_str": "5",
    "in_reply_to_screen_name": "Sosa",
    "is_quote_status": False,
    "entities": {"media": [{"id": 1}, {"id": 2}]},
}
COMMENT = {
    "pk": 17900,
    "original_post_pk": "200",
    "text": "=bien",
    "created_at": 1767614400,
    "comment_like_count": 4,
    "child_comment_count": 2,
    "user": {"pk": 55, "username": "ana", "full_name": "Ana", "is_verified": True},
}


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> RunExport:
    for name, value in environ(
        f"sqlite:///{tmp_path / 'store.sqlite'}", tmp_path, "http://127.0.0.1:9"
    ).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> CommandResult:
        capsys.readouterr()
        code = code_of(
            ["replies", "export", *words], open_runtime=open_runtime, open_store=open_store
        )
        captured = capsys.readouterr()
        return CommandResult(code, captured.out, captured.err)

    return call


def save(folder: Path, path: str, content: Any) -> Path:
    file = folder / "artifacts" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, indent=2)
    file.write_text(text, encoding="utf-8")
    return file


def tweets(*ids: int) -> list[dict[str, Any]]:
    return [TWEET | {"id_str": str(id)} for id in ids]


def table(
    folder: Path, select: str, form: str = "parquet", name: str = ""
) -> list[tuple[Any, ...]]:
    """What DuckDB reads from all parts of an export."""
    parts = f"{folder}/artifacts/exports/replies/{name or form}/*.{form}"
    reader = {"parquet": "read_parquet", "csv": "read_csv", "ndjson": "read_json"}[form]
    options = ", all_varchar = true" if form == "csv" else ""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(
            f"SELECT {select} FROM {reader}('{parts}'{options}) AS r ORDER BY ALL"
        ).fetchall()


def test_a_reply_of_twitter_and_a_comment_of_instagram(export: RunExport, tmp_path: Path) -> None:
    save(tmp_path, "raw/honduras/twitter/hnd09sosa/100.json", {"data": [TWEET]})
    save(tmp_path, "raw/El Salvador/instagram/=~a=2Fb/200.json", [COMMENT])
    answer = export("--json")
    assert answer.code == 0, answer.err
    assert answer.json | {"url": None} == {
        "file": "exports/replies/parquet/part-00001.parquet",
        "url": None,
        "replies": 2,
        "duplicates": 0,
        "files": 2,
        "unreadable": [],
        "unreadable_count": 0,
    }
    names = (
        "tweet_id, parent_post_id, country, platform, candidate_id, source_file, user_id,"
        " user_screen_name, user_name, user_verified, full_text, lang, replied_at::VARCHAR,"
        " created_at, reply_count, retweet_count, favorite_count, user_followers_count, is_reply,"
        " media_count, has_media, is_retry, retry_count, in_reply_to_status_id_str"
    )
    instagram, twitter = table(tmp_path, names)
    assert twitter == (
        "900", "100", "honduras", "twitter", "hnd09sosa",
        "raw/honduras/twitter/hnd09sosa/100.json", "77", "pedro77", "Pedro Páramo", False,
        "@Sosa no, gracias @maria_p ñ", "es", "2026-01-05 12:00:00+00",
        "Mon Jan 05 12:00:00 +0000 2026", 1, 2, 5, 12, True, 2, True, False, 0, "100",
    )  # fmt: skip
    assert instagram == (
        "17900", "200", "El Salvador", "instagram", "a/b",
        "raw/El Salvador/instagram/=~a=2Fb/200.json", "55", "ana", "Ana", True,
        "=bien", None, "2026-01-05 12:00:00+00",
        "1767614400", 2, None, 4, None, True, 0, False, False, 0, "200",
    )  # fmt: skip


ORIGIN = {
    "ingestion_date": "DATE", "ingestion_timestamp": "TIMESTAMP WITH TIME ZONE",
    **dict.fromkeys(
        ["source_file", "country", "platform", "candidate_id", "parent_post_id", "tweet_id",
         "tweet_url", "created_at", "full_text", "lang", "user_id", "user_screen_name",
         "user_name"], "VARCHAR"),
    "user_followers_count": "BIGINT", "user_friends_count": "BIGINT", "user_verified": "BOOLEAN",
    **dict.fromkeys(["reply_count", "retweet_count", "quote_count", "favorite_count"], "BIGINT"),
    **dict.fromkeys(["is_reply", "is_retweet", "is_quote_status"], "BOOLEAN"),
    **dict.fromkeys(
        ["in_reply_to_status_id_str", "in_reply_to_user_id_str", "in_reply_to_screen_name",
         "retweeted_status_id_str", "retweeted_status_screen_name"], "VARCHAR"),
    "has_media": "BOOLEAN", "media_count": "BIGINT", "is_retry": "BOOLEAN",
    "retry_count": "BIGINT",
}  # fmt: skip


def test_the_columns_are_those_that_the_team_knows(export: RunExport, tmp_path: Path) -> None:
    save(tmp_path, "raw/h/twitter/c/1.json", {"data": [TWEET]})
    export()
    parts = f"{tmp_path}/artifacts/exports/replies/parquet/*.parquet"
    described = duckdb.sql(f"DESCRIBE SELECT * FROM '{parts}'").fetchall()
    found = {name: type for name, type, *_ in described}
    assert list(found.items())[: len(ORIGIN)] == list(ORIGIN.items())
    assert list(found)[len(ORIGIN) :] == ["replied_at"]


def test_every_stored_shape_is_read_and_errors_are_not_replies(
    export: RunExport, tmp_path: Path
) -> None:
    retry = {"is_retry": True, "retry_count": 2, "older_version": {"data": tweets(999)}}
    save(tmp_path, "raw/h/twitter/c/1.json", tweets(1, 2))
    save(tmp_path, "raw/h/twitter/c/2.json", {"data": tweets(3)})
    save(tmp_path, "raw/h/twitter/c/3.json", {"data": tweets(4), "_metadata": retry})
    save(tmp_path, "raw/h/twitter/c/4.json", {"_metadata": retry, "data": tweets(5)})
    save(tmp_path, "raw/h/twitter/c/5.json", TWEET | {"id_str": "6"})
    save(tmp_path, "raw/h/twitter/7.json", {"data": tweets(7)})  # without a candidate
    for number, nothing in enumerate(
        ([], {}, {"data": []}, {"data": [], "_metadata": retry}, {"message": "no such job"},
         {"error": "x", "data": None}, {"_metadata": retry}, ["text", None, 3])
    ):  # fmt: skip
        save(tmp_path, f"raw/h/twitter/c/nothing-{number}.json", nothing)
    for path in ("raw/h/twitter/c/1.txt", "raw/h/2.json", "versions/h/twitter/c/1.json",
                 "raw/h/twitter/c/1.versions/x.json", "logs/2026-01-01/1.json"):  # fmt: skip
        save(tmp_path, path, tweets(900))
    answer = export("--json")
    assert (answer.code, answer.json["files"]) == (0, 14), answer
    rows = table(tmp_path, "tweet_id, candidate_id, is_retry, retry_count")
    assert rows == [
        ("1", "c", False, 0), ("2", "c", False, 0), ("3", "c", False, 0), ("4", "c", True, 2),
        ("5", "c", True, 2), ("6", "c", False, 0), ("7", None, False, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
def test_later_exports_write_only_what_is_new(export: RunExport, tmp_path: Path, form: str) -> None:
    """New posts, a post that was collected again, a copy, and the same post elsewhere."""
    first = save(tmp_path, "raw/h/twitter/c/1.json", {"data": tweets(1, 2)})
    assert export("--format", form, "--json").json["replies"] == 2
    again = export("--format", form, "--json").json
    assert (again["file"], again["replies"], again["files"]) == (None, 0, 0)
    save(tmp_path, "raw/h/twitter/c/old-20260113-101112-1.json", {"data": tweets(1, 2)})
    first.unlink()
    save(tmp_path, "raw/h/twitter/c/1.json", {"data": tweets(1, 2, 3)})
    save(tmp_path, "raw/h/twitter/other/1.json", tweets(3, 4, 4))
    save(tmp_path, "raw/h/facebook/c/1.json", tweets(1))  # another platform: another reply
    later = export("--format", form, "--json").json
    assert later["file"] == f"exports/replies/{form}/part-00002.{form}"
    assert (later["replies"], later["files"], later["duplicates"]) == (3, 4, 6)
    rows = table(tmp_path, "platform, parent_post_id, tweet_id", form)
    assert [(p, str(post), str(id)) for p, post, id in rows] == [
        ("facebook", "1", "1"), *(("twitter", "1", str(n)) for n in (1, 2, 3, 4))
    ]  # fmt: skip


def test_each_format_and_place_is_its_own_sequence(export: RunExport, tmp_path: Path) -> None:
    save(tmp_path, "raw/h/twitter/c/1.json", tweets(1))
    assert export("--json").json["replies"] == 1
    assert export("--format", "csv", "--json").json["replies"] == 1
    other = export("--to", "elsewhere", "--json").json
    assert other["replies"] == 1
    assert (tmp_path / "elsewhere" / other["file"]).is_file()
    assert export("--to", "elsewhere", "--json").json["replies"] == 0


def test_filters_choose_files_and_leave_the_others_for_later(
    export: RunExport, tmp_path: Path
) -> None:
    save(tmp_path, "raw/h/twitter/c/1.json", tweets(1))
    save(tmp_path, "raw/h/twitter/d/2.json", tweets(2))
    save(tmp_path, "raw/g/instagram/c/3.json", [COMMENT])
    assert export("--country", "h", "--candidate-id", "d", "--json").json["replies"] == 1
    assert export("--platform", "instagram", "--json").json["replies"] == 1
    assert export("--json").json["replies"] == 1
    assert table(tmp_path, "tweet_id") == [("1",), ("17900",), ("2",)]


def test_pseudonyms_hide_authors_and_stay_the_same(
    export: RunExport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, "raw/h/twitter/c/1.json", {"data": [TWEET]})
    refused = export("--pseudonymise")
    assert refused.code == 3
    assert "REPLIES_PSEUDONYM_KEY is not set" in refused.err
    monkeypatch.setenv("REPLIES_PSEUDONYM_KEY", "a-long-secret")
    for form in FORMATS:
        assert export("--pseudonymise", "--format", form).code == 0
    maria = {"id_str": "78", "screen_name": "Maria_P", "name": "María"}
    save(tmp_path, "raw/h/twitter/c/2.json", [
        TWEET | {"id_str": "901"}, TWEET | {"id_str": "902", "user": maria},
    ])  # fmt: skip
    assert export("--pseudonymise", "--json").json["replies"] == 2
    name = "parquet-pseudonymised"
    rows = table(tmp_path, "tweet_id, user_id, user_screen_name, full_text, user_name", name=name)
    assert [row[0] for row in rows] == ["900", "901", "902"]
    assert rows[0][1:] == rows[1][1:]
    assert rows[2][1] != rows[0][1]
    assert rows[0][4] is None
    assert f"@{rows[2][2][:16]}" in rows[0][3]  # a mention of the author of another reply
    written = b"".join(
        file.read_bytes() for file in (tmp_path / "artifacts/exports").rglob("*.*")
        if file.suffix in (".csv", ".ndjson")
    )  # fmt: skip
    for private in (b"pedro77", b"Pedro", b"maria_p", b"Sosa", b"a-long-secret", b'"77"'):
        assert private not in written, private
    monkeypatch.setenv("REPLIES_PSEUDONYM_KEY", "another-secret")
    refused = export("--pseudonymise")
    assert refused.code == 3
    assert "is not the key of the earlier parts" in refused.err
    assert export().code == 0


def test_an_unreadable_file_is_named_and_read_when_it_is_repaired(
    export: RunExport, tmp_path: Path
) -> None:
    save(tmp_path, "raw/h/twitter/c/1.json", '{"data": [{"id_str": "1"}')
    save(tmp_path, "raw/h/twitter/c/2.json", tweets(2))
    (tmp_path / "artifacts/raw/h/twitter/c/3.json").write_bytes(b'["\xff"]')
    answer = export("--json")
    assert answer.code == 5
    assert answer.json["unreadable"] == ["raw/h/twitter/c/1.json", "raw/h/twitter/c/3.json"]
    assert table(tmp_path, "tweet_id") == [("1",), ("2",)]
    save(tmp_path, "raw/h/twitter/c/1.json", tweets(1, 3))
    (tmp_path / "artifacts/raw/h/twitter/c/3.json").unlink()
    assert export("--json").code == 0
    assert table(tmp_path, "tweet_id") == [("1",), ("2",), ("3",)]


def test_nothing_below_raw_is_touched(export: RunExport, tmp_path: Path) -> None:
    files = [save(tmp_path, f"raw/h/twitter/c/{n}.json", tweets(n)) for n in range(3)]
    before = [(f.stat().st_mtime_ns, f.read_bytes()) for f in files]
    export()
    assert [(f.stat().st_mtime_ns, f.read_bytes()) for f in files] == before
    names = {p.name for p in (tmp_path / "artifacts").iterdir()}
    assert names - {".esclusa-making"} == {"raw", "exports"}


def test_a_killed_export_leaves_no_part_and_the_next_writes_everything(
    export: RunExport, tmp_path: Path
) -> None:
    for n in range(300):
        save(tmp_path, f"raw/h/twitter/c/{n:03}.json", tweets(*range(n * 50, n * 50 + 50)))
    process = subprocess.Popen([sys.executable, "-m", "esclusa", "replies", "export"], cwd=tmp_path)
    folder = tmp_path / "artifacts" / "exports"
    deadline = time.monotonic() + 60
    while not folder.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    answer = export("--json")
    assert answer.code == 0, answer.err
    assert table(tmp_path, "count(*), count(DISTINCT tweet_id)") == [(15_000, 15_000)]


def test_two_exports_do_not_write_the_same_part(export: RunExport, tmp_path: Path) -> None:
    """The part of one that was killed before its end is replaced; a running one is left alone."""
    save(tmp_path, "raw/h/twitter/c/1.json", tweets(1))
    save(tmp_path, "exports/replies/parquet/part-00001.parquet", "half")
    claim, at = "exports/replies/parquet/state/00001.begun", datetime.now(UTC)
    for host, age, pid in ((gethostname(), 0, os.getpid()), ("elsewhere", 50, 1)):
        begun = {"host": host, "pid": pid, "at": (at - timedelta(minutes=age)).isoformat()}
        save(tmp_path, claim, begun)
        refused = export()
        assert refused.code == 1
        assert "another export is under way since" in refused.err
    save(tmp_path, claim, begun | {"at": (at - timedelta(hours=2)).isoformat()})
    assert export().code == 0
    assert not (tmp_path / "artifacts" / claim).exists()
    assert table(tmp_path, "tweet_id") == [("1",)]


async def saved_by_the_service_before(capsys: Any) -> int:
    """The replies that the report counts in the file of a job without a number."""
    names = {"post_id": "1", "platform": "twitter", "country": "honduras"}
    job = Job(job_id="j", post_doc_id="p", candidate_id="hnd09sosa", status="done", **names)
    async with open_runtime(load(environ=os.environ)) as runtime:
        await runtime.records.insert([job])
    capsys.readouterr()
    words = ["replies", "report", "--json"]
    call = partial(code_of, words, open_runtime=open_runtime, open_store=open_store)
    assert await asyncio.to_thread(call) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["uncounted_files"] == 0
    words[:] = ["views", "replies.by-candidate", "--json"]
    assert await asyncio.to_thread(call) == 0
    [row] = json.loads(capsys.readouterr().out)["items"]
    assert row["replies_saved"] == answer["total"]["replies_saved"]
    return int(row["replies_saved"])


def test_a_bucket_of_cloud_storage(
    export: RunExport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The same on a bucket: incremental by its generations, and one export at a time."""
    with gcs_server() as server:
        for name, value in {**server.environ, "GCS_BUCKET_NAME": BUCKET}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("ESCLUSA_ARTIFACTS")
        bucket = server.client().bucket(BUCKET)

        def put(path: str, content: Any) -> None:
            bucket.blob(path).upload_from_string(json.dumps(content), "application/json")

        put("raw/honduras/twitter/hnd09sosa/1.json", tweets(1, 2))
        put("raw/honduras/twitter/hnd09sosa/2.json", {"data": tweets(3)})
        put("versions/honduras/twitter/hnd09sosa/2/old.json", {"data": tweets(9)})
        answer = export("--json")
        assert answer.code == 0, answer.err
        assert (answer.json["replies"], answer.json["files"]) == (3, 2)
        assert answer.json["url"].endswith("part-00001.parquet")
        put("raw/honduras/twitter/hnd09sosa/2.json", {"data": tweets(3, 4)})
        put("raw/honduras/twitter/hnd09sosa/3.json", tweets(5))
        answer = export("--json")
        assert (answer.json["replies"], answer.json["duplicates"]) == (2, 1)
        assert export("--json").json["replies"] == 0
        assert asyncio.run(saved_by_the_service_before(capsys)) == 2
        begun = {"host": "elsewhere", "pid": 1, "at": datetime.now(UTC).isoformat()}
        put("exports/replies/parquet/state/00003.begun", begun)
        put("raw/honduras/twitter/hnd09sosa/4.json", tweets(6))
        assert "another export is under way" in export().err
        for blob in server.client().list_blobs(BUCKET, prefix="exports/"):
            target = tmp_path / "artifacts" / blob.name
            target.parent.mkdir(parents=True, exist_ok=True)
            blob.download_to_filename(str(target))
    assert [id for (id,) in table(tmp_path, "tweet_id")] == ["1", "2", "3", "4", "5"]
