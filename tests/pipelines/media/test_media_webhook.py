"""Point 8 of the spec: the webhook's verification, its signature, and what it stores."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pipelines.media.conftest import TABLE, NewYard, Yard, feed, sql

from esclusa.pipelines.media.webhook import Told, read, signed

PHOTO = {
    "item": "photo",
    "verb": "add",
    "post_id": "1_2",
    "photo_id": "900",
    "link": "https://cdn.example/a.jpg?oe=1",
    "message": "café",
}
VECTOR = (
    rb'{"object":"page","entry":[{"id":"1","time":1700000000,"changes":[{"field":"feed","value":{"item":"status","verb":"add",'
    rb'"post_id":"1_2","message":"caf\u00e9"}}]}]}'
)


def test_the_signature_is_over_the_bytes_as_they_came() -> None:
    good = "sha256=fa5a2119de8a078f55ee19c64c7b12cd8d4c15f6e69361b9e7d02e61506961b3"
    assert signed(VECTOR, good, "app-secret")
    assert not signed(VECTOR.replace(b"\\u00e9", "é".encode()), good, "app-secret")
    assert not signed(VECTOR, good, "another")
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
        assert not signed(VECTOR, wrong, "app-secret")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (PHOTO, [Told("1_2", "900", "photo", "https://cdn.example/a.jpg?oe=1")]),
        (
            PHOTO | {"photo_id": 900, "post_id": 12},
            [Told("12", "900", "photo", "https://cdn.example/a.jpg?oe=1")],
        ),
        (PHOTO | {"link": None}, [Told("1_2", "900", "photo", None)]),
        (
            PHOTO | {"verb": "edited"},
            [Told("1_2", "900", "photo", "https://cdn.example/a.jpg?oe=1", "edited")],
        ),
        (
            {
                "item": "video",
                "verb": "add",
                "post_id": "p",
                "video_id": "7",
                "link": "https://v/x",
            },
            [Told("p", "7", "video", "https://v/x")],
        ),
        (
            {"item": "status", "verb": "add", "post_id": "p", "photos": ["u0", "u1"]},
            [Told("p", "0", "status", "u0"), Told("p", "1", "status", "u1")],
        ),
        ({"item": "status", "verb": "add", "post_id": "p"}, [Told("p", "0", "status", None)]),
        (
            {
                "item": "share",
                "verb": "add",
                "post_id": "p",
                "share_id": "5",
                "link": "https://page",
            },
            [Told("p", "5", "share", None)],
        ),
        (
            {"item": "album", "verb": "add", "post_id": "p", "album_id": "6", "photo_ids": ["1"]},
            [Told("p", "6", "album", None)],
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
def test_what_each_kind_of_change_tells(value: dict[str, Any], told: list[Told]) -> None:
    """«Webhook settings»: the mapping."""
    assert list(read(feed(value))) == told


@pytest.mark.parametrize(
    "document",
    [None, 1, "x", [], {}, {"object": "page"}, {"object": "page", "entry": {}}, {"object": "page", "entry": [None, {"changes": "x"}]},
     {"object": "page", "entry": [{"changes": [None, {"field": "feed"}, {"field": "feed", "value": []}]}]},
     {"object": "instagram", "entry": [{"changes": [{"field": "feed", "value": PHOTO}]}]},
     feed({"item": ["photo"], "verb": {}, "post_id": {}})],
)  # fmt: skip
def test_what_is_not_understood_is_passed_over(document: Any) -> None:
    assert list(read(document)) == []


def test_documents_in_an_array_and_changes_in_the_entry_are_read_too() -> None:
    bare = {"object": "page", "entry": [{"id": "1", "field": "feed", "value": PHOTO}]}
    assert len(list(read([bare, feed(PHOTO)]))) == 2


async def test_the_verification_answers_the_bare_challenge(yard: Yard) -> None:
    ask = "/webhooks/meta?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token="
    assert await yard.call("GET", ask + "let-me-in") == (200, "1158201444")
    for wrong in (
        ask + "wrong",
        ask,
        ask.replace("subscribe", "other") + "let-me-in",
        "/webhooks/meta",
        ask + "%C3%B1",
    ):
        status, told = await yard.call("GET", wrong)
        assert (status, told["status"]) == (403, 403)


async def test_a_signed_delivery_is_stored_and_a_second_time_it_is_known(yard: Yard) -> None:
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
    assert await yard.deliver(delivery) == (200, {"created": 4, "updated": 0, "known": 0})
    assert await yard.deliver(delivery) == (200, {"created": 0, "updated": 0, "known": 4})
    rows = await yard.rows()
    assert sorted((r["post_id"], r["tipo_item"], r["imagen_url"]) for r in rows) == [
        ("1_2", "photo", PHOTO["link"]), ("1_3", "status", "https://x/0.jpg"), ("1_3", "status", "https://x/1.jpg"), ("1_4", "share", None),
    ]  # fmt: skip
    assert {r["mensaje"] for r in rows} == {"hola"}  # what we do not know of is left to the table
    again = PHOTO | {
        "link": "https://cdn.example/a.jpg?oe=2"
    }  # the same picture, another signature
    assert (await yard.deliver(feed(again)))[1] == {"created": 0, "updated": 0, "known": 1}


async def test_the_same_delivery_many_times_at_once_is_one_row(yard: Yard) -> None:
    answers = await asyncio.gather(*(yard.deliver(feed(PHOTO)) for _ in range(8)))
    assert [status for status, _ in answers] == [200] * 8
    assert sum(told["created"] for _, told in answers) == 1
    assert len(await yard.rows()) == 1


async def test_a_row_that_another_program_wrote_for_the_post_is_known(yard: Yard) -> None:
    await yard.row(PHOTO["link"], "1_2")
    assert (await yard.deliver(feed(PHOTO)))[1] == {"created": 0, "updated": 0, "known": 1}
    other = PHOTO | {"photo_id": "901", "link": "https://cdn.example/b.jpg"}
    assert (await yard.deliver(feed(other)))[1]["created"] == 1


async def test_a_bad_signature_stores_nothing(yard: Yard) -> None:
    for secret in ("wrong", "app-secret "):
        status, told = await yard.deliver(feed(PHOTO), secret=secret)
        assert (status, told["status"]) == (403, 403)
        assert "app-secret" not in json.dumps(told)
    assert (await yard.deliver(feed(PHOTO), **{"X-Hub-Signature-256": ""}))[0] == 403
    assert (await yard.call("POST", "/webhooks/meta", json=feed(PHOTO)))[0] == 403
    assert await yard.rows() == []


async def test_what_is_refused_is_told_in_the_log(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meta tells nobody that a secret is wrong."""
    heard: list[tuple[str, str]] = []
    monkeypatch.setattr(
        yard.runtime.engine.telemetry,
        "event",
        lambda level, message, **_: heard.append((level, message)),
    )
    await yard.deliver(feed(PHOTO), secret="wrong")
    await yard.deliver(b"{")
    await yard.call(
        "GET", "/webhooks/meta?hub.mode=subscribe&hub.challenge=1&hub.verify_token=wrong"
    )
    assert [level for level, _ in heard] == ["warning"] * 3
    for (_, message), why in zip(
        heard, ("X-Hub-Signature-256", "not JSON", "verify token"), strict=True
    ):
        assert "Meta's webhook was refused" in message
        assert why in message


async def test_a_signed_body_that_is_no_json_is_refused_and_odd_json_is_passed_over(
    yard: Yard,
) -> None:
    assert (await yard.deliver(b'{"half": '))[0] == 400
    assert (await yard.deliver(b"\xff\xfe"))[0] == 400
    assert await yard.deliver([1, None, "x"]) == (200, {"created": 0, "updated": 0, "known": 0})
    odd = feed(
        PHOTO | {"post_id": "nul\0", "link": "x"},
        PHOTO | {"photo_id": "n", "link": "half \ud800 pair"},
    )
    assert (await yard.deliver(odd))[0] == 200
    assert all(row["imagen_url"] is None for row in await yard.rows())


async def test_without_its_secrets_nothing_is_accepted(new_yard: NewYard, place: Any) -> None:
    """«Webhook settings»: 503."""
    yard = await new_yard(place, META_APP_SECRET="", META_VERIFY_TOKEN="")
    status, told = await yard.deliver(feed(PHOTO))
    assert (status, "META_APP_SECRET" in told["detail"]) == (503, True)
    status, told = await yard.call(
        "GET", "/webhooks/meta?hub.mode=subscribe&hub.challenge=1&hub.verify_token="
    )
    assert (status, "META_VERIFY_TOKEN" in told["detail"]) == (503, True)
    assert await yard.rows() == []


async def test_the_webhook_is_open_where_tokens_are_set_and_the_views_are_not(
    new_yard: NewYard, place: Any
) -> None:
    yard = await new_yard(place, ESCLUSA_API_TOKENS="0123456789abcdef0123456789abcdef:operate")
    assert (await yard.deliver(feed(PHOTO)))[0] == 200
    assert (
        await yard.call(
            "GET", "/webhooks/meta?hub.mode=subscribe&hub.challenge=7&hub.verify_token=let-me-in"
        )
    ) == (200, "7")
    assert (await yard.call("GET", "/media/summary"))[0] == 401


async def test_edited_gives_a_row_without_a_file_its_new_link(yard: Yard) -> None:
    """«Webhook settings»: edited."""
    await yard.deliver(
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
    fresh = f"{yard.at}/m/jpg/90/new"
    assert (await yard.deliver(feed(PHOTO | {"verb": "edited", "link": fresh})))[1] == {
        "created": 0,
        "updated": 1,
        "known": 0,
    }
    assert (await yard.deliver(feed(PHOTO | {"verb": "edited", "link": fresh})))[1] == {
        "created": 0,
        "updated": 0,
        "known": 1,
    }
    second = {
        "item": "status",
        "verb": "edited",
        "post_id": "s",
        "photos": ["https://x/0", f"{yard.at}/m/jpg/90/b"],
    }
    assert (await yard.deliver(feed(second)))[1] == {"created": 0, "updated": 1, "known": 1}
    assert {r["imagen_url"] for r in await yard.rows()} == {
        fresh,
        "https://x/0",
        f"{yard.at}/m/jpg/90/b",
    }
    unknown = PHOTO | {"verb": "edited", "post_id": "never", "link": fresh}
    assert (await yard.deliver(feed(unknown)))[1] == {"created": 0, "updated": 0, "known": 1}
    assert len(await yard.rows()) == 3


async def test_edited_leaves_a_row_that_has_its_file(yard: Yard) -> None:
    link = f"{yard.at}/m/jpg/90/a"
    await yard.deliver(feed(PHOTO | {"link": link}))
    await yard.run()
    assert (await yard.deliver(feed(PHOTO | {"verb": "edited", "link": "https://x/new"})))[1][
        "updated"
    ] == 0
    [row] = await yard.rows()
    assert (row["media_status"], row["imagen_url"]) == ("success", link)


async def test_edited_of_a_row_that_another_program_wrote(yard: Yard) -> None:
    id = await yard.row("https://x/old", "1_2")
    assert (await yard.deliver(feed(PHOTO | {"verb": "edited", "link": "https://x/new"})))[1][
        "updated"
    ] == 1
    assert (await yard.seen(id))["imagen_url"] == "https://x/new"
    await sql(yard.place, f"DELETE FROM {TABLE}")
    assert (await yard.deliver(feed(PHOTO | {"verb": "edited", "link": "https://x/newer"})))[1][
        "updated"
    ] == 0


def status(verb: str, *photos: str) -> dict[str, Any]:
    return {"item": "status", "verb": verb, "post_id": "s", "photos": list(photos)}


async def links(yard: Yard) -> list[str]:
    return sorted(row["imagen_url"] for row in await yard.rows())


@pytest.mark.parametrize("before", [(), ("https://x/0",), ("https://x/0", "https://x/1")])
async def test_a_picture_that_an_edited_status_has_more_is_one_more_row(
    yard: Yard, before: tuple[str, ...]
) -> None:
    """It took the link of the picture before it, which was never downloaded then."""
    await yard.deliver(feed(status("add", *before)))
    told = (
        await yard.deliver(feed(status("edited", "https://x/a", "https://x/b", "https://x/c")))
    )[1]
    kept = max(1, len(before))  # a status without pictures is a row, too
    assert told == {"created": 3 - kept, "updated": kept, "known": 0}
    assert await links(yard) == ["https://x/a", "https://x/b", "https://x/c"]
    told = (
        await yard.deliver(feed(status("edited", "https://x/a", "https://x/b", "https://x/c")))
    )[1]
    assert told == {"created": 0, "updated": 0, "known": 3}
    await yard.deliver(
        feed(status("edited", "https://x/d", "https://x/e", "https://x/f"))
    )  # signed anew
    assert await links(yard) == ["https://x/d", "https://x/e", "https://x/f"]


async def test_a_picture_more_beside_one_that_has_its_file(yard: Yard) -> None:
    link = f"{yard.at}/m/jpg/90/a"
    for written in (False, True):  # by the webhook, and by another program
        await sql(yard.place, f"DELETE FROM {TABLE}")
        await sql(yard.place, "DELETE FROM media_notices")
        if written:
            await yard.row(link, "s")
        else:
            await yard.deliver(feed(status("add", link)))
        await yard.run()
        for n in (1, 2):  # each time signed anew
            more = [f"https://x/{place}?{n}" for place in range(n + 1)]
            assert (await yard.deliver(feed(status("edited", *more))))[1] == {
                "created": 1,
                "updated": n - 1,
                "known": 1,
            }
        assert await links(yard) == sorted([link, "https://x/1?2", "https://x/2?2"])


async def test_pictures_that_an_edited_status_has_less_or_elsewhere_are_left(yard: Yard) -> None:
    await yard.deliver(feed(status("add", "https://x/0", "https://x/1", "https://x/2")))
    for photos in (("https://x/0", "https://x/2"), ("https://x/2", "https://x/1", "https://x/0")):
        assert (await yard.deliver(feed(status("edited", *photos))))[1] == {
            "created": 0,
            "updated": 0,
            "known": len(photos),
        }
        assert await links(yard) == ["https://x/0", "https://x/1", "https://x/2"]


async def test_an_edited_photo_takes_no_other_photos_link(yard: Yard) -> None:
    await yard.deliver(feed(PHOTO))
    other = PHOTO | {"verb": "edited", "photo_id": "901"}
    edits = [other | {"link": f"https://x/{n}"} for n in range(3)]
    assert (await yard.deliver(feed(*edits)))[1] == {"created": 1, "updated": 2, "known": 0}
    assert await links(yard) == sorted([PHOTO["link"], "https://x/2"])
    assert (await yard.deliver(feed(PHOTO | {"photo_id": "901", "link": "https://x/late"})))[1][
        "known"
    ] == 1


async def test_edited_again_after_a_crash_between_its_two_writes(yard: Yard) -> None:
    await yard.deliver(feed(PHOTO))
    [row] = await yard.rows()
    await yard.write(str(row["id"]), imagen_url="https://x/new")
    assert (await yard.deliver(feed(PHOTO | {"verb": "edited", "link": "https://x/new"})))[1][
        "known"
    ] == 1
    assert (await yard.deliver(feed(PHOTO | {"verb": "edited", "link": "https://x/newer"})))[1][
        "updated"
    ] == 1
    assert await links(yard) == ["https://x/newer"]


async def test_edited_leaves_a_row_that_has_ended_in_an_error_to_the_operator(yard: Yard) -> None:
    await yard.deliver(feed(PHOTO | {"link": f"{yard.at}/html"}))
    await yard.run()
    fresh = f"{yard.at}/m/jpg/90/new"
    assert (await yard.deliver(feed(PHOTO | {"verb": "edited", "link": fresh})))[1]["updated"] == 1
    [row] = await yard.rows()
    assert (row["media_status"], row["imagen_url"]) == ("error", fresh)


async def test_what_the_table_cannot_hold_does_not_keep_the_others_out(yard: Yard) -> None:
    """A signed link is longer than many a column. Sending it again would not mend it, so the answer is 200."""
    if yard.place.dialect == "postgres":
        await sql(yard.place, f"ALTER TABLE {TABLE} ALTER imagen_url TYPE varchar(200)")
    else:
        wide = "length(NEW.imagen_url) > 200"
        await sql(
            yard.place,
            f"CREATE TRIGGER narrow BEFORE INSERT ON {TABLE} WHEN {wide} BEGIN SELECT RAISE(ABORT, 'too long'); END",
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
    code, told = await yard.deliver(feed(*photos))
    assert (code, told["created"], told["known"], [e["row"] for e in told["errors"]]) == (
        200,
        3,
        0,
        [3],
    )
    assert "the table" in told["errors"][0]["error"]
    assert "ssss" not in told["errors"][0]["error"]
    assert {row["post_id"] for row in await yard.rows()} == {"1_0", "1_1", "1_3"}


async def test_a_new_link_that_the_table_cannot_hold_is_told_and_the_next_one_is_taken(
    yard: Yard,
) -> None:
    other = PHOTO | {"post_id": "1_3", "photo_id": "901", "link": "https://x/3"}
    await yard.deliver(feed(PHOTO, other))
    if yard.place.dialect == "postgres":
        await sql(yard.place, f"ALTER TABLE {TABLE} ALTER imagen_url TYPE varchar(200)")
    else:
        wide = "length(NEW.imagen_url) > 200"
        await sql(
            yard.place,
            f"CREATE TRIGGER narrow BEFORE UPDATE ON {TABLE} WHEN {wide} BEGIN SELECT RAISE(ABORT, 'too long'); END",
        )
    edited = {"verb": "edited", "link": f"https://x/{'s' * 300}"}
    code, told = await yard.deliver(
        feed(PHOTO | edited, other | {"verb": "edited", "link": "https://x/new"})
    )
    assert (code, told["updated"], told["known"], [e["row"] for e in told["errors"]]) == (
        200,
        1,
        0,
        [1],
    )
    assert "the table" in told["errors"][0]["error"]
    assert "ssss" not in told["errors"][0]["error"]
    assert {row["post_id"]: row["imagen_url"] for row in await yard.rows()} == {
        "1_2": PHOTO["link"],
        "1_3": "https://x/new",
    }
    assert (await yard.deliver(feed(PHOTO | {"verb": "edited", "link": "https://x/short"})))[1][
        "updated"
    ] == 1
    assert {row["post_id"]: row["imagen_url"] for row in await yard.rows()}[
        "1_2"
    ] == "https://x/short"


async def test_hundreds_of_updates_in_one_delivery(yard: Yard) -> None:
    values = [
        PHOTO | {"post_id": f"1_{n}", "photo_id": str(n), "link": f"https://x/{n}"}
        for n in range(400)
    ]
    assert (await yard.deliver(feed(*values)))[1]["created"] == 400
    assert (await yard.deliver(feed(*values)))[1]["known"] == 400
    assert len(await yard.rows()) == 400
    edits = [
        v | {"verb": "edited", "link": f"{v['link']}?{n}"} for n in range(2) for v in values
    ]  # the last of a post counts
    assert (await yard.deliver(feed(*edits)))[1] == {"created": 0, "updated": 800, "known": 0}
    assert {row["imagen_url"] for row in await yard.rows()} == {
        f"https://x/{n}?1" for n in range(400)
    }
