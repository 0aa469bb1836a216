"""The examples of waiting, joining and deciding do what they say, on each store."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from esclusa import App, Attempt, Backoff, Outcome, Permanent, To
from esclusa.loading import load_app
from esclusa.model.errors import BadQuery, DeclarationError
from esclusa.testing import Harness
from esclusa.waiting import Children

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> tuple[App, Any]:
    app = load_app(f"{EXAMPLES / name}.py:app")
    return app, sys.modules[f"esclusa_file_{name}"]


async def parcels(h: Harness, m: Any) -> dict[str, int]:
    return dict(Counter(parcel.status for parcel in await h.all_records(m.Parcel)))


async def test_join_waits_for_all_children(empty_database: Any) -> None:
    app, m = example("join")
    async with Harness(app, store=empty_database.url) as h:
        order = await h.insert(m.Order(number="1", parcels=3))
        empty = await h.insert(m.Order(number="2", parcels=0))
        h.fail(TimeoutError("no box"), stage="pack", call=2)
        await h.run_due()
        await h.assert_state(empty, "shipped")  # zero children
        await h.assert_state(order, "packing")
        assert "1 of 3 parcels are not packed" in await h.why(order)
        await h.run_until_idle("1h")
        await h.assert_state(order, "shipped")
        assert await parcels(h, m) == {"packed": 3}


async def test_one_failed_child_cancels_and_compensates_the_others(empty_database: Any) -> None:
    app, m = example("join")
    async with Harness(app, store=empty_database.url) as h:
        order = await h.insert(m.Order(number="1", parcels=3))
        h.fail(Permanent("lost"), stage="pack", call=1)
        h.answer(m.Wait("5m", "no box"), stage="pack", call=2, times=1)
        await h.run_until_idle("1h")
        await h.assert_state(order, "failed")
        assert await parcels(h, m) == {"missing": 1, "cancelled": 1, "unpacked": 1}


async def test_wrong_states_of_children_are_named() -> None:
    _, m = example("join")
    app = App("wrong")

    @app.stage(m.Order, take="new", retry=Backoff(tries=None))
    async def split(order: Any, at: Attempt) -> Outcome:
        with pytest.raises(DeclarationError, match="'done' is not one of its states"):
            Children(at, m.Parcel, done="done", order_id=order.id)
        return To("packing")

    async with Harness(app) as h:
        order = await h.insert(m.Order(number="1"))
        await h.run_due()
        await h.assert_state(order, "packing")


async def test_approval_by_a_person_and_its_deadline() -> None:
    app, m = example("approval")
    async with Harness(app, settings={"approvers": ["ana"]}) as h:
        small = await h.insert(m.Claim(number="1", amount=10))
        large = await h.insert(m.Claim(number="2", amount=500))
        late = await h.insert(m.Claim(number="3", amount=900))
        await h.run_due()
        await h.assert_state(small, "paid", note="small amount")
        await h.assert_state(large, "review")
        assert sorted(m.data["claim"] for m in await h.messages("reviews")) == ["2", "3"]

        decision = {"to": "approved", "note": "receipts checked"}
        refused = await h.operations.act("expenses.decide", ids=["2"], params=decision)
        only = "only ana may move it out of review"
        assert (refused.moved, [str(each["why"]) for each in refused.passed]) == (0, [only])
        with pytest.raises(AssertionError, match=only):
            await h.move(large, "approved")
        with pytest.raises(BadQuery, match="note"):
            await h.operations.act("expenses.decide", ids=["2"], params={"to": "approved"})
        ana = h.engine.operations("api:ana")
        done = await ana.act("expenses.decide", ids=["2"], params=decision, reason="by Ana")
        assert done.moved == 1
        await h.run_due()
        await h.assert_state(large, "paid", note="receipts checked")
        steps = [step for step in await h.history(large) if step.who == "api:ana"]
        assert [(step.reason, step.changes) for step in steps] == [
            ("by Ana", {"note": [None, "receipts checked"]})
        ]
        await h.skip(days=2, minutes=1)
        await h.run_due()
        await h.assert_state(late, "escalated")
        assert [alert.name for alert in await h.alerts()] == ["deadline"]
        with pytest.raises(AssertionError, match="only ana"):
            await h.move(late, "rejected", who="cli:ana")  # anybody can have that name there
        await h.move(late, "rejected", who="console:ana")


def test_decision_names_states_of_the_lifecycle() -> None:
    _, m = example("approval")
    app = App("claims")
    with pytest.raises(DeclarationError, match="waiting is not a state of expense_claims"):
        app.decision(m.Claim, ["waiting"], by=["ana"])


async def test_decision_by_any_operator_if_no_names_are_set() -> None:
    _, m = example("approval")
    app = App("claims", records=[m.Claim])
    app.decision(m.Claim, ["review"], by=None)
    async with Harness(app) as h:
        claim = await h.insert(m.Claim(number="1", amount=1, status="review"))
        await h.move(claim, "approved")


async def test_remote_operation_is_submitted_once_and_collected(empty_database: Any) -> None:
    app, m = example("remote_operation")
    service = m.Slow()
    async with Harness(app, store=empty_database.url, context=service) as h:
        record = await h.insert(m.Translation(name="a", text="hola"))
        h.kill("after_save")  # the crash comes after the name of the job was saved
        await h.run_due()
        await h.assert_state(record, "new", job="job-a")
        await h.run_until_idle("50m")
        done = await h.assert_state(record, "done", result="translated")
        assert done.attempts == 1  # waiting counts no attempt
        assert service.asked == {"job-a": 3}


async def test_remote_operation_that_never_ends_is_begun_again() -> None:
    app, m = example("remote_operation")

    class Stuck:
        submitted = 0

        async def submit(self, text: str, key: str) -> str:
            self.submitted += 1
            return f"job-{self.submitted}"

        async def result(self, job: str) -> str | None:
            return None

    service = Stuck()
    async with Harness(app, context=service) as h:
        record = await h.insert(m.Translation(name="a", text="hola"))
        await h.run_until_idle("5h")
        failed = await h.assert_state(record, "failed", attempts=3)
        assert "job-3 took longer than 1h" in str(failed.last_error)
        assert service.submitted == 3
        assert len(await h.dead_letters()) == 1
