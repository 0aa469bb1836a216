"""Points 1 to 7 and 11 of the spec: take, download, keep, retry, end, alert."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from pipelines.media.conftest import FOREIGN, TABLE, NewYard, Yard, file_at, sql
from support.loopback import serving

from esclusa.artifacts.paths import clean
from esclusa.model.system_records import Alert, DeadLetter
from esclusa.pipelines.media.downloads import path_of
from esclusa.pipelines.media.records import Publication
from esclusa.simulators.media_cdn import content


async def test_pending_rows_with_a_link_become_files_and_success(yard: Yard) -> None:
    """Points 1, 3, 4."""
    one = await yard.row("/m/jpg/5000/one", "10_1")
    film = await yard.row("/m/mp4/70000/film", "10_2", tipo_item="video")
    bare = await yard.row(None, "10_3", tipo_item="share")
    run = await yard.run()
    counters = {"taken": 2, "success": 2, "retried": 0, "error": 0}
    assert run.answer() | {"run": ""} == {
        "run": "",
        "cycle": "media.download",
        "outcome": "ok",
        "counters": counters,
        "message": None,
    }
    row = await yard.seen(one)
    assert (row["media_status"], row["media_attempts"], row["media_last_error"]) == (
        "success",
        1,
        None,
    )
    assert row["media_updated_at"] is not None
    assert row["imagen_local"].endswith(f"/media/{one}-10_1.jpg")
    assert file_at(row["imagen_local"]).read_bytes() == content("jpg", 5000, "one")
    assert file_at((await yard.seen(film))["imagen_local"]).read_bytes() == content(
        "mp4", 70000, "film"
    )
    assert (await yard.seen(bare))["media_status"] is None  # not ours: it has no link
    assert (await yard.run()).counters["taken"] == 0


async def test_the_oldest_come_first(yard: Yard) -> None:
    """Point 1."""
    ids = [await yard.row(f"/m/jpg/100/{n}") for n in range(6)]
    run = await yard.run(limit=3)
    assert run.counters["taken"] == 3
    assert [(await yard.seen(id))["media_status"] for id in ids] == ["success"] * 3 + [None] * 3


async def test_while_it_downloads_the_row_says_so(new_yard: NewYard, place: Any) -> None:
    """Point 1: a worker marks the row, and its lease is renewed."""
    import asyncio

    yard = await new_yard(place, ESCLUSA_LEASE_SECONDS="1")
    id = await yard.row("/drip/2.5")
    running = asyncio.create_task(yard.run())
    async with asyncio.timeout(10):
        while (await yard.seen(id))["media_status"] != "downloading":
            await asyncio.sleep(0.02)
    assert (await yard.seen(id))["media_attempts"] == 1
    assert (await running).counters["success"] == 1
    assert (await yard.seen(id))["media_attempts"] == 1


# the seed's two scenarios, word for word


async def test_simular_error(new_yard: NewYard, place: Any) -> None:
    """Point 11: a forced timeout leaves pending, 1, timeout."""
    yard = await new_yard(place, MEDIA_TIMEOUT_SECONDS="0.3")
    id = await yard.row(None, "test_timeout")
    await yard.write(id, imagen_url=f"{yard.at}/drip/60", media_status="pending", media_attempts=0)
    begun = time.monotonic()
    await yard.run()
    assert time.monotonic() - begun < 5
    pub = await yard.seen(id)
    assert pub["media_status"] == "pending"
    assert pub["media_attempts"] == 1
    assert pub["media_last_error"]["type"] == "timeout"
    assert set(pub["media_last_error"]) == {"message", "type", "timestamp", "attempt"}
    assert pub["media_last_error"]["attempt"] == 1


async def test_simular_exito_tras_reintentos(yard: Yard) -> None:
    """Point 11: a success after two failures leaves success, the file, and no error."""
    id = await yard.row("/m/jpg/900/valid-image.jpg", "test_retry")
    await yard.write(
        id,
        media_status="pending",
        media_attempts=2,
        media_last_error={"message": "Old error", "type": "http_error"},
    )
    await yard.run()
    pub = await yard.seen(id)
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


async def test_errors_that_may_pass_are_retried_and_the_fifth_is_the_end(
    new_yard: NewYard, place: Any
) -> None:
    """Point 5."""
    yard = await new_yard(place, MEDIA_TIMEOUT_SECONDS="0.5", MEDIA_ALLOW_HOSTS="127.0.0.1")
    ids = {link: await yard.row(link) for link in PASSING}
    for attempt in range(1, 6):
        run = await yard.run()
        last = attempt == 5
        assert run.counters["error" if last else "retried"] == len(PASSING)
        assert run.outcome == ("partial" if last else "ok")
        for link, (type, words) in PASSING.items():
            row = await yard.seen(ids[link])
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
    assert (await yard.run()).counters["taken"] == 0
    letters = {x.record_id: x async for x in yard.records.each(DeadLetter)}
    for link, (type, _) in PASSING.items():
        letter = letters[ids[link]]
        assert (letter.error_type, letter.attempts, letter.reason) == (
            type,
            5,
            "reached the maximum of attempts (5)",
        )
        assert "imagen_url" not in letter.payload


FINAL = {
    "/html": "neither a picture nor a film",
    "/text": "neither a picture nor a film",
    "/svg": "neither a picture nor a film",
    "/json": "neither a picture nor a film",
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
    "http://x:99999/": "cannot be read as an address",
}


async def test_what_is_no_media_is_final_at_once(new_yard: NewYard, place: Any) -> None:
    """Point 5 and «Types»: invalid_media."""
    yard = await new_yard(place, MEDIA_MAX_BYTES="100000")
    ids = {link: await yard.row(link) for link in FINAL}
    run = await yard.run()
    assert run.counters["error"] == len(FINAL)
    for link, words in FINAL.items():
        row = await yard.seen(ids[link])
        assert (row["media_status"], row["media_attempts"]) == ("error", 1), link
        assert row["media_last_error"]["type"] == "invalid_media"
        assert words in row["media_last_error"]["message"]


async def test_a_store_that_fails_is_a_storage_error(yard: Yard, tmp_path: Path) -> None:
    """Point 5: storage_error, retried; once the store is well again it goes on."""
    id = await yard.row("/m/jpg/300/a", "x")
    folder = tmp_path / "artifacts" / "media"
    folder.write_text("a file where the folder should be")
    await yard.run()
    row = await yard.seen(id)
    assert (row["media_status"], row["media_attempts"], row["media_last_error"]["type"]) == (
        "pending",
        1,
        "storage_error",
    )
    folder.unlink()
    await yard.run()
    assert (await yard.seen(id))["media_status"] == "success"


async def test_the_backoff_doubles_up_to_an_hour(new_yard: NewYard, place: Any) -> None:
    """«Backoff»."""
    yard = await new_yard(place, MEDIA_BACKOFF_SECONDS="60", MEDIA_MAX_ATTEMPTS="10")
    id = await yard.row("/gone/404")
    for attempt, wait in enumerate((60, 120, 240, 480, 960, 1920, 3600, 3600), 1):
        assert (await yard.run()).counters["taken"] == 1
        pub = await yard.pub(id)
        assert (pub.due_at - pub.updated_at).total_seconds() == pytest.approx(wait, abs=1)
        assert pub.attempts == attempt
        assert (await yard.run()).counters[
            "taken"
        ] == 0  # the next run does not hit the dead link at once
        await yard.later(wait + 1)


# names and files


async def test_one_object_per_row(yard: Yard) -> None:
    """Point 3 and «Object name»: two pictures of one post, x/y and x_y, never share one."""
    posts = ["p", "p", "x/y", "x_y", "../../etc", "a-b", "ñ 日本", "x%2Fy"]
    ids = [await yard.row(f"/m/png/{200 + n}/{n}", post) for n, post in enumerate(posts)]
    await yard.run()
    rows = [await yard.seen(id) for id in ids]
    assert len({row["imagen_local"] for row in rows}) == len(posts)
    for n, row in enumerate(rows):
        assert file_at(row["imagen_local"]).read_bytes() == content("png", 200 + n, str(n))
        assert f"/media/{row['id']}-" in row["imagen_local"]


def test_names_never_meet() -> None:
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
    names = {path_of(Publication(id=id, post_id=post), ".jpg") for id, post in pairs}
    assert len(names) == len(pairs)
    assert all(clean(name) for name in names)


async def test_the_same_post_again_is_the_same_object(yard: Yard, tmp_path: Path) -> None:
    """Point 3: no duplicates, also when the type has changed."""
    id = await yard.row("/m/jpg/300/a", "post")
    await yard.run()
    first = (await yard.seen(id))["imagen_local"]
    await yard.write(id, media_status=None, imagen_url=f"{yard.at}/m/jpg/400/b")
    await yard.run()
    assert (await yard.seen(id))["imagen_local"] == first
    assert file_at(first).read_bytes() == content("jpg", 400, "b")
    await yard.write(id, media_status=None, imagen_url=f"{yard.at}/m/png/500/c")
    await yard.run()
    assert (await yard.seen(id))["imagen_local"] == first.removesuffix(".jpg") + ".png"
    assert [p.name for p in (tmp_path / "artifacts" / "media").iterdir()] == [f"{id}-post.png"]


async def test_the_public_address_of_a_local_store(new_yard: NewYard, place: Any) -> None:
    """«Object name»: ESCLUSA_ARTIFACTS_PUBLIC_URL + path."""
    yard = await new_yard(place, ESCLUSA_ARTIFACTS_PUBLIC_URL="https://cdn.example/files")
    id = await yard.row("/m/gif/300/a", "post")
    await yard.run()
    assert (await yard.seen(id))["imagen_local"] == f"https://cdn.example/files/media/{id}-post.gif"


async def test_the_type_is_that_of_the_bytes(yard: Yard) -> None:
    """Point 2: whatever the server calls it."""
    ids = {
        kind: await yard.row(f"/m/{kind}/3000/liar.html", kind)
        for kind in ("jpg", "png", "gif", "webp", "mp4", "webm")
    }
    await yard.run()
    for kind, id in ids.items():
        assert (await yard.seen(id))["imagen_local"].endswith(f".{kind}")


# attempts, operators


async def test_an_operators_retry_starts_again(yard: Yard) -> None:
    """«Attempts»."""
    id = await yard.row("/html")
    await yard.run()
    await yard.write(id, imagen_url=f"{yard.at}/m/jpg/100/a")
    acted = await yard.runtime.operations("ada").retry(TABLE, ids=[id], reason="fixed")
    assert acted.moved == 1
    row = await yard.seen(id)
    assert (row["media_status"], row["media_attempts"]) == ("pending", 0)
    await yard.run()
    assert ((await yard.seen(id))["media_status"], (await yard.seen(id))["media_attempts"]) == (
        "success",
        1,
    )


# alerts, log


async def test_an_alert_when_more_than_a_fifth_of_a_batch_failed(yard: Yard) -> None:
    """Point 7: more than 20 %, of at least five; none for a single one."""

    async def alerts() -> list[Any]:
        return [a async for a in yard.records.each(Alert)]

    async def batch(good: int, bad: int) -> None:
        for n in range(good):
            await yard.row(f"/m/jpg/50/{n}")
        for _ in range(bad):
            await yard.row("/html")
        await yard.run()

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
    assert "2 of 5 records failed (40%, more than 20%)" in alert.message
    status, told = await yard.call("GET", "/api/alerts")
    assert status == 200
    assert [item["name"] for item in told["items"]] == ["error_rate"]


async def test_an_alert_when_the_job_itself_breaks(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Point 7."""

    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no disk")

    monkeypatch.setattr(yard.runtime.engine, "drain", broken)
    run = await yard.run()
    assert run.outcome == "error"
    [alert] = [a async for a in yard.records.each(Alert)]
    assert alert.name == "cycle_broke"
    assert "no disk" in alert.message


async def test_log_lines_carry_the_attempt(
    new_yard: NewYard, place: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Point 6, and: no link is ever logged, for it is signed."""
    yard = await new_yard(place, ESCLUSA_LOG_LEVEL="info", ESCLUSA_LOG_FORMAT="json")
    await yard.row("/gone/404?oe=secret-signature", "456_789")
    for _ in range(5):
        await yard.run()
    text = "".join(capfd.readouterr())
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert any("photo of post 456_789 (attempt 3/5)" in json.dumps(line) for line in lines)
    assert any(
        "attempt 3/5, will retry" in json.dumps(line) and "HTTP 404" in json.dumps(line)
        for line in lines
    )
    assert any("reached the maximum of attempts (5)" in json.dumps(line) for line in lines)
    assert "secret-signature" not in text


# somebody else's table


def checksum(rows: list[dict[str, Any]], names: tuple[str, ...]) -> str:
    return hashlib.sha256(
        json.dumps(
            [{n: row[n] for n in names} for row in rows], default=str, sort_keys=True
        ).encode()
    ).hexdigest()


async def test_nothing_of_another_owner_is_touched(new_yard: NewYard, place: Any) -> None:
    """The record: only the tracking columns and imagen_local are ever written, and only of rows that are ours to work on."""
    insert = f"INSERT INTO {TABLE} (post_id, tipo_item, imagen_url, imagen_local, mensaje, likes, raw) VALUES ($1, $2, $3, $4, $5, $6, $7)"
    for n in range(30):
        raw = json.dumps({"n": n, "ñ": None})
        await sql(
            place,
            insert,
            f"old{n}",
            "status",
            None,
            "kept" if n % 3 == 0 else None,
            "ñandú 'x' \"y\"",
            n,
            raw,
        )
    before = await sql(place, f"SELECT * FROM {TABLE} ORDER BY id")
    yard = await new_yard(place)
    good, bad = await yard.row("/m/jpg/500/a"), await yard.row("/html")
    both = await yard.rows()
    await yard.run()
    after = await yard.rows()
    assert checksum(after, FOREIGN) == checksum(both, FOREIGN)
    assert checksum(after[:30], tuple(before[0])) == checksum(before, tuple(before[0]))
    assert {
        (r["media_attempts"], r["media_updated_at"], r["media_last_error"]) for r in after[:30]
    } <= {
        (None, None, None),
        (0, None, None),
    }
    assert [(await yard.seen(id))["media_status"] for id in (good, bad)] == ["success", "error"]


async def test_rows_that_have_their_file_already_start_as_success(
    new_yard: NewYard, place: Any
) -> None:
    """«Attempts»: when the pipeline first attaches to a table without tracking columns."""
    insert = f"INSERT INTO {TABLE} (post_id, imagen_url, imagen_local) VALUES ($1, $2, $3)"
    await sql(place, insert, "done", "http://127.0.0.1:9/a", "https://x.supabase.co/a.jpg")
    await sql(place, insert, "open", "http://127.0.0.1:9/b", None)
    yard = await new_yard(place)
    rows = await yard.rows()
    assert [row["media_status"] for row in rows] == ["success", None]
    run = await yard.run()
    assert run.counters["taken"] == 1
    first = (await yard.rows())[0]
    assert (first["media_status"], first["imagen_local"]) == (
        "success",
        "https://x.supabase.co/a.jpg",
    )


async def test_a_null_status_or_due_time_is_pending_and_due(yard: Yard) -> None:
    """«Attempts»."""
    one, two = await yard.row("/m/jpg/50/a"), await yard.row("/m/jpg/50/b")
    await yard.write(one, media_status="pending", media_due_at=None, media_attempts=None)
    await yard.write(two, media_status=None, media_due_at=None)
    assert (await yard.run()).counters["success"] == 2


async def test_a_table_that_is_not_there_is_made(new_yard: NewYard, bare: Any) -> None:
    """The webhook may be ours alone."""
    yard = await new_yard(bare)
    status, told = await yard.deliver(
        {"object": "page", "entry": [{"changes": [{"field": "feed", "value": {
            "item": "photo", "verb": "add", "post_id": "1_2", "photo_id": 5, "link": f"{yard.at}/m/jpg/80/a"}}]}]}
    )  # fmt: skip
    assert (status, told["created"]) == (200, 1)
    assert (await yard.run()).counters["success"] == 1
    [row] = await yard.rows()
    assert (row["post_id"], row["media_status"]) == ("1_2", "success")
    assert row["imagen_local"].endswith("-1_2.jpg")


@pytest.mark.parametrize("kind", ["uuid", "text"])
async def test_ids_of_other_types(new_yard: NewYard, bare: Any, kind: str) -> None:
    """The record's ``id``: a UUID that the table makes, or a text that it does not."""
    column = (
        {"uuid": "uuid DEFAULT gen_random_uuid()", "text": "varchar(100)"}[kind]
        if bare.dialect == "postgres"
        else "TEXT"
    )
    await sql(
        bare,
        f"CREATE TABLE {TABLE} (id {column} PRIMARY KEY, post_id text, tipo_item text, imagen_url text, imagen_local text)",
    )
    yard = await new_yard(bare)
    values = [
        {
            "item": "photo",
            "verb": "add",
            "post_id": f"p{n}",
            "photo_id": n,
            "link": f"{yard.at}/m/jpg/{90 + n}/{n}",
        }
        for n in range(3)
    ]
    delivery = {
        "object": "page",
        "entry": [{"changes": [{"field": "feed", "value": v} for v in values]}],
    }
    assert (await yard.deliver(delivery))[1] == {"created": 3, "updated": 0, "known": 0}
    assert (await yard.deliver(delivery))[1] == {"created": 0, "updated": 0, "known": 3}
    assert (await yard.run()).counters["success"] == 3
    rows = await yard.rows()
    assert len({str(row["id"]) for row in rows if row["id"]}) == 3
    for row in rows:
        number = int(row["post_id"][1:])
        assert file_at(row["imagen_local"]).read_bytes() == content("jpg", 90 + number, str(number))
        assert f"/media/{row['id']}-p{number}.jpg" in row["imagen_local"]


async def test_an_alert_goes_to_the_webhook_too(new_yard: NewYard, place: Any) -> None:
    """«Alert rate»: a JSON POST to ESCLUSA_ALERT_WEBHOOK."""
    import asyncio

    from aiohttp import web

    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def hear(request: web.Request) -> web.Response:
        await heard.put(await request.json())
        return web.Response()

    async with serving(web.post("/bell", hear)) as url:
        yard = await new_yard(place, ESCLUSA_ALERT_WEBHOOK=f"{url}/bell")
        for _ in range(5):
            await yard.row("/html")
        await yard.run()
        async with asyncio.timeout(10):
            told = await heard.get()
        assert "5 of 5 records failed" in json.dumps(told)
