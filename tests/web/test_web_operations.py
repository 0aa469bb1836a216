"""Cycles, runs, budgets, dead letters, stages, workers, alerts, views and search over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from web.shop import Client, Sheet, gates, served


async def test_a_run_answers_its_result(shop: Client) -> None:
    await shop.add(*({"shop": "a", "code": str(n)} for n in range(5)))
    ran = (await shop.post("/api/cycles/shop.stock/run", {"limit": 3, "params": {"asked": 7}})).json
    assert set(ran) == {"run", "cycle", "outcome", "counters", "message", "files"}
    assert (ran["cycle"], ran["outcome"], ran["message"]) == ("shop.stock", "ok", None)
    assert (ran["counters"]["taken"], ran["counters"]["done"], ran["counters"]["asked"]) == (
        3,
        3,
        7,
    )
    listed = (await shop.get("/api/runs?cycle=shop.stock")).json
    assert [run["run"] for run in listed["items"]] == [ran["run"]]
    one = (await shop.get(f"/api/runs/{quote(ran['run'], safe='')}")).json
    assert (one["outcome"], one["counters"]["asked"], one["worker"]) == (
        "ok",
        7,
        shop.runtime.engine.worker,
    )
    assert (await shop.get("/api/runs?status=error,partial")).json["items"] == []
    assert "no state 'lost'" in (await shop.get("/api/runs?status=lost")).problem(400)["detail"]
    (await shop.get("/api/runs/nothing")).problem(404)
    assert [
        run["run"]
        for run in (await shop.get("/api/runs?duration_ms__gte=0&cycle=shop.stock")).json["items"]
    ] == [ran["run"]]
    assert "has no field outcom" in (await shop.get("/api/runs?outcom=ok")).problem(400)["detail"]
    assert (
        "has no field nothing" in (await shop.get("/api/alerts?nothing=1")).problem(400)["detail"]
    )
    assert (await shop.get("/api/alerts?status=raised")).json["items"] == []
    audit = (await shop.get("/api/audit")).json["items"]
    assert [(a["verb"], a["subject"], a["affected"]) for a in audit] == [
        ("run", "shop.stock", 3),
        ("add", "items", 5),
    ]


async def test_a_running_cycle_is_not_started_again(shop: Client) -> None:
    first = asyncio.create_task(shop.post("/api/cycles/shop.slow/run"))
    await gates[-1].begun.wait()
    assert "running now" in (await shop.post("/api/cycles/shop.slow/run")).problem(409)["detail"]
    states = {
        cycle["cycle"]: cycle["state"] for cycle in (await shop.get("/api/cycles")).json["items"]
    }
    assert states == {"shop.work": "idle", "shop.slow": "running", "shop.stock": "idle"}
    running = (await shop.get("/api/runs?cycle=shop.slow")).json["items"][0]
    assert (running["status"], running["outcome"]) == ("running", None)
    resumed = await shop.post("/api/cycles/shop.slow/resume")  # it was not paused
    assert resumed.json["state"] == "running"
    gates[-1].open.set()
    assert (await first).json["counters"] == {"slept": 1}


async def test_pause_and_resume(shop: Client) -> None:
    paused = (await shop.post("/api/cycles/shop.stock/pause", {"reason": "inventory"})).json
    assert (paused["cycle"], paused["state"]) == ("shop.stock", "paused")
    assert (paused["pause"]["by"], paused["pause"]["reason"]) == ("api", "inventory")
    assert paused["pause"]["since"] is not None
    assert (await shop.post("/api/cycles/shop.stock/pause")).json["state"] == "paused"
    assert (
        "resume it first" in (await shop.post("/api/cycles/shop.stock/run")).problem(409)["detail"]
    )
    resumed = (await shop.post("/api/cycles/shop.stock/resume")).json
    assert (resumed["state"], resumed["pause"]) == ("idle", None)
    assert (await shop.post("/api/cycles/shop.stock/run")).json["outcome"] == "ok"
    for verb in ("run", "pause", "resume"):
        assert (
            "no cycle 'shop.none'"
            in (await shop.post(f"/api/cycles/shop.none/{verb}")).problem(404)["detail"]
        )
    assert [a["verb"] for a in (await shop.get("/api/audit")).json["items"]] == [
        "run",
        "resume",
        "pause",
    ]


@pytest.mark.parametrize("body", [{"limit": 0}, {"limit": "few"}, {"speed": 1}, {"params": []}])
async def test_an_invalid_run_request_is_refused(shop: Client, body: object) -> None:
    (await shop.post("/api/cycles/shop.stock/run", body)).problem(422)


async def test_dead_letters_are_listed_redriven_and_discarded(shop: Client) -> None:
    await shop.add(*({"shop": "a", "code": str(n), "note": "bad"} for n in range(3)))
    await shop.post("/api/cycles/shop.stock/run")
    letters = (await shop.get("/api/dead-letters?status=open&error_type=bad_item")).json["items"]
    assert {letter["record_id"] for letter in letters} == {"a:0", "a:1", "a:2"}
    ids = {letter["record_id"]: letter["id"] for letter in letters}
    redriven = (
        await shop.post(
            "/api/dead-letters/redrive",
            {"ids": [ids["a:0"]], "fields": {"note": "good"}, "reason": "fixed"},
        )
    ).json
    assert (redriven["verb"], redriven["moved"]) == ("redrive", 1)
    record = (await shop.get("/api/records/items/a:0")).json
    assert (record["status"], record["note"], record["attempts"]) == ("pending", "good", 0)
    discarded = (
        await shop.post(
            "/api/dead-letters/discard", {"filter": {"record_id": "a:1"}, "reason": "sold out"}
        )
    ).json
    assert discarded["moved"] == 1
    assert [
        letter["record_id"]
        for letter in (await shop.get("/api/dead-letters?status=open")).json["items"]
    ] == ["a:2"]
    tried = (
        await shop.post(
            "/api/dead-letters/redrive", {"filter": {"table_name": "items"}, "dry_run": True}
        )
    ).json
    assert (tried["matched"], tried["moved"]) == (1, 0)
    (await shop.post("/api/dead-letters/redrive", {})).problem(422)
    (await shop.post("/api/dead-letters/discard", {"filter": {"colour": 1}})).problem(400)
    assert (await shop.get("/api/status")).json["dead_letters"] == 1


async def test_a_redrive_with_invalid_fields_is_refused(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "1", "note": "bad"})
    await shop.post("/api/cycles/shop.stock/run")
    answer = await shop.post(
        "/api/dead-letters/redrive",
        {"filter": {"table_name": "items"}, "fields": {"colour": "red"}},
    )
    assert answer.status == 422, answer.text
    assert (await shop.get("/api/dead-letters?status=open")).json["items"]


async def test_budgets_stages_workers_alerts_and_status(shop: Client) -> None:
    await shop.add(
        {"shop": "a", "code": "1"}, {"shop": "a", "code": "2", "due_at": "2099-01-01T00:00:00Z"}
    )
    stage = (await shop.get("/api/stages")).json["items"][0]
    assert (stage["stage"], stage["due"], stage["take"]) == ("shop.work", 1, ["pending"])
    assert stage["oldest_due_seconds"] >= 0
    assert len((await shop.get("/api/stages?system=true")).json["items"]) > 1
    await shop.post("/api/cycles/shop.stock/run")
    window = (await shop.get("/api/budgets")).json["items"][0]["windows"][0]
    assert (window["budget"], window["per"], window["used"], window["left"]) == (
        "supplier",
        "day",
        1,
        999,
    )
    assert sum(window["spenders"].values()) == 1
    await shop.runtime.engine.alerts.begin("test", "shop.work", "check this", items=3)
    alert = (await shop.get("/api/alerts?limit=1")).json["items"][0]
    assert (alert["key"], alert["details"], alert["ended_at"]) == (
        "test:shop.work",
        {"items": 3},
        None,
    )
    await shop.runtime.engine.alerts.end("test", "shop.work")
    [alert] = (await shop.get("/api/alerts?status=ended")).json["items"]
    assert alert["begun_at"] < alert["ended_at"]
    assert (await shop.get("/api/workers")).json == {"items": [], "next": None}
    status = (await shop.get("/api/status")).json
    assert {
        "now",
        "store",
        "kinds",
        "stages",
        "cycles",
        "budgets",
        "workers",
        "dead_letters",
    } <= set(status)
    assert len((await shop.get("/api/cycles?system=true")).json["items"]) > 3


async def test_a_server_with_a_worker_runs_stages(tmp_path: Path) -> None:
    async with served(tmp_path, worker=True) as shop:
        await shop.add({"shop": "a", "code": "1"})
        async with asyncio.timeout(10):
            while (await shop.get("/api/records/items/a:1")).json["status"] != "done":
                await asyncio.sleep(0.02)
        workers = (await shop.get("/api/workers")).json["items"]
        assert [w["alive"] for w in workers] == [True]
        assert (await shop.post("/api/cycles/shop.work/run")).problem(409)  # it is always on


async def test_views_of_a_pipeline(shop: Client) -> None:
    await shop.add(
        *({"shop": "a", "code": str(n), "note": "bad"} for n in range(3)),
        {"shop": "a", "code": "good"},
    )
    await shop.post("/api/cycles/shop.stock/run")
    view = {"view": "shop.unsold", "table": "items", "count": 3, "exact": True}
    view["title"] = {"en": "Items that cannot be sold", "es": "Artículos que no se venden"}
    assert (
        (await shop.get("/api/views")).json["items"]
        == (await shop.get("/api/views?pipeline=shop")).json["items"]
        == [view]
    )
    assert (await shop.get("/api/views?pipeline=other")).json["items"] == []
    first = (await shop.get("/api/views/shop.unsold?limit=2")).json
    assert first["columns"] == ["id", "code", "why"]
    assert first["items"][0] == {"id": "a:0", "code": "0", "why": "bad_item"}
    rest = (await shop.get(f"/api/views/shop.unsold?limit=2&after={first['next']}")).json
    assert ([i["code"] for i in rest["items"]], rest["next"]) == (["2"], None)
    (await shop.get("/api/views/shop.unsold?after=nonsense")).problem(400)
    assert "shop.unsold" in (await shop.get("/api/views/shop.nothing")).problem(404)["detail"]


async def test_search_by_id_or_its_beginning(shop: Client) -> None:
    await shop.add(
        {"shop": "a", "code": "1"}, {"shop": "a", "code": "12"}, {"shop": "b", "code": "1"}
    )
    found = (await shop.get("/api/search?q=a:1")).json["items"]
    assert [(f["table"], [i["id"] for i in f["items"]]) for f in found] == [("items", ["a:1"])]
    assert [i["id"] for i in (await shop.get("/api/search?q=a:")).json["items"][0]["items"]] == [
        "a:1",
        "a:12",
    ]
    assert (await shop.get("/api/search?q=zzz")).json["items"] == []
    (await shop.get("/api/search")).problem(422)


async def test_search_finds_ids_that_continue_with_any_character(shop: Client) -> None:
    await shop.runtime.engine.records.insert(
        [Sheet(id=id, title="t") for id in ("plan-b", "plan-\uffff", "plan-\U0001f6a2")]
    )
    [found] = (await shop.get("/api/search?q=plan-")).json["items"]
    assert {item["id"] for item in found["items"]} == {"plan-b", "plan-\uffff", "plan-\U0001f6a2"}
    assert "3 records" in (await shop.get("/console/records/sheets?q=plan-")).text


async def test_a_run_shows_what_it_moved_and_its_usual_duration(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "1"}, {"shop": "a", "code": "2", "note": "bad"})
    ids = {item["id"] for item in (await shop.get("/api/records/items")).json["items"]}
    run = (await shop.post("/api/cycles/shop.stock/run")).json["run"]
    found = (await shop.get(f"/api/runs/{run}")).json
    moved = {(m["result"], m["to"]): (m["table"], m["count"], m["ids"]) for m in found["moves"]}
    assert {id for _, _, newest in moved.values() for id in newest} == ids
    assert {result for result, _ in moved} == {"moved", "exhausted"}
    assert found["usual_seconds"] is None  # too few runs
    for n in range(3, 7):
        await shop.add({"shop": "a", "code": str(n)})
        await shop.post("/api/cycles/shop.stock/run")
    assert (await shop.get(f"/api/runs/{run}")).json["usual_seconds"] >= 0


async def test_why_says_who_paused_the_cycle(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "7"})
    [id] = [item["id"] for item in (await shop.get("/api/records/items")).json["items"]]
    await shop.post("/api/cycles/shop.work/pause", {"reason": "inventory"})
    reasons = (await shop.get(f"/api/records/items/{id}/why")).json["reasons"]
    [paused] = [reason["text"] for reason in reasons if reason["code"] == "paused"]
    assert paused.startswith("cycle shop.work was paused by api at 20")
    assert ": inventory; resume it with 'esclusa resume shop.work'" in paused


async def test_rules_for_alerts_are_changed_and_muted(shop: Client) -> None:
    def rule(answer: dict[str, Any], subject: str) -> dict[str, Any]:
        return next(i for i in answer["items"] if (i["rule"], i["subject"]) == ("backlog", subject))

    assert rule((await shop.get("/api/alert-rules")).json, "*")["threshold"] == 3600.0
    body = {"rule": "backlog", "subject": "shop.work", "threshold": "2h", "reason": "slow"}
    changed = (await shop.call("PUT", "/api/alert-rules", json=body)).json
    assert (changed["threshold"], changed["declared"]) == (7200.0, 3600.0)
    assert changed["changed"]["reason"] == "slow"
    both = await shop.call("PUT", "/api/alert-rules", json=body | {"reset": True})
    assert "either 'threshold' or 'reset'" in str(both.problem(422))
    reset = {"rule": "backlog", "subject": "shop.work", "reset": True}
    assert (await shop.call("PUT", "/api/alert-rules", json=reset)).json["threshold"] == 3600.0
    await shop.runtime.engine.alerts.begin("test", "shop.work", "check this")
    mute = {"name": "test", "subject": "shop.work", "for": "2h", "note": "known"}
    assert (await shop.post("/api/alerts/mute", mute)).json["mutes"][0]["note"] == "known"
    [alert] = (await shop.get("/api/alerts?name=test")).json["items"]
    assert alert["mute"]["note"] == "known"
    unmute = {"name": "test", "subject": "shop.work"}
    assert (await shop.post("/api/alerts/unmute", unmute)).json["mutes"] == []
    refused = await shop.post("/api/alerts/mute", mute | {"for": "a while"})
    assert "'a while' is not a duration" in refused.problem(400)["detail"]


async def test_an_action_of_a_pipeline(shop: Client) -> None:
    await shop.add(
        *({"shop": "a", "code": str(n), "note": "bad", "size": n} for n in range(3)),
    )
    await shop.post("/api/cycles/shop.stock/run")
    [action] = (await shop.get("/api/actions")).json["items"]
    assert (action["action"], action["table"]) == ("shop.sell-again", "items")
    path = "/api/actions/shop/sell-again"
    would = (await shop.post(path, {"filter": {}, "dry_run": True})).json
    assert (would["matched"], would["moved"], would["dry_run"]) == (3, 0, True)
    assert would["passed"] == [{"id": "a:0", "why": "it has no size"}]
    done = (await shop.post(path, {"filter": {"size__gte": 2}, "reason": "new customers"})).json
    assert (done["matched"], done["moved"]) == (1, 1)
    assert "needs ids or a filter" in (await shop.post(path, {})).problem(400)["detail"]
    both = await shop.post(path, {"ids": ["a:1"], "filter": {}})
    assert "not both" in str(both.problem(422))
    assert (await shop.post("/api/actions/shop/sell", {"filter": {}})).status == 404
