"""Lists as CSV, NDJSON and Parquet over HTTP: whole, filtered, masked."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow.parquet as pq
import pytest
from web.shop import Client, served

PARQUET = "application/vnd.apache.parquet"
TYPES = {"csv": "text/csv", "ndjson": "application/x-ndjson", "parquet": PARQUET}


async def download(shop: Client, path: str, accept: str, **headers: str) -> tuple[Any, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(shop.url + path, headers={"Accept": accept, **headers}) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return answer.headers, await answer.read()


def rows_of(form: str, body: bytes) -> list[dict[str, Any]]:
    if form == "parquet":
        rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(body)).to_pylist()
        return rows
    if form == "csv":
        return list(csv.DictReader(io.StringIO(body.decode(), newline="")))
    return [json.loads(line) for line in body.splitlines()]


@pytest.mark.parametrize("form", TYPES)
async def test_the_whole_filtered_list_is_a_file(shop: Client, form: str) -> None:
    await shop.add(*({"shop": "a", "code": f"{n:04}", "size": n % 2} for n in range(1300)))
    headers, body = await download(shop, "/api/records/items?size=1", TYPES[form])
    assert headers["Content-Type"].partition(";")[0] == TYPES[form]
    assert headers["Content-Disposition"] == f'attachment; filename="items.{form}"'
    rows = rows_of(form, body)
    assert [row["code"] for row in rows] == [f"{n:04}" for n in range(1, 1300, 2)]
    [page] = (await shop.get("/api/records/items?size=1&limit=1")).json["items"]
    assert set(rows[0]) == set(page)
    assert {str(row["size"]) for row in rows} == {"1"}
    _, first = await download(shop, "/api/records/items?order=-code&limit=2", TYPES[form])
    assert [row["code"] for row in rows_of(form, first)] == ["1299", "1298"]


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("text/html,application/xhtml+xml,*/*;q=0.8", "json"),
        ("application/json, text/csv;q=0.9", "json"),
        ("text/csv, application/json;q=0.9", "csv"),
        ("application/ndjson", "ndjson"),
        ("text/csv;q=0", "json"),
        ("text/csv;q=x", "json"),
        ("", "json"),
    ],
)
async def test_the_preferred_type_decides(shop: Client, accept: str, form: str) -> None:
    headers, _ = await download(shop, "/api/records/items", accept)
    types = TYPES | {"json": "application/json"}
    assert headers["Content-Type"].partition(";")[0] == types[form]


async def test_a_wrong_request_is_a_problem_and_no_file(shop: Client) -> None:
    accept = {"Accept": "text/csv"}
    for path, status in (
        ("/api/records/nothing", 404),
        ("/api/records/items?nothing=1", 400),
        ("/api/records/items?status=nothing", 400),
        ("/api/records/items?after=abc", 400),
        ("/api/records/items?order=nothing", 400),
    ):
        (await shop.get(path, headers=accept)).problem(status)


async def test_without_pyarrow_a_problem_names_the_extra(
    shop: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("esclusa.engine.parquet.find_spec", lambda _name: None)
    answer = await shop.get("/api/records/items", headers={"Accept": PARQUET})
    assert "pip install 'esclusa[parquet]'" in answer.problem(503)["detail"]


async def test_head_reads_no_rows(shop: Client) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.head(shop.url + "/api/records/items", headers={"Accept": "text/csv"}) as answer,
    ):
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/csv; charset=utf-8")


async def test_a_list_that_breaks_off_is_no_whole_answer(
    shop: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 3,000 records, the store gives 2,000 and then fails."""
    for part in range(3):
        await shop.add(*({"shop": "a", "code": f"{part}{n:03}"} for n in range(1000)))
    find, calls = shop.runtime.store.find, []

    async def failing(query: Any) -> Any:
        if query.kind.table == "items":
            calls.append(query)
            if len(calls) > 4:
                raise RuntimeError("the disk is gone")
        return await find(query)

    monkeypatch.setattr(shop.runtime.store, "find", failing)
    with pytest.raises(aiohttp.ClientError):
        await download(shop, "/api/records/items", "application/x-ndjson")
    assert len(calls) == 5


async def test_secrets_are_masked_for_readers(tmp_path: Path) -> None:
    async with served(
        tmp_path, tokens=f"reader={'r' * 20}:read,operator={'o' * 20}:operate"
    ) as shop:
        operate = {"Authorization": f"Bearer {'o' * 20}"}
        row = {"shop": "a", "code": "1", "note": "call https://x/?token=hunter2"}
        assert (await shop.post("/api/records/items", [row], headers=operate)).status == 200
        for form, accept in TYPES.items():
            read = {"Authorization": f"Bearer {'r' * 20}"}
            _, body = await download(shop, "/api/records/items", accept, **read)
            assert rows_of(form, body)[0]["note"] == "call https://x/?token=***"
            _, body = await download(shop, "/api/records/items", accept, **operate)
            assert rows_of(form, body)[0]["note"] == row["note"]


async def test_the_console_links_to_the_same_list(shop: Client) -> None:
    await shop.add(*({"shop": "a", "code": f"{n}", "note": "=1+1"} for n in range(60)))
    await shop.add({"shop": "b", "code": "1", "note": "token=hunter2"})
    page = (await shop.get("/console/records/items?shop=a&q=a")).text
    for form in TYPES:
        path = f"/console/records/items/export/{form}?shop=a&amp;q=a"
        assert f'href="{path}"' in page
        _, body = await download(shop, path.replace("&amp;", "&"), "text/html")
        assert len(rows_of(form, body)) == 60
    _, body = await download(shop, "/console/records/items/export/csv?shop=b", "text/html")
    assert rows_of("csv", body)[0]["note"] == "token=***"
    _, body = await download(shop, "/console/records/items/export/csv?code=5", "text/html")
    assert rows_of("csv", body)[0]["note"] == "'=1+1"
    assert (await shop.get("/console/records/items/export/xlsx")).status == 422
    assert (await shop.get("/console/records/items/export/csv?nothing=1")).status == 400


@pytest.mark.parametrize("form", TYPES)
async def test_a_file_has_the_chosen_columns(shop: Client, form: str) -> None:
    await shop.add({"shop": "a", "code": "1", "meta": {"lot": {"no": 7}, "tags": ["x"]}})
    path = "/api/records/items?columns=code,id,meta.lot.no,meta.tags,error_type"
    _, body = await download(shop, path, TYPES[form])
    [row] = rows_of(form, body)
    assert list(row) == ["code", "id", "meta.lot.no", "meta.tags", "last_error.type"]
    assert [row[name] or None for name in row] == ["1", "a:1", "7", '["x"]', None]


async def test_a_page_has_the_chosen_members(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "1", "meta": {"lot": 7}})
    answer = await shop.get("/api/records/items?columns=id,meta.lot")
    assert answer.json == {"items": [{"id": "a:1", "meta.lot": 7}], "next": None}
    wrong = (await shop.get("/api/records/items?columns=id,cod")).problem(400)
    assert "Did you mean code?" in wrong["detail"]
