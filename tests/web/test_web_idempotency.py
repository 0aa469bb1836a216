"""Idempotency-Key: a repeated call gets the first answer and does not take effect again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from web.shop import Client, gates, served

from esclusa.model.system_records import IdempotentCall


def key(value: str) -> dict[str, str]:
    return {"Idempotency-Key": value}


async def test_the_same_call_takes_effect_once(shop: Client) -> None:
    first = await shop.post(
        "/api/cycles/shop.stock/run", {"params": {"asked": 1}}, headers=key("k1")
    )
    again = await shop.post(
        "/api/cycles/shop.stock/run", {"params": {"asked": 1}}, headers=key("k1")
    )
    assert first.status == again.status == 200
    assert again.text == first.text
    assert "idempotent-replay" not in first.headers
    assert again.headers["idempotent-replay"] == "true"
    assert again.headers["content-type"] == first.headers["content-type"]
    assert len((await shop.get("/api/runs?cycle=shop.stock")).json["items"]) == 1
    other = await shop.post(
        "/api/cycles/shop.stock/run", {"params": {"asked": 1}}, headers=key("k2")
    )
    assert other.json["run"] != first.json["run"]


async def test_answers_of_inserts_moves_and_pauses_are_stored(shop: Client) -> None:
    for _ in range(2):
        added = await shop.post(
            "/api/records/items", [{"shop": "a", "code": "1", "note": "bad"}], headers=key("add")
        )
        assert added.json == {"created": 1, "known": 0, "errors": []}
    await shop.post("/api/cycles/shop.stock/run")
    for _ in range(2):
        moved = await shop.post(
            "/api/records/items/move", {"ids": ["a:1"], "to": "pending"}, headers=key("move")
        )
        assert moved.json["moved"] == 1
    for _ in range(2):
        assert (await shop.post("/api/cycles/shop.stock/pause", headers=key("pause"))).json[
            "state"
        ] == "paused"
    assert len((await shop.get("/api/audit?verb=pause")).json["items"]) == 1


async def test_a_key_belongs_to_one_call(shop: Client) -> None:
    await shop.post("/api/records/items", [{"shop": "a", "code": "1"}], headers=key("k"))
    assert (
        "new key"
        in (
            await shop.post("/api/records/items", [{"shop": "a", "code": "2"}], headers=key("k"))
        ).problem(422)["detail"]
    )
    (
        await shop.post("/api/records/sheets", [{"shop": "a", "code": "1"}], headers=key("k"))
    ).problem(422)
    assert len((await shop.get("/api/records/items")).json["items"]) == 1


async def test_a_refusal_is_stored_and_a_conflict_is_not(shop: Client) -> None:
    first = await shop.post("/api/records/items", [{"code": "1"}], headers=key("bad"))
    again = await shop.post("/api/records/items", [{"code": "1"}], headers=key("bad"))
    assert first.problem(422) == again.problem(422)
    assert again.headers["idempotent-replay"] == "true"
    await shop.post("/api/cycles/shop.stock/pause")
    (await shop.post("/api/cycles/shop.stock/run", headers=key("later"))).problem(409)
    await shop.post("/api/cycles/shop.stock/resume")
    assert (await shop.post("/api/cycles/shop.stock/run", headers=key("later"))).status == 200


async def test_a_running_call_is_not_started_again(shop: Client) -> None:
    first = asyncio.create_task(shop.post("/api/cycles/shop.slow/run", headers=key("slow")))
    await gates[-1].begun.wait()
    busy = await shop.post("/api/cycles/shop.slow/run", headers=key("slow"))
    assert "still under way" in busy.problem(409)["detail"]
    assert busy.headers["retry-after"] == "1"
    gates[-1].open.set()
    assert (await first).status == 200
    assert (await shop.post("/api/cycles/shop.slow/run", headers=key("slow"))).headers[
        "idempotent-replay"
    ] == "true"


async def test_concurrent_calls_take_effect_once(shop: Client) -> None:
    body = [{"shop": "a", "code": str(n)} for n in range(20)]
    answers = await asyncio.gather(
        *(shop.post("/api/records/items", body, headers=key("same")) for _ in range(10))
    )
    assert {a.status for a in answers} <= {200, 409}
    assert {a.json["created"] for a in answers if a.status == 200} == {20}


async def test_the_key_of_a_dead_process_can_be_taken_over(shop: Client) -> None:
    store = shop.runtime.store
    first = asyncio.create_task(shop.post("/api/cycles/shop.slow/run", headers=key("died")))
    await gates[-1].begun.wait()
    held = (await store.get(IdempotentCall.kind, [IdempotentCall.kind.id_of("api", "died")]))[0]
    assert held is not None
    assert held.leased_by == shop.runtime.engine.worker
    assert held.due_at is not None
    assert held.due_at - await store.now() <= timedelta(
        seconds=5
    )  # then another process takes it over
    gates[-1].open.set()
    await first


@pytest.mark.parametrize("bad", ["", "a b", "x" * 201, "ñ"])
async def test_an_invalid_key_is_refused(shop: Client, bad: str) -> None:
    assert (
        "Idempotency-Key"
        in (await shop.post("/api/cycles/shop.stock/run", headers=key(bad))).problem(400)["detail"]
    )


async def test_keys_belong_to_a_token(tmp_path: Path) -> None:
    async with served(tmp_path, tokens="a=aaaaaaaaaaaaaaaaaaaa,b=bbbbbbbbbbbbbbbbbbbb") as shop:
        for token in ("a" * 20, "b" * 20):
            answer = await shop.post("/api/cycles/shop.stock/run", token=token, headers=key("k"))
            assert answer.status == 200
            assert "idempotent-replay" not in answer.headers


async def test_old_keys_are_purged(shop: Client) -> None:
    await shop.post("/api/cycles/shop.stock/run", headers=key("old"))
    store = shop.runtime.store
    store.clock_offset = 3 * 86400  # type: ignore[attr-defined]
    ran = await shop.post("/api/cycles/esclusa.prune/run")
    assert ran.json["counters"]["esclusa_calls"] == 1


async def test_routes_of_a_pipeline_accept_a_key(shop: Client) -> None:
    """The middleware and the OpenAPI document do it for every route."""
    answers = [(await shop.post("/shop/visits", headers=key("visit"))).json for _ in range(2)]
    assert answers == [{"visits": 1}, {"visits": 1}]
    for replayed in (None, "true"):
        deleted = await shop.call("DELETE", "/shop/visits", headers=key("delete"))
        assert (deleted.status, deleted.text, deleted.headers.get("idempotent-replay")) == (
            204,
            "",
            replayed,
        )
        await shop.post("/shop/visits")
    assert (await shop.post("/shop/visits")).json == {"visits": 3}
    paths = (await shop.get("/openapi.json")).json["paths"]
    assert "Idempotency-Key" in str(paths["/shop/visits"]["delete"]["parameters"])
    assert "Idempotency-Key" not in str(paths["/shop/hook"]["post"])


async def test_a_key_with_too_large_a_body_is_not_stored(tmp_path: Path) -> None:
    async with served(tmp_path, body_limit=1000) as shop:

        async def parts() -> AsyncIterator[bytes]:
            for _ in range(20):
                yield b" " * 100

        (await shop.call("POST", "/api/records/items", data=parts(), headers=key("large"))).problem(
            413
        )
        assert (
            await shop.post(
                "/api/records/items", [{"shop": "a", "code": "1"}], headers=key("large")
            )
        ).json["created"] == 1
