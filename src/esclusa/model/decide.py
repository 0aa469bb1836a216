"""The whole retry policy in one pure function: how an attempt ended becomes what is settled."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from random import Random
from typing import Any, TypeAlias, assert_never

from esclusa.model.budget import BudgetEmpty
from esclusa.model.effects import Create, Effect, effects
from esclusa.model.errors import EsclusaError, Failure, Throttled
from esclusa.model.outcome import Outcome, Retry, To, Wait
from esclusa.model.retry import error_message, error_type, unwrap_group
from esclusa.model.settlement import Leased, Settlement
from esclusa.model.stage import Stage
from esclusa.model.storable import words
from esclusa.model.system_records import DeadLetter, publish
from esclusa.model.value import value


@value
class Raised:
    """The handler raised, or its answer could not be used."""

    error: BaseException


@value
class GivenBack:
    """It was not handled after all (an orderly stop, a run that ended): as if it had not been claimed."""

    reason: str


@value
class OverLimit:
    """It was claimed past its limit: attempts were used up by crashes, or fewer are allowed than before."""


@value
class ExhaustionPostponed:
    """It was to go to its exhausted state with ``error``, and what belongs to that cannot be made or written: ``fault`` names the
    error that this is, ``why`` tells it."""

    error: Mapping[str, Any]
    fault: str
    why: str


Result: TypeAlias = Outcome | Raised | GivenBack | OverLimit | ExhaustionPostponed


class ExhaustionFailed(EsclusaError):
    """The stage's own ``letter`` or ``on_exhausted`` failed, for a record that is to end with ``error``."""

    def __init__(self, error: Mapping[str, Any], broken: Exception) -> None:
        self.error = error
        self.fault = error_type(broken)
        super().__init__(
            f"its dead letter or the effects of its end failed: {error_type(broken)}: {error_message(broken)}"
        )


def decide(
    ending: Result,
    lease: Leased,
    stage: Stage,
    *,
    now: datetime,
    rng: Random,
    who: str,
    run: str | None = None,
) -> Settlement:
    """What to settle. No I/O, no clock, no randomness of its own. Raises CannotEnd, or what is wrong with an answer."""
    if isinstance(ending, To):
        return _move(lease, stage, ending, now, who, run)
    outcome: Wait | Retry
    match Raised(unwrap_group(ending.error)) if isinstance(ending, Raised) else ending:
        case Wait() | Retry() as outcome:
            pass
        case Raised(Throttled() as error):
            outcome = Wait(error.after, error_message(error))
        case Raised(BudgetEmpty() as error):
            outcome = Wait(error.until, error_message(error))
        case Raised(error):
            outcome = Retry(error)
        case GivenBack(reason):
            outcome = Wait(0, reason)
        case OverLimit():
            outcome = _over_limit(lease)
        case ExhaustionPostponed() as unended:
            return _settled(lease, who, run, _postponed(lease, stage, unended))
        case never:
            assert_never(never)
    said = (
        _wait(lease, stage, outcome)
        if isinstance(outcome, Wait)
        else _retry(lease, stage, outcome, now, rng)
    )
    return _settled(lease, who, run, said)


def _settled(lease: Leased, who: str, run: str | None, said: Mapping[str, Any]) -> Settlement:
    record = lease.record
    return Settlement(
        lease.ref,
        frm=(record.status,),
        fence=record.fence,
        who=who,
        run=run,
        attempt=record.attempts,
        **said,
    )


def _move(
    lease: Leased, stage: Stage, to: To, now: datetime, who: str, run: str | None
) -> Settlement:
    """The way that nearly every record goes, and so without detours."""
    record = lease.record
    attempts = to.attempts if to.attempts is not None else 0 if to.state in stage.resets else None
    error = (
        None
        if to.fault is None
        else _error(lease, error_type(to.fault), error_message(to.fault), now)
    )
    reason = (
        words(to.reason) if to.reason is not None else error["type"] if error is not None else None
    )
    return Settlement(
        lease.ref, to.state, (record.status,), record.fence, stage.kind.check_fields(to.fields), attempts, to.after,
        error=error, clear_error=error is None, effects=to.also, who=who, run=run, attempt=record.attempts, reason=reason,
    )  # fmt: skip


def _wait(lease: Leased, stage: Stage, wait: Wait) -> dict[str, Any]:
    attempts = max(0, lease.attempt - 1) if wait.attempts is None else wait.attempts
    fields = stage.kind.check_fields(wait.fields)
    to = _home(lease, stage)
    return {
        "to": to,
        "fields": fields,
        "attempts": attempts,
        "delay": wait.delay,
        "until": wait.until,
        "reason": words(wait.reason),
    }


def _retry(lease: Leased, stage: Stage, retry: Retry, now: datetime, rng: Random) -> dict[str, Any]:
    kind_of, message = _name(retry)
    failure = retry.error if isinstance(retry.error, Failure) else None
    policy = stage.retry.of(kind_of)
    error = _error(lease, kind_of, message, now)
    said = {
        "fields": stage.kind.check_fields(retry.fields),
        "attempts": retry.attempts,
        "error": error,
    }
    final = (
        retry.permanent
        or (failure is not None and failure.permanent)
        or kind_of in stage.retry.permanent
    )
    if stage.exhausted is not None and (final or policy.spent(lease.attempt)):
        reason = "permanent error" if final else f"reached the maximum of attempts ({policy.tries})"
        try:
            belonging = (
                ()
                if stage.on_exhausted is None
                else effects("on_exhausted", stage.on_exhausted(lease.record))
            )
            last = (*retry.also, *belonging, *_dead_letter(stage, lease, error, reason))
        except Exception as broken:  # they are functions of the pipeline, and may raise anything
            raise ExhaustionFailed(error, broken) from broken
        return said | {"to": stage.exhausted, "reason": reason, "effects": last}
    least = (
        retry.after if retry.after is not None else failure.after if failure is not None else None
    )
    delay = policy.delay(max(1, lease.attempt), rng) if least is None else least
    tries = f"/{policy.tries}" if policy.tries is not None else ""
    reason = f"attempt {lease.attempt}{tries}, will retry"
    return said | {"to": stage.retry_to, "delay": delay, "effects": retry.also, "reason": reason}


def _over_limit(lease: Leased) -> Retry:
    """It ends with the error of its last attempt, if that left one."""
    last = lease.record.last_error or {}
    if last.get("attempt") == lease.attempt and isinstance(last.get("message"), str):
        last = last.get("of", last)
        return Retry(last["message"], type=last.get("type"), permanent=True)
    return Retry("the worker that held it stopped without answering", type="crash", permanent=True)


def _postponed(lease: Leased, stage: Stage, unended: ExhaustionPostponed) -> dict[str, Any]:
    """Nothing is thrown away: it waits as long as it ever would between two tries, and then only its end is tried again, for it has
    used up its attempts."""
    attempts = max(lease.attempt, stage.retry.tries or 0)
    fault = {
        "message": words(unended.why[:2000]),
        "type": unended.fault,
        "attempt": attempts,
        "of": dict(unended.error),
    }
    error = {**unended.error, **fault}
    reason = words(f"it cannot end, will be tried again: {unended.why}"[:2000])
    return {
        "to": stage.retry_to,
        "delay": float(stage.retry.cap),
        "attempts": attempts,
        "error": error,
        "reason": reason,
    }


def _error(lease: Leased, type: str, message: str, now: datetime) -> dict[str, Any]:
    return {
        "message": message,
        "type": type,
        "timestamp": now.isoformat(),
        "attempt": lease.attempt,
    }


def _home(lease: Leased, stage: Stage) -> str:
    """Where a record goes that was not handled after all: the state it was taken from, if it can."""
    life, here = stage.kind.lifecycle, lease.record.status
    return lease.taken if lease.taken == here or life.allows(here, lease.taken) else stage.retry_to


def _name(retry: Retry) -> tuple[str, str]:
    if isinstance(retry.error, BaseException):
        return words(str(retry.type)) if retry.type else error_type(retry.error), error_message(
            retry.error
        )
    return words(str(retry.type or "error")), words(str(retry.error)[:2000])


def _dead_letter(
    stage: Stage, lease: Leased, error: Mapping[str, Any], reason: str
) -> tuple[Effect, ...]:
    """The letter in its table and, where the stage names a topic, the same words as a message in the outbox."""
    record = lease.record
    told = {
        "error_type": error["type"],
        "error_message": error["message"],
        "attempts": lease.attempt,
        "timestamp": error["timestamp"],
    }
    payload = (
        record.kind.as_json(record) if stage.dead_letter is None else stage.dead_letter(record)
    ) | told
    letter = DeadLetter(
        table_name=lease.ref.kind.table, record_id=record.id, state_before=lease.taken, error_type=error["type"],
        error_message=error["message"], attempts=lease.attempt, reason=reason, payload=payload,
    )  # fmt: skip
    message = (
        ()
        if stage.dead_letter_topic is None
        else (publish(stage.dead_letter_topic, payload, error_type=error["type"]),)
    )
    return Create(letter), *message
