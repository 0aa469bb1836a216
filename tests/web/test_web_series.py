"""``/api/series``: what stages did over hours, days and weeks."""

from __future__ import annotations

from datetime import timedelta

from web.shop import Client

from esclusa.model.system_records import RateRecord


async def test_series_of_a_stage_with_the_span_before(shop: Client) -> None:
    now = shop.runtime.engine.clock.now().replace(second=0, microsecond=0)
    await shop.runtime.store.insert(
        [
            RateRecord(
                stage="shop.work", minute=now - timedelta(minutes=back), worker="w", **counts
            )
            for back, counts in (
                (5, {"moved": 6, "retried": 2, "histogram": [8, *[0] * 17]}),
                (65, {"moved": 4, "histogram": [4, *[0] * 17]}),
            )
        ]
    )
    answer = await shop.get("/api/series?over=hour&stage=shop.work&compare=true")
    [series] = answer.json["items"]
    assert series["points"] == len(series["moved"]) == len(series["due"]) == 60
    assert series["moved"][-5 - (series["moved"][-6] != 0)] == 6
    assert series["total"]["error_share"] == 0.25
    assert series["total"]["p99"] == 0.001
    assert series["previous"]["total"]["moved"] == 4
    [whole] = (await shop.get("/api/series?over=fortnight&by=all&compare=true")).json["items"]
    assert (whole["total"]["moved"], whole["previous"], whole["step"]) == (10, None, 3600)


async def test_unknown_spans_stages_and_pipelines_are_refused(shop: Client) -> None:
    assert (await shop.get("/api/series?over=year")).status == 422
    detail = (await shop.get("/api/series?stage=shop.wrok")).problem(404)["detail"]
    assert "shop.work" in detail
    detail = (await shop.get("/api/series?pipeline=shep")).problem(404)["detail"]
    assert "Did you mean shop" in detail or "shop" in detail
    assert (await shop.get("/api/series?ovr=day")).status == 400


async def test_times_in_states_the_event_log_and_the_use_of_a_budget(shop: Client) -> None:
    await shop.add({"shop": "north", "code": "a"}, {"shop": "north", "code": "b"})
    times = (await shop.get("/api/time-in-state/items")).json
    assert (times["exact"], times["records"]) == (True, 2)
    assert len(times["states"][0]["slowest"]) == 2
    log = await shop.get("/api/history/export?kind=items")
    assert log.headers["content-disposition"] == 'attachment; filename="history.csv"'
    rows = log.text.splitlines()
    assert [row.split(",")[:3] for row in rows[1:]] == [
        ["items", "north:a", "created"],
        ["items", "north:b", "created"],
    ]
    ocel = (await shop.get("/api/history/export?format=ocel&kind=items")).json
    assert [each["id"] for each in ocel["objects"]] == ["items/north:a", "items/north:b"]
    later = "since=2999-01-01T00:00:00"
    assert (await shop.get(f"/api/history/export?format=ocel&{later}")).json["events"] == []
    (await shop.get("/api/history/export?kind=itms")).problem(404)
    (await shop.get("/api/time-in-state/itms")).problem(404)
    use = (await shop.get("/api/budgets/supplier/use")).json
    assert (use["per"], len(use["items"]), use["items"][-1]["used"]) == ("day", 31, 0)
