"""Points 1 to 7 and 11 of the spec: take, download, store, retry, end, alert."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from pipelines.media.conftest import FOREIGN, TABLE, MediaService, NewService, file_at, sql
from support.loopback import http_server

from esclusa.artifacts.paths import clean
from esclusa.model import texts
from esclusa.model.system_records import Alert, DeadLetter
from esclusa.pipelines.media.paths import object_path
from esclusa.pipelines.media.records import Publication
from esclusa.simulators.media_cdn import content


async def test_pending_rows_with_a_link_are_downloaded(service: MediaService) -> None:
    """Points 1, 3, 4."""
    one = await service.row("/m/jpg/5000/one", "10_1")
    film = await service.row("/m/mp4/70000/film", "10_2", tipo_item="video")
    empty_database = await service.row(None, "10_3", tipo_item="share")
    run = await service.run()
    counters = {"taken": 2, "success": 2, "retried": 0, "error": 0}
    assert run.answer() | {"run": ""} == {
        "run": "",
        "cycle": "media.download",
        "outcome": "ok",
        "counters": counters,
        "message": None,
        "files": [],
    }
    row = await service.seen(one)
    assert (row["media_status"], row["media_attempts"], row["media_last_error"]) == (
        "success",
        1,
        None,
    )
    assert row["media_updated_at"] is not None
    assert row["imagen_local"].endswith(f"/media/{one}-10_1.jpg")
    assert file_at(row["imagen_local"]).read_bytes() == content("jpg", 5000, "one")
    assert file_at((await service.seen(film))["imagen_local"]).read_bytes() == content(
        "mp4", 70000, "film"
    )
    assert (await service.seen(empty_database))["media_status"] is None  # not taken: it has no link
    assert (await service.run()).counters["taken"] == 0


async def test_oldest_rows_are_taken_first(service: MediaService) -> None:
    """Point 1."""
    ids = [await service.row(f"/m/jpg/100/{n}") for n in range(6)]
    run = await service.run(limit=3)
    assert run.counters["taken"] == 3
    assert [(await service.seen(id))["media_status"] for id in ids] == ["success"] * 3 + [None] * 3


async def test_row_is_downloading_during_the_download(
    new_service: NewService, database: Any
) -> None:
    """Point 1: a worker marks the row and renews its lease."""
    import asyncio

    service = await new_service(database, ESCLUSA_LEASE_SECONDS="1")
    id = await service.row("/drip/2.5")
    running = asyncio.create_task(service.run())
    async with asyncio.timeout(10):
        while (await service.seen(id))["media_status"] != "downloading":
            await asyncio.sleep(0.02)
    assert (await service.seen(id))["media_attempts"] == 1
    assert (await running).counters["success"] == 1
    assert (await service.seen(id))["media_attempts"] == 1


# the two scenarios of the seed


async def test_simular_error(new_service: NewService, database: Any) -> None:
    """Point 11: a forced timeout leaves pending, 1, timeout."""
    service = await new_service(database, MEDIA_TIMEOUT_SECONDS="0.3")
    id = await service.row(None, "test_timeout")
    await service.write(
        id, imagen_url=f"{service.at}/drip/60", media_status="pending", media_attempts=0
    )
    begun = time.monotonic()
    await service.run()
    assert time.monotonic() - begun < 5
    pub = await service.seen(id)
    assert pub["media_status"] == "pending"
    assert pub["media_attempts"] == 1
    assert pub["media_last_error"]["type"] == "timeout"
    assert set(pub["media_last_error"]) == {"message", "type", "timestamp", "attempt"}
    assert pub["media_last_error"]["attempt"] == 1


async def test_simular_exito_tras_reintentos(service: MediaService) -> None:
    """Point 11: a success after two failures leaves success, the file, and no error."""
    id = await service.row("/m/jpg/900/valid-image.jpg", "test_retry")
    await service.write(
        id,
        media_status="pending",
        media_attempts=2,
        media_last_error={"message": "Old error", "type": "http_error"},
    )
    await service.run()
    pub = await service.seen(id)
    assert pub["media_status"] == "success"
    assert pub["imagen_local"] is not None
    assert pub["media_last_error"] is None
    assert pub["media_attempts"] == 3


# errors


PASSING = {
    "/gone/403": ("http_error", "HTTP 403"),
    "/gone/404": ("http_error", "HTTP 404"),
    "/gone/410": ("http_error", "HTTP 410"),
    "/gone/500": ("http_error", "HTTP 500"),
    "/cut/9000": ("http_error", "cut off"),
    "/loop": ("http_error", "redirects"),
    "http://no-such-host.invalid/a.jpg": ("http_error", "no such host"),
    "http://127.0.0.1:9/a.jpg": ("http_error", "cannot connect"),
    "/drip/60": ("timeout", "longer than 0.5 s"),
}


async def test_transient_errors_are_retried_up_to_the_fifth(
    new_service: NewService, database: Any
) -> None:
    """Point 5."""
    service = await new_service(
        database, MEDIA_TIMEOUT_SECONDS="0.5", MEDIA_ALLOW_HOSTS="127.0.0.1"
    )
    ids = {link: await service.row(link) for link in PASSING}
    for attempt in range(1, 6):
        run = await service.run()
        last = attempt == 5
        assert run.counters["error" if last else "retried"] == len(PASSING)
        assert run.outcome == ("partial" if last else "ok")
        for link, (type, words) in PASSING.items():
            row = await service.seen(ids[link])
            assert (row["media_status"], row["media_attempts"]) == (
                "error" if last else "pending",
                attempt,
            )
            assert (row["media_last_error"]["type"], row["media_last_error"]["attempt"]) == (
                type,
                attempt,
            )
            assert words in row["media_last_error"]["message"]
            assert row["imagen_local"] is None
    assert (await service.run()).counters["taken"] == 0
    letters = {x.record_id: x async for x in service.records.each(DeadLetter)}
    for link, (type, _) in PASSING.items():
        letter = letters[ids[link]]
        assert (letter.error_type, letter.attempts, texts.load(letter.reason)) == (
            type,
            5,
            "reached the maximum of attempts (5)",
        )
        assert "imagen_url" not in letter.payload


FINAL = {
    "/html": "neither an image nor a video",
    "/text": "neither an image nor a video",
    "/svg": "neither an image nor a video",
    "/json": "neither an image nor a video",
    "/empty": "empty",
    "/gone/204": "empty",
    "/m/jpg/100001/big": "100,001 bytes",
    "/chunked/300000": "more than 100,000 bytes",
    "/bomb/5000000": "more than 100,000 bytes",
    "/to?url=http://10.0.0.1/x": "not a public address",
    "/to?url=file:///etc/passwd": "http:// or https://",
    "http://169.254.169.254/latest/meta-data": "not a public address",
    "http://0.0.0.0/x": "not a public address",
    "http://2130706433/x": "not a public address",
    "http://0177.0.0.1/x": "not a public address",
    "http://[::1]/x": "not a public address",
    "http://[64:ff9b::7f00:1]/x": "not a public address",
    "file:///etc/passwd": "http:// or https://",
    "not a link": "http:// or https://",
    "http://x:99999/": "cannot be parsed",
}


async def test_invalid_media_is_final_at_once(new_service: NewService, database: Any) -> None:
    """Point 5 and «Types»: invalid_media."""
    service = await new_service(database, MEDIA_MAX_BYTES="100000")
    ids = {link: await service.row(link) for link in FINAL}
    run = await service.run()
    assert run.counters["error"] == len(FINAL)
    for link, words in FINAL.items():
        row = await service.seen(ids[link])
        assert (row["media_status"], row["media_attempts"]) == ("error", 1), link
        assert row["media_last_error"]["type"] == "invalid_media"
        assert words in row["media_last_error"]["message"]


async def test_failing_store_is_a_storage_error(service: MediaService, tmp_path: Path) -> None:
    """Point 5: storage_error is retried until the store works again."""
    id = await service.row("/m/jpg/300/a", "x")
    folder = tmp_path / "artifacts" / "media"
    folder.write_text("a file where the folder should be")
    await service.run()
    row = await service.seen(id)
    assert (row["media_status"], row["media_attempts"], row["media_last_error"]["type"]) == (
        "pending",
        1,
        "storage_error",
    )
    folder.unlink()
    await service.run()
    assert (await service.seen(id))["media_status"] == "success"


async def test_backoff_doubles_up_to_an_hour(new_service: NewService, database: Any) -> None:
    """«Backoff»."""
    service = await new_service(database, MEDIA_BACKOFF_SECONDS="60", MEDIA_MAX_ATTEMPTS="10")
    id = await service.row("/gone/404")
    for attempt, wait in enumerate((60, 120, 240, 480, 960, 1920, 3600, 3600), 1):
        assert (await service.run()).counters["taken"] == 1
        pub = await service.pub(id)
        assert (pub.due_at - pub.updated_at).total_seconds() == pytest.approx(wait, abs=1)
        assert pub.attempts == attempt
        assert (await service.run()).counters[
            "taken"
        ] == 0  # the next run does not call the dead link at once
        await service.later(wait + 1)


# names and files


async def test_one_object_per_row(service: MediaService) -> None:
    """Point 3 and «Object name»: two pictures of one post, x/y and x_y, never share one."""
    posts = ["p", "p", "x/y", "x_y", "../../etc", "a-b", "ñ 日本", "x%2Fy"]
    ids = [await service.row(f"/m/png/{200 + n}/{n}", post) for n, post in enumerate(posts)]
    await service.run()
    rows = [await service.seen(id) for id in ids]
    assert len({row["imagen_local"] for row in rows}) == len(posts)
    for n, row in enumerate(rows):
        assert file_at(row["imagen_local"]).read_bytes() == content("png", 200 + n, str(n))
        assert f"/media/{row['id']}-" in row["imagen_local"]


def test_object_paths_never_collide() -> None:
    """«Object name», for ids that are text."""
    pairs = [
        ("a", "b-c"),
        ("a-b", "c"),
        ("a", "b%2Dc"),
        ("a%2Db", "c"),
        ("a", ""),
        ("a-", ""),
        ("", "a"),
        ("é", "x"),
        ("a" * 400, "b"),
    ]
    pairs += [("a", "-" * n) for n in (1, 79, 80, 150)] + [
        ("i" * n, "p" * n) for n in (120, 121, 149, 400)
    ]
    names = {object_path(Publication(id=id, post_id=post), ".jpg") for id, post in pairs}
    assert len(names) == len(pairs)
    assert all(clean(name) for name in names)


async def test_repeated_download_replaces_the_object(service: MediaService, tmp_path: Path) -> None:
    """Point 3: no duplicates, even if the type has changed."""
    id = await service.row("/m/jpg/300/a", "post")
    await service.run()
    first = (await service.seen(id))["imagen_local"]
    await service.write(id, media_status=None, imagen_url=f"{service.at}/m/jpg/400/b")
    await service.run()
    assert (await service.seen(id))["imagen_local"] == first
    assert file_at(first).read_bytes() == content("jpg", 400, "b")
    await service.write(id, media_status=None, imagen_url=f"{service.at}/m/png/500/c")
    await service.run()
    assert (await service.seen(id))["imagen_local"] == first.removesuffix(".jpg") + ".png"
    assert [p.name for p in (tmp_path / "artifacts" / "media").iterdir()] == [f"{id}-post.png"]


async def test_public_address_of_a_local_store(new_service: NewService, database: Any) -> None:
    """«Object name»: ESCLUSA_ARTIFACTS_PUBLIC_URL + path."""
    service = await new_service(database, ESCLUSA_ARTIFACTS_PUBLIC_URL="https://cdn.example/files")
    id = await service.row("/m/gif/300/a", "post")
    await service.run()
    assert (await service.seen(id))[
        "imagen_local"
    ] == f"https://cdn.example/files/media/{id}-post.gif"


async def test_type_comes_from_the_bytes(service: MediaService) -> None:
    """Point 2: the server's Content-Type is ignored."""
    ids = {
        kind: await service.row(f"/m/{kind}/3000/liar.html", kind)
        for kind in ("jpg", "png", "gif", "webp", "mp4", "webm")
    }
    await service.run()
    for kind, id in ids.items():
        assert (await service.seen(id))["imagen_local"].endswith(f".{kind}")


# attempts, operators


async def test_operator_retry_resets_attempts(service: MediaService) -> None:
    """«Attempts»."""
    id = await service.row("/html")
    await service.run()
    await service.write(id, imagen_url=f"{service.at}/m/jpg/100/a")
    acted = await service.runtime.operations("ada").retry(TABLE, ids=[id], reason="fixed")
    assert acted.moved == 1
    row = await service.seen(id)
    assert (row["media_status"], row["media_attempts"]) == ("pending", 0)
    await service.run()
    assert (
        (await service.seen(id))["media_status"],
        (await service.seen(id))["media_attempts"],
    ) == (
        "success",
        1,
    )


# alerts, log


async def test_alert_when_more_than_a_fifth_of_a_batch_failed(service: MediaService) -> None:
    """Point 7: more than 20 %, of at least five; none for a single one."""

    async def alerts() -> list[Any]:
        return [a async for a in service.records.each(Alert)]

    async def batch(good: int, bad: int) -> None:
        for n in range(good):
            await service.row(f"/m/jpg/50/{n}")
        for _ in range(bad):
            await service.row("/html")
        await service.run()

    await batch(0, 4)  # too small
    await batch(4, 1)  # exactly a fifth
    assert await alerts() == []
    await batch(3, 2)
    [alert] = await alerts()
    assert (alert.name, alert.subject, alert.details["failed"], alert.details["taken"]) == (
        "error_rate",
        "media.download",
        2,
        5,
    )
    assert "2 of 5 records failed (40%, more than 20%)" in texts.load(alert.message)
    status, answer = await service.call("GET", "/api/alerts")
    assert status == 200
    assert [item["name"] for item in answer["items"]] == ["error_rate"]


async def test_alert_when_the_run_itself_fails(
    service: MediaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Point 7."""

    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no disk")

    monkeypatch.setattr(service.runtime.engine.runner, "drain", broken)
    run = await service.run()
    assert run.outcome == "error"
    [alert] = [a async for a in service.records.each(Alert)]
    assert alert.name == "cycle_failed"
    assert "no disk" in texts.load(alert.message)


async def test_log_lines_have_the_attempt(
    new_service: NewService, database: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Point 6; signed links are never logged."""
    service = await new_service(database, ESCLUSA_LOG_LEVEL="info", ESCLUSA_LOG_FORMAT="json")
    await service.row("/gone/404?oe=secret-signature", "456_789")
    for _ in range(5):
        await service.run()
    text = "".join(capfd.readouterr())
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert any("photo of post 456_789 (attempt 3/5)" in json.dumps(line) for line in lines)
    assert any(
        "attempt 3/5, will retry" in json.dumps(line) and "HTTP 404" in json.dumps(line)
        for line in lines
    )
    assert any("reached the maximum of attempts (5)" in json.dumps(line) for line in lines)
    assert "secret-signature" not in text


# another program's table


def checksum(rows: list[dict[str, Any]], names: tuple[str, ...]) -> str:
    return hashlib.sha256(
        json.dumps(
            [{n: row[n] for n in names} for row in rows], default=str, sort_keys=True
        ).encode()
    ).hexdigest()


async def test_other_columns_and_rows_are_not_written(
    new_service: NewService, database: Any
) -> None:
    """Only the tracking columns and imagen_local are written, and only of rows with a link."""
    insert = (
        f"INSERT INTO {TABLE} (post_id, tipo_item, imagen_url, imagen_local, mensaje, likes, "
        f"raw) VALUES ($1, $2, $3, $4, $5, $6, $7)"
    )
    for n in range(30):
        raw = json.dumps({"n": n, "ñ": None})
        await sql(
            database,
            insert,
            f"old{n}",
            "status",
            None,
            "kept" if n % 3 == 0 else None,
            "ñandú 'x' \"y\"",
            n,
            raw,
        )
    before = await sql(database, f"SELECT * FROM {TABLE} ORDER BY id")
    service = await new_service(database)
    good, bad = await service.row("/m/jpg/500/a"), await service.row("/html")
    both = await service.rows()
    await service.run()
    after = await service.rows()
    assert checksum(after, FOREIGN) == checksum(both, FOREIGN)
    assert checksum(after[:30], tuple(before[0])) == checksum(before, tuple(before[0]))
    assert {
        (r["media_attempts"], r["media_updated_at"], r["media_last_error"]) for r in after[:30]
    } <= {
        (None, None, None),
        (0, None, None),
    }
    assert [(await service.seen(id))["media_status"] for id in (good, bad)] == ["success", "error"]


async def test_rows_with_a_file_start_as_success(new_service: NewService, database: Any) -> None:
    """«Attempts»: when the pipeline first attaches to a table without tracking columns."""
    insert = f"INSERT INTO {TABLE} (post_id, imagen_url, imagen_local) VALUES ($1, $2, $3)"
    await sql(database, insert, "done", "http://127.0.0.1:9/a", "https://x.supabase.co/a.jpg")
    await sql(database, insert, "open", "http://127.0.0.1:9/b", None)
    service = await new_service(database)
    rows = await service.rows()
    assert [row["media_status"] for row in rows] == ["success", None]
    run = await service.run()
    assert run.counters["taken"] == 1
    first = (await service.rows())[0]
    assert (first["media_status"], first["imagen_local"]) == (
        "success",
        "https://x.supabase.co/a.jpg",
    )


async def test_null_status_or_due_time_is_pending_and_due(service: MediaService) -> None:
    """«Attempts»."""
    one, two = await service.row("/m/jpg/50/a"), await service.row("/m/jpg/50/b")
    await service.write(one, media_status="pending", media_due_at=None, media_attempts=None)
    await service.write(two, media_status=None, media_due_at=None)
    assert (await service.run()).counters["success"] == 2


async def test_missing_table_is_created(new_service: NewService, empty_database: Any) -> None:
    """Without a table of another program."""
    service = await new_service(empty_database)
    status, answer = await service.deliver(
        {
            "object": "page",
            "entry": [
                {
                    "changes": [
                        {
                            "field": "feed",
                            "value": {
                                "item": "photo",
                                "verb": "add",
                                "post_id": "1_2",
                                "photo_id": 5,
                                "link": f"{service.at}/m/jpg/80/a",
                            },
                        }
                    ]
                }
            ],
        }
    )
    assert (status, answer["created"]) == (200, 1)
    assert (await service.run()).counters["success"] == 1
    [row] = await service.rows()
    assert (row["post_id"], row["media_status"]) == ("1_2", "success")
    assert row["imagen_local"].endswith("-1_2.jpg")


@pytest.mark.parametrize("kind", ["uuid", "text"])
async def test_ids_of_other_types(new_service: NewService, empty_database: Any, kind: str) -> None:
    """The record's ``id``: a UUID made by the table, or a text that is not."""
    column = (
        {"uuid": "uuid DEFAULT gen_random_uuid()", "text": "varchar(100)"}[kind]
        if empty_database.dialect == "postgres"
        else "TEXT"
    )
    await sql(
        empty_database,
        f"CREATE TABLE {TABLE} (id {column} PRIMARY KEY, post_id text, tipo_item text, "
        f"imagen_url text, imagen_local text)",
    )
    service = await new_service(empty_database)
    values = [
        {
            "item": "photo",
            "verb": "add",
            "post_id": f"p{n}",
            "photo_id": n,
            "link": f"{service.at}/m/jpg/{90 + n}/{n}",
        }
        for n in range(3)
    ]
    delivery = {
        "object": "page",
        "entry": [{"changes": [{"field": "feed", "value": v} for v in values]}],
    }
    assert (await service.deliver(delivery))[1] == {"created": 3, "updated": 0, "known": 0}
    assert (await service.deliver(delivery))[1] == {"created": 0, "updated": 0, "known": 3}
    assert (await service.run()).counters["success"] == 3
    rows = await service.rows()
    assert len({str(row["id"]) for row in rows if row["id"]}) == 3
    for row in rows:
        number = int(row["post_id"][1:])
        assert file_at(row["imagen_local"]).read_bytes() == content("jpg", 90 + number, str(number))
        assert f"/media/{row['id']}-p{number}.jpg" in row["imagen_local"]


async def test_alert_is_sent_to_the_webhook(new_service: NewService, database: Any) -> None:
    """«Alert rate»: a JSON POST to ESCLUSA_ALERT_WEBHOOK."""
    import asyncio

    from aiohttp import web

    received: asyncio.Queue[Any] = asyncio.Queue()

    async def hear(request: web.Request) -> web.Response:
        await received.put(await request.json())
        return web.Response()

    async with http_server(web.post("/bell", hear)) as url:
        service = await new_service(database, ESCLUSA_ALERT_WEBHOOK=f"{url}/bell")
        for _ in range(5):
            await service.row("/html")
        await service.run()
        async with asyncio.timeout(10):
            answer = await received.get()
        assert "5 of 5 records failed" in json.dumps(answer)
