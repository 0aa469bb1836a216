"""What a reader is told, by the API and on pages: nothing that looks like a secret, wherever a message carries it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
from web.shop import Client, served

from esclusa.model.errors import SchemaError, StoreUnavailable
from esclusa.model.system_records import Alert, Run

READ, OPERATE = "reader-secret", "operator-secret"
SAID = 'GET https://shop.example/items?token=hunter2 failed: "ExponentPushToken[hunter3]" is not registered'

ASKED = (
    "/api/status", "/api/kinds", "/api/stages", "/api/cycles", "/api/runs", "/api/dead-letters", "/api/dead-letters/groups",
    "/api/alerts", "/api/audit", "/api/views/shop.unsold", "/api/search?q=a", "/api/records/items", "/api/records/items/a:1",
    "/api/records/items/a:1/history", "/api/records/items/a:1/why", "/api/records/items/a:1/related", "/api/records/items/a:2/why",
    "/api/records/dead_letters", "/", "/console/records/items", "/console/records/items/a:1", "/console/records/items/a:2",
    "/console/search?q=a", "/console/cycles", "/console/runs", "/console/alerts", "/console/audit", "/console/dead-letters",
    "/console/dead-letters/list", "/console/views/shop.unsold", "/console/dead-letters/act?verb=redrive",
    "/console/records/items/act?verb=retry",
)  # fmt: skip


@pytest.fixture
async def safe_session(tmp_path: Path) -> AsyncIterator[Client]:
    async with served(tmp_path, tokens=f"ana={OPERATE}:operate,bob={READ}:read") as client:
        yield client


async def test_a_problem_quotes_no_secret_of_the_store(
    safe_session: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable(
            "postgresql://me:hunter2@db/x does not answer (host=db password='hunter 3')"
        )

    async def unfit(*_: object, **__: object) -> None:
        raise SchemaError("postgresql://me:hunter2@db/x", ["password=hunter3: run esclusa migrate"])

    for fault, status in ((away, 503), (unfit, 500)):
        monkeypatch.setattr(safe_session.runtime.store, "find", fault, raising=False)
        for token in (READ, OPERATE):
            for path in ("/api/records/items", "/console/records/items"):
                answer = await safe_session.get(path, token=token)
                assert answer.status == status
                assert "***" in answer.text
                assert "hunter" not in answer.text, (path, token)


async def test_a_secret_in_a_message_is_told_nowhere(safe_session: Client) -> None:
    for code, note in (("1", f"bad: {SAID}"), ("2", f"later: {SAID}")):
        await safe_session.post(
            "/api/records/items", [{"shop": "a", "code": code, "note": note}], token=OPERATE
        )
    await safe_session.post("/api/cycles/shop.stock/run", token=OPERATE)
    now = safe_session.runtime.engine.clock.now()
    run = Run(
        cycle="shop.stock", slot="x", worker="w", started_at=now, message=SAID, status="error"
    )
    await safe_session.runtime.store.insert(
        [Alert(name="broken", subject="shop.stock", message=SAID, raised_at=now), run]
    )
    await safe_session.post(
        "/api/records/items/retry", {"ids": ["a:1"], "reason": SAID}, token=OPERATE
    )
    await safe_session.post("/api/cycles/shop.stock/run", token=OPERATE)
    letter = (await safe_session.get("/api/dead-letters?status=open", token=OPERATE)).json["items"][
        0
    ]
    run_page = f"/console/runs/{quote(run.kind.identify(run, str), safe='')}"
    assert "hunter2" in (await safe_session.get("/api/records/items/a:1", token=OPERATE)).text
    told = []
    for path in (*ASKED, run_page, f"/console/dead-letters/{letter['id']}"):
        answer = await safe_session.get(path, token=READ)
        assert answer.status == 200, (path, answer.text)
        told += [path] if "hunter" in answer.text else []
    assert told == []
