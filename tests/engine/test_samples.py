"""Samples of backlogs, rolled up with the rates: series that are read in a few rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from esclusa import App, Lifecycle, Record, To
from esclusa.engine.tally import floor
from esclusa.model.system_records import RateRecord, StageSample


class Parcel(Record, table="parcels", key="name"):
    name: str
    lifecycle = Lifecycle("""
        new -> busy -> done
        busy -> new | bad
    """)


def post() -> App:
    app = App("post")

    @app.stage(Parcel, name="sort", take="new", hold="busy", exhausted="bad")
    async def sort(parcel: Parcel, at: Any) -> To:
        return To("done")

    return app


async def rate(engine: Any, minute: Any, worker: str = "w1", **counts: int) -> None:
    histogram = [0] * 18
    histogram[6] = sum(counts.values())
    row = RateRecord(
        stage="post.sort", minute=minute, worker=worker, seconds=1.0, histogram=histogram, **counts
    )
    await engine.store.insert([row])


async def samples(engine: Any, span: int) -> list[StageSample]:
    where = {"span": span}
    return [s async for s in engine.records.each(StageSample, where, order="start")]


async def test_one_process_writes_the_backlogs_of_a_minute(new_engine: Any) -> None:
    one, other = await new_engine(post()), await new_engine(post())
    await one.records.insert([Parcel(name=f"p{n}") for n in range(3)])
    one.store.clock_offset += 30
    await one.clock.sync()
    assert await one.sampler.sample()
    assert not await one.sampler.sample()
    other.store.clock_offset += 30
    await other.clock.sync()
    assert not await other.sampler.sample() or len(await samples(one, 60)) == 2
    first = (await samples(one, 60))[0].stages["post.sort"]
    assert first["due"] == 3
    assert 29 <= first["oldest"] <= 60


async def test_rates_and_backlogs_are_rolled_up_once_their_span_is_over(new_engine: Any) -> None:
    engine = await new_engine(post())
    now = engine.clock.now()
    hour = floor(now, 3600) - timedelta(hours=2)
    for minute in (0, 1, 20, 59):
        await rate(engine, hour + timedelta(minutes=minute), moved=10, retried=1)
    await rate(engine, hour, "w2", moved=5, exhausted=2)
    await engine.store.insert(
        [
            StageSample(
                span=60,
                start=hour + timedelta(minutes=minute),
                stages={"post.sort": {"due": due, "oldest": float(due)}},
            )
            for minute, due in ((0, 7), (10, 40), (30, 3))
        ]
    )
    await engine.sampler.roll_up()
    whole = {s.start: s.stages for s in await samples(engine, 3600)}
    assert whole[hour]["post.sort"]["moved"] == 45
    assert whole[hour]["post.sort"]["exhausted"] == 2
    assert whole[hour]["post.sort"]["due"] == 40
    quarters = {s.start: s.stages.get("post.sort", {}) for s in await samples(engine, 900)}
    assert [quarters[hour + timedelta(minutes=15 * n)].get("moved") for n in range(4)] == [
        25,
        10,
        None,
        10,
    ]
    before = len(quarters)
    await engine.sampler.roll_up()
    assert len(await samples(engine, 900)) == before


async def test_rates_that_a_worker_writes_late_are_rolled_up_again(new_engine: Any) -> None:
    engine = await new_engine(post())
    hour = floor(engine.clock.now(), 3600) - timedelta(hours=2)
    await engine.sampler.roll_up()
    minute = hour + timedelta(minutes=3)
    engine.rates._done.append(
        RateRecord(
            stage="post.sort", minute=minute, worker="late", moved=4, histogram=[4, *[0] * 17]
        )
    )
    await engine.rates.flush()
    assert hour not in {s.start for s in await samples(engine, 3600)}
    engine.store.clock_offset += 900
    await engine.clock.sync()
    await engine.sampler.roll_up()
    whole = {s.start: s.stages for s in await samples(engine, 3600)}
    assert whole[hour]["post.sort"]["moved"] == 4


async def test_series_agree_whether_rolled_up_or_not(new_engine: Any) -> None:
    engine = await new_engine(post())
    now = engine.clock.now()
    for minutes in (3, 40, 100, 170):
        await rate(engine, floor(now, 60) - timedelta(minutes=minutes), moved=8, retried=2)
    read_model = engine.read_model()
    raw = {over: await read_model.series(over) for over in ("hour", "day", "week", "fortnight")}
    await engine.sampler.roll_up()
    rolled = {over: await read_model.series(over) for over in ("hour", "day", "week", "fortnight")}
    assert raw == rolled
    assert {over: found[0]["total"]["moved"] for over, found in rolled.items()} == {
        "hour": 16,
        "day": 32,
        "week": 32,
        "fortnight": 32,
    }
    [day] = rolled["day"]
    assert day["total"]["error_share"] == 0.2
    assert day["total"]["p50"] == 0.1
    assert (day["stage"], day["pipeline"], day["points"]) == ("post.sort", "post", 96)
    assert sum(day["retried"]) == 8
    assert day["first"] + timedelta(seconds=900 * 96) > now


async def test_a_series_is_compared_with_the_span_before(new_engine: Any) -> None:
    engine = await new_engine(post())
    now = floor(engine.clock.now(), 60)
    await rate(engine, now - timedelta(minutes=10), moved=3)
    await rate(engine, now - timedelta(minutes=70), moved=9)
    [all_stages] = await engine.read_model().series("hour", by="all", compare=True)
    assert all_stages["total"]["moved"] == 3
    assert all_stages["previous"]["total"]["moved"] == 9
    assert all_stages["stage"] is None
    [pipeline] = await engine.read_model().series("fortnight", by="pipeline", compare=True)
    assert (pipeline["pipeline"], pipeline["previous"]) == ("post", None)


async def test_samples_are_pruned_after_two_weeks(new_engine: Any) -> None:
    engine = await new_engine(post())
    now = engine.clock.now()
    await engine.store.insert(
        [
            StageSample(span=3600, start=floor(now - timedelta(days=days), 3600))
            for days in (1, 13, 15)
        ]
    )
    await engine.run_cycle("esclusa.prune")
    assert len(await samples(engine, 3600)) == 2
