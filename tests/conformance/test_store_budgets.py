"""Budgets: shared by all workers, never overspent."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from conformance.helpers import NOON, advance, retry_transient, set_clock

from esclusa.model.budget import Budget, Denied, Granted, Rate, Window
from esclusa.model.errors import NotFound

DAY = Budget("day", Window("day", 10, "America/Santiago"))
BOTH = Budget("both", Window("minute", 5), Window("month", 12))


@pytest.fixture
async def clock(store: Any) -> datetime:
    return await set_clock(store)


async def used(store: Any, budget: Budget) -> list[int]:
    return [w.used for w in await store.usage(budget)]


@pytest.mark.usefixtures("clock")
async def test_a_new_budget_is_unused(store: Any) -> None:
    [use] = await store.usage(DAY)
    window = DAY.windows[0]
    assert (use.budget, use.per, use.limit, use.used, use.left, use.spenders) == (
        "day",
        "day",
        10,
        0,
        10,
        {},
    )
    assert (use.start, use.reset) == (window.start(NOON), window.reset(NOON))
    assert [w.per for w in await store.usage(BOTH)] == ["minute", "month"]


@pytest.mark.usefixtures("clock")
async def test_a_spend_is_granted_in_part_then_denied_until_the_reset(store: Any) -> None:
    assert await store.spend(DAY, 7, "a") == Granted(7)
    assert await store.spend(DAY, 7, "b") == Granted(3)
    assert await store.spend(DAY, 1, "b") == Denied(DAY.windows[0].reset(NOON))
    assert await used(store, DAY) == [10]


@pytest.mark.usefixtures("clock")
async def test_less_than_the_least_reserves_nothing(store: Any) -> None:
    await store.spend(DAY, 7, "a")
    assert await store.spend(DAY, 7, "a", least=4) == Denied(DAY.windows[0].reset(NOON))
    assert await used(store, DAY) == [7]
    assert await store.spend(DAY, 7, "a", least=3) == Granted(3)


@pytest.mark.promise(6)
@pytest.mark.usefixtures("clock")
async def test_every_window_must_have_room(store: Any) -> None:
    assert await store.spend(BOTH, 9, "a") == Granted(5)
    assert await store.spend(BOTH, 1, "a") == Denied(NOON.replace(second=0) + timedelta(minutes=1))
    advance(store, seconds=60)
    assert await store.spend(BOTH, 9, "a") == Granted(5)
    advance(store, seconds=60)
    assert await store.spend(BOTH, 9, "a") == Granted(2)
    july = datetime(2030, 7, 1, tzinfo=UTC)
    assert await store.spend(BOTH, 1, "a") == Denied(
        july
    )  # the minute has room, the month has none
    advance(store, seconds=60)
    assert await used(store, BOTH) == [0, 12]
    await set_clock(store, july + timedelta(seconds=1))
    assert await used(store, BOTH) == [0, 0]
    assert await store.spend(BOTH, 1, "a") == Granted(1)


@pytest.mark.usefixtures("clock")
async def test_denied_until_the_latest_reset_of_the_windows_that_lack_room(store: Any) -> None:
    tight = Budget("tight", Window("minute", 2), Window("day", 2), Window("hour", 100))
    assert await store.spend(tight, 2, "a") == Granted(2)
    assert await store.spend(tight, 1, "a") == Denied(datetime(2030, 6, 13, tzinfo=UTC))


@pytest.mark.promise(6)
async def test_a_day_ends_at_the_providers_midnight(store: Any) -> None:
    midnight = datetime(2030, 6, 13, 4, 0, tzinfo=UTC)  # Santiago in winter
    await set_clock(store, midnight - timedelta(seconds=30))
    assert await store.spend(DAY, 99, "a") == Granted(10)
    assert await store.spend(DAY, 1, "a") == Denied(midnight)
    advance(store, seconds=31)
    assert await store.spend(DAY, 99, "a") == Granted(10)


@pytest.mark.usefixtures("clock")
async def test_a_limit_of_zero_denies(store: Any) -> None:
    none = Budget("none", Window("hour", 0))
    assert await store.spend(none, 1, "a") == Denied(datetime(2030, 6, 12, 13, tzinfo=UTC))


@pytest.mark.usefixtures("clock")
async def test_refund_gives_back_and_never_goes_below_zero(store: Any) -> None:
    await store.spend(BOTH, 4, "a")
    await store.refund(BOTH, 3, "a")
    assert await used(store, BOTH) == [1, 1]
    await store.refund(BOTH, 30, "a")
    assert await used(store, BOTH) == [0, 0]
    assert await store.spend(BOTH, 9, "a") == Granted(5)
    advance(store, seconds=60)
    await store.refund(BOTH, 2, "a")  # that minute is over: only the month gets it back
    assert await used(store, BOTH) == [0, 3]
    await store.refund(Budget("never seen", Window("day", 1)), 1, "a")
    assert await used(store, Budget("never seen", Window("day", 1))) == [0]


@pytest.mark.promise(6)
@pytest.mark.usefixtures("clock")
async def test_a_refund_returns_only_what_was_spent(store: Any) -> None:
    await store.spend(DAY, 10, "a")
    await store.refund(DAY, 5, "b")  # spent nothing
    assert await used(store, DAY) == [10]
    assert isinstance(await store.spend(DAY, 1, "c"), Denied)


@pytest.mark.promise(6)
@pytest.mark.usefixtures("clock")
async def test_a_refund_does_not_reach_a_window_that_began_after_the_grant(store: Any) -> None:
    granted = await store.spend(BOTH, 5, "a")
    advance(store, seconds=60)
    assert await store.spend(BOTH, 5, "a") == Granted(5)
    await store.refund(BOTH, 4, "a", granted.at)
    assert await used(store, BOTH) == [
        5,
        6,
    ]  # the new minute keeps its five; the month gets four back


@pytest.mark.usefixtures("clock")
async def test_zero_or_fewer_units_than_the_least_are_granted(store: Any) -> None:
    assert await store.spend(DAY, 0, "a") == Granted(0)
    assert await store.spend(DAY, 2, "a", 5) == Granted(2)
    assert await used(store, DAY) == [2]


@pytest.mark.usefixtures("clock")
async def test_usage_names_the_spenders(store: Any) -> None:
    await store.spend(DAY, 2, "replies.process-posts")
    await store.spend(DAY, 3, 'ñ "quoted"')
    await store.spend(DAY, 1, "replies.process-posts")
    await store.refund(DAY, 1, 'ñ "quoted"')
    [use] = await store.usage(DAY)
    assert use.spenders == {"replies.process-posts": 3, 'ñ "quoted"': 2}
    assert use.used == 5


@pytest.mark.usefixtures("clock")
async def test_usage_reports_when_the_provider_refuses(store: Any) -> None:
    until = await store.now() + timedelta(seconds=30)
    await store.observe(BOTH, "minute", until=until)
    assert {use.barred for use in await store.usage(BOTH)} == {until}
    advance(store, seconds=31)
    assert {use.barred for use in await store.usage(BOTH)} == {None}


@pytest.mark.usefixtures("clock")
async def test_the_providers_figures_override_ours(store: Any) -> None:
    await store.spend(DAY, 2, "a")
    await store.observe(DAY, "day", used=6)
    assert await used(store, DAY) == [6]
    await store.observe(DAY, "day", used=1)
    assert await used(store, DAY) == [6]
    await store.observe(DAY, "day", limit=8)
    [use] = await store.usage(DAY)
    assert (use.limit, use.used, use.left) == (8, 6, 2)
    assert await store.spend(DAY, 9, "a") == Granted(2)
    await store.observe(DAY, "day", limit=20, used=9)
    assert await store.spend(DAY, 99, "a") == Granted(11)
    advance(store, seconds=86400)
    [use] = await store.usage(DAY)
    assert (use.limit, use.used) == (10, 0)


@pytest.mark.usefixtures("clock")
async def test_units_are_denied_before_until(store: Any) -> None:
    until = NOON + timedelta(minutes=10)
    await store.observe(BOTH, "month", until=until)
    assert await store.spend(BOTH, 1, "a") == Denied(until)
    assert await used(store, BOTH) == [0, 0]
    advance(store, seconds=601)
    assert await store.spend(BOTH, 1, "a") == Granted(1)


@pytest.mark.usefixtures("clock")
async def test_until_outlasts_the_window_in_which_it_was_observed(store: Any) -> None:
    until = NOON + timedelta(minutes=10)
    await store.observe(BOTH, "minute", until=until)
    advance(store, seconds=300)
    assert await store.spend(BOTH, 1, "a") == Denied(until)
    advance(store, seconds=301)
    assert await store.spend(BOTH, 1, "a") == Granted(1)


@pytest.mark.usefixtures("clock")
async def test_an_unknown_window_is_named(store: Any) -> None:
    with pytest.raises(NotFound, match="day has no window per second; it has day"):
        await store.observe(DAY, "second", used=1)


@pytest.mark.usefixtures("clock")
async def test_budgets_are_separate_by_name(store: Any) -> None:
    await store.spend(DAY, 10, "a")
    assert await store.spend(Budget("day-2", *DAY.windows), 10, "a") == Granted(10)


@pytest.mark.promise(6)
async def test_many_workers_never_overspend_together(store: Any, new_store: Any) -> None:
    stores = [store, await new_store(), await new_store()]
    for each in stores:
        await set_clock(each)
    budget = Budget("shared", Window("day", 100), Window("month", 130))

    async def spender(n: int) -> int:
        got = 0
        for k in range(12):
            answer = await retry_transient(stores[n % 3].spend, budget, 1 + (n + k) % 4, f"w{n}")
            if isinstance(answer, Denied):
                break
            got += answer.units
        return got

    spent = await asyncio.gather(*(spender(n) for n in range(9)))
    assert sum(spent) == 100
    uses = await store.usage(budget)
    assert [u.used for u in uses] == [100, 100]
    assert uses[0].spenders == {f"w{n}": units for n, units in enumerate(spent) if units}


@pytest.mark.promise(6)
async def test_spends_and_refunds_balance_under_concurrency(store: Any, new_store: Any) -> None:
    stores = [store, await new_store()]
    for each in stores:
        await set_clock(each)
    budget = Budget("balance", Window("day", 20))

    async def worker(n: int) -> None:
        for _ in range(10):
            answer = await retry_transient(stores[n % 2].spend, budget, 5, f"w{n}", least=5)
            if isinstance(answer, Granted):
                assert (await stores[n % 2].usage(budget))[0].used <= 20
                await retry_transient(stores[n % 2].refund, budget, 5, f"w{n}")

    await asyncio.gather(*(worker(n) for n in range(6)))
    assert await used(store, budget) == [0]


# rates


@pytest.mark.promise(6)
@pytest.mark.usefixtures("clock")
async def test_a_rate_spaces_its_units_evenly(store: Any) -> None:
    even = Budget("even", Rate(6, "minute"))
    first = await store.spend(even, 5, "a")
    assert first == Granted(1)
    denied = await store.spend(even, 5, "b")
    assert denied == Denied(first.at + timedelta(seconds=10))
    advance(store, seconds=10)
    assert await store.spend(even, 5, "b") == Granted(1)
    assert isinstance(await store.spend(even, 1, "a"), Denied)
    [use] = await store.usage(even)
    assert (use.used, use.left, use.burst, use.spenders) == (2, 4, 1, {"a": 1, "b": 1})
    assert use.free_at is not None


@pytest.mark.promise(6)
@pytest.mark.usefixtures("clock")
async def test_a_rate_holds_in_every_span_of_its_period(store: Any) -> None:
    rate = Budget("span", Rate(10, "minute", burst=4), Window("day", 1000))
    granted: list[tuple[datetime, int]] = []
    for step in (0, 3, 3, 9, 1, 14, 40, 2, 2, 30, 30, 59, 1, 1, 1, 5, 5, 60, 6, 6, 6):
        advance(store, seconds=step)
        answer = await store.spend(rate, 7, "a")
        if isinstance(answer, Granted):
            granted.append((answer.at, answer.units))
    assert max(units for _, units in granted) == 4
    for begin, _ in granted:
        end = begin + timedelta(minutes=1)
        assert sum(units for at, units in granted if begin <= at < end) <= 10
    assert sum(units for _, units in granted) >= 30  # of 47: time passes while nothing is owed


@pytest.mark.usefixtures("clock")
async def test_a_rate_gives_back_and_keeps_weights(store: Any) -> None:
    rate = Budget("weights", Rate(10, "minute", burst=4))
    granted = await store.spend(rate, 3, "a", least=3)
    assert granted == Granted(3)
    assert isinstance(await store.spend(rate, 3, "a", least=3), Denied)
    await store.refund(rate, 2, "a", granted.at)
    assert await used(store, rate) == [1]
    assert await store.spend(rate, 3, "a", least=3) == Granted(3)
    await store.refund(rate, 9, "b")
    assert await used(store, rate) == [4]
    advance(store, seconds=61)
    assert await store.spend(rate, 6, "a", least=6) == Granted(6)  # more than the burst
    denied = await store.spend(rate, 6, "a", least=6)
    assert isinstance(denied, Denied)
    advance(store, seconds=(denied.until - await store.now()).total_seconds() + 0.001)
    assert await store.spend(rate, 6, "a", least=6) == Granted(6)


@pytest.mark.usefixtures("clock")
async def test_a_rate_learns_from_the_provider(store: Any) -> None:
    rate = Budget("learns", Rate(10, "minute", burst=10))
    await store.spend(rate, 2, "a")
    await store.observe(rate, "minute", used=9)
    assert await store.spend(rate, 5, "a") == Granted(1)
    await store.observe(rate, "minute", limit=20)
    advance(store, seconds=30)
    assert (await store.usage(rate))[0].limit == 20
    assert await store.spend(rate, 50, "a") == Granted(10)


@pytest.mark.promise(6)
async def test_many_workers_share_one_rate(store: Any, new_store: Any) -> None:
    stores = [store, await new_store(), await new_store()]
    rate = Budget("shared rate", Rate(20, "second", burst=3))
    granted: list[tuple[datetime, int]] = []

    async def spender(n: int) -> None:
        each, end = stores[n % 3], asyncio.get_running_loop().time() + 3
        while asyncio.get_running_loop().time() < end:
            answer = await retry_transient(each.spend, rate, 2, f"w{n}")
            if isinstance(answer, Granted):
                granted.append((answer.at, answer.units))
            else:
                await asyncio.sleep((answer.until - await each.now()).total_seconds())

    await asyncio.gather(*(spender(n) for n in range(4)))
    for begin, _ in granted:
        end = begin + timedelta(seconds=1)
        assert sum(units for at, units in granted if begin <= at < end) <= 20
    assert sum(units for _, units in granted) > 20


@pytest.mark.usefixtures("clock")
async def test_turns_of_a_rate_are_reserved_ahead(store: Any) -> None:
    """Each has its own time, evenly spaced; one that is too far ahead is denied."""
    budget = Budget("turns", Rate(10, "minute"))
    answers = [await store.spend(budget, 2, "s", least=2, ahead=200.0) for _ in range(8)]
    assert all(isinstance(answer, Granted) for answer in answers)
    times = [answer.at for answer in answers]
    for earlier, later in pairwise(times):
        assert later - earlier >= timedelta(seconds=12) - timedelta(milliseconds=1)
    for first, sixth in zip(times, times[5:], strict=False):
        assert sixth - first >= timedelta(minutes=1)
    assert answers[0].wait == 0
    assert 60 < answers[-1].wait <= 84
    refused = await store.spend(budget, 2, "s", least=2, ahead=5.0)
    assert isinstance(refused, Denied)
    assert refused.until > times[-1]
    both = Budget("both rates", Rate(10, "minute"), Window("day", 3, "America/Santiago"))
    assert isinstance(await store.spend(both, 2, "s", least=2, ahead=60.0), Granted)
    refused = await store.spend(both, 2, "s", least=2, ahead=60.0)
    assert refused == Denied(both.windows[1].reset(await store.now()))


@pytest.mark.promise(6)
@pytest.mark.usefixtures("clock")
async def test_units_that_reach_the_provider_late_stay_within_the_rate(store: Any) -> None:
    """Whichever of them are late, and also after a missed turn is given back."""
    budget = Budget("late", Rate(10, "minute", late=6))
    turns = [(await store.spend(budget, 2, "s", least=2, ahead=500.0)).at for _ in range(12)]
    assert turns[1] - turns[0] >= timedelta(seconds=13.2)
    await store.refund(budget, 2, "s", turns[9])
    again = (await store.spend(budget, 2, "s", least=2, ahead=500.0)).at
    assert again < turns[-1] + timedelta(seconds=13)  # the turn is not lost
    kept = sorted([*turns[:9], *turns[10:], again])
    for number, first in enumerate(kept):
        late = [first + timedelta(seconds=6), *kept[number + 1 :]]
        assert sum(2 for turn in late if turn < late[0] + timedelta(minutes=1)) <= 10


@pytest.mark.usefixtures("clock")
async def test_the_use_of_past_windows_is_kept(store: Any) -> None:
    window = DAY.windows[0]
    assert isinstance(window, Window)
    starts = [window.start(NOON)]
    await store.spend(DAY, 4, "a")
    for _ in range(2):
        advance(store, seconds=86_400)
        starts.append(window.reset(starts[-1]))
    await store.spend(DAY, 2, "b")
    await store.observe(DAY, "day", limit=8)
    wanted = [*starts, starts[0] - timedelta(days=40)]
    past = await store.past_usage(DAY, window, wanted)
    assert [(each.start, each.used, each.limit, each.spenders) for each in past if each.used] == [
        (starts[0], 4, 10, {"a": 4}),
        (starts[2], 2, 8, {"b": 2}),
    ]
    assert await store.past_usage(Budget("other", window), window, starts) == []
