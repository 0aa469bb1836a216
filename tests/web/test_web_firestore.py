"""Every console page and every GET route on Firestore, with its indexes enforced."""

from __future__ import annotations

import asyncio
import html
import re
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from support.indexes import enforce_indexes
from web.shop import Client, ShopSettings, app, served

from esclusa.stores.firestore import indexes_for

pytestmark = pytest.mark.parametrize("provider", ["firestore"], indirect=True)


@pytest.fixture
async def shop(empty_database: Any, tmp_path: Path) -> AsyncIterator[Client]:
    """A server with done and failed items, dead letters, runs, a paused cycle and an audit."""
    with enforce_indexes(indexes_for([app.bind(ShopSettings())])):
        async with served(tmp_path, store=empty_database.url, worker=True) as client:
            await client.add(
                *[
                    {"shop": "a/b", "code": str(n), "note": "bad" if n % 3 == 0 else None}
                    for n in range(12)
                ]
            )
            async with asyncio.timeout(60):
                while (await client.get("/api/records/items?status=pending,working")).json["items"]:
                    await asyncio.sleep(0.1)
            assert (await client.post("/api/cycles/shop.stock/run")).status == 200
            assert (
                await client.post("/api/cycles/shop.slow/pause", {"reason": "a test"})
            ).status < 300
            retried = await client.post(
                "/api/records/items/retry",
                {"filter": {"status": "failed", "code": "0"}, "reason": "again"},
            )
            assert retried.json["moved"] == 1
            yield client


async def crawl(client: Client, *start: str, limit: int = 400) -> dict[str, int]:
    """Every page that links lead to, with its status."""
    seen: dict[str, int] = {}
    todo = deque(start)
    while todo and len(seen) < limit:
        path = todo.popleft()
        if path in seen or path.startswith("/console/live"):
            continue
        answer = await client.get(path, headers={"Accept": "text/html"})
        seen[path] = answer.status
        assert answer.status < 500, f"{path}: {answer.text[:2000]}"
        if "text/html" in answer.headers.get("content-type", ""):
            for link in re.findall(r'(?:href|src)="([^"]+)"', answer.text):
                to = urlsplit(urljoin(client.url + path, html.unescape(link)))
                if f"{to.scheme}://{to.netloc}" == client.url:
                    todo.append(to.path + (f"?{to.query}" if to.query else ""))
    return seen


async def test_every_page_of_the_console_opens(shop: Client) -> None:
    seen = await crawl(
        shop,
        "/",
        "/console/search?q=a",
        "/console/records?system=true",
        "/console/dead-letters/list?table_name=items",
    )
    pages = {path.partition("?")[0] for path in seen}
    assert set(seen.values()) <= {200, 404}, {p: s for p, s in seen.items() if s not in (200, 404)}
    assert [p for p, s in seen.items() if s == 404] == []
    for page in (
        "stages",
        "cycles",
        "runs",
        "budgets",
        "workers",
        "alerts",
        "audit",
        "archive",
        "dead-letters",
        "records",
        "views",
    ):
        assert f"/console/{page}" in pages, page
    assert sum(path.startswith("/console/records/items/") for path in pages) >= 10
    assert any("status=failed" in path for path in seen)


async def test_filtered_lists(shop: Client) -> None:
    for path in (
        "/console/records/items?status=failed&shop=a/b",
        "/console/records/items?status=failed&shop=a/b&note=bad",
        "/console/records/items?q=a",
        "/console/records/items?status=failed&q=a",
        "/console/dead-letters/list?table_name=items&error_type=bad_item&status=open",
        "/console/runs?cycle=shop.work&status=ok",
        "/console/audit?who=nobody&verb=retry",
        "/api/dead-letters?table_name=items&error_type=bad_item&status=open",
        "/api/runs?cycle=shop.work&status=ok",
        "/api/records/items?shop=a/b&status=done&note__null=true",
        "/api/records/items?attempts__gte=1",
        "/api/records/items?order=-updated_at&status=done&limit=2",
        "/api/records/esclusa_dead_letters?status=open&order=-created_at",
    ):
        answer = await shop.get(path)
        assert answer.status == 200, f"{path}: {answer.text[:1500]}"
    refused = (await shop.get("/api/records/items?shop=a/b&attempts__gte=1")).problem(400)
    assert "requires an index" in refused["detail"]


async def test_every_get_route_of_the_api(shop: Client) -> None:
    document = (await shop.get("/openapi.json")).json
    item = (
        (await shop.get("/api/records/items?status=failed"))
        .json["items"][0]["id"]
        .replace("%", "%25")
        .replace("/", "%2F")
    )
    known = {"table": "items", "id": item, "name": "shop.work", "cycle": "shop.work"}
    for path, verbs in document["paths"].items():
        if (
            "get" not in verbs
            or path.startswith(("/shop", "/console"))
            or "live" in path
            or "events" in path
        ):
            continue
        filled = re.sub(r"\{(\w+)\}", lambda m: known.get(m[1], "x"), path)
        answer = await shop.get(filled + ("?q=a" if filled.endswith("/search") else ""))
        assert answer.status in (200, 404), f"{filled}: {answer.status} {answer.text[:500]}"
