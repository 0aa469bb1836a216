"""decide(): every result of an attempt under every policy, without a store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from conformance.kinds import READ, WORK, Job, Note, stage
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from esclusa import Lifecycle, Record, publish
from esclusa.model.budget import BudgetEmpty
from esclusa.model.decide import (
    STORE_PAUSE,
    ExhaustionFailed,
    GivenBack,
    OverLimit,
    Raised,
    Result,
    decide,
    exhaustion_failed,
)
from esclusa.model.effects import Add, Create, Effect, Exists, Move, Wake
from esclusa.model.errors import (
    ArtifactError,
    BadRecord,
    DeclarationError,
    Failure,
    Permanent,
    StoreConflict,
    StoreUnavailable,
    Throttled,
    UndeclaredEffect,
    UndeclaredField,
    UndeclaredMove,
)
from esclusa.model.kind import Ref
from esclusa.model.outcome import Retry, To, Wait
from esclusa.model.retry import Backoff, error_message, error_type
from esclusa.model.settlement import Leased, Settlement
from esclusa.model.system_records import DeadLetter, Message
from esclusa.model.texts import load

NOW = datetime(2026, 5, 5, 12, tzinfo=UTC)
PLAIN = Backoff(tries=3, base=10, factor=2, cap=60, jitter=0)
STAGE = replace(WORK, retry=PLAIN)


def leased(
    attempt: int = 1, status: str = "working", taken: str = "pending", **fields: Any
) -> Leased:
    return Leased(
        Job(id="j", status=status, attempts=attempt, fence=7, **fields),
        taken,
        NOW + timedelta(minutes=1),
    )


def decided(
    ending: Result,
    attempt: int = 1,
    stage: Any = STAGE,
    lease: Leased | None = None,
    rng: Random | None = None,
) -> Settlement:
    return decide(
        ending, lease or leased(attempt), stage, now=NOW, rng=rng or Random(1), who="w1", run="r1"
    )


def dead_letters(settlement: Settlement) -> list[DeadLetter]:
    return [
        e.record
        for e in settlement.effects
        if isinstance(e, Create) and isinstance(e.record, DeadLetter)
    ]


def test_every_settlement_is_fenced_and_signed() -> None:
    results: list[Result] = [
        To("done"),
        Retry("x"),
        Wait(5, "x"),
        Raised(ValueError("x")),
        GivenBack("stop"),
        OverLimit(),
        ExhaustionFailed({"type": "x", "message": "x"}, "broken", "it broke"),
    ]
    for ending in results:
        made = decided(ending, attempt=2)
        assert (made.ref.id, made.fence, made.frm, made.who, made.run, made.attempt) == (
            "j",
            7,
            ("working",),
            "w1",
            "r1",
            2,
        )


# To


def test_to_moves_sets_fields_clears_the_error_and_takes_effects_along() -> None:
    also = (Create(Note(name="n")),)
    made = decided(To("done", result="x", rank="3", also=also, reason="fine"))
    assert (made.to, made.fields, made.delay, made.clear_error, made.error, made.reason) == (
        "done",
        {"result": "x", "rank": 3},
        0.0,
        True,
        None,
        "fine",
    )
    assert made.effects == also
    assert made.attempts is None


def test_settlements_that_only_move_share_their_transition() -> None:
    first, second = decided(To("done")), decided(To("done"))
    assert first == second
    assert first.transition is second.transition
    for other in (To("done", result="x"), To("done", after=5), To("done", reason="why")):
        made = decided(other)
        assert made.transition is not first.transition
        assert (made.to, made.fence) == ("done", 7)


def test_a_settlement_that_differs_leaves_those_it_shared_with() -> None:
    first, second = decided(To("done")), decided(To("done"))
    changed = first.but(log={"lines": []})
    assert (changed.ref, changed.fence, changed.log) == (first.ref, 7, {"lines": []})
    assert second.log is None


def test_to_may_be_due_later() -> None:
    assert decided(To("done", after="5m")).delay == 300


def test_attempts_start_again_where_another_stage_takes_over() -> None:
    other = replace(STAGE, resets=frozenset({"done"}))
    assert decided(To("done"), stage=other).attempts == 0
    assert decided(To("failed"), stage=other).attempts is None
    assert decided(To("done", attempts=4), stage=other).attempts == 4


@pytest.mark.promise(2)
def test_an_undeclared_answer_is_refused() -> None:
    with pytest.raises(UndeclaredMove):
        decided(To("nowhere"))
    with pytest.raises(UndeclaredMove):
        decided(To("done"), lease=leased(status="failed"))
    with pytest.raises(BadRecord, match="no field colour"):
        decided(To("done", colour="red"))
    with pytest.raises(BadRecord, match="rank"):
        decided(To("done", rank="many"))


def test_to_the_state_it_is_in_is_no_move() -> None:
    lease = Leased(Note(id="n", status="fresh", name="n", fence=1, attempts=1), "fresh", NOW)
    assert decided(To("fresh", text="x"), stage=READ, lease=lease).to == "fresh"


# Wait


def test_a_wait_gives_the_attempt_back() -> None:
    made = decided(Wait("10m", "quota", rank=2), attempt=3)
    assert (made.to, made.attempts, made.delay, made.until, made.reason, made.fields) == (
        "pending",
        2,
        600.0,
        None,
        "quota",
        {"rank": 2},
    )
    assert made.error is None
    assert not made.clear_error
    until = NOW + timedelta(days=1)
    made = decided(Wait(until, "tomorrow"), attempt=3)
    assert (made.until, made.delay) == (until, 0.0)
    assert decided(Wait(1, "x"), lease=leased(0)).attempts == 0


def test_a_wait_needs_a_zone() -> None:
    with pytest.raises(ValueError, match="zone"):
        Wait(datetime(2026, 1, 1), "x")


def test_waits_never_exhaust() -> None:
    for ending in (
        Wait(5, "x"),
        Raised(Throttled("slow down", after=5)),
        Raised(BudgetEmpty("b", NOW + timedelta(hours=1))),
        Raised(StoreUnavailable("the store is away")),
        Raised(StoreConflict("locked")),
        Raised(ExceptionGroup("tasks", [StoreConflict("locked")])),
        GivenBack("stop"),
    ):
        made = decided(ending, attempt=99)
        assert made.to == "pending"
        assert made.attempts == 98
        assert made.error is None
        assert made.effects == ()


def test_throttling_and_an_empty_budget_wait_as_long_as_given() -> None:
    made = decided(Raised(Throttled("429", after=17.5)))
    assert (made.delay, made.reason, made.attempts) == (17.5, "429", 0)
    until = NOW + timedelta(hours=4)
    made = decided(Raised(BudgetEmpty("tracer", until)))
    assert made.until == until
    assert "tracer" in str(made.reason)


def test_an_error_of_the_store_waits_a_moment() -> None:
    made = decided(Raised(StoreUnavailable("the store is away")), attempt=3)
    assert (made.to, made.attempts, made.error) == ("pending", 2, None)
    assert STORE_PAUSE <= made.delay <= 2 * STORE_PAUSE
    assert str(load(str(made.reason))) == "the store could not be used: the store is away"
    delays = {decided(Raised(StoreConflict("locked")), rng=Random(seed)).delay for seed in range(9)}
    assert len(delays) == 9  # records that fail together do not come back together


def test_what_is_given_back_is_as_if_it_had_not_been_claimed() -> None:
    made = decided(GivenBack("stopping"), attempt=2)
    assert (made.to, made.attempts, made.delay, made.reason) == ("pending", 1, 0.0, "stopping")
    both = replace(STAGE, take=("pending", "failed"))
    assert decided(GivenBack("stop"), stage=both, lease=leased(taken="failed")).to == "failed"
    unheld = replace(STAGE, hold=None, take=("pending", "failed"))
    assert (
        decided(GivenBack("stop"), stage=unheld, lease=leased(status="failed", taken="failed")).to
        == "failed"
    )


# Retry


def test_a_fault_of_the_handler_is_final_and_noted() -> None:
    made = decided(Raised(ValueError("boom"), "Traceback …", fault=True))
    assert (made.to, made.error["fault"], made.error["traceback"]) == (
        STAGE.exhausted,
        True,
        "Traceback …",
    )
    assert load(made.reason) == "the handler is wrong: not retried"
    assert any(isinstance(e, Create) and isinstance(e.record, DeadLetter) for e in made.effects)
    assert "traceback" not in decided(Retry("boom")).error


@pytest.mark.parametrize("ending", [Retry("boom"), Raised(ValueError("boom"))])
def test_an_error_is_retried_with_backoff_and_remembered(ending: Result) -> None:
    for attempt, delay in ((1, 10.0), (2, 20.0)):
        made = decided(ending, attempt)
        assert (made.to, made.delay, made.attempts, made.clear_error) == (
            "pending",
            delay,
            None,
            False,
        )
        assert made.error is not None
        assert (made.error["message"], made.error["attempt"], made.error["timestamp"]) == (
            "boom",
            attempt,
            NOW.isoformat(),
        )
        assert load(made.reason or "") == f"attempt {attempt}/3, will retry"
        assert dead_letters(made) == []


@pytest.mark.parametrize("ending", [Retry("boom"), Raised(ValueError("boom"))])
def test_the_last_attempt_exhausts_with_a_dead_letter(ending: Result) -> None:
    for attempt in (3, 4):
        made = decided(ending, lease=leased(attempt, lane="ñ"))
        assert (made.to, made.delay, load(made.reason or "")) == (
            "failed",
            0.0,
            "reached the maximum of attempts (3)",
        )
        [letter] = dead_letters(made)
        assert (
            letter.table_name,
            letter.record_id,
            letter.state_before,
            letter.error_message,
            letter.attempts,
        ) == (
            "t_jobs",
            "j",
            "pending",
            "boom",
            attempt,
        )
        assert letter.payload["lane"] == "ñ"
        assert letter.reason == made.reason


def test_permanent_errors_end_at_once() -> None:
    named = replace(STAGE, retry=replace(PLAIN, permanent="not_found"))
    for ending, using in (
        (Retry("no", permanent=True), STAGE),
        (Raised(Permanent("no")), STAGE),
        (Raised(Failure("no", type="not_found")), named),
        (Retry("no", type="not_found"), named),
    ):
        made = decided(ending, stage=using)
        assert (made.to, load(made.reason or "")) == ("failed", "permanent error")
        assert len(dead_letters(made)) == 1


def test_a_type_may_have_a_policy_of_its_own() -> None:
    policy = replace(
        PLAIN, by_type={"timeout": Backoff(tries=10, base=1, jitter=0), "rare": Backoff(tries=1)}
    )
    using = replace(STAGE, retry=policy)
    assert decided(Raised(TimeoutError()), 5, using).delay == 16.0
    assert decided(Raised(TimeoutError()), 5, using).to == "pending"
    assert decided(Raised(TimeoutError()), 10, using).to == "failed"
    assert decided(Retry("x", type="rare"), 1, using).to == "failed"
    assert decided(Raised(ValueError()), 3, using).to == "failed"


def test_after_overrules_the_backoff() -> None:
    assert decided(Retry("x", after="90s")).delay == 90
    assert decided(Retry("x", after=0)).delay == 0
    assert decided(Raised(Failure("x", after=33.0))).delay == 33
    assert decided(Retry(Failure("x", after=33.0), after=5)).delay == 5


def test_a_retry_keeps_fields_and_effects() -> None:
    wake = Wake(Note, "n")
    made = decided(Retry("x", rank=4, also=[wake]))
    assert (made.fields, made.effects) == ({"rank": 4}, (wake,))
    made = decided(Retry("x", also=[wake]), attempt=3)
    assert made.effects[0] == wake
    assert len(dead_letters(made)) == 1


def test_an_exhaustion_that_breaks_is_postponed() -> None:
    def broken(record: Job) -> list[Effect]:
        raise ZeroDivisionError("no effects")

    using = replace(STAGE, on_exhausted=broken)
    made = decided(Raised(Permanent("refused", type="refused")), 1, using)
    assert exhaustion_failed(made.error)
    assert (made.to, made.attempts, made.effects) == ("pending", 3, ())
    assert made.error is not None
    assert (made.error["type"], made.error["of"]["type"]) == ("zero_division_error", "refused")
    assert load(made.reason or "") == f"exhaustion failed, will retry: {made.error['message']}"
    assert not exhaustion_failed(decided(Retry("x")).error)


def test_without_limit_it_is_tried_for_ever() -> None:
    using = replace(STAGE, exhausted=None, retry=Backoff(tries=None, base=1, cap=30, jitter=0))
    made = decided(Raised(ValueError("x")), 1000, using)
    assert (made.to, made.delay) == ("pending", 30.0)
    assert load(made.reason or "") == "attempt 1000, will retry"
    assert decided(Raised(Permanent("x")), 1, using).to == "pending"  # there is nowhere else to go


def test_one_that_was_claimed_past_its_limit_is_a_crash() -> None:
    made = decided(OverLimit(), 4)
    assert made.to == "failed"
    assert made.error is not None
    assert made.error["type"] == "crash"
    assert dead_letters(made)[0].error_type == "crash"


def test_one_over_its_limit_ends_with_the_error_that_its_last_attempt_left() -> None:
    left = {"type": "timeout", "message": "slow", "attempt": 4, "timestamp": NOW.isoformat()}
    made = decided(
        OverLimit(), lease=leased(4, last_error=left)
    )  # fewer tries than before: nothing crashed
    assert made.error is not None
    assert (made.to, made.error["type"], made.error["message"]) == ("failed", "timeout", "slow")
    older = decided(OverLimit(), lease=leased(4, last_error=left | {"attempt": 2}))
    assert older.error is not None
    assert older.error["type"] == "crash"


def test_retry_goes_where_the_stage_says() -> None:
    using = stage("r", Note.kind, take="fresh", retry_to="parked", exhausted="lost")
    lease = Leased(Note(id="n", name="n", status="fresh", attempts=1, fence=1), "fresh", NOW)
    assert decided(Raised(ValueError()), stage=using, lease=lease).to == "parked"
    assert decided(GivenBack("x"), stage=using, lease=lease).to == "fresh"


# errors and backoff


def _invalid() -> ValidationError:
    class One(BaseModel):
        a: int

    try:
        One.model_validate({"a": "x"})
    except ValidationError as error:
        return error
    raise AssertionError


_CLIENT_ERROR = type("ClientError", (Exception,), {"__module__": "aiohttp.client_exceptions"})


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (TimeoutError(), "timeout"),
        (ConnectionResetError(), "connection_error"),
        (ValueError("x"), "value_error"),
        (_invalid(), "invalid_data"),
        (Failure("x", type="http_404"), "http_404"),
        (ArtifactError("x"), "storage_error"),
        (Failure("x"), "failure"),
        (type("QuotaGone", (Exception,), {})(), "quota_gone"),
        (type("Odd", (_CLIENT_ERROR,), {})(), "http_error"),
    ],
)
def test_errors_have_names(error: BaseException, name: str) -> None:
    assert error_type(error) == name
    made = decided(Raised(error))
    assert made.error is not None
    assert made.error["type"] == name


def test_messages_are_bounded_and_never_empty() -> None:
    assert error_message(TimeoutError()) == "TimeoutError"
    assert len(error_message(ValueError("x" * 9000))) == 2000
    made = decided(Retry("y" * 9000))
    assert made.error is not None
    assert len(made.error["message"]) == 2000


@given(
    st.integers(1, 10_000),
    st.floats(0, 1),
    st.floats(0, 1e5),
    st.floats(1, 10),
    st.floats(0, 1e6),
    st.randoms(use_true_random=False),
)
def test_backoff_stays_within_its_bounds(
    attempt: int, jitter: float, base: float, factor: float, cap: float, rng: Random
) -> None:
    policy = Backoff(base=base, factor=factor, cap=cap, jitter=jitter)
    full = min(cap, base * factor ** min(attempt - 1, 64))
    assert full * (1 - jitter) - 1e-6 <= policy.delay(attempt, rng) <= full


def test_backoff_is_the_same_for_the_same_randomness() -> None:
    policy = Backoff(base="1m", cap="1h", jitter=0.5)
    assert policy.delay(3, Random(4)) == policy.delay(3, Random(4))
    assert [Backoff(base=60, cap=3600, jitter=0).delay(n, Random()) for n in range(1, 9)] == [
        60,
        120,
        240,
        480,
        960,
        1920,
        3600,
        3600,
    ]


def test_all_faults_of_a_backoff_are_reported() -> None:
    with pytest.raises(DeclarationError) as caught:
        Backoff(tries=0, base="soon", cap=-1, factor=0.5, jitter=2)
    assert len(caught.value.faults) == 5


# effects as they are declared


def test_publish_is_a_message_in_the_outbox() -> None:
    made = publish("deliveries", {"id": 5}, kind="ñ")
    assert isinstance(made, Create)
    assert isinstance(made.record, Message)
    assert (made.record.topic, made.record.data, made.record.attributes) == (
        "deliveries",
        {"id": 5},
        {"kind": "ñ"},
    )
    assert Message.kind.initial == "waiting"


def test_wrong_effects_are_refused_where_they_are_made() -> None:
    with pytest.raises(UndeclaredMove):
        Move(Job, "j", "done", frm="pending")
    with pytest.raises(BadRecord):
        Move(Job, "j", "done", colour=1)
    with pytest.raises(UndeclaredEffect):
        Move(Job, "j", "nowhere")
    with pytest.raises(ValueError, match="lane does not hold whole numbers"):
        Add(Job, "j", lane=1)
    with pytest.raises(UndeclaredField, match="has no field nope; it has "):
        Add(Job, "j", nope=1)
    from esclusa.model.errors import BadQuery

    with pytest.raises(BadQuery):
        Exists(Job, nope=1)


def test_effects_know_their_kind_by_class_or_kind() -> None:
    assert Move(Job, "j", "done", frm="working") == Move(Job.kind, "j", "done", frm=("working",))
    assert Wake(Job, "j") == Wake(Job.kind, "j")
    assert Exists(Job, lane="a") == Exists(Job.kind, lane="a")


def test_to_may_keep_a_fault_as_the_last_error() -> None:
    made = decided(To("failed", fault=Failure("the device is gone", type="device_gone")), attempt=2)
    assert made.error is not None
    assert (made.to, made.error["type"], made.error["message"], made.clear_error) == (
        "failed",
        "device_gone",
        "the device is gone",
        False,
    )
    assert made.reason == "device_gone"
    assert dead_letters(made) == []


def test_a_wait_stays_in_the_state_it_was_taken_from() -> None:
    using = stage("r", Note.kind, take="fresh", retry_to="parked", exhausted="lost")
    lease = Leased(Note(id="n", name="n", status="fresh", attempts=1, fence=1), "fresh", NOW)
    assert decided(Wait(5, "quiet"), stage=using, lease=lease).to == "fresh"


@pytest.mark.promise(2)
@pytest.mark.parametrize("to", ["nowhere", "success"])
def test_a_settlement_with_an_undeclared_move_cannot_be_made(to: str) -> None:
    class Parcel(Record, table="undeclared_parcels"):
        lifecycle = Lifecycle("pending -> downloading -> success")

    with pytest.raises(UndeclaredMove, match=f"pending -> {to}"):
        Settlement(Ref(Parcel.kind, "1"), to, ("pending",), None)
