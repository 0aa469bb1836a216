"""The test kit drives a pipeline as a worker does, without sleeping, and fails loudly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from esclusa import (
    App,
    Attempt,
    Backoff,
    Budget,
    Create,
    DeadLetter,
    Lifecycle,
    NotFound,
    Outcome,
    Record,
    Retry,
    RunContext,
    SettingsError,
    To,
    Wait,
    Window,
    publish,
)
from esclusa.model.errors import UndeclaredMove
from esclusa.testing import HandlerFaults, Harness, SyncHarness


class Order(Record, table="orders", key="number"):
    number: str
    receipt: str | None = None
    lifecycle = Lifecycle(
        """
        new -> paying -> paid -> shipped
        paying -> new | failed
        failed -> new
        paid -> lost
        """
    )


class Invoice(Record, table="invoices", key="number"):
    number: str
    lifecycle = Lifecycle("open -> sent")


CALLS = Budget("payments", Window("day", 100))


def shop(seen: list[str] | None = None) -> App:
    app = App("shop", records=[Invoice])

    @app.stage(
        Order,
        take="new",
        hold="paying",
        exhausted="failed",
        retry=Backoff(tries=3, base="10s"),
        budget=CALLS,
        every="5m",
    )
    async def pay(order: Order, at: Attempt) -> Outcome:
        if seen is not None:
            seen.append(order.number)
        if order.receipt is None:
            await at.save(receipt=f"R-{order.number}")
        also = [Create(Invoice(number=order.number)), publish("paid", {"order": order.number})]
        return To("paid", also=also)

    app.deadline(Order, "paid", after="2d", to="lost")
    return app


@pytest.fixture
async def h() -> AsyncIterator[Harness]:
    async with Harness(shop()) as harness:
        yield harness


async def test_record_is_handled_with_its_fields_effects_messages_and_history(h: Harness) -> None:
    order = await h.insert(Order(number="1"))
    pay, deadline = await h.run_due()
    assert pay.counters["paid"] == 1
    assert deadline.cycle.name == "shop.paid-deadline"
    paid = await h.assert_state(order, "paid", receipt="R-1")
    assert paid.attempts == 1
    assert await h.path(order) == ["new", "paying", "paid"]
    assert [step.who for step in await h.history(order)][-1] == "test-1"
    assert [e.record.number for e in h.effects if isinstance(e.record, Invoice)] == ["1"]
    assert (await h.record(Invoice, "1")).status == "open"
    assert [m.data for m in await h.messages("paid")] == [{"order": "1"}]
    assert await h.messages("other") == []
    assert await h.dead_letters() == []


async def test_failed_calls_are_retried_by_skipping_and_end_in_a_dead_letter(h: Harness) -> None:
    order = await h.insert(Order(number="1"))
    h.fail(TimeoutError("slow"), times=3)
    await h.run_due()
    await h.assert_state(order, "new", attempts=1)
    assert await h.run_due() == []  # its backoff is not over
    await h.run_until_idle("1h")
    failed = await h.assert_state(order, "failed", attempts=3)
    assert failed.last_error is not None
    [letter] = await h.dead_letters()
    assert (letter.record_id, letter.error_type) == (order.id, "timeout")
    assert isinstance(h.effects[0], Create)
    assert isinstance(h.effects[0].record, DeadLetter)
    await h.retry(order)
    await h.run_due()
    await h.assert_state(order, "paid")
    assert await h.dead_letters() == []


async def test_the_third_call_fails_and_no_other(h: Harness) -> None:
    orders = await h.insert_all([Order(number=str(n)) for n in range(3)])
    h.fail(ConnectionError("cut"), stage="pay", call=3)
    await h.run_due()
    states = [(await h.record(order)).status for order in orders]
    assert sorted(states) == ["new", "paid", "paid"]
    assert [type(call.error) for call in h.calls] == [type(None), type(None), ConnectionError]


async def test_deadline_comes_after_two_days_with_its_alert(h: Harness) -> None:
    order = await h.insert(Order(number="1"))
    await h.run_due()
    await h.skip(days=1, hours=23)
    await h.run_due()
    await h.assert_state(order, "paid")
    await h.skip("1h 1m")
    await h.run_due()
    await h.assert_state(order, "lost")
    assert [alert.name for alert in await h.alerts()] == ["deadline"]


async def test_spent_budget_holds_records_back_until_its_window_opens() -> None:
    start = datetime(2026, 3, 1, 12, tzinfo=UTC)
    async with Harness(shop(), now=start) as h:
        assert abs((h.now - start).total_seconds()) < 5
        await h.spend("payments")
        order = await h.insert(Order(number="1"))
        [run] = await h.run_due()
        assert run.outcome == "blocked"
        await h.assert_state(order, "new", attempts=0)
        assert "payments" in await h.why(order)
        with pytest.raises(AssertionError, match="does not have 1 units"):
            await h.spend("payments", 1)
        await h.run_until_idle("13h")
        await h.assert_state(order, "paid")
        assert (h.now - start).total_seconds() >= 12 * 3600 - 5


@pytest.mark.parametrize("point", ["before_handler", "after_save", "after_handler"])
async def test_killed_worker_settles_nothing_and_another_takes_over(point: Any) -> None:
    seen: list[str] = []
    async with Harness(shop(seen)) as h:
        order = await h.insert(Order(number="1"))
        h.kill(point)
        await h.run_due()
        held = await h.assert_state(order, "paying", attempts=1)
        assert held.leased_by == "test-1"
        assert held.receipt == (None if point == "before_handler" else "R-1")
        assert await h.all_records(Invoice) == []
        assert h.effects == []
        await h.run_due()
        await h.assert_state(order, "paying")  # the lease lasts
        await h.skip_lease()
        await h.run_due()
        paid = await h.assert_state(order, "paid", attempts=1)  # one of several suspects
        assert paid.leased_by is None
        assert seen == ["1"] * (1 if point == "before_handler" else 2)
        assert len(await h.all_records(Invoice)) == 1


async def test_worker_killed_after_the_settlement_has_settled(h: Harness) -> None:
    order = await h.insert(Order(number="1"))
    h.kill("after_settle")
    await h.run_due()
    await h.assert_state(order, "paid")
    await h.skip_lease()
    await h.run_due()
    assert [call.stage for call in h.calls] == ["shop.pay"]


async def test_crashes_in_a_row_exhaust_the_record_that_causes_them(h: Harness) -> None:
    order = await h.insert(Order(number="1"))
    for _ in range(5):  # twice more than its three attempts
        h.kill("after_handler")
        await h.run_due()
        await h.skip_lease()
    await h.run_due()
    await h.assert_state(order, "failed", attempts=3)


async def test_answers_stand_in_for_a_handler(h: Harness) -> None:
    first, second = await h.insert_all([Order(number="1"), Order(number="2")])
    h.answer(Wait("1h", "closed"), times=1)
    h.answer(lambda order, at: To("paid", receipt=f"{order.number}!"), call=2)
    await h.run_until_idle("3h")
    for order in (first, second):
        await h.assert_state(order, "paid", receipt=f"{order.number}!")
    assert len(h.calls) == 3


async def test_operator_moves_only_where_the_lifecycle_allows(h: Harness) -> None:
    order = await h.insert(Order(number="1"))
    await h.run_due()
    await h.move(order, "shipped", receipt="by hand")
    await h.assert_state(order, "shipped", receipt="by hand")
    with pytest.raises(UndeclaredMove, match="shipped"):
        await h.move(order, "new")


# failures explain themselves


async def test_wrong_state_is_explained(h: Harness) -> None:
    order = await h.insert(Order(number="1"))
    h.fail(TimeoutError("the bank is slow"))
    await h.run_due()
    with pytest.raises(AssertionError) as caught:
        await h.assert_state(order, "paid", receipt="x")
    message = str(caught.value)
    assert "status is 'new', not 'paid'" in message
    assert "receipt is None, not 'x'" in message
    assert "the bank is slow" in message
    assert "why: " in message
    with pytest.raises(AssertionError, match=r"orders has no state 'payed'; it has new"):
        await h.assert_state(order, "payed")
    with pytest.raises(NotFound, match="orders: there is no record 9"):
        await h.record(Order, "9")


async def test_orders_for_calls_that_were_not_made_fail_the_test() -> None:
    async def never_fails() -> None:
        async with Harness(shop()) as h:
            await h.insert(Order(number="1"))
            h.fail(TimeoutError(), stage="pay", call=2)
            await h.run_due()

    with pytest.raises(AssertionError, match=r"fail.*call 2 of shop.pay, but there were 1"):
        await never_fails()


def with_handler(handler: Any) -> App:
    app = App("faulty")
    app.stage(Order, take="new", retry=Backoff(tries=None))(handler)
    return app


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda order: To("gone"), "gone"),
        (lambda order: To("paying", colour="red"), "colour"),
        (lambda order: None, "NoneType"),
        (lambda order: order.no_such_field, "no_such_field"),
        (lambda order: 1 + "1", "TypeError"),
    ],
)
async def test_faults_of_the_code_are_raised_in_the_test(
    answer: Callable[[Any], Any], says: str
) -> None:
    async def handle(order: Order, at: Attempt) -> Any:
        return answer(order)

    def handle_in_thread(order: Order, at: Attempt) -> Any:
        return answer(order)

    for handler in (handle, handle_in_thread):
        async with Harness(with_handler(handler)) as h:
            await h.insert(Order(number="1"))
            with pytest.raises(HandlerFaults, match=says) as caught:
                await h.run_due()
            assert len(caught.value.faults) == 1


async def test_faults_can_be_left_to_the_record() -> None:
    async def handle(order: Order, at: Attempt) -> Any:
        raise TypeError("wrong")

    async with Harness(with_handler(handle), raise_faults=False) as h:
        order = await h.insert(Order(number="1"))
        await h.run_due()
        await h.assert_state(order, "new", attempts=1)


async def test_handler_without_an_end_is_named() -> None:
    async def handle(order: Order, at: Attempt) -> Any:
        return Wait(0, "again")

    async with Harness(with_handler(handle)) as h:
        await h.insert(Order(number="1"))
        with pytest.raises(AssertionError, match=r"still due for faulty.handle: .*Wait\(0\)"):
            await h.run_due()


# other forms


async def test_cycles_run_by_their_schedule_or_by_name() -> None:
    ran: list[Any] = []
    app = App("clock", records=[Order])

    @app.cycle(every="1h")
    async def hourly(run: RunContext) -> None:
        ran.append(run.params)

    @app.cycle()
    async def manual(run: RunContext) -> None:
        ran.append("manual")

    # Whatever the time of day, the first hour ends an hour after the test's beginning.
    async with Harness(app, now=datetime(2026, 3, 2, 15, 59, 30, tzinfo=UTC)) as h:
        await h.skip("59m")
        assert await h.run_due() == []
        await h.skip("1m")
        await h.run_due()
        assert ran == [{}]
        await h.run("manual")
        await h.run("clock.hourly", params={"a": 1})
        assert ran[1:] == ["manual", {"a": 1}]
        await h.skip("59m")
        assert await h.run_due() == []
        await h.skip("1m")
        await h.run_due()
        assert len(ran) == 4


async def test_singleton_cycle_runs_at_its_interval() -> None:
    ran: list[str] = []
    app = App("clock", records=[Order])

    @app.cycle(every="1h", singleton=True)
    async def hourly(run: RunContext) -> None:
        ran.append(run.id)

    async with Harness(app) as h:
        await h.run_due()
        assert ran == []
        for _ in range(2):
            await h.skip("1h")
            await h.run_due()
        assert len(ran) == 2


async def test_context_replaces_the_lifespan() -> None:
    app = App("open")

    @app.lifespan
    async def session(settings: Any) -> AsyncIterator[str]:
        raise RuntimeError("no network in tests")
        yield ""

    @app.stage(Order, take="new", retry=Backoff(tries=None))
    async def pay(order: Order, at: Attempt) -> Outcome:
        return To("paying", receipt=at.context)

    async with Harness(app, context="simulated") as h:
        order = await h.insert(Order(number="1"))
        await h.run_due()
        await h.assert_state(order, "paying", receipt="simulated")


async def test_batches_and_plain_functions() -> None:
    app = App("batch")

    @app.stage(Order, take="new", batch=2, retry=Backoff(tries=None))
    def pay(orders: list[Order], at: Attempt) -> list[Outcome]:
        return [To("paying", receipt=order.number) for order in orders]

    async with Harness(app) as h:
        h.fail(TimeoutError(), call=1)
        h.answer(Retry("again", after="1m"), call=2, times=1)
        orders = await h.insert_all([Order(number=str(n)) for n in range(4)])
        await h.run_until_idle("1d")
        for order in orders:
            await h.assert_state(order, "paying", receipt=order.number, attempts=2)


def test_plain_functions_and_plain_asyncio() -> None:
    with SyncHarness(shop()) as h:
        order = h.insert(Order(number="1"))
        h.kill("after_handler")
        h.run_due()
        h.skip_lease()
        h.run_due()
        assert h.assert_state(order, "paid").receipt == "R-1"

    async def main() -> None:
        async with Harness(shop()) as harness:
            order = await harness.insert(Order(number="1"))
            await harness.run_due()
            await harness.assert_state(order, "paid")

    asyncio.run(main())


async def test_harness_must_be_open() -> None:
    with pytest.raises(RuntimeError, match="not open"):
        await Harness(shop()).insert(Order(number="1"))
    with pytest.raises(ValueError, match="time zone"):
        Harness(shop(), now=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="shop has no setting key; it has none"):
        async with Harness(shop(), settings={"key": 1}):
            pass
    with pytest.raises(SettingsError, match="or 'memory'"):
        await Harness(shop(), store="mysql://x").__aenter__()


# on servers


async def test_same_meaning_on_each_store(empty_database: Any) -> None:
    async with Harness(shop(), store=empty_database.url) as h:
        order = await h.insert(Order(number="1"))
        h.fail(TimeoutError("slow"))
        h.kill("after_handler", call=2)
        await h.run_until_idle("1d")
        await h.assert_state(order, "paid", attempts=2)
        assert len(h.calls) == 3
        assert [m.data for m in await h.messages("paid")] == [{"order": "1"}]
        assert (await h.record(Invoice, "1")).status == "open"
