"""Signals from outside: a record is due now, with data, unless a worker holds it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from esclusa import (
    App,
    Attempt,
    Backoff,
    BadRecord,
    Lifecycle,
    NotFound,
    Outcome,
    Record,
    StoreConflict,
    To,
    Wait,
)
from esclusa.testing import Harness


class Payment(Record, table="payments", key="number"):
    number: str
    answer: str | None = None
    lifecycle = Lifecycle(
        """
        asked -> asking -> paid
        asking -> asked
        """
    )


def payments() -> App:
    app = App("bank")

    @app.stage(Payment, take="asked", hold="asking", retry=Backoff(tries=None))
    async def ask(payment: Payment, at: Attempt) -> Outcome:
        if payment.answer is None:
            return Wait("2d", "the bank has not answered")
        return To("paid")

    return app


async def test_signal_with_data_is_handled_at_once(empty_database: Any) -> None:
    async with Harness(payments(), store=empty_database.url) as h:
        payment, other = await h.insert_all([Payment(number="1"), Payment(number="2")])
        h.fail(TimeoutError("slow"))
        await h.run_until_idle("1h")
        before = await h.assert_state(payment, "asked")
        woken = await h.wake(payment, answer="yes")
        assert (woken.answer, woken.attempts, woken.leased_by) == ("yes", before.attempts, None)
        await h.run_due()
        await h.assert_state(payment, "paid", answer="yes")
        await h.assert_state(other, "asked")
        signal = [step for step in await h.history(payment) if step.who == "test"]
        assert [(s.frm, s.to, s.changes) for s in signal] == [
            ("asked", "asked", {"answer": [None, "yes"]})
        ]


async def test_signal_for_a_record_under_work_waits_or_is_refused(empty_database: Any) -> None:
    async with Harness(payments(), store=empty_database.url) as h:
        payment = await h.insert(Payment(number="1"))
        waiting: list[asyncio.Task[Record]] = []

        async def signal_meanwhile(found: Payment, at: Attempt) -> Outcome:
            with pytest.raises(StoreConflict, match="being handled now"):
                await h.wake(found, answer="too early")
            signal = h.operations.wake("payments", "1", fields={"answer": "yes"}, wait=30)
            waiting.append(asyncio.create_task(signal))
            await asyncio.sleep(0.02)
            assert not waiting[0].done()
            return Wait("2d", "later")

        h.answer(signal_meanwhile, times=1)
        await h.run_due()
        await waiting[0]
        await h.run_due()
        await h.assert_state(payment, "paid", answer="yes")


async def test_wrong_signals_are_refused() -> None:
    async with Harness(payments()) as h:
        payment = await h.insert(Payment(number="1"))
        with pytest.raises(BadRecord, match="colour"):
            await h.wake(payment, colour="red")
        with pytest.raises(NotFound):
            await h.operations.wake("payments", "9")
        with pytest.raises(NotFound):
            await h.operations.wake("nothing", "1")
        await h.assert_state(payment, "asked", answer=None)
