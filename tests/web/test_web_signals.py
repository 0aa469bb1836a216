"""Signals over HTTP: by an operator's token, and by a signed webhook."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path

from web.shop import Client, served

SECRET = "a secret of the bank"


def signed(secret: str, record: str, body: str) -> dict[str, str]:
    digest = hmac.new(secret.encode(), f"{record}\n{body}".encode(), hashlib.sha256).hexdigest()
    return {"X-Esclusa-Signature": f"sha256={digest}", "Content-Type": "application/json"}


async def one_item(client: Client, **headers: str) -> str:
    await client.add({"shop": "a", "code": "1"})
    return str((await client.get("/api/records/items")).json["items"][0]["id"])


async def test_wake_sets_fields_and_keeps_the_state(shop: Client) -> None:
    id = await one_item(shop)
    woken = (await shop.post(f"/api/records/items/{id}/wake", {"fields": {"note": "now"}})).json
    assert (woken["note"], woken["status"], woken["attempts"]) == ("now", "pending", 0)
    wrong = await shop.post(f"/api/records/items/{id}/wake", {"fields": {"colour": "red"}})
    assert "colour" in wrong.problem(422)["detail"]
    (await shop.post("/api/records/items/none/wake", {})).problem(404)
    audit = (await shop.get("/api/audit")).json["items"]
    assert audit[0]["verb"] == "wake"


async def test_signal_waits_for_the_end_of_the_lease(shop: Client) -> None:
    id = await one_item(shop)
    engine = shop.runtime.engine
    held = engine.registry.request(
        engine.stages["shop.work"], ids=(id,), lease=0.2, worker="w", before=engine.clock.now()
    )
    assert await engine.store.claim(held)
    woken = await shop.post(f"/api/records/items/{id}/wake", {"fields": {"note": "now"}})
    assert (woken.status, woken.json["note"]) == (200, "now")


async def test_webhook_takes_only_signals_signed_for_the_record(tmp_path: Path) -> None:
    environ = {"ESCLUSA_WAKE_SECRET": SECRET}
    async with served(tmp_path, environ=environ) as client:
        id = await one_item(client)
        path, body = f"/webhooks/wake/items/{id}", json.dumps({"fields": {"note": "paid"}})
        for headers in (
            {},
            signed("another", f"items/{id}", body),
            signed(SECRET, "items/other", body),
            signed(SECRET, f"items/{id}", body + " "),
        ):
            refused = await client.call("POST", path, data=body, headers=headers)
            assert "X-Esclusa-Signature" in refused.problem(403)["detail"]
        record = (await client.get(f"/api/records/items/{id}")).json
        assert record["note"] is None
        done = await client.call(
            "POST", path, data=body, headers=signed(SECRET, f"items/{id}", body)
        )
        assert done.json == {"id": id, "status": "pending"}
        assert (await client.get(f"/api/records/items/{id}")).json["note"] == "paid"
        bad = "[1]"
        wrong = await client.call(
            "POST", path, data=bad, headers=signed(SECRET, f"items/{id}", bad)
        )
        assert "the body is no signal" in wrong.problem(400)["detail"]


async def test_webhook_without_a_secret_refuses_every_signal(shop: Client) -> None:
    id = await one_item(shop)
    refused = await shop.call("POST", f"/webhooks/wake/items/{id}", data="{}")
    assert "ESCLUSA_WAKE_SECRET is not set" in refused.problem(503)["detail"]
