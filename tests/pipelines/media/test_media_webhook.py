"""Point 8 of the spec: verification and signature of the webhook, and the rows it stores."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pipelines.media.conftest import TABLE, MediaService, NewService, feed, sql

from esclusa.pipelines.media.records import Medium
from esclusa.pipelines.media.webhook import is_signed, parse, read_media

PHOTO = {
    "item": "photo",
    "verb": "add",
    "post_id": "1_2",
    "photo_id": "900",
    "link": "https://cdn.example/a.jpg?oe=1",
    "message": "café",
}
VECTOR = (
    rb'{"object":"page","entry":[{"id":"1","time":1700000000,"changes":[{"field":"feed",'
    rb'"value":{"item":"status","verb":"add",'
    rb'"post_id":"1_2","message":"caf\u00e9"}}]}]}'
)


def test_signature_covers_the_exact_bytes() -> None:
    good = "sha256=fa5a2119de8a078f55ee19c64c7b12cd8d4c15f6e69361b9e7d02e61506961b3"
    assert is_signed(VECTOR, good, "app-secret")
    assert not is_signed(VECTOR.replace(b"\\u00e9", "é".encode()), good, "app-secret")
    assert not is_signed(VECTOR, good, "another")
    for wrong in (
        None,
        "",
        "sha256=",
        good.upper(),
        good[7:],
        good + "0",
        "sha256=ñ",
        "sha1=" + good[7:],
    ):
        assert not is_signed(VECTOR, wrong, "app-secret")


@pytest.mark.parametrize(
    ("value", "media"),
    [
        (PHOTO, [Medium("1_2", "900", "photo", "https://cdn.example/a.jpg?oe=1")]),
        (
            PHOTO | {"photo_id": 900, "post_id": 12},
            [Medium("12", "900", "photo", "https://cdn.example/a.jpg?oe=1")],
        ),
        (PHOTO | {"link": None}, [Medium("1_2", "900", "photo", None)]),
        (
            PHOTO | {"verb": "edited"},
            [Medium("1_2", "900", "photo", "https://cdn.example/a.jpg?oe=1", edited=True)],
        ),
        (
            {
                "item": "video",
                "verb": "add",
                "post_id": "p",
                "video_id": "7",
                "link": "https://v/x",
            },
            [Medium("p", "7", "video", "https://v/x")],
        ),
        (
            {"item": "status", "verb": "add", "post_id": "p", "photos": ["u0", "u1"]},
            [Medium("p", "0", "status", "u0"), Medium("p", "1", "status", "u1")],
        ),
        ({"item": "status", "verb": "add", "post_id": "p"}, [Medium("p", "0", "status", None)]),
        (
            {
                "item": "share",
                "verb": "add",
                "post_id": "p",
                "share_id": "5",
                "link": "https://page",
            },
            [Medium("p", "5", "share", None)],
        ),
        (
            {"item": "album", "verb": "add", "post_id": "p", "album_id": "6", "photo_ids": ["1"]},
            [Medium("p", "6", "album", None)],
        ),
        (PHOTO | {"verb": "remove"}, []),
        (PHOTO | {"verb": "hide"}, []),
        (PHOTO | {"post_id": None}, []),
        (
            {
                "item": "comment",
                "verb": "add",
                "post_id": "p",
                "comment_id": "c",
                "photo": "https://x",
            },
            [],
        ),
        ({"item": "reaction", "verb": "add", "post_id": "p", "reaction_type": "like"}, []),
        ({"item": "video", "verb": "block", "video_id": "7"}, []),
        ({}, []),
    ],
)
def test_media_of_each_change(value: dict[str, Any], media: list[Medium]) -> None:
    """«Webhook settings»: the mapping."""
    assert list(read_media(feed(value))) == media


@pytest.mark.parametrize(
    "document",
    [
        None,
        1,
        "x",
        [],
        {},
        {"object": "page"},
        {"object": "page", "entry": {}},
        {"object": "page", "entry": [None, {"changes": "x"}]},
        {
            "object": "page",
            "entry": [{"changes": [None, {"field": "feed"}, {"field": "feed", "value": []}]}],
        },
        {"object": "instagram", "entry": [{"changes": [{"field": "feed", "value": PHOTO}]}]},
        feed({"item": ["photo"], "verb": {}, "post_id": {}}),
    ],
)
def test_unknown_content_is_skipped(document: Any) -> None:
    assert list(read_media(document)) == []


def test_arrays_and_changes_in_the_entry_are_read() -> None:
    empty_database = {"object": "page", "entry": [{"id": "1", "field": "feed", "value": PHOTO}]}
    assert len(list(read_media([empty_database, feed(PHOTO)]))) == 2


async def test_verification_answers_the_bare_challenge(service: MediaService) -> None:
    ask = "/webhooks/meta?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token="
    assert await service.call("GET", ask + "let-me-in") == (200, "1158201444")
    for wrong in (
        ask + "wrong",
        ask,
        ask.replace("subscribe", "other") + "let-me-in",
        "/webhooks/meta",
        ask + "%C3%B1",
    ):
        status, answer = await service.call("GET", wrong)
        assert (status, answer["status"]) == (403, 403)


async def test_repeated_delivery_is_stored_once(service: MediaService) -> None:
    two = {
        "item": "status",
        "verb": "add",
        "post_id": "1_3",
        "photos": ["https://x/0.jpg", "https://x/1.jpg"],
    }
    share = {
        "item": "share",
        "verb": "add",
        "post_id": "1_4",
        "share_id": "s",
        "link": "https://page.example",
    }
    noise = [
        {"item": "comment", "verb": "add", "post_id": "1_2", "comment_id": "c"},
        PHOTO | {"verb": "remove"},
    ]
    delivery = feed(PHOTO, two, share, *noise)
    assert await service.deliver(delivery) == (200, {"created": 4, "updated": 0, "known": 0})
    assert await service.deliver(delivery) == (200, {"created": 0, "updated": 0, "known": 4})
    rows = await service.rows()
    assert sorted((r["post_id"], r["tipo_item"], r["imagen_url"]) for r in rows) == [
        ("1_2", "photo", PHOTO["link"]),
        ("1_3", "status", "https://x/0.jpg"),
        ("1_3", "status", "https://x/1.jpg"),
        ("1_4", "share", None),
    ]
    # columns unknown to the pipeline get their defaults
    assert {r["likes"] for r in rows} == {7}
    again = PHOTO | {
        "link": "https://cdn.example/a.jpg?oe=2"
    }  # the same picture with another signature
    assert (await service.deliver(feed(again)))[1] == {"created": 0, "updated": 0, "known": 1}


async def test_concurrent_deliveries_store_one_row(service: MediaService) -> None:
    answers = await asyncio.gather(*(service.deliver(feed(PHOTO)) for _ in range(8)))
    assert [status for status, _ in answers] == [200] * 8
    assert sum(answer["created"] for _, answer in answers) == 1
    assert len(await service.rows()) == 1


async def test_row_of_another_program_is_a_duplicate(service: MediaService) -> None:
    await service.row(PHOTO["link"], "1_2")
    assert (await service.deliver(feed(PHOTO)))[1] == {"created": 0, "updated": 0, "known": 1}
    other = PHOTO | {"photo_id": "901", "link": "https://cdn.example/b.jpg"}
    assert (await service.deliver(feed(other)))[1]["created"] == 1


async def test_bad_signature_stores_nothing(service: MediaService) -> None:
    for secret in ("wrong", "app-secret "):
        status, answer = await service.deliver(feed(PHOTO), secret=secret)
        assert (status, answer["status"]) == (403, 403)
        assert "app-secret" not in json.dumps(answer)
    assert (await service.deliver(feed(PHOTO), **{"X-Hub-Signature-256": ""}))[0] == 403
    assert (await service.call("POST", "/webhooks/meta", json=feed(PHOTO)))[0] == 403
    assert await service.rows() == []


async def test_refusals_are_logged(service: MediaService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meta reports a wrong secret nowhere."""
    received: list[tuple[str, str]] = []
    monkeypatch.setattr(
        service.runtime.engine.telemetry,
        "event",
        lambda level, message, **_: received.append((level, message)),
    )
    await service.deliver(feed(PHOTO), secret="wrong")
    await service.deliver(b"{")
    await service.call(
        "GET", "/webhooks/meta?hub.mode=subscribe&hub.challenge=1&hub.verify_token=wrong"
    )
    assert [level for level, _ in received] == ["warning"] * 3
    for (_, message), why in zip(
        received, ("X-Hub-Signature-256", "not JSON", "verify token"), strict=True
    ):
        assert "Meta's webhook was refused" in message
        assert why in message


async def test_invalid_json_is_refused_and_unknown_json_is_skipped(
    service: MediaService,
) -> None:
    assert (await service.deliver(b'{"half": '))[0] == 400
    assert (await service.deliver(b"\xff\xfe"))[0] == 400
    assert await service.deliver([1, None, "x"]) == (200, {"created": 0, "updated": 0, "known": 0})
    odd = feed(
        PHOTO | {"post_id": "nul\0", "link": "x"},
        PHOTO | {"photo_id": "n", "link": "half \ud800 pair"},
    )
    assert (await service.deliver(odd))[1]["created"] == 1
    await service.run()
    [row] = await service.rows()
    assert (row["imagen_url"], row["media_status"]) == ("half \ufffd pair", "error")


def test_what_no_store_can_hold_is_replaced() -> None:
    """Meta cuts captions in the middle of an emoji; the photo is stored all the same."""
    value = PHOTO | {"message": "sun \ud83d", "extra": ["\0", float("nan")], "created_time": 10**30}
    [medium] = read_media(parse(json.dumps(feed(value))))
    assert medium.post["mensaje"] == "sun \ufffd"
    assert medium.post["webhook_data"]["extra"] == ["\ufffd", None]
    assert medium.post["created_time"] is None


async def test_missing_secrets_answer_503(new_service: NewService, database: Any) -> None:
    """«Webhook settings»: 503."""
    service = await new_service(database, META_APP_SECRET="", META_VERIFY_TOKEN="")
    status, answer = await service.deliver(feed(PHOTO))
    assert (status, "META_APP_SECRET" in answer["detail"]) == (503, True)
    status, answer = await service.call(
        "GET", "/webhooks/meta?hub.mode=subscribe&hub.challenge=1&hub.verify_token="
    )
    assert (status, "META_VERIFY_TOKEN" in answer["detail"]) == (503, True)
    assert await service.rows() == []


async def test_tokens_protect_the_views_but_not_the_webhook(
    new_service: NewService, database: Any
) -> None:
    service = await new_service(
        database, ESCLUSA_API_TOKENS="0123456789abcdef0123456789abcdef:operate"
    )
    assert (await service.deliver(feed(PHOTO)))[0] == 200
    assert (
        await service.call(
            "GET", "/webhooks/meta?hub.mode=subscribe&hub.challenge=7&hub.verify_token=let-me-in"
        )
    ) == (200, "7")
    assert (await service.call("GET", "/media/summary"))[0] == 401


async def test_edit_replaces_the_link_of_a_row_without_file(service: MediaService) -> None:
    """«Webhook settings»: edited."""
    await service.deliver(
        feed(
            PHOTO,
            {
                "item": "status",
                "verb": "add",
                "post_id": "s",
                "photos": ["https://x/0", "https://x/1"],
            },
        )
    )
    fresh = f"{service.at}/m/jpg/90/new"
    assert (await service.deliver(feed(PHOTO | {"verb": "edited", "link": fresh})))[1] == {
        "created": 0,
        "updated": 1,
        "known": 0,
    }
    assert (await service.deliver(feed(PHOTO | {"verb": "edited", "link": fresh})))[1] == {
        "created": 0,
        "updated": 0,
        "known": 1,
    }
    second = {
        "item": "status",
        "verb": "edited",
        "post_id": "s",
        "photos": ["https://x/0", f"{service.at}/m/jpg/90/b"],
    }
    assert (await service.deliver(feed(second)))[1] == {"created": 0, "updated": 1, "known": 1}
    assert {r["imagen_url"] for r in await service.rows()} == {
        fresh,
        "https://x/0",
        f"{service.at}/m/jpg/90/b",
    }
    unknown = PHOTO | {"verb": "edited", "post_id": "never", "link": fresh}
    assert (await service.deliver(feed(unknown)))[1] == {"created": 0, "updated": 0, "known": 1}
    assert len(await service.rows()) == 3


async def test_edit_skips_a_row_with_a_file(service: MediaService) -> None:
    link = f"{service.at}/m/jpg/90/a"
    await service.deliver(feed(PHOTO | {"link": link}))
    await service.run()
    assert (await service.deliver(feed(PHOTO | {"verb": "edited", "link": "https://x/new"})))[1][
        "updated"
    ] == 0
    [row] = await service.rows()
    assert (row["media_status"], row["imagen_url"]) == ("success", link)


async def test_edit_of_a_row_of_another_program(service: MediaService) -> None:
    id = await service.row("https://x/old", "1_2")
    assert (await service.deliver(feed(PHOTO | {"verb": "edited", "link": "https://x/new"})))[1][
        "updated"
    ] == 1
    assert (await service.seen(id))["imagen_url"] == "https://x/new"
    await sql(service.database, f"DELETE FROM {TABLE}")
    assert (await service.deliver(feed(PHOTO | {"verb": "edited", "link": "https://x/newer"})))[1][
        "updated"
    ] == 0


def status(verb: str, *photos: str) -> dict[str, Any]:
    return {"item": "status", "verb": verb, "post_id": "s", "photos": list(photos)}


async def links(service: MediaService) -> list[str]:
    return sorted(row["imagen_url"] for row in await service.rows())


@pytest.mark.parametrize("before", [(), ("https://x/0",), ("https://x/0", "https://x/1")])
async def test_additional_picture_of_an_edited_status_is_a_new_row(
    service: MediaService, before: tuple[str, ...]
) -> None:
    """The new picture must not take the link of the first, which would then never be downloaded."""
    await service.deliver(feed(status("add", *before)))
    answer = (
        await service.deliver(feed(status("edited", "https://x/a", "https://x/b", "https://x/c")))
    )[1]
    kept = max(1, len(before))  # a status without pictures is a row too
    assert answer == {"created": 3 - kept, "updated": kept, "known": 0}
    assert await links(service) == ["https://x/a", "https://x/b", "https://x/c"]
    answer = (
        await service.deliver(feed(status("edited", "https://x/a", "https://x/b", "https://x/c")))
    )[1]
    assert answer == {"created": 0, "updated": 0, "known": 3}
    await service.deliver(
        feed(status("edited", "https://x/d", "https://x/e", "https://x/f"))
    )  # a new signature
    assert await links(service) == ["https://x/d", "https://x/e", "https://x/f"]


async def test_additional_picture_beside_a_downloaded_one(service: MediaService) -> None:
    link = f"{service.at}/m/jpg/90/a"
    for written in (False, True):  # from the webhook, and from another program
        await sql(service.database, f"DELETE FROM {TABLE}")
        await sql(service.database, "DELETE FROM media_notices")
        if written:
            await service.row(link, "s")
        else:
            await service.deliver(feed(status("add", link)))
        await service.run()
        for n in (1, 2):  # each time with a new signature
            more = [f"https://x/{database}?{n}" for database in range(n + 1)]
            assert (await service.deliver(feed(status("edited", *more))))[1] == {
                "created": 1,
                "updated": n - 1,
                "known": 1,
            }
        assert await links(service) == sorted([link, "https://x/1?2", "https://x/2?2"])


async def test_removed_or_moved_pictures_are_unchanged(service: MediaService) -> None:
    await service.deliver(feed(status("add", "https://x/0", "https://x/1", "https://x/2")))
    for photos in (("https://x/0", "https://x/2"), ("https://x/2", "https://x/1", "https://x/0")):
        assert (await service.deliver(feed(status("edited", *photos))))[1] == {
            "created": 0,
            "updated": 0,
            "known": len(photos),
        }
        assert await links(service) == ["https://x/0", "https://x/1", "https://x/2"]


async def test_edit_does_not_take_the_link_of_another_photo(service: MediaService) -> None:
    await service.deliver(feed(PHOTO))
    other = PHOTO | {"verb": "edited", "photo_id": "901"}
    edits = [other | {"link": f"https://x/{n}"} for n in range(3)]
    assert (await service.deliver(feed(*edits)))[1] == {"created": 1, "updated": 2, "known": 0}
    assert await links(service) == sorted([PHOTO["link"], "https://x/2"])
    assert (await service.deliver(feed(PHOTO | {"photo_id": "901", "link": "https://x/late"})))[1][
        "known"
    ] == 1


async def test_edit_is_repeatable_after_a_crash_between_its_writes(service: MediaService) -> None:
    await service.deliver(feed(PHOTO))
    [row] = await service.rows()
    await service.write(str(row["id"]), imagen_url="https://x/new")
    assert (await service.deliver(feed(PHOTO | {"verb": "edited", "link": "https://x/new"})))[1][
        "known"
    ] == 1
    assert (await service.deliver(feed(PHOTO | {"verb": "edited", "link": "https://x/newer"})))[1][
        "updated"
    ] == 1
    assert await links(service) == ["https://x/newer"]


async def test_edit_does_not_retry_a_row_in_error(service: MediaService) -> None:
    await service.deliver(feed(PHOTO | {"link": f"{service.at}/html"}))
    await service.run()
    fresh = f"{service.at}/m/jpg/90/new"
    assert (await service.deliver(feed(PHOTO | {"verb": "edited", "link": fresh})))[1][
        "updated"
    ] == 1
    [row] = await service.rows()
    assert (row["media_status"], row["imagen_url"]) == ("error", fresh)
    await service.run()
    assert not any("new" in call["path"] for call in service.cdn.calls)
    # Only an operator takes a row out of `error`; the new link is downloaded then.
    operations = service.runtime.operations("ana")
    assert (await operations.retry(TABLE, where={"status": "error"}, reason="new link")).moved == 1
    await service.run()
    [row] = await service.rows()
    assert (row["media_status"], row["media_attempts"]) == ("success", 1)


async def test_refused_medium_does_not_block_the_rest(service: MediaService) -> None:
    """A signed link is longer than many columns; a repeated delivery would be refused again."""
    if service.database.dialect == "postgres":
        await sql(service.database, f"ALTER TABLE {TABLE} ALTER imagen_url TYPE varchar(200)")
    else:
        wide = "length(NEW.imagen_url) > 200"
        await sql(
            service.database,
            f"CREATE TRIGGER narrow BEFORE INSERT ON {TABLE} WHEN {wide} BEGIN SELECT "
            f"RAISE(ABORT, 'too long'); END",
        )
    photos = [
        PHOTO
        | {
            "post_id": f"1_{n}",
            "photo_id": n,
            "link": f"https://x/{n}?oh={'s' * 300 if n == 2 else n}",
        }
        for n in range(4)
    ]
    code, answer = await service.deliver(feed(*photos))
    assert (code, answer["created"], answer["known"], [e["row"] for e in answer["errors"]]) == (
        200,
        3,
        0,
        [3],
    )
    assert "the table" in answer["errors"][0]["error"]
    assert "ssss" not in answer["errors"][0]["error"]
    assert {row["post_id"] for row in await service.rows()} == {"1_0", "1_1", "1_3"}


async def test_refused_link_is_reported_and_the_next_one_is_stored(
    service: MediaService,
) -> None:
    other = PHOTO | {"post_id": "1_3", "photo_id": "901", "link": "https://x/3"}
    await service.deliver(feed(PHOTO, other))
    if service.database.dialect == "postgres":
        await sql(service.database, f"ALTER TABLE {TABLE} ALTER imagen_url TYPE varchar(200)")
    else:
        wide = "length(NEW.imagen_url) > 200"
        await sql(
            service.database,
            f"CREATE TRIGGER narrow BEFORE UPDATE ON {TABLE} WHEN {wide} BEGIN SELECT "
            f"RAISE(ABORT, 'too long'); END",
        )
    edited = {"verb": "edited", "link": f"https://x/{'s' * 300}"}
    code, answer = await service.deliver(
        feed(PHOTO | edited, other | {"verb": "edited", "link": "https://x/new"})
    )
    assert (code, answer["updated"], answer["known"], [e["row"] for e in answer["errors"]]) == (
        200,
        1,
        0,
        [1],
    )
    assert "the table" in answer["errors"][0]["error"]
    assert "ssss" not in answer["errors"][0]["error"]
    assert {row["post_id"]: row["imagen_url"] for row in await service.rows()} == {
        "1_2": PHOTO["link"],
        "1_3": "https://x/new",
    }
    assert (await service.deliver(feed(PHOTO | {"verb": "edited", "link": "https://x/short"})))[1][
        "updated"
    ] == 1
    assert {row["post_id"]: row["imagen_url"] for row in await service.rows()}[
        "1_2"
    ] == "https://x/short"


async def test_hundreds_of_edits_in_one_delivery(service: MediaService) -> None:
    values = [
        PHOTO | {"post_id": f"1_{n}", "photo_id": str(n), "link": f"https://x/{n}"}
        for n in range(400)
    ]
    assert (await service.deliver(feed(*values)))[1]["created"] == 400
    assert (await service.deliver(feed(*values)))[1]["known"] == 400
    assert len(await service.rows()) == 400
    edits = [
        v | {"verb": "edited", "link": f"{v['link']}?{n}"} for n in range(2) for v in values
    ]  # the last edit of a post counts
    assert (await service.deliver(feed(*edits)))[1] == {"created": 0, "updated": 800, "known": 0}
    assert {row["imagen_url"] for row in await service.rows()} == {
        f"https://x/{n}?1" for n in range(400)
    }
