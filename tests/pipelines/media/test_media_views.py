"""Points 9 and 10 of the spec: the seed's three queries in SQL and over HTTP, and the commands."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from random import Random
from string import ascii_letters
from typing import Any

import pytest
from pipelines.media.conftest import TABLE, MediaService, NewService, environ_of, sql
from support.command import CommandResult

from esclusa.app import open_runtime, open_store
from esclusa.cli import code_of
from esclusa.model.query import above, not_null, query
from esclusa.pipelines.media.records import Publication

SUMMARY = """SELECT
    media_status,
    COUNT(*) as total,
    AVG(media_attempts) as avg_intentos
FROM meta_publicaciones_webhook
WHERE imagen_url IS NOT NULL
GROUP BY media_status;"""
ERRORS = """SELECT
    post_id,
    tipo_item,
    media_attempts,
    media_last_error->>'message' as error_msg,
    media_last_error->>'type' as error_type,
    media_updated_at
FROM meta_publicaciones_webhook
WHERE media_status = 'error'
ORDER BY media_updated_at DESC
LIMIT 10;"""
RETRIES = """SELECT
    post_id,
    tipo_item,
    media_attempts,
    media_last_error->>'message' as ultimo_error,
    media_updated_at
FROM meta_publicaciones_webhook
WHERE media_status = 'pending'
  AND media_attempts > 0
  AND imagen_url IS NOT NULL
ORDER BY media_attempts DESC, media_updated_at ASC;"""
"""The seed's queries, unchanged. SQLite runs them too, but for the types of times."""


async def lived(service: MediaService) -> None:
    """Fill the table with rows in every state by three runs; some links recover."""
    for n in range(4):
        await service.row(f"/m/jpg/60/{n}", f"good{n}")
    for n in range(3):
        await service.row("/html", f"bad{n}")
    mended = await service.row("/gone/404", "recovered")
    await service.run(limit=5)
    await service.run()
    await service.write(mended, imagen_url=f"{service.at}/m/jpg/60/x")
    await service.row("/gone/500", "twice")
    await service.run()
    await service.row("/gone/410", "once", tipo_item="video")
    await service.run()
    await service.row(None, "page", tipo_item="share")


async def test_views_return_what_the_seeds_queries_return(service: MediaService) -> None:
    """Point 9."""
    await lived(service)
    status, answer = await service.call("GET", "/media/summary")
    assert status == 200
    expected = {
        r["media_status"]: (r["total"], float(r["avg_intentos"]))
        for r in await sql(service.database, SUMMARY)
    }
    assert {
        i["media_status"]: (i["total"], pytest.approx(i["avg_intentos"])) for i in answer["items"]
    } == expected
    assert expected["success"][0] == 5
    for path, question, columns in (
        (
            "/media/errors",
            ERRORS,
            {
                "post_id",
                "tipo_item",
                "media_attempts",
                "error_msg",
                "error_type",
                "media_updated_at",
            },
        ),
        (
            "/media/retries",
            RETRIES,
            {"post_id", "tipo_item", "media_attempts", "ultimo_error", "media_updated_at"},
        ),
    ):
        rows = await sql(service.database, question)
        status, answer = await service.call("GET", path)
        assert (status, answer["next"]) == (200, None)
        assert all(set(item) == columns for item in answer["items"])
        keep = sorted(columns - {"media_updated_at"})
        assert [[item[n] for n in keep] for item in answer["items"]] == [
            [row[n] for n in keep] for row in rows
        ]
        assert len(rows) == (3 if "errors" in path else 2)
    assert [i["post_id"] for i in answer["items"]] == ["twice", "once"]


async def test_console_and_api_have_the_three_views(service: MediaService) -> None:
    """Point 9: the views of the console and the API return what the pipeline's routes return."""
    await lived(service)
    answer = {
        v["view"]: v["count"]
        for v in (await service.call("GET", "/api/views?pipeline=media"))[1]["items"]
    }
    assert answer == {"media.summary": None, "media.errors": 3, "media.retries": 2}
    for name in ("summary", "errors", "retries"):
        own = (await service.call("GET", f"/media/{name}"))[1]["items"]
        view = (await service.call("GET", f"/api/views/media.{name}"))[1]
        assert [{n: v for n, v in item.items() if n != "id"} for item in view["items"]] == own


async def test_secrets_in_server_errors_are_masked_for_readers(
    new_service: NewService, database: Any
) -> None:
    tokens = {"reader": "r" * 32, "operator": "o" * 32}
    service = await new_service(
        database, ESCLUSA_API_TOKENS=f"a={tokens['reader']}:read,b={tokens['operator']}:operate"
    )
    for status in ("error", "pending"):
        error = {
            "message": "cdn.example: HTTP 403 (token=hunter2 is over)",
            "type": "http_error",
            "attempt": 1,
        }
        id = await service.row("https://cdn.example/x", status)
        await service.write(
            id, media_status=status, media_attempts=1, media_last_error=json.dumps(error)
        )
    for route in (
        "/media/errors",
        "/media/retries",
        "/api/views/media.errors",
        "/api/views/media.retries",
    ):
        seen = {
            who: str(await service.call("GET", route, headers={"Authorization": f"Bearer {t}"}))
            for who, t in tokens.items()
        }
        assert "HTTP 403" in seen["reader"], route
        assert "hunter2" not in seen["reader"], route
        assert "hunter2" in seen["operator"], route


async def test_lists_are_paged(service: MediaService) -> None:
    """Point 9 and the contract for lists."""
    await lived(service)
    seen: list[str] = []
    after = ""
    while True:
        status, answer = await service.call("GET", f"/media/errors?limit=2{after}")
        assert status == 200
        seen += [item["post_id"] for item in answer["items"]]
        if answer["next"] is None:
            break
        after = f"&after={answer['next']}"
    assert sorted(seen) == ["bad0", "bad1", "bad2"]
    assert (await service.call("GET", "/media/retries?limit=1"))[1]["next"] is not None
    for wrong in (
        "/media/errors?limit=0",
        "/media/errors?after=nonsense",
        "/media/retries?limit=x",
    ):
        status, answer = await service.call("GET", wrong)
        assert status in (400, 422)
        assert answer["detail"]


async def test_views_use_their_indexes(new_service: NewService, database: Any) -> None:
    """Point 9: the cost does not depend on the number of finished rows."""
    service = await new_service(database)
    values = [
        Publication(post_id=f"p{n}", imagen_url=f"http://x/{n}", imagen_local="x", status="success")
        for n in range(3000)
    ]
    await service.records.insert(values)
    for where, order in (
        ({"status": "error"}, "-updated_at"),
        (
            {"status": "pending", "attempts": above(0), "imagen_url": not_null},
            ("-attempts", "updated_at"),
        ),
    ):
        asked = query(Publication, where, order=order, limit=10)
        if database.dialect == "sqlite":
            from esclusa.stores.sqlite.statements import find

            text, bound = find(asked, 10, None)
            plan = " ".join(
                str(r["detail"]) for r in await sql(database, f"EXPLAIN QUERY PLAN {text}", *bound)
            )
            assert re.search(r"SEARCH .*USING INDEX", plan), plan
        else:
            from esclusa.stores.postgres.statements import find

            text, bound = find(service.runtime.store._table(Publication.kind), asked, 10)
            await sql(database, "ANALYZE")
            plan = " ".join(
                str(r["QUERY PLAN"]) for r in await sql(database, f"EXPLAIN {text}", *bound)
            )
            assert "Seq Scan" not in plan, plan


async def test_views_are_in_the_openapi_description(service: MediaService) -> None:
    _, answer = await service.call("GET", "/openapi.json")
    assert {"/webhooks/meta", "/media/summary", "/media/errors", "/media/retries"} <= set(
        answer["paths"]
    )


# commands


@pytest.fixture
def esclusa(
    tmp_path: Path,
    database: Any,
    cdn: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Any:
    """Run the command in a thread, because the CDN runs in this process."""
    monkeypatch.chdir(tmp_path)
    for name, value in environ_of(database, tmp_path, cdn[1]).items():
        monkeypatch.setenv(name, value)

    made = False

    async def call(*argv: str) -> CommandResult:
        nonlocal made
        if not made:
            made = True
            await call("migrate", "--yes")  # refused if the settings are wrong
        capsys.readouterr()
        code = await asyncio.to_thread(
            code_of, argv, open_runtime=open_runtime, open_store=open_store
        )
        captured = capsys.readouterr()
        return CommandResult(code, captured.out, captured.err)

    return call


@pytest.fixture(autouse=True)
def _no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signal handlers belong to the main thread, and the command runs in another one here."""
    import esclusa.cli.run

    monkeypatch.setattr(esclusa.cli.run, "stop_on_signals", lambda *_: asyncio.Event())


async def test_import_run_retry_summary(
    esclusa: Any, tmp_path: Path, cdn: Any, database: Any
) -> None:
    """Point 10."""
    _, url = cdn
    file = tmp_path / "posts.csv"
    rows = [
        "post_id,tipo_item,imagen_url",
        f"a_1,photo,{url}/m/jpg/77/a",
        f"a_2,video,{url}/html",
        f"a_3,photo,{url}/gone/404",
        "a_4,share,",
    ]
    file.write_text("\n".join(rows))
    answer = await esclusa("media", "import", str(file), "--json")
    assert (answer.code, answer.json) == (0, {"created": 4, "known": 0, "errors": []}), answer.err
    assert (await esclusa("media", "import", str(file), "--json")).json == {
        "created": 0,
        "known": 4,
        "errors": [],
    }
    answer = await esclusa("media", "run", "--json")
    assert answer.code == 5, answer.err
    assert answer.json["counters"] == {"taken": 3, "success": 1, "retried": 1, "error": 1}
    assert (answer.json["cycle"], answer.json["outcome"]) == ("media.download", "partial")
    answer = {
        i["media_status"]: i for i in (await esclusa("media", "summary", "--json")).json["items"]
    }
    assert {name: (i["total"], i["avg_intentos"]) for name, i in answer.items()} == {
        "success": (1, 1),
        "pending": (1, 1),
        "error": (1, 1),
    }
    assert "success" in (await esclusa("media", "summary")).out
    assert (await esclusa("media", "retry", "--type", "timeout", "--json")).json["moved"] == 0
    dry = (await esclusa("media", "retry", "--type", "invalid_media", "--dry-run", "--json")).json
    assert (dry["matched"], dry["moved"], dry["dry_run"]) == (1, 0, True)
    assert (await esclusa("media", "retry", "--type", "invalid_media", "--json")).json["moved"] == 1
    [row] = await sql(
        database,
        "SELECT media_status, media_attempts FROM meta_publicaciones_webhook WHERE post_id = 'a_2'",
    )
    assert (row["media_status"], row["media_attempts"]) == ("pending", 0)
    assert (await esclusa("media", "retry", "--type", "nonsense")).code == 2
    await esclusa("media", "run")
    assert (await esclusa("media", "retry", "--json")).json["moved"] == 1


async def test_retry_reports_its_counts(esclusa: Any, tmp_path: Path, cdn: Any) -> None:
    (tmp_path / "posts.csv").write_text(f"post_id,imagen_url\na,{cdn[1]}/html\n")
    await esclusa("media", "import", "posts.csv")
    await esclusa("media", "run")
    assert (
        await esclusa("media", "retry", "--dry-run")
    ).out == "1 error would go back to pending\n"
    assert (
        await esclusa("media", "retry", "--type", "timeout")
    ).out == "no errors of type timeout\n"
    assert (await esclusa("media", "retry")).out == "1 error, 1 goes back to pending\n"
    assert (await esclusa("media", "retry")).out == "no errors\n"


async def test_retry_of_rejected_rows(
    esclusa: Any, tmp_path: Path, cdn: Any, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine has error types of its own; an operator names them as the views do."""
    monkeypatch.setenv("MEDIA_MAX_ATTEMPTS", "1")
    (tmp_path / "posts.csv").write_text(f"post_id,imagen_url\na,{cdn[1]}/m/jpg/90/a\n")
    await esclusa("media", "import", "posts.csv")
    if database.dialect == "postgres":
        await sql(
            database, f"ALTER TABLE {TABLE} ADD CONSTRAINT narrow CHECK (length(imagen_local) < 5)"
        )
    else:
        wide = "length(NEW.imagen_local) >= 5"
        await sql(
            database,
            f"CREATE TRIGGER narrow BEFORE UPDATE ON {TABLE} WHEN {wide} BEGIN SELECT "
            f"RAISE(ABORT, 'too long'); END",
        )
    assert (await esclusa("media", "run")).code == 5
    [error] = (await esclusa("views", "media.errors", "--json")).json["items"]
    assert error["error_type"] == "rejected"
    await sql(
        database,
        f"ALTER TABLE {TABLE} DROP CONSTRAINT narrow"
        if database.dialect == "postgres"
        else "DROP TRIGGER narrow",
    )
    assert (await esclusa("media", "retry", "--type", "rejected", "--json")).json["moved"] == 1
    assert (await esclusa("media", "run", "--json")).json["counters"]["success"] == 1


@pytest.mark.parametrize("form", ["json", "ndjson"])
async def test_import_reports_every_fault_by_row(
    esclusa: Any, tmp_path: Path, form: str, database: Any
) -> None:
    """Point 10 and «Import: CSV, JSON, NDJSON»."""
    rows: list[Any] = [
        {"post_id": "ok", "imagen_url": "https://x/1"},
        {"imagen_url": "https://x/2"},
        {"post_id": "p", "imagen_url": "ftp://x"},
        {"post_id": "p", "image_url": "https://x"},
        7,
        {"post_id": {"a": 1}},
        {"post_id": "ok", "imagen_url": "https://x/1"},
        {"post_id": "kept", "imagen_url": "https://x/3", "imagen_local": "https://y/3"},
        {"post_id": 12, "media_id": 5, "imagen_url": "https://x/4"},
    ]
    file = tmp_path / f"posts.{form}"
    file.write_text(json.dumps(rows) if form == "json" else "\n".join(map(json.dumps, rows)))
    answer = await esclusa("media", "import", str(file), "--json")
    assert answer.code == 1
    assert (answer.json["created"], answer.json["known"]) == (3, 1)
    faults = {e["row"]: e["error"] for e in answer.json["errors"]}
    assert set(faults) == {2, 3, 4, 5, 6}
    assert "post_id: it is missing" in faults[2]
    assert "http:// or https://" in faults[3]
    assert "image_url: there is no such column" in faults[4]
    assert "object" in faults[5]
    assert "post_id" in faults[6]
    states = {
        r["post_id"]: r["media_status"]
        for r in await sql(database, "SELECT post_id, media_status FROM meta_publicaciones_webhook")
    }
    assert states == {"ok": "pending", "kept": "success", "12": "pending"}
    assert "row 3" in (await esclusa("media", "import", str(file))).out


async def test_import_reports_an_invalid_link(esclusa: Any, tmp_path: Path, database: Any) -> None:
    file = tmp_path / "posts.ndjson"
    file.write_text(
        '{"post_id": "a", "imagen_url": "http://[::1"}\n{"post_id": "b", "imagen_url": '
        '"HTTPS://x/1"}\n'
    )
    answer = await esclusa("media", "import", str(file), "--json")
    assert (answer.code, answer.json["created"]) == (1, 1)
    [fault] = answer.json["errors"]
    assert (fault["row"], "imagen_url: it is not an address" in fault["error"]) == (
        1,
        True,
    )


async def test_import_stores_the_rest_when_the_table_refuses_a_row(
    esclusa: Any, tmp_path: Path, database: Any
) -> None:
    """Another program's table has limits of its own: columns, checks, index rows."""
    long = "".join(Random(1).choices(ascii_letters, k=6000))
    if database.dialect == "sqlite":
        wide = "length(NEW.post_id) > 1000"
        await sql(
            database,
            f"CREATE TRIGGER narrow BEFORE INSERT ON {TABLE} WHEN {wide} BEGIN SELECT "
            f"RAISE(ABORT, 'too long'); END",
        )
    rows = [
        {"post_id": f"p{n}", "imagen_url": f"https://x/{n}"} for n in range(40)
    ]  # more than one chunk
    rows[7] = {"post_id": long, "imagen_url": "https://x/secret"}
    rows[20] = {"post_id": "", "imagen_url": "https://x/y"}
    file = tmp_path / "posts.json"
    file.write_text(json.dumps(rows))
    answer = await esclusa("media", "import", str(file), "--json")
    assert (answer.code, answer.json["created"], [e["row"] for e in answer.json["errors"]]) == (
        1,
        38,
        [8, 21],
    )
    assert "the table" in answer.json["errors"][0]["error"]
    assert "secret" not in answer.out + answer.err
    assert (await esclusa("media", "import", str(file), "--json")).json["known"] == 38


async def test_import_reports_the_rows_stored_before_a_broken_line(
    esclusa: Any, tmp_path: Path
) -> None:
    lines = [
        "post_id;imagen_url",
        *(f"p{n};https://x/{n}" for n in range(3000)),
        "ca\xf1a;https://x/y",
        "",
    ]
    (tmp_path / "posts.csv").write_bytes("\n".join(lines).encode("latin-1"))
    answer = await esclusa("media", "import", "posts.csv", "--json")
    [fault] = answer.json["errors"]
    assert (answer.code, answer.json["created"]) == (1, fault["row"] - 1)
    assert "line 3002 is not UTF-8" in fault["error"]


async def test_import_of_a_missing_file(esclusa: Any, tmp_path: Path) -> None:
    contents = (
        ("none.csv", None),
        ("posts.txt", "x"),
        ("bad.json", "{"),
        ("latin.csv", "post_id\nñ".encode("latin-1")),
        ("typo.csv", "post_id,imagen_ulr\na,b"),
    )
    for name, content in contents:
        if content is not None:
            (tmp_path / name).write_bytes(
                content if isinstance(content, bytes) else content.encode()
            )
        answer = await esclusa("media", "import", name)
        assert answer.code == 1
        assert name in answer.err


async def test_settings_are_checked(esclusa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDIA_ALLOW_HOSTS", "good.example, http://bad")
    monkeypatch.setenv("MEDIA_TIMEOUT_SECONDS", "0")
    monkeypatch.setenv("MEDIA_INTERVAL_SECONDS", "1e999")
    answer = await esclusa("media", "summary")
    assert answer.code == 3
    assert "MEDIA_INTERVAL_SECONDS" in answer.err
    monkeypatch.delenv("MEDIA_INTERVAL_SECONDS")
    assert "MEDIA_ALLOW_HOSTS" in answer.err
    assert "MEDIA_TIMEOUT_SECONDS" in answer.err
    monkeypatch.setenv("MEDIA_ALLOW_HOSTS", "")
    monkeypatch.setenv("MEDIA_TIMEOUT_SECONDS", "")
    monkeypatch.delenv("META_APP_SECRET")
    checks = (await esclusa("doctor", "--json")).out
    assert "META_APP_SECRET is not set" in checks
