"""Names in addresses: unknown ones are refused, the id that was asked for comes first."""

from __future__ import annotations

import pytest
from web.shop import Client

from esclusa.model.texts import text
from esclusa.web.console import catalog, render, translate


@pytest.mark.parametrize(
    ("path", "status", "detail", "nearest"),
    [
        ("/api/records/items?status=workin", 400, "items has no state 'workin'", "working"),
        ("/api/records/items?siez=3", 400, "items has no field siez", "size"),
        ("/api/records/items?size.type=x", 400, "items has no field size.type", "size"),
        ("/api/records/items?order=siez", 400, "cannot be ordered by siez", "size"),
        ("/api/records/items?size__gtt=3", 400, "there is no operator 'gtt'", "gt"),
        ("/api/records/itmes", 404, "there is no kind 'itmes'", "items"),
        ("/api/views/shop.unsld", 404, "there is no view 'shop.unsld'", "shop.unsold"),
        ("/api/runs?cycle=shop.sto", 404, "there is no cycle 'shop.sto'", "shop.stock"),
        ("/api/runs?status=okk", 400, "esclusa_runs has no state 'okk'", "ok"),
        ("/api/dead-letters?table_name=itmes", 404, "there is no kind 'itmes'", "items"),
        ("/api/kinds?sytem=true", 400, "there is no parameter sytem", "system"),
    ],
)
async def test_an_unknown_name_is_refused(
    shop: Client, path: str, status: int, detail: str, nearest: str
) -> None:
    problem = (await shop.get(path)).problem(status)
    assert detail in problem["detail"]
    assert problem["detail"].endswith(f". Did you mean {nearest}?")
    assert problem["did_you_mean"] == nearest
    assert problem["code"] != "did_you_mean"


async def test_an_unknown_budget_or_target_is_refused(shop: Client) -> None:
    body = {"per": "day", "limit": 3, "reason": "x"}
    problem = (await shop.post("/api/budgets/suplier/limit", body)).problem(404)
    assert problem["did_you_mean"] == "supplier"
    hour = (await shop.post("/api/budgets/supplier/limit", body | {"per": "hour"})).problem(404)
    assert "budget supplier has no window per hour; it has day" in hour["detail"]
    move = {"ids": ["a:1"], "to": "workin", "reason": "x"}
    problem = (await shop.post("/api/records/items/move", move)).problem(409)
    assert problem["did_you_mean"] == "working"


async def test_a_search_answers_the_id_itself_first(shop: Client) -> None:
    await shop.add(*({"shop": "a", "code": code} for code in ("1", "10", "11")))
    found = (await shop.get("/api/search?q=a:1")).json["items"]
    assert [i["id"] for i in found[0]["items"]] == ["a:1"]
    opened = await shop.get("/console/search?q=a:1", allow_redirects=False)
    assert (opened.status, opened.headers["location"]) == (303, "/console/records/items/a:1")
    # no id is this one: a record whose id only begins so is offered, not opened
    await shop.add({"shop": "b", "code": "200"})
    offered = await shop.get("/console/search?q=b:2", allow_redirects=False)
    assert offered.status == 200
    assert "/console/records/items/b:200" in offered.text


async def test_a_kind_with_the_id_itself_comes_before_others(shop: Client) -> None:
    await shop.add({"shop": "plan", "code": "1"})
    answer = await shop.post("/api/records/sheets", [{"id": "plan", "title": "x"}])
    assert answer.json["errors"] == []
    found = (await shop.get("/api/search?q=plan")).json["items"]
    assert [each["table"] for each in found] == ["sheets", "items"]
    opened = await shop.get("/console/search?q=plan", allow_redirects=False)
    assert opened.headers["location"] == "/console/records/sheets/plan"


async def test_a_typed_filter_is_never_taken_for_an_id(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "1"})
    for typed in ("clour%3Dred", "a.b>3"):
        refused = await shop.get(f"/console/records/items?q={typed}", allow_redirects=False)
        assert refused.status == 400, typed
        assert "items has no field" in refused.text
        assert "shop, code, size" in refused.text
    # an id may look like a filter
    answer = await shop.post("/api/records/sheets", [{"id": "x=1", "title": "odd"}])
    assert answer.json["errors"] == []
    found = await shop.get("/console/records/sheets?q=x%3D", allow_redirects=False)
    assert (found.status, "x=1" in found.text) == (200, True)


async def test_the_forecasts_of_stages_and_budgets(shop: Client) -> None:
    await shop.add(*({"shop": "a", "code": str(n)} for n in range(3)))
    [stage] = (await shop.get("/api/stages")).json["items"]
    assert (stage["due"], stage["drain_seconds"]) == (3, None)
    assert stage["drain_note"] == "no worker runs cycle shop.work"
    await shop.runtime.store.spend(
        shop.runtime.read_model.pipelines()[0].budgets[0], 990, "shop.work"
    )
    [window] = (await shop.get("/api/budgets")).json["items"][0]["windows"]
    assert (window["waits"], window["left"]) == (True, 10)
    assert window["projected"] >= 990
    await shop.runtime.engine.run_cycle("shop.stock")
    [window] = (await shop.get("/api/budgets")).json["items"][0]["windows"]
    assert (window["waits"], window["projected"], window["runs_out_at"]) == (False, 993, None)
    page = await shop.get("/console/budgets")
    assert "Nothing waits for this budget now" in page.text


async def test_a_second_run_says_what_its_limit_let_it_take(shop: Client) -> None:
    await shop.add(*({"shop": "a", "code": str(n)} for n in range(5)))
    ran = (await shop.post("/api/cycles/shop.stock/run", {"limit": 2})).json
    assert ran["counters"]["taken"] == 2


def test_a_missing_value_is_not_written_as_none() -> None:
    template = render.environment().from_string("[{{ value }}]")
    assert template.render(value=None) == "[]"


def test_why_gives_conditions_and_periods_in_the_language_of_the_page() -> None:
    missing = text("why_filtered_eq", field="platform", wanted="x", value=text("no_value"))
    token = catalog.current.set(catalog.load("es"))
    try:
        filtered = translate.sentence(text("why_filtered", stage="a.b", conditions=missing))
        values = {"budget": "b", "left": 8, "limit": 10, "reset": "mañana", "cost": 11}
        short = translate.sentence(text("why_budget_short", per="day", **values))
    finally:
        catalog.current.reset(token)
    assert filtered == "a.b toma solo registros que cumplen: platform es x (su valor es vacío)"
    assert short.startswith("al presupuesto b le quedan 8 de 10 por día")
