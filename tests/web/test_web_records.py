"""Kinds and records over HTTP."""

from __future__ import annotations

import asyncio
import html
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from web.shop import Client, Sheet, served

from esclusa.model.query import query


async def test_kinds_show_the_lifecycle_and_the_counts(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "1"}, {"shop": "a", "code": "2"})
    listed = (await shop.get("/api/kinds")).json
    assert [kind["table"] for kind in listed["items"]] == ["sheets", "items"]
    assert listed["next"] is None
    kind = (await shop.get("/api/kinds/items")).json
    assert kind["lifecycle"]["initial"] == "pending"
    assert ["working", "failed"] in kind["lifecycle"]["moves"]
    assert {c["state"]: c["count"] for c in kind["counts"]} == {
        "pending": 2,
        "working": 0,
        "done": 0,
        "failed": 0,
    }
    system = (await shop.get("/api/kinds?system=true")).json
    assert {"esclusa_runs", "esclusa_dead_letters", "esclusa_calls"} <= {
        kind["table"] for kind in system["items"]
    }
    assert (
        "there is no kind 'nothing'"
        in (await shop.get("/api/kinds/nothing")).problem(404)["detail"]
    )


async def test_pages_cover_the_whole_list(shop: Client) -> None:
    await shop.add(*({"shop": "a", "code": f"{n:02}", "size": n % 3} for n in range(25)))
    seen, after, pages = [], "", 0
    while True:
        page = (
            await shop.get(
                f"/api/records/items?limit=10&order=-size,code&after={after}"
                if after
                else "/api/records/items?limit=10&order=-size,code"
            )
        ).json
        seen += [(item["size"], item["code"]) for item in page["items"]]
        pages += 1
        if page["next"] is None:
            break
        after = page["next"]
    assert pages == 3
    assert seen == sorted(((n % 3, f"{n:02}") for n in range(25)), key=lambda s: (-s[0], s[1]))
    item = (await shop.get("/api/records/items?limit=1")).json["items"][0]
    assert {
        "id",
        "status",
        "shop",
        "attempts",
        "due_at",
        "last_error",
        "created_at",
        "updated_at",
    } <= set(item)
    assert not {"fence", "leased_by"} & set(item)


FILTERS = [
    ("size=2", ["2"]),
    ("size__gte=2", ["2", "3"]),
    ("size>=2", ["2", "3"]),
    ("size=>=2", ["2", "3"]),
    ("size>2", ["3"]),
    ("size__gt=1&size__lt=3", ["2"]),
    ("size=1&size=3", ["1", "3"]),
    ("size=1,3", ["1", "3"]),
    ("size__in=1,3", ["1", "3"]),
    ("note=null", ["1", "3"]),
    ("note__null=true", ["1", "3"]),
    ("note!=null", ["2", "4"]),
    ("note__null=false", ["2", "4"]),
    ("note=%22a,b%22", ["4"]),
    ("note__eq=a,b", ["4"]),
    ("status=pending,failed&code__lte=2", ["1", "2"]),
    ("status=done", []),
    ("shop=&size=2", ["2"]),
    ("created_at__gte=2020-01-01T00:00:00+00:00&code=1", ["1"]),
]


async def test_filters(shop: Client) -> None:
    await shop.add(
        {"shop": "a", "code": "1", "size": 1},
        {"shop": "a", "code": "2", "size": 2, "note": "x"},
        {"shop": "a", "code": "3", "size": 3},
        {"shop": "a", "code": "4", "note": "a,b"},
    )
    for question, found in FILTERS:
        answer = await shop.get(f"/api/records/items?{question}&order=code")
        assert [item["code"] for item in answer.json["items"]] == found, question


BAD_FILTERS = [
    ("colour=red", "no field colour"),
    ("size=big", "items.size"),
    ("meta=1", "holds json"),
    ("size__near=2", "no operator 'near'"),
    ("status=lost", "no state 'lost'"),
    ("order=meta", "cannot be ordered by meta"),
    ("after=nonsense", "not a cursor"),
    ("archived=true", "keeps no archive"),
    ("size__null=perhaps", "true or false"),
    ("note=%00", "null character"),
]


async def test_invalid_filters_are_refused(shop: Client) -> None:
    for question, detail in BAD_FILTERS:
        problem = (await shop.get(f"/api/records/items?{question}")).problem(400)
        assert detail in problem["detail"], question
        assert problem["title"] == "Invalid filter" or "null character" in detail
    for question in ("limit=0", "limit=many", "limit=10001", "archived=maybe"):
        problem = (await shop.get(f"/api/records/items?{question}")).problem(422)
        assert problem["faults"][0]["where"] == f"query.{question.partition('=')[0]}"


async def test_an_unexpected_error_has_its_traceback_on_the_record_page(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "1", "note": "oops: no shelf"})
    await shop.post("/api/cycles/shop.stock/run")
    error = (await shop.get("/api/records/items/a:1")).json["last_error"]
    assert (error["type"], error["attempt"]) == ("key_error", 1)
    assert "shop.py" in error["traceback"]
    steps = (await shop.get("/api/records/items/a:1/history")).json["items"]
    assert steps[-1]["error"]["traceback"] == error["traceback"]
    page = html.unescape((await shop.get("/console/records/items/a:1")).text)
    assert f"<pre>{error['traceback']}</pre>" in page


async def test_a_fault_of_the_handler_is_on_the_record_page(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "1", "note": "assign"})
    run = (await shop.post("/api/cycles/shop.stock/run")).json
    assert (run["outcome"], "handler of shop.work is wrong" in run["message"]) == ("error", True)
    record = (await shop.get("/api/records/items/a:1")).json
    assert (record["status"], record["attempts"]) == ("failed", 1)
    assert (record["last_error"]["type"], record["last_error"]["fault"]) == (
        "lost_assignment",
        True,
    )
    page = html.unescape((await shop.get("/console/records/items/a:1")).text)
    assert record["last_error"]["message"] in page
    assert "shop.py" in page


async def test_a_record_its_history_and_why(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "1", "note": "bad"})
    assert (await shop.get("/api/records/items/a:1/history")).json == {"items": [], "next": None}
    why = (await shop.get("/api/records/items/a:1/why")).json
    assert why["state"] == "pending"
    assert [r["code"] for r in why["reasons"]] == ["no_worker"]
    ran = (await shop.post("/api/cycles/shop.stock/run")).json
    assert ran["outcome"] in ("ok", "partial")
    record = (await shop.get("/api/records/items/a:1")).json
    assert (record["status"], record["last_error"]["type"]) == ("failed", "bad_item")
    steps = (await shop.get("/api/records/items/a:1/history")).json["items"]
    assert [(s["from"], s["to"]) for s in steps] == [("pending", "working"), ("working", "failed")]
    assert steps[1]["error"]["message"] == "it cannot be sold"
    assert (steps[1]["reason"], steps[1]["reason_code"]) == ("permanent error", "permanent")
    assert steps[1]["run"] == ran["run"]
    why = (await shop.get("/api/records/items/a:1/why")).json
    assert why["reasons"][0]["code"] == "exhausted"
    for path in ("", "/history", "/why"):
        problem = (await shop.get(f"/api/records/items/a:9{path}")).problem(404)
        assert "no record 'a:9' in items" in problem["detail"]
        assert problem["code"] == "record_not_found"
        assert (problem["values"]["id"], problem["values"]["table"]) == ("a:9", "items")
        (await shop.get(f"/api/records/nothing/a:1{path}")).problem(404)


IDS = [
    "plain",
    "a/b",
    "x/history",
    "x/y/why",
    "50%",
    "%2F",
    "a b",
    "ñandú",
    "a?b#c",
    ":",
    "+",
    "a,b",
    '"',
    "😀",
]


async def test_an_id_may_contain_any_character(shop: Client) -> None:
    for id in IDS:
        answer = await shop.post("/api/records/sheets", [{"id": id, "title": "t"}])
        assert answer.json == {"created": 1, "known": 0, "errors": []}
        path = quote(id, safe="")
        assert (await shop.get(f"/api/records/sheets/{path}")).json["id"] == id
        assert (await shop.get(f"/api/records/sheets/{path}/history")).json["items"] == []
        assert (await shop.get(f"/api/records/sheets/{path}/why")).json["reasons"][0][
            "code"
        ] == "no_stage"
        moved = await shop.post("/api/records/sheets/move", {"ids": [id], "to": "filed"})
        assert moved.json["moved"] == 1
        assert len((await shop.get(f"/api/records/sheets/{path}/history")).json["items"]) == 1
        product = await shop.get(f"/shop/products/{path}")  # a route of the pipeline
        assert product.json == {"code": id}
    assert (await shop.get("/api/records/sheets/no%2Fbody")).problem(404)[
        "instance"
    ] == "/api/records/sheets/no/body"


async def test_the_history_shows_what_an_operator_changed(shop: Client) -> None:
    sheet = {"id": "s", "title": "old", "access_token": "hunter22"}
    await shop.post("/api/records/sheets", [sheet])
    fields = {"title": "new", "access_token": "hunter23", "options": {}}
    await shop.post("/api/records/sheets/move", {"ids": ["s"], "to": "filed", "fields": fields})
    [step] = (await shop.get("/api/records/sheets/s/history")).json["items"]
    assert step["changes"] == {"title": ["old", "new"], "access_token": ["***", "***"]}
    page = (await shop.get("/console/records/sheets/s")).text
    assert "<del>old</del>" in page
    assert "<ins>new</ins>" in page
    assert "hunter2" not in page
    [audited] = (await shop.get("/api/audit?verb=move")).json["items"]
    assert audited["changes"] == step["changes"]
    assert "<del>old</del>" in (await shop.get("/console/audit")).text


async def test_the_history_shows_what_a_handler_logged(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "1", "note": "logged", "size": 7})
    await shop.post("/api/cycles/shop.stock/run")
    claimed, settled = (await shop.get("/api/records/items/a:1/history")).json["items"]
    assert (claimed["log"], settled["log"]["omitted"]) == (None, 0)
    [line] = settled["log"]["lines"]
    assert (line["level"], line["message"]) == ("warning", "asked the supplier")
    assert line["fields"] == {"size": 7, "api_key": "***"}
    page = (await shop.get("/console/records/items/a:1")).text
    assert "asked the supplier" in page
    assert "size=7" in page
    assert "hunter22" not in page


async def test_the_audit_shows_what_many_records_got(shop: Client) -> None:
    await shop.add(*({"shop": "a", "code": f"{n}", "size": n, "note": "bad"} for n in range(3)))
    await shop.post("/api/cycles/shop.work/run")
    body = {"filter": {"status": "failed"}, "to": "pending", "reason": "x"}
    fields = {"note": "good", "size": 7}
    await shop.post("/api/records/items/move", {**body, "fields": fields})
    [audited] = (await shop.get("/api/audit?verb=move")).json["items"]
    assert (audited["affected"], audited["changes"]) == (3, {"note": ["bad", "good"], "size": [7]})


PASTED = ["a/b", "https://x.org/y", "50%", "%2F", "a%20b", "año/día", "-100123", "a,b", "x=1"]


async def test_an_id_works_as_it_is_shown(shop: Client) -> None:
    """Pasted into an address without encoding: a client encodes only what no address contains."""
    for id in PASTED:
        await shop.post("/api/records/sheets", [{"id": id, "title": "t"}])
    for id in PASTED:
        path = quote(id, safe="/:%,=")
        assert (await shop.get(f"/api/records/sheets/{path}")).json["id"] == id
        assert (await shop.get(f"/api/records/sheets/{path}/why")).json["reasons"]
        assert (await shop.get(f"/api/records/sheets/{path}/history")).json["items"] == []
        page = await shop.get(f"/console/records/sheets/{path}", headers={"Accept": "text/html"})
        assert page.status == 200


async def test_an_encoded_id_is_preferred_to_a_pasted_one(shop: Client) -> None:
    await shop.post("/api/records/sheets", [{"id": id, "title": "t"} for id in ("a b", "a%20b")])
    assert (await shop.get("/api/records/sheets/a%20b")).json["id"] == "a b"
    assert (await shop.get("/api/records/sheets/a%2520b")).json["id"] == "a%20b"


async def test_ids_made_from_keys_can_be_requested(shop: Client) -> None:
    await shop.add({"shop": "a/b:c", "code": "100%"})
    id = (await shop.get("/api/records/items")).json["items"][0]["id"]
    assert (await shop.get(f"/api/records/items/{quote(id, safe='')}")).json["code"] == "100%"


async def test_the_archive_can_be_read(shop: Client) -> None:
    await shop.post("/api/records/sheets", [{"id": "s1", "title": "old"}])
    await shop.post("/api/records/sheets/move", {"ids": ["s1"], "to": "filed", "reason": "done"})
    assert await shop.runtime.store.archive(query(Sheet, {"status": "filed"})) == 1
    (await shop.get("/api/records/sheets/s1")).problem(404)
    assert (await shop.get("/api/records/sheets/s1?archived=true")).json["title"] == "old"
    assert [
        r["id"] for r in (await shop.get("/api/records/sheets?archived=true")).json["items"]
    ] == ["s1"]
    assert len((await shop.get("/api/records/sheets/s1/history")).json["items"]) == 1
    (await shop.get("/api/records/sheets/s2?archived=true")).problem(404)


# insert


async def test_insert_reports_row_by_row(shop: Client) -> None:
    rows = [
        {"shop": "a", "code": "1"},
        {"shop": "a", "code": "1", "size": 9},
        {"shop": "a"},
        {"shop": "a", "code": "2", "size": "big"},
        {"shop": "a", "code": "3", "colour": "red"},
        {"shop": "a", "code": "4", "status": "done"},
        {"shop": "a", "code": "5", "leased_by": "me"},
        {"shop": "a", "code": "6", "id": "mine"},
        {"shop": "a", "code": "7", "note": "nul\0"},
        {"shop": "a", "code": "8", "size": 2**70},
        "not an object",
        {"shop": "a", "code": "9", "due_at": "2030-01-01T00:00:00"},
        {"shop": "b", "code": "1", "due_at": "2030-01-01T00:00:00Z", "status": "pending"},
    ]
    answer = await shop.post("/api/records/items", rows)
    assert answer.status == 200
    report = answer.json
    assert (report["created"], report["known"]) == (2, 1)
    assert [fault["row"] for fault in report["errors"]] == [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    errors = {fault["row"]: fault["error"] for fault in report["errors"]}
    assert "code: Field required" in errors[3]
    assert "items has no such field" in errors[5]
    assert "starts in pending" in errors[6]
    assert "only the engine writes it" in errors[7]
    assert "made from the key (shop, code)" in errors[8]
    assert "null character" in errors[9]
    assert "too large" in errors[10]
    assert (await shop.get("/api/records/items/a:1")).json["size"] is None
    assert (await shop.get("/api/records/items/b:1")).json["due_at"].startswith("2030-01-01")


async def test_insert_takes_ndjson_and_one_object(shop: Client) -> None:
    lines = (
        '{"shop": "a", "code": "1"}\n\n{"shop": "a", \n'
        '{"shop": "a", "code": "2", "size": NaN}\r\n{"shop": "a", "code": "3"}'
    )
    answer = await shop.post(
        "/api/records/items",
        data=lines.encode(),
        headers={"Content-Type": "application/x-ndjson; charset=utf-8"},
    )
    assert answer.json["created"] == 2
    assert [fault["row"] for fault in answer.json["errors"]] == [3, 4]
    assert (await shop.post("/api/records/items", {"shop": "a", "code": "9"})).json["created"] == 1
    assert (await shop.post("/api/records/items", [])).json == {
        "created": 0,
        "known": 0,
        "errors": [],
    }
    # One object per line, sent with the wrong type.
    lines = b'{"shop": "b", "code": "1"}\n{"shop": "b", "code": "2"}\n'
    assert (
        await shop.post(
            "/api/records/items", data=lines, headers={"Content-Type": "application/json"}
        )
    ).json["created"] == 2
    two_lines = b'{"shop": "b",\n "code": "3"}'
    assert (
        await shop.post(
            "/api/records/items", data=two_lines, headers={"Content-Type": "application/json"}
        )
    ).json["created"] == 1


async def test_the_audit_names_who_added_records(shop: Client) -> None:
    await shop.post(
        "/api/records/items", [{"shop": "a", "code": "1"}, {"shop": "a", "code": "2"}, 7]
    )
    await shop.post("/api/records/items", [{"shop": "a", "code": "1"}])  # known: nothing was added
    acts = (await shop.get("/api/audit")).json["items"]
    assert [(a["who"], a["verb"], a["subject"], a["affected"]) for a in acts] == [
        ("api", "add", "items", 2)
    ]


async def test_insert_without_a_valid_row(shop: Client) -> None:
    problem = (await shop.post("/api/records/items", [{"code": "1"}, 7])).problem(422)
    assert (
        "none of the 2 rows is valid for items; the first: shop: Field required"
        in problem["detail"]
    )
    assert [fault["row"] for fault in problem["errors"]] == [1, 2]
    assert (await shop.get("/api/records/items")).json["items"] == []
    odd = await shop.post(
        "/api/records/items",
        data=b'[{"\\ud800": 1}, {"shop": "\\udfff"}]',
        headers={"Content-Type": "application/json"},
    )
    assert "surrogate" in odd.problem(422)["detail"]


UNREADABLE = [
    (b"{", "not JSON"),
    (b"7", "a JSON array"),
    (b"\xff\xfe", "not UTF-8"),
    (b"", "not JSON"),
    (b"[" * 100_000, "not JSON"),
]


async def test_insert_of_an_unreadable_body(shop: Client) -> None:
    for body, detail in UNREADABLE:
        answer = await shop.post(
            "/api/records/items", data=body, headers={"Content-Type": "application/json"}
        )
        assert detail in answer.problem(400)["detail"]


DEEP = [100, 250, 300, 480, 700, 900]


@pytest.mark.parametrize("depth", DEEP)
async def test_a_value_nested_too_deeply_is_an_error_of_its_row(shop: Client, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    rows = f'[{{"shop": "a", "code": "1"}}, {{"shop": "a", "code": "2", "meta": {{"x": {deep}}}}}]'
    answer = await shop.post(
        "/api/records/items", data=rows.encode(), headers={"Content-Type": "application/json"}
    )
    assert answer.status == 200, answer.text
    assert answer.json["created"] == (2 if depth < 200 else 1)
    assert [e["row"] for e in answer.json["errors"] if "nested" in e["error"]] == (
        [] if depth < 200 else [2]
    )
    assert (await shop.get("/api/records/items")).status == 200
    move = f'{{"ids": ["a:1"], "to": "working", "fields": {{"meta": {{"x": {deep}}}}}}}'
    moved = await shop.post(
        "/api/records/items/move", data=move.encode(), headers={"Content-Type": "application/json"}
    )
    if depth < 200:
        assert moved.json["moved"] == 1
    else:
        assert "nested" in moved.problem(422)["detail"]


async def test_system_tables_cannot_be_written(shop: Client) -> None:
    for table in ("esclusa_audit", "esclusa_runs", "esclusa_dead_letters"):
        assert (
            "only the engine writes it"
            in (await shop.post(f"/api/records/{table}", [{}])).problem(405)["detail"]
        )
    (await shop.post("/api/records/nothing", [{}])).problem(404)


async def test_a_large_insert(shop: Client) -> None:
    rows = "\n".join(json.dumps({"shop": "a", "code": str(n)}) for n in range(5000))
    answer = await shop.post(
        "/api/records/items", data=rows.encode(), headers={"Content-Type": "application/x-ndjson"}
    )
    assert answer.json == {"created": 5000, "known": 0, "errors": []}


async def test_a_body_has_a_limit(tmp_path: Path) -> None:
    async with served(tmp_path, body_limit=1024 * 1024) as shop:
        big = b" " * (1024 * 1024 + 1)

        async def chunks() -> object:
            for _ in range(5):
                yield b" " * (300 * 1024)

        assert (
            "larger than 1 MB"
            in (await shop.post("/api/records/items", data=io.BytesIO(big))).problem(413)["detail"]
        )
        assert (
            "larger than 1 MB"
            in (await shop.post("/api/records/items", data=chunks())).problem(413)["detail"]
        )
        assert (
            "larger than 1 MB"
            in (
                await shop.post(
                    "/api/records/items/move",
                    data=chunks(),
                    headers={"Content-Type": "application/json"},
                )
            ).problem(413)["detail"]
        )
        assert (await shop.post("/api/records/items", data=b"[]" + b" " * 1_000_000)).status == 200


# move and retry


async def test_move_by_ids_and_by_filter(shop: Client) -> None:
    await shop.add(*({"shop": "a", "code": str(n), "note": "bad", "size": n} for n in range(6)))
    await shop.post("/api/cycles/shop.stock/run")
    tried = (
        await shop.post(
            "/api/records/items/move",
            {"filter": {"size": {"gte": 4}}, "to": "pending", "dry_run": True},
        )
    ).json
    assert (tried["matched"], tried["moved"], tried["dry_run"]) == (2, 0, True)
    moved = (
        await shop.post(
            "/api/records/items/move",
            {"filter": {"size__gte": 4}, "to": "pending", "reason": "fixed"},
        )
    ).json
    assert (moved["matched"], moved["moved"]) == (2, 2)
    step = (await shop.get("/api/records/items/a:5/history")).json["items"][-1]
    assert (step["from"], step["to"], step["who"]) == ("failed", "pending", "api")
    assert (step["reason"], step["reason_code"]) == ("fixed", None)
    body = {"ids": ["a:1", "a:none"], "to": "pending", "fields": {"note": "fine"}}
    assert (await shop.post("/api/records/items/move", body)).json["moved"] == 1
    assert (await shop.get("/api/records/items/a:1")).json["note"] == "fine"
    audit = (await shop.get("/api/audit?verb=move")).json["items"]
    assert [(a["who"], a["affected"]) for a in audit] == [("api", 1), ("api", 2)]


async def test_a_move_that_is_not_declared_moves_nothing(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "1"}, {"shop": "a", "code": "2", "note": "bad"})
    await shop.post("/api/cycles/shop.stock/run")
    problem = (
        await shop.post("/api/records/items/move", {"ids": ["a:1", "a:2"], "to": "pending"})
    ).problem(409)
    assert "the move done -> pending is not declared" in problem["detail"]
    assert (problem["from"], problem["to"]) == ("done", "pending")
    assert (await shop.get("/api/records/items/a:2")).json["status"] == "failed"
    (await shop.post("/api/records/items/move", {"ids": ["a:1"], "to": "unknown"})).problem(409)


BAD_MOVES = [
    ({"to": "pending"}, 422),
    ({"to": "pending", "ids": []}, 422),
    ({"to": "pending", "filter": {}}, 422),
    ({"to": "pending", "ids": ["a"], "filter": {"size": 1}}, 422),
    ({"ids": ["a"]}, 422),
    ({"ids": ["a"], "to": "pending", "dryrun": True}, 422),
    ({"ids": "a", "to": "pending"}, 422),
    ([], 422),
    ({"filter": {"colour": 1}, "to": "pending"}, 400),
    ({"filter": {"size": {"near": 1}}, "to": "pending"}, 400),
    ({"filter": {"size": {}}, "to": "pending"}, 400),
    ({"filter": {"size": [[1]]}, "to": "pending"}, 400),
    ({"filter": {"size": {"gt": [1, 2]}}, "to": "pending"}, 400),
    ({"filter": {"note": "a\0b"}, "to": "pending"}, 422),
    ({"ids": ["a\0"], "to": "pending"}, 422),
    ({"ids": ["a"], "to": "pending", "reason": "\0"}, 422),
    ({"ids": ["a"], "to": "pending", "\udc00": 1}, 422),
    ({"filter": {"\udc00": 1}, "to": "pending"}, 422),
    ({"filter": {"note": "\ud800"}, "to": "pending"}, 422),
    ({"filter": {"status": "lost"}, "to": "pending"}, 400),
    ({"ids": ["a"], "to": "pending", "fields": {"colour": 1}}, 422),
    ({"ids": ["a"], "to": "pending", "fields": {"shop": "b"}}, 422),
    ({"ids": ["a"], "to": "pending", "fields": {"size": "big"}}, 422),
]


async def test_invalid_moves_are_refused(shop: Client) -> None:
    for body, status in BAD_MOVES:
        answer = await shop.post(
            "/api/records/items/move",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        answer.problem(status)


async def test_a_body_that_is_not_json(shop: Client) -> None:
    json_type = {"Content-Type": "application/json"}
    assert (
        "not JSON"
        in (
            await shop.post("/api/records/items/move", data=b'{"ids": [', headers=json_type)
        ).problem(400)["detail"]
    )
    problem = (
        await shop.post(
            "/api/records/items/move",
            data=b'{"ids": ["a"]}',
            headers={"Content-Type": "text/plain"},
        )
    ).problem(422)
    assert "Content-Type: application/json" in problem["detail"]
    (await shop.post("/api/records/items/move")).problem(422)


async def test_retry(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "1", "note": "bad"}, {"shop": "a", "code": "2"})
    await shop.post("/api/cycles/shop.stock/run")
    answer = (
        await shop.post("/api/records/items/retry", {"filter": {"shop": "a"}, "reason": "again"})
    ).json
    assert (answer["verb"], answer["matched"], answer["moved"]) == ("retry", 1, 1)
    assert (await shop.get("/api/records/items/a:1")).json["status"] == "pending"
    (await shop.post("/api/records/sheets/retry", {"ids": ["a"]})).problem(404)


async def test_times_have_their_zone(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "1"})
    created_at = (await shop.get("/api/records/items/a:1")).json["created_at"]
    assert abs(datetime.fromisoformat(created_at) - datetime.now(UTC)) < timedelta(minutes=1)


async def test_concurrent_inserts_add_each_record_once(shop: Client) -> None:
    rows = [{"shop": "a", "code": str(n)} for n in range(200)]
    answers = await asyncio.gather(*(shop.post("/api/records/items", rows) for _ in range(4)))
    assert sum(a.json["created"] for a in answers) == 200
    assert sum(a.json["known"] for a in answers) == 600


# unknown parameters

FILTERED = [
    "/api/records/items",
    "/api/runs",
    "/api/dead-letters",
    "/api/alerts",
    "/api/audit",
]


@pytest.mark.parametrize("path", FILTERED)
@pytest.mark.parametrize("question", ["shp=", "shp", "shp=a", "shp!=", "shp__eq=", "shp>="])
async def test_an_unknown_filter_is_refused(shop: Client, path: str, question: str) -> None:
    """Even without a value: a misspelt filter must not answer everything."""
    await shop.add({"shop": "a", "code": "1"})
    problem = (await shop.get(f"{path}?{question}")).problem(400)
    assert problem["type"] == "urn:esclusa:problem:bad-query"
    assert "shp" in problem["detail"]
    assert "status" in problem["detail"]  # it names the known ones


async def test_a_known_filter_without_a_value_is_ignored(shop: Client) -> None:
    """HTML forms send those."""
    await shop.add({"shop": "a", "code": "1"})
    answer = await shop.get("/api/records/items?shop=&status=&note&limit=5")
    assert [item["code"] for item in answer.json["items"]] == ["1"]
    archived = await shop.get("/api/records/sheets?archived=true&export_id=")
    assert archived.json["items"] == []
    (await shop.get("/api/records/sheets?export_id=")).problem(400)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/kinds?status="),
        ("GET", "/api/kinds/items?status=done"),
        ("GET", "/api/workers?status=running"),
        ("GET", "/api/stages?table=items"),
        ("GET", "/api/cycles?cycle=shop.stock"),
        ("GET", "/api/budgets?budget=x"),
        ("GET", "/api/views?pipelin=shop"),
        ("GET", "/api/views/shop.unsold?status=done"),
        ("GET", "/api/status?x="),
        ("GET", "/api/search?q=a&table=items"),
        ("GET", "/api/records/items/a:1/history?status=done"),
        ("POST", "/api/cycles/shop.stock/run?limit=1"),
        ("POST", "/api/records/items/move?dry_run=true"),
    ],
)
async def test_an_unknown_parameter_is_refused(shop: Client, method: str, path: str) -> None:
    await shop.add({"shop": "a", "code": "1"})
    name = path.partition("?")[2].rpartition("&")[2].partition("=")[0]
    problem = (await shop.call(method, path, json=None if method == "GET" else {})).problem(400)
    assert f"there is no parameter {name}; there are: " in problem["detail"]


@pytest.mark.parametrize(
    "path", ["items?shp=", "items?_field=&shp=", "items/act?verb=retry&shp=", "items?shop>b"]
)
async def test_the_console_refuses_an_unknown_filter(shop: Client, path: str) -> None:
    await shop.add({"shop": "a", "code": "1", "note": "in the list"})
    answer = await shop.get(f"/console/records/{path}")
    if "shp" in path:
        assert (answer.status, "has no field shp; it has " in answer.text) == (400, True)
    else:
        assert (answer.status, "in the list" in answer.text) == (200, False)


@pytest.mark.parametrize(
    "text", ["'; DROP TABLE items; --", 'x"; DROP TABLE items; --', "id) OR 1=1 --", "1=1", "`id`"]
)
async def test_a_hostile_text_is_neither_a_name_nor_part_of_a_statement(
    shop: Client, text: str
) -> None:
    await shop.add({"shop": "a", "code": "1"}, {"shop": text, "code": text, "note": text})
    written = quote(text, safe="")
    for question in (f"{written}=1", f"{written}__eq=1", f"order={written}", f"after={written}"):
        (await shop.get(f"/api/records/items?{question}")).problem(400)
    (await shop.get(f"/api/records/{written}")).problem(404)
    found = (await shop.get(f"/api/records/items?note__eq={written}")).json["items"]
    assert [item["note"] for item in found] == [text]
    moved = {"filter": {text: "x"}, "to": "pending"}
    (await shop.post("/api/records/items/move", moved)).problem(400)
    assert len((await shop.get("/api/records/items")).json["items"]) == 2


async def test_every_list_accepts_a_page(shop: Client) -> None:
    for path in ("/api/kinds", "/api/workers", "/api/budgets", "/api/stages", "/api/cycles"):
        assert (await shop.get(f"{path}?limit=10&after=")).status == 200, path
