"""API and console show the role read nothing that looks like a secret, in any message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
from web.shop import Client, served

from esclusa.model.errors import SchemaError, StoreUnavailable
from esclusa.model.system_records import Alert, Run

READ, OPERATE = "reader-secret", "operator-secret"
MESSAGE = (
    "GET https://shop.example/items?token=hunter2 failed:"
    ' "ExponentPushToken[hunter3]" is not registered'
)

PATHS = (
    "/api/status",
    "/api/kinds",
    "/api/stages",
    "/api/cycles",
    "/api/runs",
    "/api/dead-letters",
    "/api/dead-letters/groups",
    "/api/alerts",
    "/api/audit",
    "/api/views/shop.unsold",
    "/api/search?q=a",
    "/api/records/items",
    "/api/records/items/a:1",
    "/api/records/items/a:1/history",
    "/api/records/items/a:1/why",
    "/api/records/items/a:1/related",
    "/api/records/items/a:2/why",
    "/api/records/items/a:3",
    "/api/records/items/a:3/history",
    "/api/records/esclusa_dead_letters",
    "/",
    "/console/records/items",
    "/console/records/items/a:1",
    "/console/records/items/a:2",
    "/console/records/items/a:3",
    "/console/search?q=a",
    "/console/cycles",
    "/console/runs",
    "/console/alerts",
    "/console/audit",
    "/console/dead-letters",
    "/console/dead-letters/list",
    "/console/views/shop.unsold",
    "/console/dead-letters/act?verb=redrive",
    "/console/records/items/act?verb=retry",
)


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Client]:
    async with served(tmp_path, tokens=f"ana={OPERATE}:operate,bob={READ}:read") as client:
        yield client


async def test_a_problem_contains_no_secret_of_the_store(
    secured: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object, **__: object) -> None:
        raise StoreUnavailable(
            "postgresql://me:hunter2@db/x does not answer (host=db password='hunter 3')"
        )

    async def wrong_schema(*_: object, **__: object) -> None:
        raise SchemaError("postgresql://me:hunter2@db/x", ["password=hunter3: run esclusa migrate"])

    for fault, status in ((unavailable, 503), (wrong_schema, 500)):
        monkeypatch.setattr(secured.runtime.store, "find", fault, raising=False)
        for token in (READ, OPERATE):
            for path in ("/api/records/items", "/console/records/items"):
                answer = await secured.get(path, token=token)
                assert answer.status == status
                assert "***" in answer.text
                assert "hunter" not in answer.text, (path, token)


async def test_a_secret_in_a_message_is_shown_nowhere(secured: Client) -> None:
    notes = {"1": f"bad: {MESSAGE}", "2": f"later: {MESSAGE}", "3": f"oops: {MESSAGE}"}
    for code, note in notes.items():
        await secured.post(
            "/api/records/items", [{"shop": "a", "code": code, "note": note}], token=OPERATE
        )
    await secured.post("/api/cycles/shop.stock/run", token=OPERATE)
    now = secured.runtime.engine.clock.now()
    run = Run(
        cycle="shop.stock", slot="x", worker="w", started_at=now, message=MESSAGE, status="error"
    )
    await secured.runtime.store.insert(
        [Alert(name="broken", subject="shop.stock", message=MESSAGE, begun_at=now), run]
    )
    await secured.post(
        "/api/records/items/retry", {"ids": ["a:1"], "reason": MESSAGE}, token=OPERATE
    )
    await secured.post("/api/cycles/shop.stock/run", token=OPERATE)
    letter = (await secured.get("/api/dead-letters?status=open", token=OPERATE)).json["items"][0]
    run_page = f"/console/runs/{quote(run.kind.identify(run, str), safe='')}"
    assert "hunter2" in (await secured.get("/api/records/items/a:1", token=OPERATE)).text
    leaks = []
    for path in (*PATHS, run_page, f"/console/dead-letters/{letter['id']}"):
        answer = await secured.get(path, token=READ)
        assert answer.status == 200, (path, answer.text)
        leaks += [path] if "hunter" in answer.text else []
    assert leaks == []
