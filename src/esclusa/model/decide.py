"""The whole retry policy in one pure function: from the result of an attempt to its settlement."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from random import Random
from typing import Any, TypeAlias, assert_never

from esclusa.model.budget import BudgetEmpty
from esclusa.model.effects import Create, Effect, effects
from esclusa.model.errors import Failure, StoreConflict, StoreUnavailable, Throttled
from esclusa.model.kind import Kind
from esclusa.model.outcome import Outcome, Retry, To, Wait
from esclusa.model.retry import error_message, error_type, unwrap_group
from esclusa.model.settlement import Leased, Settlement, Transition
from esclusa.model.stage import Stage
from esclusa.model.storable import storable_text
from esclusa.model.system_records import DeadLetter, publish
from esclusa.model.texts import Text, dump, text
from esclusa.model.value import value

# Seconds, at least, until a record is handled again whose handler could not use the store.
STORE_PAUSE = 2.0
# Seconds, at least, until a record is handled again whose handler is wrong.
FAULT_PAUSE = 60.0


@value
class Raised:
    """The handler raised, or its answer could not be used.

    ``traceback``: where an unexpected error came from. ``fault``: the code of the handler is wrong.
    """

    error: BaseException
    traceback: str | None = None
    fault: bool = False


@value
class GivenBack:
    """The record was not handled (a stop, a run that ended): as if it had not been claimed."""

    reason: str


@value
class OverLimit:
    """The record was claimed with no attempt left.

    Crashes while it was handled alone used the last ones, or fewer are allowed now.
    """


@value
class ExhaustionFailed:
    """The record was to become exhausted with ``error``, but that could not be made or written.

    ``type`` and ``why`` describe the fault of the dead letter or of the effects.
    """

    error: Mapping[str, Any]
    type: str
    why: str


# How an attempt ended.
Result: TypeAlias = Outcome | Raised | GivenBack | OverLimit | ExhaustionFailed


def decide(
    result: Result,
    lease: Leased,
    stage: Stage,
    *,
    now: datetime,
    rng: Random,
    who: str,
    run: str | None = None,
) -> Settlement:
    """The settlement of a result. No I/O, no clock, no randomness of its own.

    The claim has counted this attempt, unless it found none left (OverLimit). A crash has no
    result: the next claim counts it if the record was handled alone (model/suspects.py). An error
    of the store that a handler raises counts no attempt.

    Raises what is wrong with an answer: UndeclaredMove, BadRecord.
    """
    if isinstance(result, To):
        return _move(lease, stage, result, now, who, run)
    outcome: Wait | Retry
    raised = result if isinstance(result, Raised) else None
    match Raised(unwrap_group(result.error)) if isinstance(result, Raised) else result:
        case Wait() | Retry() as outcome:
            pass
        case Raised(Throttled() as error):
            outcome = Wait(error.after, error_message(error))
        case Raised(BudgetEmpty() as error):
            outcome = Wait(error.until, error.text)
        case Raised(StoreUnavailable() | StoreConflict() as error):
            pause = STORE_PAUSE * (1 + rng.random())
            outcome = Wait(pause, text("store_failed", why=error_message(error)))
        case Raised(error):
            outcome = Retry(error)
        case GivenBack(reason):
            outcome = Wait(0, reason)
        case OverLimit():
            outcome = _over_limit(lease)
        case ExhaustionFailed() as failed:
            return _settlement(lease, who, run, _postponed(lease, stage, failed))
        case never:
            assert_never(never)
    changes = (
        _wait(lease, stage, outcome)
        if isinstance(outcome, Wait)
        else _retry(lease, stage, outcome, now, rng, raised)
    )
    return _settlement(lease, who, run, changes)


def failure_of(result: Retry | Raised) -> tuple[str, str] | None:
    """The type and message of an error that another attempt may not have; None of the others.

    Those do not count as an attempt anyway, or are permanent.
    """
    error = unwrap_group(result.error) if isinstance(result, Raised) else result.error
    if isinstance(error, Throttled | BudgetEmpty | StoreUnavailable | StoreConflict):
        return None
    permanent = isinstance(error, Failure) and error.permanent
    if permanent or (result.fault if isinstance(result, Raised) else result.permanent):
        return None
    return _describe(error, result.type if isinstance(result, Retry) else None)


def exhaustion_failed(error: Mapping[str, Any] | None) -> bool:
    """Whether it is the error of a record that could not become exhausted."""
    return error is not None and "of" in error


def _settlement(lease: Leased, who: str, run: str | None, changes: Mapping[str, Any]) -> Settlement:
    record = lease.record
    return Settlement(
        lease.ref,
        frm=(record.status,),
        fence=record.fence,
        who=who,
        run=run,
        attempt=record.attempts,
        **changes,
    )


def _move(
    lease: Leased, stage: Stage, to: To, now: datetime, who: str, run: str | None
) -> Settlement:
    """The settlement of a ``To``. Those that only move share their transition."""
    record = lease.record
    attempts = to.attempts if to.attempts is not None else 0 if to.state in stage.resets else None
    if to.fields or to.also or to.after or to.reason is not None or to.fault is not None:
        error = None if to.fault is None else _error(lease, *_describe(to.fault), now)
        transition = Transition(
            stage.kind,
            to.state,
            (record.status,),
            stage.kind.check_fields(to.fields),
            attempts,
            to.after,
            error=error,
            clear_error=error is None,
            effects=to.also,
            who=who,
            run=run,
            attempt=record.attempts,
            reason=_stored(to.reason)
            if to.reason is not None
            else error["type"]
            if error
            else None,
        )
    else:
        transition = _plain_move(
            stage.kind, record.status, to.state, attempts, who, run, record.attempts
        )
    return Settlement.with_transition(lease.ref, record.fence, transition)


@lru_cache(maxsize=1024)
def _plain_move(
    kind: Kind,
    frm: str,
    to: str,
    attempts: int | None,
    who: str,
    run: str | None,
    attempt: int,
) -> Transition:
    return Transition(
        kind, to, (frm,), {}, attempts, clear_error=True, who=who, run=run, attempt=attempt
    )


def _wait(lease: Leased, stage: Stage, wait: Wait) -> dict[str, Any]:
    return {
        "to": _home(lease, stage),
        "fields": stage.kind.check_fields(wait.fields),
        "attempts": max(0, lease.attempt - 1) if wait.attempts is None else wait.attempts,
        "delay": wait.delay,
        "until": wait.until,
        "reason": _stored(wait.reason),
    }


def _retry(
    lease: Leased,
    stage: Stage,
    retry: Retry,
    now: datetime,
    rng: Random,
    raised: Raised | None,
) -> dict[str, Any]:
    type, message = _describe(retry.error, retry.type)
    failure = retry.error if isinstance(retry.error, Failure) else None
    policy = stage.retry.of(type)
    error = _error(lease, type, message, now)
    fault = raised is not None and raised.fault
    if raised is not None and raised.traceback is not None:
        error["traceback"] = raised.traceback
    if fault:
        error["fault"] = True
    changes = {
        "fields": stage.kind.check_fields(retry.fields),
        "attempts": retry.attempts,
        "error": error,
    }
    final = (
        fault
        or retry.permanent
        or (failure is not None and failure.permanent)
        or type in stage.retry.permanent
    )
    if stage.exhausts and (final or policy.spent(lease.attempt)):
        reason = (
            text("handler_fault")
            if fault
            else text("permanent")
            if final
            else text("exhausted", tries=policy.tries)
        ).dump()
        try:
            own = () if stage.on_exhausted is None else stage.on_exhausted(lease.record)
            last = (
                *retry.also,
                *effects("on_exhausted", own),
                *_dead_letter(stage, lease, error, reason),
            )
        except Exception as broken:  # noqa: BLE001 - functions of the pipeline may raise anything
            cause, why = _describe(broken)
            why = text("exhaustion_broken", type=cause, why=why)
            return _postponed(lease, stage, ExhaustionFailed(error, cause, why))
        fields = stage.kind.check_fields({**retry.fields, **stage.exhausted_fields})
        to = stage.exhausted or stage.retry_to
        return changes | {"to": to, "fields": fields, "reason": reason, "effects": last}
    if fault:
        return changes | {
            "to": stage.retry_to,
            "delay": max(FAULT_PAUSE, float(policy.cap)),
            "reason": text("handler_fault_retried").dump(),
        }
    least = getattr(failure, "after", None) if retry.after is None else retry.after
    delay = policy.delay(max(1, lease.attempt), rng) if least is None else least
    reason = (
        text("retrying", attempt=lease.attempt)
        if policy.tries is None
        else text("retrying_of", attempt=lease.attempt, tries=policy.tries)
    ).dump()
    return changes | {"to": stage.retry_to, "delay": delay, "effects": retry.also, "reason": reason}


def _over_limit(lease: Leased) -> Retry:
    """It becomes exhausted with the error of its last attempt, if that left one."""
    last = lease.record.last_error or {}
    if last.get("attempt") == lease.attempt and isinstance(last.get("message"), str):
        last = last.get("of", last)
        return Retry(last["message"], type=last.get("type"), permanent=True)
    return Retry(text("crash"), type="crash", permanent=True)


def _postponed(lease: Leased, stage: Stage, failed: ExhaustionFailed) -> dict[str, Any]:
    """Wait for the longest delay of the policy, then try only the exhaustion again.

    All attempts count as used, so no handler is called. ``of`` keeps the error of the record.
    """
    attempts = max(lease.attempt, stage.retry.tries or 0)
    why = failed.why[:2000] if not isinstance(failed.why, Text) else failed.why
    return {
        "to": stage.retry_to,
        "delay": float(stage.retry.cap),
        "attempts": attempts,
        "error": {
            **{name: each for name, each in failed.error.items() if name != "traceback"},
            **_message(why),
            "type": failed.type,
            "attempt": attempts,
            "of": dict(failed.error),
        },
        "reason": _stored(text("exhaustion_failed", why=why)),
    }


def _error(lease: Leased, type: str, message: str, now: datetime) -> dict[str, Any]:
    return _last_error(type, message, lease.attempt, now)


def fault_error(fault: str | BaseException, attempt: int, now: datetime) -> dict[str, Any]:
    """The last error of a record that an operation moves with a fault."""
    return _last_error(*_describe(fault), attempt, now)


def _last_error(type: str, message: str, attempt: int, now: datetime) -> dict[str, Any]:
    return {
        **_message(message),
        "type": type,
        "timestamp": now.isoformat(),
        "attempt": attempt,
    }


def _message(message: str) -> dict[str, Any]:
    """The sentence for other programs that read the error; its parts for those that translate."""
    if not isinstance(message, Text):
        return {"message": message}
    source = {"code": message.code} if message.code else {"sentence": message.template}
    values = {name: _part(each) for name, each in message.values.items()}
    return {"message": storable_text(message), **source, "values": values}


def _part(value: Any) -> Any:
    """A value of a text as JSON."""
    if isinstance(value, Text):
        return json.loads(value.dump())
    return value if isinstance(value, int | float | None) else storable_text(str(value))


def _stored(reason: str) -> str:
    return storable_text(dump(reason))


def _describe(error: str | BaseException, type: str | None = None) -> tuple[str, str]:
    if isinstance(error, BaseException):
        return storable_text(str(type)) if type else error_type(error), error_message(error)
    type = storable_text(str(type or "error"))
    return type, error if isinstance(error, Text) else storable_text(str(error)[:2000])


def _home(lease: Leased, stage: Stage) -> str:
    """Where a record goes that was not handled: the state it was taken from, if it can."""
    life, here = stage.kind.lifecycle, lease.record.status
    return lease.taken if lease.taken == here or life.allows(here, lease.taken) else stage.retry_to


def _dead_letter(
    stage: Stage, lease: Leased, error: Mapping[str, Any], reason: str
) -> tuple[Effect, ...]:
    """The dead letter and, if the stage names a topic, a message with the same payload."""
    record = lease.record
    cause = {
        "error_type": error["type"],
        "error_message": error["message"],
        "attempts": lease.attempt,
        "timestamp": error["timestamp"],
    }
    payload = (
        record.kind.as_json(record) if stage.dead_letter is None else stage.dead_letter(record)
    ) | cause
    letter = DeadLetter(
        table_name=lease.ref.kind.table,
        record_id=record.id,
        state_before=lease.taken,
        error_type=error["type"],
        error_message=error["message"],
        attempts=lease.attempt,
        reason=reason,
        payload=payload,
    )
    message = (
        ()
        if stage.dead_letter_topic is None
        else (publish(stage.dead_letter_topic, payload, error_type=error["type"]),)
    )
    return Create(letter), *message
