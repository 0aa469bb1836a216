"""Records in undeclared states, as the API shows and repairs them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from web.shop import Client


@pytest.fixture
async def strange(shop: Client, tmp_path: Path) -> Client:
    """Three items, two of them in a state that another version wrote."""
    await shop.add(*({"shop": "a", "code": code} for code in "123"))
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("UPDATE items SET status = 'on hold' WHERE code <> '3'")
    connection.close()
    return shop


async def test_readiness_names_table_state_and_count(strange: Client) -> None:
    answer = await strange.get("/readyz")
    assert answer.status == 503
    [check] = [c for c in answer.json["checks"] if c["verdict"] == "fail"]
    assert check["name"] == "states"
    assert check["text"] == "items: records in 'on hold', which is not one of its states: 2"
    assert "esclusa repair items" in check["do"]


async def test_undeclared_states_are_counted_and_listed(strange: Client) -> None:
    counts = (await strange.get("/api/kinds/items")).json["counts"]
    assert {"state": "on hold", "count": 2, "exact": True} in counts
    listed = (await strange.get("/api/records/items?status=on%20hold")).json["items"]
    assert [item["id"] for item in listed] == ["a:1", "a:2"]
    misspelt = await strange.get("/api/records/items?status=onhold")
    assert misspelt.status == 400
    assert "items has no state 'onhold'" in misspelt.json["detail"]


async def test_why_and_move_say_the_truth(strange: Client) -> None:
    why = (await strange.get("/api/records/items/a:1/why")).json
    assert [reason["code"] for reason in why["reasons"]] == ["unknown_state"]
    assert "'on hold' is not a state of items, and Esclusa did not write it" in why["answer"]
    refused = await strange.post("/api/records/items/move", {"ids": ["a:1"], "to": "working"})
    assert refused.status == 409
    assert refused.json["type"].endswith("undeclared-state")
    assert "esclusa repair items --from 'on hold' --to" in refused.json["detail"]


async def test_a_repair_moves_what_a_preview_counts(strange: Client) -> None:
    body = {"from": "on hold", "to": "pending", "reason": "the hold is over"}
    preview = await strange.post("/api/records/items/repair", body | {"dry_run": True})
    assert (preview.json["matched"], preview.json["moved"]) == (2, 0)
    refused = await strange.post("/api/records/items/repair", body | {"reason": ""})
    assert refused.status == 400
    assert "a repair needs a reason" in refused.json["detail"]
    done = await strange.post("/api/records/items/repair", body)
    assert (done.json["verb"], done.json["moved"]) == ("repair", 2)
    history = (await strange.get("/api/records/items/a:1/history")).json["items"]
    assert [(h["from"], h["to"], h["reason"]) for h in history] == [
        ("on hold", "pending", "the hold is over")
    ]
    [audit] = (await strange.get("/api/audit?verb=repair")).json["items"]
    assert (audit["subject"], audit["affected"]) == ("items", 2)
    assert (await strange.get("/readyz")).status == 200


async def test_lifecycles_are_compared(strange: Client) -> None:
    found = {d["table"]: d for d in (await strange.get("/api/lifecycles")).json["items"]}
    assert found["items"]["undeclared"] == [{"state": "on hold", "count": 2, "exact": True}]
    assert (found["items"]["stranded"], found["sheets"]["stranded"]) == (2, 0)
    assert found["items"]["known"] is True
